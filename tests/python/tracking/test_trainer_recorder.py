"""What the callbacks of trainers are made of, in a loop of one's own: no framework is needed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_command import STORMLOG, command
from scripted_collector import ScriptedCollector
from stormlog.integrations import deepspeed, fsdp
from stormlog.integrations._trainer import CATEGORIES_EVENT, TrainerRecorder
from stormlog.telemetry import load_telemetry_events
from stormlog.tracker import MemoryTracker, TrackingEvent

MB = 1 << 20


def recorded(directory: Path) -> list[Any]:
    """The events of the one session, without those that a bundle in its directory repeats."""
    (session,) = [path.parent for path in directory.rglob("session.json")]
    copy = directory.parent / f"{directory.name}-session"
    shutil.copytree(session, copy, ignore=shutil.ignore_patterns("oom_dump_*"))
    return list(load_telemetry_events(str(copy)))


def phases(events: list[Any]) -> list[tuple[str, ...]]:
    entered = [event for event in events if event.event_type == "phase_enter"]
    return [tuple(event.metadata["phase_scope"]["path"]) for event in entered]


def bundle_of(directory: Path) -> dict[str, Any]:
    (metadata,) = directory.rglob("oom_dump_*/metadata.json")
    return dict(json.loads(metadata.read_text()))


def test_phases_steps_and_peaks_of_a_loop_of_ones_own(tmp_path: Path) -> None:
    with TrainerRecorder(directory=tmp_path) as recorder:
        for epoch in range(2):
            recorder.begin_epoch(epoch)
            for step in range(2):
                recorder.begin_step(step)
                held = bytearray((40 if step else 1) * MB)
                del held
                recorder.end_step()
    assert [peak[:2] for peak in recorder.peaks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first, second = list(recorder.peaks)[2:]
    assert second.peak_bytes - second.end_bytes > 30 * MB > first.peak_bytes - first.end_bytes
    events = recorded(tmp_path)
    inner = ("train", "epoch", "step")
    epoch_path = ("train", "epoch")
    assert phases(events) == [("train",), epoch_path, inner, inner, epoch_path, inner, inner]
    assert sum(event.event_type == "phase_exit" for event in events) == 7


def test_a_caught_error_leaves_a_bundle_with_epoch_and_step(tmp_path: Path) -> None:
    with TrainerRecorder(directory=tmp_path) as recorder:
        recorder.begin_epoch(3)
        recorder.begin_step(17)
        with pytest.raises(MemoryError), recorder.capture_oom():
            bytearray(1 << 62)
    found = bundle_of(tmp_path)
    assert found["context"] == "epoch 3, step 17"
    assert (found["custom_metadata"]["epoch"], found["custom_metadata"]["step"]) == (3, 17)


def test_an_error_that_is_not_of_memory_leaves_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(ValueError), TrainerRecorder(directory=tmp_path):
        raise ValueError("another")
    assert not list(tmp_path.rglob("oom_dump_*"))


def forecast(recorder: TrainerRecorder) -> None:
    """As the tracker's thread delivers one."""
    assert recorder.tracker is not None
    metadata = {"alert": "forecast_critical", "seconds_to_limit": 9.0}
    recorder.tracker._deliver(TrackingEvent(0.0, "critical", 1, 1, 0, 0, "9 s left", metadata=metadata))


def test_a_forecast_is_acted_on_at_the_end_of_the_step(tmp_path: Path) -> None:
    seen: list[TrackingEvent] = []
    with TrainerRecorder(directory=tmp_path / "a", on_forecast=seen.append) as recorder:
        recorder.begin_step(0)
        forecast(recorder)
        assert not seen
        recorder.end_step()
        assert len(seen) == 1 and not recorder.should_stop
    with TrainerRecorder(directory=tmp_path / "b", on_forecast="stop") as recorder:
        recorder.begin_step(0)
        forecast(recorder)
        recorder.end_step()
        assert recorder.should_stop
    with pytest.raises(ValueError, match="give 'stop', a function or None"):
        TrainerRecorder(on_forecast="halt")


def test_second_training_is_not_stopped_by_the_forecast_of_the_first(tmp_path: Path) -> None:
    recorder = TrainerRecorder(directory=tmp_path, on_forecast="stop")
    with recorder:
        recorder.begin_epoch(1)
        recorder.begin_step(7)
        forecast(recorder)
        recorder.end_step()
        assert recorder.should_stop
        forecast(recorder)
    with recorder:
        assert (recorder.epoch, recorder.step) == (None, None)
        recorder.begin_step(0)
        recorder.end_step()
        assert not recorder.should_stop


class Growing(ScriptedCollector):
    """A device of 16,000 MiB that grows by 0.2 % with each sample."""

    def sample(self) -> Any:
        self.script = [min(300 + 2 * self.asked, 940)]
        small = super().sample()
        names = ("allocated_bytes", "reserved_bytes", "used_bytes", "free_bytes", "total_bytes")
        return dataclasses.replace(small, **{name: getattr(small, name) * 16 * MB for name in names})


