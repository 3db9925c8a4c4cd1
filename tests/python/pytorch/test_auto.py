"""`stormlog.auto` and `stormlog run` with PyTorch's stand-in: what is recorded, and what an OOM leaves."""

from __future__ import annotations

import atexit
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import auto_stand_in
import cuda_stand_in
import pytest
from places import PROGRAMS
from stormlog import _native, heap, hidden_memory, torch_snapshot
from stormlog._torch import auto as _auto
from stormlog._torch.auto_bundle import Failure
from stormlog._torch.auto_settings import Settings
from stormlog._torch.auto_verdict import verdict
from stormlog._torch.cuda_categories import stack_of
from stormlog.telemetry import load_telemetry_sessions

MB = 1 << 20
STORMLOG = [sys.executable, "-m", "stormlog"]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The stand-in, armed and not yet used."""
    module = auto_stand_in.make()
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setenv("STORMLOG_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("STORMLOG_INTERVAL", "0.01")
    monkeypatch.setattr(_auto, "STATE", _auto._State())
    monkeypatch.setattr(_auto, "_HOOKED", set())
    # Whoever was asked before is still asked; here nobody.
    monkeypatch.setattr(sys, "excepthook", lambda *facts: None)
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    monkeypatch.setattr(os, "register_at_fork", lambda **hooks: None)
    monkeypatch.setattr(atexit, "register", lambda call: call)
    hidden_memory.forget()
    _auto.arm()
    yield module
    _auto.stop()
    hidden_memory.forget()


def recorded(torch: Any) -> Any:
    device = _auto.device_of(0)
    assert device is not None
    return device


def bundles(folder: Path) -> list[Path]:
    return sorted(folder.glob("rank0-pid*-cuda0/oom_dump_*"))


def page(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "cuda_oom.json").read_text())
    return found


def test_nothing_happens_before_cuda_is_used(torch: Any, tmp_path: Path) -> None:
    # That it takes requests is all there is.
    assert [path.name for path in tmp_path.iterdir()] == ["requests"] and torch.history.calls == []
    assert torch.stand_in.observers == [] and len(torch.stand_in.queued) == 1
    assert not torch.stand_in.contexts, "no context is made by us"


def test_the_first_use_of_cuda_begins_the_recording(torch: Any, tmp_path: Path) -> None:
    held = torch.stand_in.take(32 * MB)
    assert torch.history.calls == [], "PyTorch's own history is off unless it is asked for"
    assert len(torch.stand_in.observers) == 1
    device = recorded(torch)
    while len(device.tracker.get_events("sample")) < 3:
        pass
    _auto.stop()
    (session,) = load_telemetry_sessions(tmp_path)
    samples = [event for event in session.events if event.event_type == "sample"]
    assert session.summary.status == "completed" and len(samples) >= 3
    assert {event.allocator_allocated_bytes for event in samples} == {held.size}
    assert {event.device_total_bytes for event in samples} == {16 << 30}
    assert torch.waits == [], "never a synchronisation"


@pytest.mark.parametrize(
    ("asked", "entries", "context"),
    [("segments", 100_000, None), ("stacks", 20_000, "alloc"), ("9", 9, "alloc")],
)
def test_pytorchs_history_is_recorded_as_asked_for(
    torch: Any, monkeypatch: pytest.MonkeyPatch, asked: str, entries: int, context: str | None
) -> None:
    _auto.stop()
    monkeypatch.setenv("STORMLOG_TORCH_HISTORY", asked)
    _auto.arm()
    torch.stand_in.take(32 * MB)
    assert torch.history.is_on, "from the first allocation on"
    ((_, call),) = torch.history.calls
    assert (call["max_entries"], call["context"]) == (entries, context)
    _auto.stop()
    assert not torch.history.is_on


def test_a_recording_of_the_users_is_left_alone(torch: Any) -> None:
    torch.history._record_memory_history("all", max_entries=9)
    torch.stand_in.take(MB)
    _auto.stop()
    assert torch.history.is_on and len(torch.history.calls) == 1


def test_an_oom_leaves_a_bundle_before_it_is_raised(torch: Any, tmp_path: Path) -> None:
    seen: list[int] = []
    weight = torch.stand_in.take(100 * MB, kind=cuda_stand_in.Parameter)
    torch._C._cuda_attach_out_of_memory_observer(lambda *facts: seen.append(len(bundles(tmp_path))))
    with pytest.raises(torch.OutOfMemoryError):
        torch.stand_in.take(200 * MB)
    assert seen == [1], "the bundle is there when the next observer is called"
    (bundle,) = bundles(tmp_path)
    found = page(bundle)
    assert (found["requested_bytes"], found["allowed_bytes"]) == (200 * MB, 256 * MB)
    assert (found["largest_usable_block_bytes"], found["allocated_bytes"]) == (64 * MB, 100 * MB)
    assert found["categories"] == {"parameters": {"bytes": 100 * MB, "blocks": 1}}
    assert found["allocator_backend"] == "native"
    assert found["allocator_settings"]["expandable_segments"] is False
    assert "test_auto.py" in found["stack"][0] or "auto_stand_in.py" in found["stack"][0]
    assert any("test_an_oom_leaves_a_bundle" in line for line in found["stack"])
    assert found["problems"] == [] and "out of memory: requested 200.0 MiB;" in found["verdict"]
    assert found["held_by"][0]["bytes"] == 100 * MB and "parameters" in found["held_by"][0]["note"]
    with (bundle / "cuda_allocator_snapshot.pickle").open("rb") as file:
        snapshot = pickle.load(file)
    # No history was recorded: the request that failed is all there is.
    (event,) = snapshot["device_traces"][0]
    assert (event["action"], event["size"]) == ("oom", 200 * MB)
    assert event["frames"][1]["name"] == "test_an_oom_leaves_a_bundle_before_it_is_raised"
    assert snapshot["stormlog"] == {"added": ["oom"]}
    shown = torch_snapshot.load(bundle / "cuda_allocator_snapshot.pickle").report()
    assert shown.oom is not None and shown.oom.request_bytes == 200 * MB
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert set(manifest["files"]) == {file.name for file in bundle.iterdir()}
    assert manifest["event_count"] >= 1 and manifest["backend"] == "cuda"
    assert json.loads((bundle / "evidence.json").read_text())["verdict"] == found["verdict"]
    assert weight.size == 100 * MB


class RecordedLine(NamedTuple):
    file: str
    line: int
    function: str


class RecordedBlock(NamedTuple):
    address: int
    size: int
    stack: int


def test_the_stacks_of_a_bundle_are_those_of_the_heap_recording(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, data = torch.stand_in.take(100 * MB), torch.stand_in.take(50 * MB)
    blocks = [RecordedBlock(weight.address, weight.size, 0), RecordedBlock(data.address, data.size, 1)]
    lines = [
        [
            RecordedLine("/x/site-packages/torch/nn.py", 7, "linear"),
            RecordedLine("/home/me/model.py", 3, "build"),
        ],
        [RecordedLine("/home/me/data.py", 9, "load")],
    ]
    known = types.SimpleNamespace(live=blocks, recent=[], stacks=lines, failed_bytes=150 * MB)
    monkeypatch.setattr(_native.heap, "own_device_blocks", lambda device, recent: known)
    with pytest.raises(torch.OutOfMemoryError):
        torch.stand_in.take(160 * MB)
    found = page(bundles(tmp_path)[0])
    assert found["problems"] == [] and found["requested_bytes"] == 150 * MB
    assert [(row["place"], row["bytes"]) for row in found["held_by"]] == [
        ("/home/me/model.py:3 build", 100 * MB),
        ("/home/me/data.py:9 load", 50 * MB),
    ]
    shown = torch_snapshot.load(bundles(tmp_path)[0] / "cuda_allocator_snapshot.pickle").report()
    assert [holder.site for holder in shown.top] == ["me/model.py:3 build", "me/data.py:9 load"]


def test_memory_is_freed_after_the_error_is_caught(torch: Any) -> None:
    def step() -> None:
        held = torch.stand_in.take(200 * MB)
        seen.append(weakref.ref(held))
        torch.stand_in.take(100 * MB)

    seen: list[Any] = []
    gc.disable()
    try:
        with pytest.raises(torch.OutOfMemoryError):
            step()
        assert seen[0]() is None, "without a collection: nothing of ours holds frames or tensors"
    finally:
        gc.enable()
    assert torch.allocators[0].current == 0


def test_fragmentation_is_named(torch: Any, tmp_path: Path) -> None:
    torch.stand_in.limit = 40 * MB
    with pytest.raises(torch.OutOfMemoryError):
        torch.stand_in.take(80 * MB)
    assert "out of memory: requested" in page(bundles(tmp_path)[0])["verdict"]
    free = [{"size": 30 * MB, "state": "inactive"}, {"size": 40 * MB, "state": "inactive"}]
    segment = {"device": 0, "stream": 0, "segment_type": "large", "blocks": free}
    torch.history._snapshot = lambda: {
        "segments": [segment],
        "device_traces": [[{"action": "oom", "size": 60 * MB, "stream": 0}]],
    }
    with pytest.raises(torch.OutOfMemoryError):
        torch.stand_in.take(60 * MB)
    found = page(bundles(tmp_path)[1])
    assert "70.00 MiB is free in this pool" in found["verdict"]
    assert (
        "the largest block is 40.00 MiB" in found["verdict"] and "expandable_segments:True" in found["try"][0]
    )


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (900 * MB, "had 900.0 MiB free, so this process was limited to 256.0 MiB"),
        (9 * MB, "other processes hold 5.00 GiB"),
    ],
)
def test_cause_follows_from_the_free_memory(free: int, words: str) -> None:
    names = ("OutOfMemoryError", "torch", "CUDA out of memory.")
    failure = Failure(0, "torch.cuda.OutOfMemoryError", names, 200 * MB, 256 * MB, free, (), "main", True)
    found = verdict(failure, {}, {"allocated_bytes": 100 * MB}, {"other_processes_bytes": 5 << 30})
    assert words in found.sentence and found.tries, found


def test_the_programs_own_line_is_kept_however_deep_the_library_is() -> None:
    library = [
        {"filename": f"/x/torch/nn/modules/{depth}.py", "line": depth, "name": "forward"}
        for depth in range(20)
    ]
    compiled = {"filename": "/tmp/torchinductor_me/ab/cab.py", "line": 7, "name": "call"}
    own = [
        {"filename": f"/home/me/{name}.py", "line": 3, "name": name} for name in ("model", "train", "main")
    ]
    stack = stack_of({"frames": [compiled, *library, *own]})
    assert len(stack) == 10 and stack[0].startswith("/tmp/torchinductor_me/")
    assert stack[-2:] == ("/home/me/model.py:3 model", "/home/me/train.py:3 train")
    assert stack_of({"frames": own}) == tuple(
        f"/home/me/{name}.py:3 {name}" for name in ("model", "train", "main")
    )


def test_many_ooms_cost_few_bundles(torch: Any, tmp_path: Path) -> None:
    for _ in range(20):
        with pytest.raises(torch.OutOfMemoryError):
            torch.stand_in.take(300 * MB)
    assert len(bundles(tmp_path)) == 3 and recorded(torch).skipped == 17


def test_every_thread_may_run_out(torch: Any, tmp_path: Path) -> None:
    def run_out() -> None:
        with pytest.raises(torch.OutOfMemoryError):
            torch.stand_in.take(300 * MB)

    threads = [threading.Thread(target=run_out, name=f"worker-{number}") for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    found = bundles(tmp_path)
    assert 1 <= len(found) <= 3 and page(found[0])["thread"].startswith("worker-")


def test_failing_part_of_a_bundle_leaves_the_rest(torch: Any, tmp_path: Path) -> None:
    torch.stand_in.take(MB)
    torch.history._snapshot = lambda: 1 // 0
    with pytest.raises(torch.OutOfMemoryError):
        torch.stand_in.take(300 * MB)
    found = page(bundles(tmp_path)[0])
    assert found["problems"][0].startswith("snapshot:") and found["requested_bytes"] == 300 * MB


@pytest.mark.parametrize("in_thread", [False, True])
def test_uncaught_oom_outside_the_allocator_leaves_a_bundle(
    torch: Any, tmp_path: Path, in_thread: bool
) -> None:
    torch.stand_in.take(MB)
    error = RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    if in_thread:
        arguments: Any = threading.ExceptHookArgs((RuntimeError, error, None, threading.current_thread()))
        threading.excepthook(arguments)
    else:
        sys.excepthook(RuntimeError, error, None)
    (bundle,) = bundles(tmp_path)
    found = page(bundle)
    assert found["requested_bytes"] is None and "outside PyTorch's allocator" in found["verdict"]
    metadata = json.loads((bundle / "metadata.json").read_text())
    assert "CUBLAS_STATUS_ALLOC_FAILED" in metadata["exception_message"]


def test_allocators_error_is_not_reported_twice(torch: Any, tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.stand_in.take(300 * MB)
    sys.excepthook(caught.type, caught.value, None)
    sys.excepthook(ValueError, ValueError("something else"), None)
    assert len(bundles(tmp_path)) == 1


def test_an_allocator_that_refuses_to_be_observed_is_sampled_and_its_error_kept(
    torch: Any, tmp_path: Path
) -> None:
    auto_stand_in.use_another_allocator(torch)
    weight = torch.stand_in.take(100 * MB, kind=cuda_stand_in.Parameter)
    assert any(thread.name == "stormlog-auto" for thread in threading.enumerate()), "devices are looked for"
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.stand_in.take(200 * MB)
    assert bundles(tmp_path) == [], "a caught exception leaves no bundle"
    sys.excepthook(caught.type, caught.value, caught.tb)
    (bundle,) = bundles(tmp_path)
    found = page(bundle)
    assert found["problems"] == ["snapshot: cudaMallocAsync does not yet support this."]
    assert found["allocated_bytes"] == 100 * MB and found["allocator_backend"] == "cudaMallocAsync"
    assert found["categories"] == {"parameters": {"bytes": 100 * MB, "blocks": 1}}
    assert found["held_by"][0]["bytes"] == 100 * MB and "parameters" in found["held_by"][0]["note"]
    assert found["verdict"].startswith("CUDA out of memory on GPU 0: Tried to allocate 200"), found
    assert "auto_stand_in.py" in found["stack"][0] and "test_an_allocator" in found["stack"][-1]
    assert weight.size == 100 * MB


def test_settings_are_read_and_nonsense_is_not() -> None:
    settings = Settings.of(
        {"STORMLOG_INTERVAL": "x", "STORMLOG_TORCH_HISTORY": "7", "STORMLOG_TORCH_OOM": "0"}
    )
    assert (settings.interval, settings.history_entries, settings.writes_bundles) == (0.1, 7, False)
    assert Settings.of({"STORMLOG_INTERVAL": "-1"}).interval == 0.1
    assert not Settings.of({"STORMLOG_TORCH": "off"}).is_on


# Real processes.


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(PROGRAMS / "stand_in"), **more}


def run(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [*STORMLOG, "run", "--dir", str(folder), "--interval", "0.05", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(**env), timeout=120)


def program(how: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "cuda_oom.py"), how]


def listed(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [*STORMLOG, "oom", "list", str(folder), "--json"], capture_output=True, text=True, check=True
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("how", "code"), [("caught", 0), ("uncaught", 1), ("killed", -9)])
def test_a_run_records_torch_without_a_change_to_the_program(tmp_path: Path, how: str, code: int) -> None:
    done = run(tmp_path, "--torch-history", "stacks", *program(how))
    assert done.returncode == code, done.stderr
    own = [Path(row["path"]) for row in listed(tmp_path) if row["backend"] == "cuda"]
    assert len(own) == 1, "written by the program itself, and found in the run"
    found = page(own[0])
    assert found["requested_bytes"] == 128 * MB and found["allocated_bytes"] == 192 * MB
    assert "cuda_oom.py" in found["held_by"][0]["place"] and "load_cache" in found["held_by"][0]["place"]
    if how == "caught":
        assert done.stdout.splitlines() == ["left 0", f"retry {128 * MB}"]
    shown = subprocess.run(
        [*STORMLOG, "oom", "show", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    assert "128.0 MiB" in shown and "cuda_oom.py" in shown
    sessions = load_telemetry_sessions(tmp_path)
    assert {event.device_id for session in sessions for event in session.events} == {-1, 0}, "on one axis"


def test_a_renumbered_device_has_one_id_inside_and_outside_with_a_stand_in_for_nvml(
    tmp_path: Path, nvml_stand_in: Path
) -> None:
    # The process is on the driver's device 1, which is its own device 0, as CUDA_VISIBLE_DEVICES=1 has it.
    holders = tmp_path / "holders"
    shell = f'echo $$ 64 > {holders}; exec "$@"'
    done = run(
        tmp_path / "runs",
        *("sh", "-c", shell, "sh", *program("caught")),
        LD_LIBRARY_PATH=str(nvml_stand_in.parent),
        STAND_IN_KIND="pair",
        STAND_IN_HOLDERS=str(holders),
        STAND_IN_UUID="stand-in-1",
    )
    assert done.returncode == 0, done.stderr
    events = [event for session in load_telemetry_sessions(tmp_path / "runs") for event in session.events]
    devices = {
        (event.collector.startswith("stormlog.cuda"), event.device_id, event.metadata.get("device_uuid"))
        for event in events
        if event.device_id >= 0
    }
    assert devices == {(True, 0, "GPU-stand-in-1"), (False, 0, "GPU-stand-in"), (False, 1, "GPU-stand-in-1")}


def test_of_two_ranks_each_leaves_its_own(tmp_path: Path) -> None:
    source = """
