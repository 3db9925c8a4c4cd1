"""Heap recordings of real programs: by `run --heap`, from Python, attached; and after a kill."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest
from heap_captures import line_of, stats
from run_command import STORMLOG, cgroup, in_cgroup, program
from stormlog import _native, heap

#: Room for Python and numpy, and small enough to be reached in a moment.
LIMIT = 400 << 20


def record(output: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    run = [
        *STORMLOG,
        "run",
        "--heap",
        "--output",
        str(output),
        "--dir",
        str(output.parent / "runs"),
        *options,
    ]
    done = subprocess.run([*run, "--", *words], capture_output=True, text=True)
    assert "panicked" not in done.stderr
    return done


def places(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["function"], Path(row["file"]).name) for row in rows]


@pytest.mark.parametrize(
    ("what", "function", "text"),
    [("bytes", "leak_python", "os.urandom(size)"), ("numpy", "leak_numpy", "numpy.ones(")],
)
def test_the_request_that_failed_is_named_and_fails_where_it_would_have(
    tmp_path: Path, what: str, function: str, text: str
) -> None:
    if what == "numpy":
        pytest.importorskip("numpy")
    words = program("grows_bytes.py", what, str(LIMIT))
    bare = subprocess.run(words, capture_output=True, text=True, check=True)
    done = record(tmp_path / "out.bin", *words)
    assert (done.returncode, done.stdout) == (0, bare.stdout), "the same step fails with and without us"
    size = int(bare.stdout.split()[1])
    figures = stats(tmp_path / "out.bin")
    assert figures["complete"]
    failed = figures["failed_requests"][-1]
    assert size - 8 <= failed["bytes"] <= size + 64
    assert failed["limit_bytes"] == LIMIT
    user = [frame for frame in failed["stack"] if Path(frame["file"]).name == "grows_bytes.py"]
    assert (user[0]["function"], user[0]["line"]) == (function, line_of("grows_bytes.py", text))
    assert (function, "grows_bytes.py") == places(figures["top_by_size"])[0]
    assert figures["peak_bytes"] >= size // 3 * 2
    assert "failed" in done.stderr and "grows_bytes.py" in done.stderr


def test_holders_are_those_of_the_failed_request(tmp_path: Path) -> None:
    name = "lets_go_when_it_fails.py"
    done = record(tmp_path / "out.bin", *program(name), options=("--limit", "400MiB"))
    assert done.returncode == 1
    held = next(line for line in done.stderr.splitlines() if line.startswith("  held by"))
    assert f"{name}:{line_of(name, 'bytearray(')} block" in held and held.endswith("when the request failed")
    words = [*STORMLOG, "oom", "show", str(tmp_path / "runs"), "--json"]
    bundle = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    first = bundle["evidence"]["held_by"][0]
    assert first["note"] == "when the request failed" and first["bytes"] >= 200 << 20
    assert bundle["evidence"]["usage_bytes"] <= 400 << 20


def test_native_frames_name_the_c_function(tmp_path: Path) -> None:
    done = record(
        tmp_path / "out.bin", *program("grows_bytes.py", "bytes", str(LIMIT)), options=("--native",)
    )
    assert done.returncode == 0
    rows = json.loads(
        subprocess.run(
            [*STORMLOG, "tree", str(tmp_path / "out.bin"), "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    largest = max(rows, key=lambda row: row["own_bytes"])
    names = [frame["function"] for frame in largest["stack"]]
    assert "leak_python" in names, names
    inner = names[: names.index("leak_python")]
    assert any("urandom" in name or "PyBytes" in name for name in inner), names


def test_killed_by_the_cgroup_it_still_says_which_line_held_the_memory(tmp_path: Path) -> None:
    with cgroup(160 << 20) as group:
        words = [
            *STORMLOG,
            "run",
            "--heap",
            "--dir",
            str(tmp_path / "runs"),
            "--",
            *program("keeps_growing.py"),
        ]
        done = subprocess.run(in_cgroup(group, words), capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    line = line_of("keeps_growing.py", "self.kept.append")
    assert f"keeps_growing.py:{line} Cache.put" in done.stderr, done.stderr
    figures = stats(tmp_path / "runs")
    assert not figures["complete"]
    held = figures["live_at_end_bytes"]
    assert 64 << 20 < held < 170 << 20
    assert places(figures["top_by_size"])[0] == ("Cache.put", "keeps_growing.py")


@pytest.mark.parametrize("options", [(), ("--aggregate",), ("--max-size", "1MiB")])
def test_nothing_is_lost_at_kill_9(tmp_path: Path, options: tuple[str, ...]) -> None:
    words = [
        *STORMLOG,
        "run",
        "--heap",
        "--dir",
        str(tmp_path),
        "--quiet",
        *options,
        "--",
        *program("keeps_growing.py", "40"),
    ]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    with running:
        assert running.stdout is not None and running.stdout.readline() == "40\n"
        (run,) = tmp_path.iterdir()
        os.kill(json.loads((run / "run.json").read_text())["pid"], signal.SIGKILL)
        assert running.wait(timeout=60) == -signal.SIGKILL
    figures = stats(tmp_path)
    assert (figures["complete"], figures["ending"]["signal"]) == (False, 9)
    held = [
        row for row in _rows("leaks", tmp_path) if row["stack"] and row["stack"][0]["function"] == "Cache.put"
    ]
    assert sum(row["own_bytes"] for row in held) >= 40 << 20
    assert sum(row["count"] for row in held) >= 40
    assert figures["lost_events"] == 0


def _rows(mode: str, path: Path) -> Any:
    flag = {"leaks": "--leaks", "peak": "--peak"}[mode]
    done = subprocess.run(
        [*STORMLOG, "tree", str(path), flag, "--json"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_killed_with_its_supervisor_the_capture_can_still_be_read(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "--heap", "--dir", str(tmp_path), "--", *program("keeps_growing.py", "40")]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    with running:
        assert running.stdout is not None and running.stdout.readline() == "40\n"
        (run,) = tmp_path.iterdir()
        child = json.loads((run / "run.json").read_text())["pid"]
        running.kill()
        running.wait()
        os.kill(child, signal.SIGKILL)
    (live,) = (run / "heap").glob("*.live")
    figures = stats(live)
    assert figures["live_at_end_bytes"] >= 40 << 20
    assert not figures["complete"]


def test_children_of_every_kind_are_recorded(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "--heap", "--dir", str(tmp_path), "--", *program("children_allocate.py")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = set()
    for capture in [*tmp_path.glob("*/*/heap*.bin"), *tmp_path.glob("*/heap/*.bin")]:
        seen |= {row["function"] for row in stats(capture)["top_by_size"]}
    assert {"in_fork", "in_exec", "in_worker"} <= seen


def test_summary_is_of_the_program_that_ended(tmp_path: Path) -> None:
    """The first image holds less but records more; the second is the one that was killed."""
    last = "held = bytearray(50 << 20); import os; os.kill(os.getpid(), 9)"
    first = (
        "import os, sys; held = [bytearray(1000) for _ in range(30_000)]; "
        f"os.execv(sys.executable, [sys.executable, '-c', {last!r}])"
    )
    done = record(tmp_path / "out.bin", sys.executable, "-c", first)
    assert done.returncode == -signal.SIGKILL, done.stderr
    figures = stats(tmp_path / "out.bin")
    assert figures["live_at_end_bytes"] >= 50 << 20 and not figures["complete"]
    (earlier,) = (tmp_path / "runs").glob("*/*/heap-2.bin")
    assert stats(earlier)["live_at_end_bytes"] < 50 << 20


def test_the_output_is_of_the_session_too_and_written_over_only_when_asked(tmp_path: Path) -> None:
    output = tmp_path / "out.bin"
    grown = [sys.executable, "-c", "kept = [bytearray(1_000_000) for _ in range(20)]"]
    assert record(output, *grown).returncode == 0
    figures = stats(output)
    assert figures["peak_bytes"] > 20_000_000
    assert stats(tmp_path / "runs") == figures, "the session has it as well"
    refused = record(output, sys.executable, "-c", "pass")
    assert refused.returncode == 2 and "--force" in refused.stderr
    assert stats(output) == figures
    assert record(output, sys.executable, "-c", "pass", options=("-f",)).returncode == 0
    assert stats(output)["peak_bytes"] < 20_000_000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.bin", "runs"]


def test_sampling_keeps_the_totals(tmp_path: Path) -> None:
    script = tmp_path / "many.py"
    script.write_text("kept = [bytearray(20_000) for _ in range(20_000)]\n")
    done = record(tmp_path / "out.bin", sys.executable, str(script), options=("--sample=64KiB",))
    assert done.returncode == 0
    figures = stats(tmp_path / "out.bin")
    assert figures["sample_bytes"] == 64 << 10
    assert abs(figures["total_allocated_bytes"] - 400_000_000) < 5 * figures["standard_error_bytes"]
    assert 0 < figures["standard_error_bytes"] < 0.03 * 400_000_000


def test_record_in_a_living_process(tmp_path: Path) -> None:
    path = tmp_path / "block.bin"
    kept = []
    with heap.record(path) as recording:
        kept.append(_allocate_here(3 << 20))
        assert heap.is_recording()
    assert not heap.is_recording()
    figures = recording.stats()
    assert figures["complete"]
    assert places(figures["top_by_size"])[0] == ("_allocate_here", "test_heap.py")
    assert figures["top_by_size"][0]["bytes"] >= 3 << 20
    assert figures["live_at_end_bytes"] >= 3 << 20
    assert not path.with_name("block.bin.live").exists()
    del kept


def _allocate_here(size: int) -> bytearray:
    return bytearray(size)


def test_the_programs_own_recording_takes_over_from_one_that_began_by_itself(tmp_path: Path) -> None:
    first, own = tmp_path / "first.bin", tmp_path / "own.bin"
    assert _native.heap.heap_start_default(first) and heap.is_recording()
    assert not _native.heap.heap_start_default(tmp_path / "second.bin"), "one is enough"
    early = bytearray(32 << 20)
    heap.start(own)
    with pytest.raises(heap.HeapError, match="already"):
        heap.start(tmp_path / "third.bin")
    late = bytearray(16 << 20)
    assert heap.stop() == own and not heap.is_recording()
    assert 32 << 20 <= stats(first)["peak_bytes"] < 48 << 20
    assert 16 << 20 <= stats(own)["peak_bytes"] < 32 << 20
    assert len(early) + len(late) == 48 << 20
    _native.heap.heap_stop_default()


def test_a_memory_that_was_not_recorded_is_refused_by_name(tmp_path: Path) -> None:
    with heap.record(tmp_path / "out.bin", gpu=False) as recording:
        held = bytearray(1 << 20)
    assert recording.stats(memory="host")["peak_bytes"] >= len(held)
    assert recording.stats()["devices"] == []
    with pytest.raises(heap.HeapValueError, match="no memory 'cuda:0' was recorded; there is host"):
        recording.stats(memory="cuda:0")
    with pytest.raises(ValueError, match="nothing to record"):
        heap.start(tmp_path / "none.bin", host=False, gpu=False)


def test_start_and_stop_many_times_with_threads_running(tmp_path: Path) -> None:
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            bytearray(100_000)

    threads = [threading.Thread(target=churn) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for number in range(5):
            path = heap.start(tmp_path / f"{number}.bin")
            bytearray(1 << 20)
            assert heap.stop() == path
            assert stats(path)["total_allocations"] >= 1
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_decorated_function_makes_a_capture_a_call(tmp_path: Path) -> None:
    @heap.record(tmp_path / "call-%n.bin")
    def work(size: int) -> int:
        return len(bytearray(size))

    assert (work(1 << 20), work(2 << 20)) == (1 << 20, 2 << 20)
    assert len(list(tmp_path.glob("call-*.bin"))) == 2


def test_python_allocators_show_small_objects(tmp_path: Path) -> None:
    with heap.record(tmp_path / "small.bin", trace_python_allocators=True) as recording:
        kept = [object() for _ in range(10_000)]
    kinds = {row["allocator"]: row for row in recording.stats()["by_allocator"]}
    assert kinds["pymalloc_malloc"]["count"] >= 10_000
    del kept


def test_errors_of_captures_are_heap_errors_and_what_callers_expect(tmp_path: Path) -> None:
    absent = tmp_path / "absent.bin"
    with pytest.raises(heap.CaptureNotFoundError, match="No such file") as missing:
        heap.stats(absent)
    assert isinstance(missing.value, FileNotFoundError) and missing.value.filename == str(absent)
    with pytest.raises(FileNotFoundError, match="holds no heap capture"):
        heap.stats(tmp_path)
    foreign = tmp_path / "foreign.bin"
    foreign.write_bytes(b"not a capture")
    with pytest.raises(heap.CaptureFormatError, match="is not a heap capture") as damaged:
        heap.stats(foreign)
    assert isinstance(damaged.value, ValueError)
    good = tmp_path / "good.bin"
    with heap.record(good):
        kept = bytearray(1 << 20)
    del kept
    content = bytearray(good.read_bytes())
    version = int.from_bytes(content[8:12], "little")
    content[8:12] = (version + 1).to_bytes(4, "little")
    good.write_bytes(content)
    with pytest.raises(heap.CaptureVersionError, match="upgrade stormlog"):
        heap.stats(good)
    with pytest.raises(heap.HeapValueError, match="peak, leaks"):
        _native.heap.heap_stacks(good, "everything")
    for error in (heap.CapturePermissionError, heap.CaptureIOError):
        assert issubclass(error, heap.HeapError) and issubclass(error, OSError)
        assert error.__module__ == "stormlog.heap"
    assert issubclass(heap.HeapError, RuntimeError)


def test_impossible_recording_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "here.bin"
    path.write_bytes(b"foreign")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        heap.start(path)
    with pytest.raises(heap.HeapError, match="nothing is being recorded"):
        heap.stop()
    with pytest.raises(heap.HeapError, match="No such file"):
        heap.start(tmp_path / "nowhere" / "x.bin")
    with heap.record(tmp_path / "one.bin"), pytest.raises(heap.HeapError, match="already"):
        heap.start(tmp_path / "two.bin")
    with pytest.raises(heap.HeapError):
        heap.stats(path)
    code = subprocess.run([*STORMLOG, "stats", str(path)], capture_output=True, text=True)
    assert code.returncode == 5 and str(path) in code.stderr


@pytest.mark.skipif(
    subprocess.run(["which", "gdb"], capture_output=True).returncode != 0, reason="there is no gdb here"
)
def test_attach_and_detach(tmp_path: Path) -> None:
    script = tmp_path / "runs.py"
    script.write_text(
        textwrap.dedent("""
        import time
        kept = []
        def grow_later():
            kept.append(bytearray(300_000))
        print("up", flush=True)
        while True:
            grow_later()
            time.sleep(0.01)
        """)
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        capture = tmp_path / "out.bin"
        attached = subprocess.Popen(
            [*STORMLOG, "attach", str(process.pid), "--heap", "-o", str(capture), "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        _wait_for(lambda: capture.exists())
        time.sleep(0.5)
        again = subprocess.run(
            [*STORMLOG, "attach", str(process.pid), "--heap", "-o", str(tmp_path / "b.bin")],
            capture_output=True,
            text=True,
        )
        assert again.returncode != 0 and "already" in again.stderr
        assert subprocess.run([*STORMLOG, "detach", str(process.pid)]).returncode == 0
        with attached:
            assert attached.wait(timeout=60) == 0
        figures = stats(capture)
        assert places(figures["top_by_size"])[0] == ("grow_later", "runs.py")
        assert process.poll() is None, "the program runs on"
        time.sleep(0.2)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def _wait_for(condition: Any, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb here")
def test_attach_leaves_a_program_alone_that_gets_signals(tmp_path: Path) -> None:
    script = """
        import signal, sys, threading, time
        got = []
        signal.signal(signal.SIGUSR1, lambda *_: got.append(1))
        over = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
        print("ready", flush=True)
        while not over.is_set():
            kept = [bytearray(20_000) for _ in range(10)]
            time.sleep(0.001)
        print(len(got) > 0)
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    target = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert target.stdout is not None and target.stdout.readline() == "ready\n"
    done = threading.Event()

    def disturb() -> None:
        while not done.wait(0.001) and target.poll() is None:
            target.send_signal(signal.SIGUSR1)

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        attach = [*STORMLOG, "attach", str(target.pid), "--heap", "--method", "gdb", "--duration", "0.2"]
        attached = subprocess.run(
            [*attach, "--output", str(tmp_path / "out.bin")], capture_output=True, text=True
        )
    finally:
        done.set()
        disturber.join()
        said, _ = target.communicate()
    assert (attached.returncode, target.returncode, said) == (0, 0, "True\n"), attached.stderr
    assert stats(tmp_path / "out.bin")["total_allocated_bytes"] > 200_000


