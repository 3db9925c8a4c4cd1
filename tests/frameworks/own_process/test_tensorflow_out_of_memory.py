"""TensorFlow out of memory on the CPU: the bundle, what it says, and what it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

from stormlog import MemoryWatchdog  # noqa: E402
from stormlog._tracking.failure import device_holders  # noqa: E402
from stormlog.tensorflow import TensorFlowMemoryTracker  # noqa: E402

# More than any machine has.
TOO_LARGE = (10**6, 10**7)


def metadata(bundle: str | None) -> dict[str, Any]:
    assert bundle is not None
    found: dict[str, Any] = json.loads((Path(bundle) / "metadata.json").read_text())
    return {**found, "evidence": json.loads((Path(bundle) / "evidence.json").read_text())}


def test_a_block_that_runs_out_of_memory_leaves_a_bundle(tmp_path: Path) -> None:
    tracker = TensorFlowMemoryTracker(0.05, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    kept = tf.ones((1 << 20, 4))
    with tracker:
        with pytest.raises(tf.errors.ResourceExhaustedError), tracker.capture_oom("step"):
            tf.zeros(TOO_LARGE)
        assert tracker.last_oom_dump_path is not None
    found = metadata(tracker.last_oom_dump_path)
    assert found["reason"] == "tensorflow.ResourceExhaustedError" and found["context"] == "step"
    report = found["custom_metadata"]["allocator_failure"]
    assert report["requested_bytes"] == 4 * 10**13 and report["requester"] == "Fill"
    assert report["sentence"].startswith("Fill requested 36.38 TiB (shape [1000000,10000000], type float)")
    held = [row for row in found["evidence"]["held_by"] if "kept" in row["place"]]
    assert held and held[0]["bytes"] == kept.shape[0] * 16
    # PyTorch is installed beside TensorFlow here; to import it now would take memory the program lacks.
    assert "torch" not in sys.modules
    assert tracker.get_statistics()["last_oom_dump_path"] == tracker.last_oom_dump_path


DUMPED = """
import resource, sys
import tensorflow as tf
from stormlog.tensorflow import TensorFlowMemoryTracker

kept = tf.ones((1 << 20, 4))
tracker = TensorFlowMemoryTracker(10, enable_oom_flight_recorder=True, oom_dump_dir=sys.argv[1])
held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + (256 << 20), resource.RLIM_INFINITY))
try:
    with tracker, tracker.capture_oom("step"):
        tf.zeros((1 << 15, 1 << 15))
except tf.errors.ResourceExhaustedError:
    print(tracker.last_oom_dump_path)
"""


def test_bundle_with_a_dump_names_variables_and_not_chunks(tmp_path: Path) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(DUMPED)
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0", "TF_ENABLE_ONEDNN_OPTS": "1"}
    with log.open("w") as errors:
        command = [sys.executable, str(program), str(tmp_path / "bundles")]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, check=False)
    assert done.returncode == 0, log.read_text()
    found = metadata(done.stdout.strip())
    report = found["custom_metadata"]["allocator_failure"]
    assert report["requested_bytes"] == 4 << 30
    if report["allocator"] == "mklcpu":
        # The pool of oneDNN may take as much as the machine has; the limit of the process was reached.
        assert report["verdict"] == "driver_refused" and "The system refused" in report["sentence"]
        assert "Chunks in use by size" in report["page"]
    else:
        assert "it keeps no pool" in report["sentence"]
    places = [row["place"] for row in found["evidence"]["held_by"]]
    assert places and places[0].endswith("<module>: kept"), places
    assert not any("chunks of" in text for text in found["evidence"]["try"])


def test_the_ladder_follows_a_tracker_of_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    tf.ones(1)  # a GPU is asked only when TensorFlow has its devices
    sizes = iter(range(1, 1000))
    monkeypatch.setattr("stormlog.tensorflow._runtime.memory_limit", lambda tf, number: 1 << 30)
    monkeypatch.setattr("stormlog.tensorflow._runtime.gpus", lambda tf: ["GPU"])
    monkeypatch.setattr(
        tf.config.experimental, "get_memory_info", lambda device: {"current": (1 << 30) - next(sizes)}
    )
    tracker = TensorFlowMemoryTracker(10, enable_logging=False)
    watchdog = MemoryWatchdog(tracker)
    asked: list[str] = []
    watchdog.add_cleanup_callback(lambda: asked.append("cleanup"))
    seen: list[dict[str, Any]] = []
    tracker.add_alert_callback(seen.append)
    with tracker:
        pass
    assert asked == ["cleanup"] and watchdog.cleanup_count == 1
    assert [alert["alert"] for alert in seen] == ["usage_critical"]
    assert seen[0]["threshold_mb"] == pytest.approx(0.95 * 1024)


def test_variables_hold_memory_of_the_device_that_their_tensors_are_on() -> None:
    def step() -> None:
        weights = tf.Variable(tf.ones((1 << 20, 4)))
        kept = [tf.ones((1 << 20,)) for _ in range(3)]
        on_the_host = bytearray(64 << 20)
        raise MemoryError(len(kept) + len(on_the_host) + int(weights.shape[0]))

    with pytest.raises(MemoryError) as caught:
        step()
    found = {holder.place.rpartition(": ")[2]: holder.size for holder in device_holders(caught.value, "CPU")}
    assert (found["weights"], found["kept"]) == (16 << 20, 12 << 20)
    assert "on_the_host" not in found
    assert device_holders(caught.value, "GPU") == []


def test_an_exception_that_is_not_about_memory_leaves_nothing(tmp_path: Path) -> None:
    tracker = TensorFlowMemoryTracker(10, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    with pytest.raises(ValueError, match="other"), tracker.capture_oom():
        raise ValueError("something other")
    assert tracker.last_oom_dump_path is None and list(tmp_path.iterdir()) == []