import os, subprocess, sys
def start(rank):
    mine = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    return subprocess.Popen(sys.argv[1:], env={**os.environ, **mine})
ranks = [start(rank) for rank in range(2)]
sys.exit(max(rank.wait() for rank in ranks))
"""
    done = run(tmp_path, sys.executable, "-c", source, *program("uncaught"))
    assert done.returncode == 1, done.stderr
    own = [Path(row["path"]) for row in listed(tmp_path) if row["backend"] == "cuda"]
    assert sorted(path.parent.name.split("-")[0] for path in own) == ["rank0", "rank1"]
    ranks = {json.loads((path / "manifest.json").read_text())["session"]["rank"] for path in own}
    assert ranks == {0, 1}
    states = {
        (session.summary.rank, session.summary.status)
        for session in load_telemetry_sessions(tmp_path)
        if any(event.device_id == 0 for event in session.events)
    }
    assert states >= {(0, "completed")}


@pytest.mark.parametrize("option", ["--no-torch", "variable"])
def test_auto_can_be_switched_off(tmp_path: Path, option: str) -> None:
    done = (
        run(tmp_path, option, *program("uncaught"))
        if option == "--no-torch"
        else run(tmp_path, *program("uncaught"), STORMLOG_TORCH="0")
    )
    assert done.returncode == 1
    assert [row["backend"] for row in listed(tmp_path)] == ["cpu"]


def test_import_stormlog_auto_is_enough(tmp_path: Path) -> None:
    source = "import stormlog.auto, runpy, sys; sys.argv[1:] = ['caught']; runpy.run_path(sys.argv.pop(0))"
    source = source.replace("sys.argv.pop(0)", repr(str(PROGRAMS / "cuda_oom.py")))
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        env=environment(STORMLOG_DIR=str(tmp_path)),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "left 0" and done.stderr == ""
    assert [row["backend"] for row in listed(tmp_path)] == ["cuda"]
    assert len(load_telemetry_sessions(tmp_path)) == 2, "the host and the device"
    (host,) = tmp_path.glob("*/rank0-pid*-host")
    found = heap.stats(host / "heap.bin")
    assert found["peak_bytes"] > 0 and found["sample_bytes"] == 512 << 10


def test_nothing_of_the_heap_is_recorded_where_it_is_not_wanted(tmp_path: Path) -> None:
    source = "import stormlog.auto, torch, stormlog.heap; print(stormlog.heap.is_recording())"
    env = environment(STORMLOG_DIR=str(tmp_path), STORMLOG_AUTO_HEAP="0")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=env)
    assert done.stdout.strip() == "False" and done.stderr == ""
    assert list(tmp_path.glob("*/*/heap.bin*")) == []


def test_forked_child_starts_its_own_state(tmp_path: Path) -> None:
    source = """