def test_memory_that_heads_for_its_limit_stops_the_training() -> None:
    tracker = MemoryTracker(collector=Growing(1), sampling_interval=0.02)
    with TrainerRecorder(tracker=tracker, on_forecast="stop") as recorder:
        for step in range(1000):
            recorder.begin_step(step)
            time.sleep(0.01)
            recorder.end_step()
            if recorder.should_stop:
                break
        assert recorder.should_stop
        assert tracker.get_events("training_stopped")


def test_internal_failure_never_ends_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory", encoding="utf-8")
    with TrainerRecorder(directory=tmp_path / "file") as recorder:
        recorder.begin_epoch(0)
        recorder.begin_step(0)
        with recorder.phase("forward"):
            pass
        recorder.end_step()


class Storage:
    def nbytes(self) -> int:
        return 10

    def data_ptr(self) -> int:
        return id(self)


class Parameter:
    """A parameter whose gradient has no storage, as a layout that is not known here."""

    device, grad = "cpu", None

    def __init__(self, storage: Storage | None) -> None:
        self.storage = storage
        if storage is not None:
            self.grad = Parameter(None)

    def untyped_storage(self) -> Storage:
        if self.storage is None:
            raise NotImplementedError("Cannot access storage of SparseTensorImpl")
        return self.storage

    def numel(self) -> int:
        return 1

    def element_size(self) -> int:
        return 4


class Model:
    def parameters(self) -> list[Parameter]:
        return [Parameter(Storage()), Parameter(Storage())]


class Engine:
    """As DeepSpeed's."""

    global_steps, module, optimizer = 0, Model(), None

    def forward(self) -> None: ...

    def backward(self) -> None: ...

    def step(self) -> None:
        self.global_steps += 1


def test_gradient_without_storage_ends_no_training_and_hides_no_parameter(tmp_path: Path) -> None:
    recorder = fsdp.StormlogRecorder(Model(), directory=tmp_path / "fsdp")
    recorder.begin()
    recorder.begin_step(0)
    recorder.end_step()
    recorder.end()
    engine = Engine()
    attached = deepspeed.attach(engine, directory=tmp_path / "deepspeed")
    engine.step()
    attached.end()
    for name in ("fsdp", "deepspeed"):
        (event,) = [e for e in recorded(tmp_path / name) if e.event_type == CATEGORIES_EVENT]
        assert event.metadata["parameters_bytes"] == 20 and event.metadata["gradients_bytes"] == 0


def test_model_that_cannot_be_counted_ends_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Model):
        def parameters(self) -> list[Parameter]:
            raise RuntimeError("the parameters are gathered")

    recorder = fsdp.StormlogRecorder(Broken(), directory=tmp_path)
    recorder.begin()
    recorder.begin_step(0)
    recorder.end_step()
    recorder.end_epoch()
    recorder.end()
    assert "the parameters are gathered" in caplog.text and len(recorder.peaks) == 1


DIES = """
import sys
from stormlog.integrations._trainer import TrainerRecorder
recorder = TrainerRecorder()
recorder.begin()
recorder.begin_epoch(1)
recorder.begin_step(5)
bytearray(1 << 62)
"""


def test_phases_and_bundle_join_the_story_of_a_recorded_run(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(DIES, encoding="utf-8")
    runs = tmp_path / "runs"
    words = command(runs, sys.executable, str(tmp_path / "main.py"), options=("--no-heap",))
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 1 and "(epoch 1, step 5).\n" in done.stderr, done.stderr
    answer = subprocess.run([*STORMLOG, "analyze", str(runs)], capture_output=True, text=True).stdout
    assert answer.splitlines()[0].endswith("(epoch 1, step 5)."), answer
    found = [json.loads(path.read_text()) for path in runs.rglob("oom_dump_*/metadata.json")]
    assert "epoch 1, step 5" in [bundle["context"] for bundle in found], found
    report = subprocess.run([*STORMLOG, "sessions", str(runs), "--json"], capture_output=True, text=True)
    sessions = json.loads(report.stdout)
    rows = sessions if isinstance(sessions, list) else sessions["sessions"]
    assert len({row["pid"] for row in rows}) == 1 and len(rows) == 2, "from outside and from inside"


WITHOUT = """
import importlib, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"lightning", "transformers", "accelerate", "deepspeed", "ray", "torch"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for name in ("lightning", "transformers", "accelerate", "deepspeed", "fsdp", "ray"):
    module = importlib.import_module(f"stormlog.integrations.{name}")
    assert name not in sys.modules and "torch" not in sys.modules
for name, what in {"lightning": "StormlogCallback", "transformers": "StormlogCallback",
                   "accelerate": "StormlogTracker", "ray": "StormlogCallback"}.items():
    try:
        getattr(importlib.import_module(f"stormlog.integrations.{name}"), what)
    except ImportError as error:
        hint = f"Install it with `pip install 'stormlog[{name}]'`."
        assert str(error) == f"{name} is not installed. {hint}", error
    else:
        raise AssertionError(name)
from stormlog.integrations.fsdp import StormlogRecorder
recorder = StormlogRecorder(None)
try:
    with recorder:
        pass
except ImportError as error:
    assert str(error) == "torch is not installed. Install it with `pip install 'stormlog[torch]'`.", error
    assert recorder.tracker is None, "nothing is left running"
else:
    raise AssertionError("fsdp")
"""


def test_integrations_are_importable_without_their_frameworks() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
