"""api-reference.md: every block of the page, checked or run.

Signatures are compared with the real ones: a parameter of the page may not be missing or change its
default, but for the differences that README.md in this directory gives.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from documents import accepted, blocks, command_lines, declared, document, fields, parameters, run

BLOCKS = blocks("api-reference.md")
TEXT = document("api-reference.md")
# What begins each block of the page; those that need a framework are run in tests/frameworks.
BEGINNINGS = [
    "class GPUMemoryProfiler",
    "class MemorySnapshot",
    "class ProfileResult",
    "@profile_function",
    "with profile_context",
    "def get_system_info",
    "from gpumemprof import (",
    "from gpumemprof import MemoryTracker",
    "def format_memory",
    "class TensorFlowProfiler",
    "from tfmemprof import TensorFlowProfiler",
    "def get_system_info",
    "# System information\ngpumemprof",
    "# System information\ntfmemprof",
    '{\n    "timestamp"',
    '{\n    "name"',
    '{\n    "detected"',
]
# Differences that Stormlog 0.4.3 introduced, and that its users rely on.
CHANGED = {"track_tensors": False}


def block(beginning: str, which: int = 0) -> str:
    return [each.text for each in BLOCKS if each.text.startswith(beginning)][which]


def methods(heading: str) -> list[str]:
    """The names in the list of methods below a heading."""
    part = TEXT.split(f"#### `{heading}`")[1].split("####")[0]
    return [line.split("`")[1].split("(")[0] for line in part.splitlines() if line.startswith("- `")]


def test_every_block_of_the_page_is_known_here() -> None:
    assert len(BLOCKS) == len(BEGINNINGS)
    for found, beginning in zip(BLOCKS, BEGINNINGS, strict=True):
        assert found.text.startswith(beginning)


@pytest.mark.parametrize("name", ["GPUMemoryProfiler", "TensorFlowProfiler"])
def test_class_takes_the_parameters_and_has_the_methods_of_the_page(name: str) -> None:
    module = import_module("gpumemprof" if name == "GPUMemoryProfiler" else "tfmemprof")
    real = accepted(getattr(module, name))
    wanted = parameters(block(f"class {name}"))
    assert {key: CHANGED.get(key, value) for key, value in wanted.items()}.items() <= real.items()
    listed = methods(name)
    assert len(listed) >= 4
    assert [method for method in listed if not callable(getattr(getattr(module, name), method, None))] == []


@pytest.mark.parametrize("name", ["MemorySnapshot", "ProfileResult"])
def test_dataclass_has_the_fields_of_the_page(name: str) -> None:
    real = getattr(import_module("stormlog.profiler"), name)
    names = {field.name for field in dataclasses.fields(real)} | {
        key for key in dir(real) if not key.startswith("_")
    }
    wanted = fields(declared(block(f"class {name}")))
    assert len(wanted) >= 9
    assert set(wanted) <= names


@pytest.mark.parametrize(("which", "package"), [(0, "gpumemprof"), (1, "tfmemprof")])
def test_system_information_is_a_dictionary_with_the_keys_of_the_page(which: int, package: str) -> None:
    assert ast.parse(block("def get_system_info", which))
    found = import_module(package).get_system_info()
    assert isinstance(found, dict) and found
    if package == "gpumemprof":
        assert found["detected_backend"] in ("cuda", "rocm", "mps", "cpu")
        assert {"rocm_available", "rocm_version", "mps_built", "mps_available"} <= set(found)


def test_names_of_the_collectors_can_be_imported_as_the_page_does() -> None:
    names = run(block("from gpumemprof import ("))
    collector = names["DeviceMemoryCollector"]
    assert all(
        callable(getattr(collector, name)) for name in ("name", "is_available", "sample", "capabilities")
    )


def test_capabilities_of_a_collector_have_the_keys_of_the_page() -> None:
    part = TEXT.split("`capabilities()` includes:")[1].split("####")[0]
    wanted = [line.split("`")[1] for line in part.splitlines() if line.startswith("- `")]
    assert len(wanted) == 5
    found = import_module("stormlog").build_device_memory_collector("cpu").capabilities()
    assert [key for key in wanted if key not in dict(found)] == []


def test_tracker_of_the_page_records_an_out_of_memory_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tracker = run(block("from gpumemprof import MemoryTracker"))["tracker"]
    assert tracker.last_oom_dump_path is None
    assert tracker.handle_exception(ValueError("another error")) is None
    path = tracker.handle_exception(RuntimeError("CUDA out of memory"), context="train_loop")
    assert path is not None and Path(path).parent.name == "oom_dumps"


def test_helpers_of_the_recorder_are_exported() -> None:
    package = import_module("gpumemprof")
    part = TEXT.split("Helper exports:")[1].split("####")[0]
    names = [line.split("`")[1].split("(")[0] for line in part.splitlines() if line.startswith("- `")]
    assert names == ["OOMFlightRecorderConfig", "OOMExceptionClassification", "classify_oom_exception"]
    assert [name for name in names if not hasattr(package, name)] == []


def test_format_memory_gives_a_size_that_can_be_read() -> None:
    function = import_module("gpumemprof").format_memory
    assert parameters(block("def format_memory")).keys() == accepted(function).keys()
    assert function(3 << 30) == "3.00 GB"


def test_errors_of_the_page_can_be_caught() -> None:
    errors = import_module("stormlog.errors")
    part = TEXT.split("## Error Handling")[1].split("## Examples")[0]
    for name in (line.split("`")[1] for line in part.splitlines() if line.startswith("- `")):
        assert issubclass(getattr(errors, name), Exception)


def commands(beginning: str) -> list[list[str]]:
    values = {"SECONDS": "0.3", "PERCENT": "99", "MB": "100000", "--duration": "--duration", "DIR": "plots"}
    return list(command_lines(block(beginning), values))


def arguments(words: list[str], recording: Path) -> list[str]:
    """The words of a synopsis with files of their own: what `analyze` reads, what the others write."""
    reads = words[1] == "analyze"
    out = []
    for before, word in zip(["", *words], words, strict=False):
        known = reads and before in ("analyze", "--input")
        out.append(word if word != "FILE" else str(recording) if known else "out.file")
    return out


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def ran(words: list[str]) -> subprocess.CompletedProcess[str]:
    command = [program(words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("words", commands("# System information\ngpumemprof"), ids=" ".join)
def test_command_of_the_page_runs(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if words[1] == "track" and "--duration" not in words:
        # Without it the command tracks until Ctrl-C, as the page's reader would end it.
        words = [*words, "--duration", "0.3"]
    recording = tmp_path / "tracked.json"
    if words[1] == "analyze":
        made = ran(
            ["gpumemprof", "track", "--duration", "0.6", "--interval", "0.1", "--output", str(recording)]
        )
        assert made.returncode == 0, made.stderr
    done = ran(arguments(words, recording))
    assert done.returncode == 0, done.stderr
    if "--output" in words:
        assert (tmp_path / "out.file").stat().st_size > 0
    if "--visualization" in words:
        assert list((tmp_path / "plots").iterdir())


@pytest.mark.parametrize("words", commands("# System information\ntfmemprof"), ids=" ".join)
def test_tensorflow_command_of_the_page_runs(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    recording = tmp_path / "tracked.json"
    if words[1] == "analyze":
        made = ran(
            ["tfmemprof", "monitor", "--duration", "1", "--interval", "0.1", "--output", str(recording)]
        )
        assert made.returncode == 0, made.stderr
    words = arguments(words, recording)
    if words[1] == "track":
        # It has no `--duration`: its reader ends it with Ctrl-C.
        command = [program(words[0]), *words[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as tracking:
            assert tracking.stdout and tracking.stdout.readline()
            time.sleep(1)
            tracking.send_signal(signal.SIGINT)
            errors = tracking.communicate(timeout=60)[1]
        assert tracking.returncode == 0, errors
    else:
        done = ran(words)
        assert done.returncode == 0, done.stderr
    for option in ("--output", "--report"):
        if option in words:
            assert (tmp_path / words[words.index(option) + 1]).stat().st_size > 0


def test_dictionaries_of_the_page_have_its_keys() -> None:
    shapes = import_module("stormlog.shapes")
    profiler: Any = import_module("stormlog.profiler")
    at = {
        "timestamp": 1.0,
        "allocated_memory": 1 << 30,
        "reserved_memory": 1 << 30,
        "max_memory_allocated": 1 << 30,
    }
    at |= {
        "max_memory_reserved": 1 << 30,
        "active_memory": 0,
        "inactive_memory": 0,
        "cpu_memory": 0,
        "device_id": 0,
    }
    snapshot = profiler.MemorySnapshot(**at, operation=None)
    shown = ast.literal_eval(block('{\n    "timestamp"'))
    assert shapes.memory_snapshot(snapshot, 8 << 30).keys() == shown.keys()
    leak = ast.literal_eval(block('{\n    "detected"'))
    grown = shapes.leak_detection_result([(float(second), second << 27) for second in range(60)])
    assert grown.keys() == leak.keys()
    assert grown["detected"] and grown["severity"] == leak["severity"]
    call = profiler.ProfileResult(
        function_name="train_step",
        execution_time=0.333,
        memory_before=snapshot,
        memory_after=snapshot,
        memory_peak=snapshot,
        memory_allocated=0,
        memory_freed=0,
        tensors_created=0,
        tensors_deleted=0,
    )
    assert shapes.function_call(call).keys() == ast.literal_eval(block('{\n    "name"')).keys()
    assert json.dumps(shapes.memory_snapshot(snapshot))