import stormlog.auto, torch, os, sys
pid = os.fork()
held = torch.stand_in.take(1 << 20)
from stormlog._torch import auto as _auto
_auto.device_of(0)
if pid:
    os.waitpid(pid, 0)
    _auto.stop()
else:
    _auto.stop()
    os._exit(0)
"""
    env = environment(STORMLOG_RUN_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    names = {path.name.split("-")[1] for path in tmp_path.glob("rank0-pid*-cuda0")}
    assert len(names) == 2, "a recording each"


def test_a_child_forked_while_it_records_is_not_blocked(tmp_path: Path) -> None:
    source = """
import stormlog.auto, torch, os, sys, time
held = torch.stand_in.take(1 << 20)
from stormlog._torch import auto as _auto
assert _auto.device_of(0) is not None
time.sleep(0.1)
children = []
for number in range(20):
    pid = os.fork()
    if pid == 0:
        assert not stormlog.auto.is_recording()
        sys.exit(0)
    children.append(pid)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
assert stormlog.auto.is_recording()
"""
    env = environment(STORMLOG_RUN_DIR=str(tmp_path), STORMLOG_INTERVAL="0.001")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    (session,) = load_telemetry_sessions(tmp_path)
    assert session.summary.status == "completed"


def test_without_torch_nothing_is_imported(tmp_path: Path) -> None:
    source = (
        "import sys, stormlog.auto; "
        "print('torch' in sys.modules, 'stormlog._native' in sys.modules, 'stormlog.tracker' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stdout.split() == ["False"] * 3 and done.stderr == ""
