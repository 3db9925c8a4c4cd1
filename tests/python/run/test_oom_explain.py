"""`stormlog oom explain`: what an allocator wrote into a log when it failed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_command import STORMLOG
from stormlog import CPUMemoryTracker

DATA = Path(__file__).parents[3] / "crates/oom-text/tests/data"


def explain(log: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STORMLOG, "oom", "explain", log, *options], capture_output=True, text=True)


def test_explain_begins_with_the_request_and_the_verdict(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    text = (DATA / "tensorflow_fragmented.txt").read_text()
    # Between other lines of a job, and with a name that would steer a terminal.
    log.write_text("epoch 1\n" * 100 + text.replace("by op MatMul", "by op Mat\x1b[31mMul") + "bye\n")
    done = explain(log)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "requested 256.0 MiB (shape [8192,8192], type float)" in lines[0] and "\x1b" not in done.stdout
    assert lines[1].startswith(
        "Fragmentation: 384.0 MiB was free in total, but the largest free block was 96.00"
    )
    assert "cuda_malloc_async" in lines[2]


def test_json_has_the_bins_the_chunks_and_the_verdict() -> None:
    done = explain(DATA / "tensorflow_driver_refused.txt", "--json")
    (failure,) = json.loads(done.stdout)["failures"]
    assert failure["verdict"] == "driver_refused" and len(failure["bins"]) == 21
    assert failure["pool"]["regions"] == 2 and failure["free_memory"]["growable"] == 1208 << 20
    assert failure["chunks"][0]["in_use"] is True


def test_a_log_without_a_failure_is_one_sentence_and_exit_5(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff\xfe all went well\n")
    done = explain(log)
    assert (
        done.returncode == 5
        and "no failed allocation of TensorFlow or JAX" in done.stderr
        and done.stdout == ""
    )
    missing = explain(tmp_path / "none")
    assert missing.returncode == 5 and "No such file" in missing.stderr


def test_an_exception_with_the_allocators_words_is_explained_in_its_bundle(tmp_path: Path) -> None:
    tracker = CPUMemoryTracker(10, enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    message = (DATA / "tensorflow_usage.txt").read_text()
    path = tracker.handle_exception(RuntimeError(message))
    assert path is not None
    page = subprocess.run([*STORMLOG, "oom", "show", path], capture_output=True, text=True).stdout
    assert "model/dense/MatMul requested 1.00 GiB" in page
    assert "model/embedding/embedding_lookup" in page


def metadata_of_failure(tmp_path: Path, raised: str) -> dict[str, Any]:
    """Of the bundle of a program that raises after a dump on standard error."""
    program = f"""
import sys
from pathlib import Path
from stormlog import CPUMemoryTracker

class ResourceExhaustedError(Exception):
    pass

class OfTensorFlow(Exception):
    pass

OfTensorFlow.__name__ = "ResourceExhaustedError"
OfTensorFlow.__module__ = "tensorflow.python.framework.errors_impl"
tracker = CPUMemoryTracker(10, enable_oom_flight_recorder=True, oom_dump_dir="bundles")
# What the allocator of a GPU writes to standard error before TensorFlow raises.
text = Path({str(DATA / "tensorflow_fragmented.txt")!r}).read_text()
sys.stderr.write(text.partition("Traceback")[0])
sys.stderr.flush()
print(tracker.handle_exception({raised}))
"""
    with (tmp_path / "log").open("wb") as log:
        log.write((DATA / "tensorflow_too_large.txt").read_bytes())
        log.flush()
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=log, text=True, cwd=tmp_path
        )
    assert done.returncode == 0, (tmp_path / "log").read_text()
    bundle = tmp_path / done.stdout.strip()
    metadata = json.loads((bundle / "metadata.json").read_text())
    evidence = json.loads((bundle / "evidence.json").read_text())
    return {"failure": metadata["custom_metadata"].get("allocator_failure"), "evidence": evidence}


@pytest.mark.parametrize(
    "raised",
    [
        'ResourceExhaustedError(text.partition("ResourceExhaustedError: ")[2])',
        'OfTensorFlow("{{function_node __wrapped__Mul}} failed to allocate memory [Op:Mul]")',
    ],
    ids=["explained by its message", "explained by the log alone"],
)
def test_the_dump_in_the_programs_own_log_is_in_its_bundle(tmp_path: Path, raised: str) -> None:
    found = metadata_of_failure(tmp_path, raised)
    failure, evidence = found["failure"], found["evidence"]
    # The report of an earlier run in the same file is not taken for this one.
    assert failure["verdict"] == "fragmented" and failure["largest_free_bytes"] == 96 << 20
    assert evidence["held_by"][0]["place"] == "chunks of 160.0 MiB"
    assert any("cuda_malloc_async" in text for text in evidence["try"])


def test_dump_of_tensorflow_is_not_taken_for_another_librarys_failure(tmp_path: Path) -> None:
    assert metadata_of_failure(tmp_path, "MemoryError('host')")["failure"] is None
