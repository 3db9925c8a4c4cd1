"""oom-flight-recorder.txt: its samples run as written, here with the memory of the process.

Where the page differs from what is written today, and why: README.md in this directory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from documents import SAMPLES, document, run, sample
from stormlog.tracker import MemoryTracker


class OutOfMemoryError(RuntimeError):
    """Under the name and with the text of PyTorch's."""


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tracker() -> MemoryTracker:
    made = sample(SAMPLES / "oom_enable.py")["tracker"]
    assert isinstance(made, MemoryTracker)
    return made


def fails(*_: Any, **__: Any) -> Any:
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def loaded(path: str, name: str) -> Any:
    return json.loads((Path(path) / name).read_text(encoding="utf-8"))


def page_value(after: str, begin: str = "") -> Any:
    """The JSON value that the page shows after a text."""
    rest = begin + document("oom-flight-recorder.txt").split(after, 1)[1]
    return json.JSONDecoder().raw_decode(rest)[0]


def test_capture_leaves_a_bundle_with_the_context_and_the_metadata_of_the_sample(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = tracker()
    sample(
        SAMPLES / "oom_capture.py", tracker=ours, model=fails, large_batch=None, criterion=None, targets=None
    )
    path = ours.last_oom_dump_path
    assert path is not None and Path(path).parent.name == "oom_dumps"
    assert f"Dump saved to: {path}" in capsys.readouterr().out
    found = loaded(path, "metadata.json")
    shown = page_value('"files": ["events.json", "metadata.json", "environment.json"]\n}\n')
    assert set(shown) <= set(found), "every key that the page shows"
    assert (found["context"], found["exception_type"]) == (shown["context"], shown["exception_type"])
    assert shown["custom_metadata"].items() <= found["custom_metadata"].items()


def test_manifest_has_the_keys_of_the_page() -> None:
    ours = tracker()
    sample(SAMPLES / "oom_simulated.py", tracker=ours)
    shown = page_value("manifest.json\n{", "{")
    found = loaded(str(ours.last_oom_dump_path), "manifest.json")
    assert set(shown) <= set(found)
    assert set(shown["files"]) < set(found["files"])
    assert found["bundle_name"] == Path(str(ours.last_oom_dump_path)).name


def test_events_have_the_keys_of_the_page() -> None:
    ours = tracker()
    sample(SAMPLES / "oom_simulated.py", tracker=ours)
    shown = page_value("sequence of memory events:\n")
    events = loaded(str(ours.last_oom_dump_path), "events.json")
    assert events and all(set(shown[0]) <= set(event) for event in events)


def test_simulated_error_is_captured_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    ours = tracker()
    sample(SAMPLES / "oom_simulated.py", tracker=ours)
    printed = capsys.readouterr().out
    assert "Captured simulated OOM: simulated out of memory for demo" in printed
    assert f"Dump path: {ours.last_oom_dump_path}" in printed
    assert ours.last_oom_dump_path is not None


def test_classification_names_an_out_of_memory_error_and_raises_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Torch:
        randn = staticmethod(fails)

    sample(SAMPLES / "oom_classify.py", torch=Torch)
    assert "OOM detected: " in capsys.readouterr().out
    with pytest.raises(NameError):  # a sample without PyTorch: any other error
        sample(SAMPLES / "oom_classify.py")
    assert "Non-OOM error" in capsys.readouterr().out


def test_analysis_of_a_dump_prints_where_it_happened_and_the_growth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours = tracker()
    sample(SAMPLES / "oom_simulated.py", tracker=ours)
    capsys.readouterr()
    names = sample(SAMPLES / "oom_analyze.py", tracker=ours)
    printed = capsys.readouterr().out
    assert "OOM occurred in: test.simulated_oom" in printed
    assert "Exception: RuntimeError" in printed
    assert "Memory growth: " in printed
    _, events, _ = names["analyze_oom_dump"](ours.last_oom_dump_path)
    assert f"Events captured: {len(events)}" in printed


def test_no_more_bundles_stay_than_the_retention_of_the_page_allows() -> None:
    ours = sample(SAMPLES / "oom_retention.py", MemoryTracker=MemoryTracker)["tracker"]
    kept = []
    for number in range(7):
        with pytest.raises(RuntimeError), ours.capture_oom(context=f"try {number}"):
            raise RuntimeError("out of memory")
        kept.append(Path(ours.last_oom_dump_path))
    assert [path.is_dir() for path in kept] == [False] * 2 + [True] * 5, "the oldest are removed first"


def test_cpu_tracker_of_the_page_samples_and_records_an_out_of_memory_error() -> None:
    ours = sample(SAMPLES / "oom_backend_cpu.py")["tracker"]
    ours.start_tracking()
    with pytest.raises(MemoryError), ours.capture_oom(context="here"):
        raise MemoryError
    ours.stop_tracking()
    assert ours.get_statistics()["peak_memory"] > 0
    assert ours.last_oom_dump_path is None, "the page turns the recorder on for the other trackers only"


def test_mps_tracker_says_that_there_is_no_such_device() -> None:
    with pytest.raises((RuntimeError, ImportError), match=r"MPS|PyTorch"):
        sample(SAMPLES / "oom_backend_mps.py", MemoryTracker=MemoryTracker)


def test_gpu_tracker_of_the_page_falls_back_to_the_process() -> None:
    ours = sample(SAMPLES / "oom_backend_cuda.py", MemoryTracker=MemoryTracker)["tracker"]
    with pytest.raises(RuntimeError), ours.capture_oom(context="here"):
        run('raise RuntimeError("CUDA out of memory")')
    assert ours.last_oom_dump_path is not None