def test_attach_to_a_missing_process_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [*STORMLOG, "attach", "4194305", "--heap", "-o", str(tmp_path / "x.bin")],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "4194305" in done.stderr and "Traceback" not in done.stderr


def test_nothing_that_was_recorded_is_removed_unasked(tmp_path: Path) -> None:
    target = tmp_path / "out.bin"
    left = tmp_path / "out.bin.live"
    left.write_bytes(b"all that a killed program has left")
    with pytest.raises(FileExistsError, match="live exists"):
        heap.start(target)
    heap.start(target, overwrite=True)
    kept = [bytearray(100_000) for _ in range(20)]
    with pytest.raises(heap.HeapError, match="recorded already"):
        heap.start(target, overwrite=True)
    assert left.exists(), "the file of the running recording"
    assert heap.stats(heap.stop())["total_allocated_bytes"] > 100_000 * len(kept)
    assert not heap.is_recording()


def test_a_child_forked_from_a_recording_ends_its_own(tmp_path: Path) -> None:
    script = """
        import json, os, sys
        from pathlib import Path
        from stormlog import _native, heap
        with heap.record("out.bin") as recording:
            child = os.fork()
            kept = [bytearray(5_000 if child else 7_000) for _ in range(100)]
            if not child:
                try:
                    heap.start("other.bin")
                except heap.HeapError as error:
                    assert "stop()" in str(error), error
        if not child:
            with heap.record("later.bin") as later:
                more = [bytearray(9_000) for _ in range(100)]
            Path("paths").write_text(json.dumps([str(recording.path), str(later.path)]))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(recording.path)
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    mine, later = (Path(path) for path in json.loads((tmp_path / "paths").read_text()))
    assert Path(done.stdout.strip()) == tmp_path / "out.bin" != mine
    for path, size in [(tmp_path / "out.bin", 5_000), (mine, 7_000), (later, 9_000)]:
        total = heap.stats(path)["total_allocated_bytes"]
        assert 100 * size < total < 100 * size + 100_000, path


def test_a_decorated_function_is_recorded_to_its_end(tmp_path: Path) -> None:
    def total(name: str) -> int:
        found: int = heap.stats(tmp_path / name)["total_allocated_bytes"]
        return found

    @heap.record(tmp_path / "coroutine.bin")
    async def wait() -> int:
        first = bytearray(1_000_000)
        await asyncio.sleep(0)
        return len(first) + len(bytearray(2_000_000))

    @heap.record(tmp_path / "generator.bin")
    def generate() -> Generator[int, int, str]:
        received = yield len(bytearray(1_000_000))
        yield len(bytearray(received))
        return "done"

    @heap.record(tmp_path / "slowly.bin")
    async def generate_slowly() -> AsyncGenerator[int, int]:
        try:
            received = yield len(bytearray(1_000_000))
        except KeyError:
            received = 2_000_000
        yield len(bytearray(received))

    @heap.record(tmp_path / "recursive.bin")
    def go_down(steps: int) -> int:
        return len(bytearray(1_000_000)) + (go_down(steps - 1) if steps else 0)

    async def go_through() -> list[int]:
        generator = generate_slowly()
        return [await anext(generator), await generator.athrow(KeyError()), *[one async for one in generator]]

    assert inspect.iscoroutinefunction(wait) and inspect.isgeneratorfunction(generate)
    assert asyncio.run(wait()) == 3_000_000 < total("coroutine.bin")
    generator = generate()
    assert [next(generator), generator.send(2_000_000), next(generator, "end")] == [
        1_000_000,
        2_000_000,
        "end",
    ]
    assert total("generator.bin") > 3_000_000
    assert asyncio.run(go_through()) == [1_000_000, 2_000_000]
    assert total("slowly.bin") > 3_000_000
    assert go_down(2) == 3_000_000 < total("recursive.bin")
    assert not heap.is_recording()
