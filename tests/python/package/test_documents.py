"""What the documents of 0.4.3 promise and it did not have: each works here, or says why not."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import os
import re
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import stormlog
from places import ROOT
from stormlog import (
    CPUMemoryTracker,
    DeviceMemoryCollector,
    DeviceMemorySample,
    MemoryTracker,
    classify_oom_exception,
    load_telemetry_events,
)

MB = 1 << 20


def command(program: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """One of the commands beside this interpreter."""
    tool = Path(sys.executable).with_name(program)
    return subprocess.run([tool, *words], capture_output=True, text=True, cwd=folder)


def test_the_packages_memory_error_is_pythons() -> None:
    import gpumemprof
    from gpumemprof import MemoryError as Theirs

    assert Theirs is MemoryError
    assert "MemoryError" in stormlog.__all__ and "MemoryError" in dir(gpumemprof)


def test_every_extra_of_0_4_3_and_of_our_hints_exists() -> None:
    there = set(importlib.metadata.metadata("stormlog").get_all("Provides-Extra") or [])
    older = {"viz", "torch", "tf", "infer-tokenizers", "infer-otlp", "wandb", "mlflow", "mlx", "jax", "all"}
    older |= {"dev", "test", "tui", "docs"}
    named: set[str] = set()
    for folder, pattern in [("python", "**/*.py"), ("crates", "*/src/**/*.rs"), ("docs", "**/*.md")]:
        for file in (ROOT / folder).glob(pattern):
            for extras in re.findall(r"stormlog\[([a-z,-]+)\]", file.read_text(encoding="utf-8")):
                named.update(extras.split(","))
    assert {"sql", "wandb", "torch"} <= named
    assert named | older <= there


def failed_because_of_memory(is_explicit: bool) -> RuntimeError:
    """An error of a framework on top of one of memory."""
    try:
        try:
            raise MemoryError("no room")
        except MemoryError as error:
            if is_explicit:
                raise RuntimeError("the step failed") from error
            raise RuntimeError("the step failed")  # noqa: B904
    except RuntimeError as error:
        return error


@pytest.mark.parametrize("is_explicit", [True, False])
def test_an_error_raised_from_one_of_memory_is_one_of_memory(is_explicit: bool, tmp_path: Path) -> None:
    error = failed_because_of_memory(is_explicit)
    found = classify_oom_exception(error)
    assert (found.is_oom, found.reason) == (True, "builtins.MemoryError")
    tracker = CPUMemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    path = tracker.handle_exception(error)
    assert path is not None
    metadata = json.loads(Path(path, "metadata.json").read_text())
    assert metadata["exception_type"] == "RuntimeError" and metadata["reason"] == "builtins.MemoryError"


def test_an_error_that_hides_where_it_came_from_is_taken_at_its_word() -> None:
    error = failed_because_of_memory(is_explicit=False)
    error.__suppress_context__ = True
    assert not classify_oom_exception(error).is_oom
    one, other = ValueError(), KeyError()
    one.__context__, other.__context__ = other, one
    assert not classify_oom_exception(one).is_oom, "a circle ends"


def test_a_program_that_fails_because_memory_ran_out_is_judged_so(tmp_path: Path) -> None:
    code = "try:\n    raise MemoryError\nexcept MemoryError as e:\n    raise RuntimeError('step 7') from e\n"
    (tmp_path / "job.py").write_text(code)
    command("stormlog", "run", "--dir", "runs", "--", sys.executable, "job.py", folder=tmp_path)
    shown = command("stormlog", "oom", "show", "runs", "--json", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    bundle = json.loads(shown.stdout)
    assert bundle["cause"] == "memory_error", bundle["evidence"]["verdict"]


def test_a_tracker_without_a_recorder_says_why_there_is_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    tracker = CPUMemoryTracker(sampling_interval=0.1)
    with caplog.at_level(logging.WARNING), pytest.raises(MemoryError), tracker.capture_oom(context="x"):
        raise MemoryError
    assert "enable_oom_flight_recorder=True" in caplog.text
    assert tracker.last_oom_dump_path is None and not list(tmp_path.iterdir())
    caplog.clear()
    with pytest.raises(KeyError), tracker.capture_oom():
        raise KeyError("not about memory")
    assert not caplog.records


def fill(kept: list[bytearray]) -> None:
    """Takes memory under a name, then finds none."""
    table = bytearray(24 * MB)
    kept.extend(bytearray(MB) for _ in range(8))
    raise MemoryError(f"no room beside {len(table)}")


def test_a_bundle_has_the_traceback_the_holders_and_advice(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path / "oom_dumps"))
    with tracker, pytest.raises(MemoryError), tracker.capture_oom("load"):
        fill([])
    assert tracker.last_oom_dump_path is not None
    bundle = Path(tracker.last_oom_dump_path)
    frames = json.loads((bundle / "metadata.json").read_text())["custom_metadata"]["traceback"]
    assert frames[-1]["function"] == "fill" and frames[-1]["file"] == __file__ and frames[-1]["line"] > 1
    evidence = json.loads((bundle / "evidence.json").read_text())
    held = evidence["held_by"]
    assert held[0]["place"].endswith("fill: table") and held[0]["bytes"] >= 24 * MB
    assert held[0]["note"] == "bytearray"
    assert held[1]["place"].endswith("fill: kept") and held[1]["bytes"] >= 8 * MB
    assert held[1]["note"] == "list of 8"
    assert "table holds 24.00 MiB" in evidence["try"][0] and "--heap" in evidence["try"][1]
    # Both commands find it where trackers put it, without a path.
    listed = command("stormlog", "oom", "list", folder=tmp_path)
    assert listed.returncode == 0 and bundle.name in listed.stdout, listed.stderr
    shown = command("stormlog", "oom", "show", folder=tmp_path)
    answer = shown.stdout.splitlines()[:8]
    (first,) = [line for line in answer if "held by" in line]
    assert "24.00 MiB" in first and "fill · kept by `table`, a bytearray" in first, shown.stdout
    (advice,) = [line for line in answer if "try " in line]
    assert "release or cap `table`" in advice and "24.00 MiB of host memory" in advice, shown.stdout


def test_lines_are_named_where_tracemalloc_knows_them(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    tracemalloc.start()
    try:
        with pytest.raises(MemoryError), tracker.capture_oom():
            fill([])
    finally:
        tracemalloc.stop()
    assert tracker.last_oom_dump_path is not None
    held = json.loads(Path(tracker.last_oom_dump_path, "evidence.json").read_text())["held_by"]
    assert re.fullmatch(re.escape(__file__) + r":\d+", held[0]["place"]) and held[0]["bytes"] >= 24 * MB


def test_bundles_of_runs_and_of_trackers_are_listed_together(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path / "oom_dumps"))
    path = tracker.handle_exception(MemoryError())
    assert path is not None
    (tmp_path / "job.py").write_text("raise MemoryError")
    command("stormlog", "run", "--", sys.executable, "job.py", folder=tmp_path)
    listed = command("stormlog", "oom", "list", "--json", folder=tmp_path)
    paths = [row["path"] for row in json.loads(listed.stdout)]
    assert len(paths) == 2 and any(Path(path).name in one for one in paths), paths


class Documented(DeviceMemoryCollector):
    """A collector as the reference describes it: a dictionary of five capabilities."""

    def name(self) -> str:
        return "cuda"

    def is_available(self) -> bool:
        return True

    def sample(self) -> DeviceMemorySample:
        return DeviceMemorySample(100, 200, 300, 400, 700, 90, 10, 0)

    def capabilities(self) -> Any:
        return {
            "backend": "cuda",
            "supports_device_total": True,
            "supports_device_free": True,
            "sampling_source": "mine",
            "telemetry_collector": "my.collector",
        }


def test_collectors_with_a_dictionary_of_capabilities_work(tmp_path: Path) -> None:
    tracker = MemoryTracker(
        collector=Documented(),
        sampling_interval=0.01,
        enable_oom_flight_recorder=True,
        oom_dump_dir=str(tmp_path / "oom"),
    )
    with tracker:
        while not tracker.get_events("sample"):
            time.sleep(0.01)
        assert tracker.get_statistics()["current_device_used"] == 300
        assert tracker.handle_exception(MemoryError()) is not None
    tracker.export_events(tmp_path / "events.json", format="json")
    events = load_telemetry_events(tmp_path / "events.json")
    assert events and events[0].collector == "my.collector" and events[0].device_free_bytes == 400


@pytest.mark.parametrize("name", ["cuda_tracker.json", "cpu_tracker.json"])
def test_visualization_draws_what_one_process_recorded(name: str, tmp_path: Path) -> None:
    golden = ROOT / "tests/golden/peer-0.4.3" / name
    done = command("gpumemprof", "analyze", str(golden), "--visualization", folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "Visualization saved to: plots/memory_timeline.png" in done.stdout, done.stdout
    assert (tmp_path / "plots/memory_timeline.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "plots/memory_timeline.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize("package", ["tensorflow", "tensorflow_cpu", "tf_nightly", "a_vendors_build"])
def test_info_knows_tensorflow_by_every_name_it_is_installed_under(package: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    (there,) = (tmp_path / "venv/lib").glob("python3*/site-packages")
    (there / "tensorflow").mkdir()
    (there / "tensorflow/__init__.py").write_text("raise ImportError('not imported for its version')")
    about = there / f"{package}-2.99.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.99.0\n")
    (about / "top_level.txt").write_text("tensorflow\n")
    # What the directory of the moment holds is neither found nor run.
    (tmp_path / "csv.py").write_text("import pathlib; pathlib.Path('ran').touch()")
    package_folder = Path(stormlog.__file__).parents[1]
    shown = subprocess.run(
        [tmp_path / "venv/bin/python", "-P", "-m", "tfmemprof", "info"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package_folder)},
    )
    assert "TensorFlow Version: 2.99.0" in shown.stdout, shown.stdout + shown.stderr
    assert f"TensorFlow Distribution: {package}" in shown.stdout
    assert "TensorFlow not available" not in shown.stdout
    assert not (tmp_path / "ran").exists()
