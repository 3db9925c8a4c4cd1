"""`stormlog.jax` and `stormlog run` with the real JAX on the CPU; devices with counters are stand-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import stormlog  # noqa: E402
from stormlog import query  # noqa: E402
from stormlog.jax import MemoryTracker, MemoryWatchdog, compiled_memory, profile_function, tracker  # noqa: E402
from stormlog.jax.analyzer import MemoryAnalyzer  # noqa: E402
from stormlog.jax.context_profiler import JAXProfiler, clear_global_profiler, get_profile_summaries  # noqa: E402
from stormlog.jax.pprof_parser import parse_jax_memory_profile  # noqa: E402
from stormlog.jax.profiler import JAXMemoryProfiler  # noqa: E402
from stormlog.telemetry import validate_telemetry_record  # noqa: E402
from stormlog.telemetry_sink import TelemetrySinkConfig  # noqa: E402

MIB = 1 << 20


class Device:
    """A GPU by its counters alone."""

    platform, device_kind, id, local_hardware_id = "gpu", "stand-in", 0, 0

    def __init__(self) -> None:
        self.stats = {
            "bytes_in_use": 10 * MIB,
            "peak_bytes_in_use": 10 * MIB,
            "bytes_limit": 768 * MIB,
            "pool_bytes": 768 * MIB,
            "largest_free_block_bytes": 700 * MIB,
        }

    def hold(self, megabytes: int) -> None:
        self.stats["bytes_in_use"] = megabytes * MIB
        self.stats["peak_bytes_in_use"] = max(self.stats["peak_bytes_in_use"], megabytes * MIB)

    def memory_stats(self) -> dict[str, int]:
        return dict(self.stats)

    def __str__(self) -> str:
        return "cuda:0"


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    found = Device()
    monkeypatch.setattr(tracker, "resolve_jax_device", lambda selector=0: (found, 0))
    yield found


def wait_for(what: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)


def test_the_memory_of_the_cpu_is_unknown_and_not_zero() -> None:
    with JAXMemoryProfiler() as profiler:
        shot = profiler.capture_snapshot()
    assert not shot.device_memory_available and shot.cpu_memory_bytes > MIB
    result = profiler.get_results()
    assert not result.device_memory_available
    assert "does not count the memory of the CPU" in (result.device_memory_unavailable_reason or "")
    tracked = MemoryTracker(0.01)
    tracked.start_tracking()
    wait_for(lambda: tracked.get_statistics()["collector_consecutive_failures"])
    found = tracked.stop_tracking()
    assert (found.samples_collected, found.memory_usage, found.memory_source) == (0, [], "unavailable")
    assert tracked.get_statistics()["current_memory_mb"] is None


def test_the_peak_of_a_block_is_the_allocators_own(device: Device) -> None:
    profiler = JAXMemoryProfiler(device=device)

    @profiler.profile_function(name="step")
    def step() -> None:
        device.hold(300)
        device.hold(20)

    step()
    row = profiler.get_results().function_profiles["step"]
    assert (row["peak_memory_bytes"], row["last_memory_delta"]) == (300 * MIB, 10 * MIB)
    assert profiler.get_results().snapshots[0].device_memory_reserved_bytes == 768 * MIB


def test_loops_and_functions_are_counted_by_the_global_profiler() -> None:
    clear_global_profiler()
    loops = JAXProfiler()
    loops.profile_training(lambda batch: jnp.sum(batch), iter([jnp.ones(3)] * 2), epochs=2)
    loops.profile_inference(lambda batch: batch * 2, jnp.ones((5, 2)), batch_size=2)

    @profile_function
    def double(x: Any) -> Any:
        return x * 2

    double(jnp.ones(2))
    calls = {row["name"]: row["calls"] for row in get_profile_summaries()}
    assert (calls["epoch_1"], calls["step_0"], calls["inference_batch_2"], calls["double"]) == (1, 2, 1, 1)
    clear_global_profiler()
    assert get_profile_summaries() == []


def test_a_tracker_has_samples_one_alert_a_breach_phases_and_a_sink(tmp_path: Path, device: Device) -> None:
    sink = TelemetrySinkConfig(root_dir=tmp_path)
    tracked = MemoryTracker(0.01, alert_threshold_mb=100, job_id="j", telemetry_sink_config=sink)
    seen: list[dict[str, Any]] = []
    tracked.add_alert_callback(seen.append)
    tracked.add_alert_callback(lambda alert: 1 / 0)
    tracked.start_tracking()
    with tracked.phase("load"):
        device.hold(200)
        wait_for(lambda: len(tracked.get_events("sample")) >= 5 and seen)
    device.hold(50)
    ended = "Memory usage 50.0 MB"
    wait_for(lambda: any(ended in (event.context or "") for event in tracked.get_events("recovered")))
    device.hold(150)
    wait_for(lambda: len(seen) == 2)
    result = tracked.stop_tracking()
    assert (result.peak_memory_bytes, result.min_memory_bytes) == (200 * MIB, 10 * MIB)
    assert result.alert_count == len(seen) == 2 and seen[0]["threshold_mb"] == 100
    assert result.device_memory_available and result.memory_source == "jax_device_stats"
    assert len(result.memory_usage) == len(result.timestamps) == result.history_retained_samples
    for record in result.telemetry_events:
        validate_telemetry_record(record)
    samples = [row for row in result.telemetry_events if row["event_type"] == "sample"]
    # The pool is a reserve: it counts as reserved, and nothing as fragmented or as hidden.
    assert samples[-1]["allocator_reserved_bytes"] == samples[-1]["device_total_bytes"] == 768 * MIB
    assert samples[-1]["collector"] == "stormlog.jax.memory_tracker"
    metadata = samples[-1]["metadata"]
    assert metadata["sampling_source"] == "jax_device_stats"
    assert not metadata["memory_capabilities"]["supports_fragmentation_analysis"]
    assert tracked.total_memory == 768 * MIB
    assert tracked.get_memory_timeline(0.001)["allocated"][-1] == 150 * MIB
    (row,) = query.open([tmp_path]).list_sessions()
    assert (row.status, row.job_id) == ("completed", "j")


def test_memory_around_the_threshold_is_one_alert_and_reaches_the_watchdog(device: Device) -> None:
    tracked = MemoryTracker(0.005, alert_threshold_mb=110, enable_logging=False)
    seen: list[dict[str, Any]] = []
    cleanups: list[int] = []
    tracked.add_alert_callback(seen.append)
    watchdog = stormlog.MemoryWatchdog(tracked)
    watchdog.add_cleanup_callback(lambda: cleanups.append(1))
    tracked.start_tracking()
    for megabytes in (112, 109) * 6:
        device.hold(megabytes)
        wait_for(lambda held=megabytes: tracked.get_statistics()["current_memory_mb"] == held)
    assert [alert["message"] for alert in seen] == ["Memory usage 112.0 MB exceeds threshold 110.0 MB"]
    assert tracked.check_alerts() and not cleanups
    device.hold(760)
    wait_for(lambda: cleanups)
    result = tracked.stop_tracking()
    assert result.alert_count == 1 and watchdog.cleanup_count == 1


def test_analyzer_takes_the_results_of_profiler_and_tracker(device: Device) -> None:
    profiler = JAXMemoryProfiler(device=device)
    tracked = MemoryTracker(0.005)
    tracked.start_tracking()
    for megabytes in range(20, 220, 10):
        device.hold(megabytes)
        profiler.capture_snapshot()
        wait_for(lambda held=megabytes: tracked.get_statistics()["current_memory_mb"] == held)
    for result in (profiler.get_results(), tracked.stop_tracking()):
        analyzer = MemoryAnalyzer()
        assert analyzer.analyze_efficiency(result) <= 0.85, "the rise is seen in either result"
        report = analyzer.score_optimization(result)
        assert report["categories"]["memory_efficiency"] == analyzer.analyze_efficiency(result) * 10


def test_an_error_of_a_device_leaves_a_bundle_with_arrays_by_line(tmp_path: Path, device: Device) -> None:
    keep = [jnp.ones((256, 1024)) + number for number in range(8)]  # held
    tracked = MemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    with pytest.raises(RuntimeError), tracked.capture_oom("train"):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB")
    assert tracked.last_oom_dump_path is not None
    bundle = Path(tracked.last_oom_dump_path)
    page = json.loads((bundle / "cuda_oom.json").read_text())
    assert page["framework"] == "jax" and page["allocated_bytes"] == 10 * MIB
    assert page["preallocation"]["sentence"].startswith("JAX reserved 768.0 MiB at the start")
    line = next(
        at for at, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith("# held")
    )
    largest = json.loads((bundle / "evidence.json").read_text())["held_by"][0]
    assert largest["place"].startswith(f"{__file__}:{line} ") and largest["bytes"] >= 8 * MIB
    stacks = parse_jax_memory_profile(str(bundle / "jax-memory.pb.gz"))["samples"]
    assert sum(row["values"][1] for row in stacks) >= 8 * MIB
    assert not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".")]
    assert "torch" not in sys.modules, "a bundle of JAX must not import PyTorch"
    del keep


def test_error_on_the_cpu_is_about_the_host(tmp_path: Path) -> None:
    tracked = MemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    with pytest.raises(RuntimeError), tracked.capture_oom("train"):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 34359738368 bytes.")
    bundle = Path(tracked.last_oom_dump_path or "")
    assert not (bundle / "cuda_oom.json").exists()
    page = json.loads((bundle / "jax_oom.json").read_text())
    assert page["device_index"] is None
    assert page["verdict"].startswith("JAX ran out of memory: RESOURCE_EXHAUSTED"), page["verdict"]
    evidence = json.loads((bundle / "evidence.json").read_text())
    assert any("stormlog run --heap" in text for text in evidence["try"]), evidence["try"]
    assert "jax_oom.json" in json.loads((bundle / "manifest.json").read_text())["files"]
    shown = subprocess.run(
        [sys.executable, "-m", "stormlog", "oom", "show", bundle], capture_output=True, text=True
    )
    assert shown.returncode == 0 and "GPU -1" not in shown.stdout, shown


def test_a_watchdog_cleans_up_once_a_breach(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    monkeypatch.setattr("stormlog.jax._watchdog.resolve_jax_device", lambda selector=0: (device, 0))
    called: list[int] = []
    watchdog = MemoryWatchdog(max_memory_mb=500, cleanup_threshold_mb=100, check_interval=0.01)
    watchdog.add_cleanup_callback(lambda: called.append(1))
    device.hold(200)
    watchdog.start()
    wait_for(lambda: called)
    watchdog.stop()
    assert len(called) == 1 and not watchdog.active


def test_compiled_memory_is_known_before_the_call() -> None:
    def step(x: Any) -> Any:
        return jnp.tanh(x @ x).sum()

    found = compiled_memory(step, jax.ShapeDtypeStruct((512, 512), jnp.float32))
    assert (found.name, found.argument_bytes, found.output_bytes) == ("step", MIB, 4)
    assert found.peak_bytes >= found.argument_bytes + found.output_bytes


def test_need_of_a_function_has_its_arguments_outputs_and_temporaries() -> None:
    def step(x: Any) -> Any:
        return jnp.sin(x) @ x

    # The argument, its sine and the product are alive at once.
    found = compiled_memory(step, jax.ShapeDtypeStruct((512, 512), jnp.float32))
    assert found.peak_bytes - found.generated_code_bytes == 3 * MIB, found
    donated = compiled_memory(
        jax.jit(lambda x: x * 2 + 1, donate_argnums=0), jax.ShapeDtypeStruct((512, 512), jnp.float32)
    )
    assert donated.alias_bytes == MIB and donated.peak_bytes - donated.generated_code_bytes == MIB, donated


PROGRAM = """
import time
import jax, jax.numpy as jnp
keep = [jnp.ones((256, 1024)) + number for number in range(40)]  # held

@jax.jit
def train_step(x):
    return jnp.tanh(x @ x.T).sum()

train_step(keep[0]).block_until_ready()
import os, pathlib, sys
run = pathlib.Path(os.environ["STORMLOG_RUN_DIR"])
until = time.monotonic() + 60
wanted = ["jax-memory-peak.pb.gz", "jax.json"]
while time.monotonic() < until and not all(list(run.glob(f"*/{name}")) for name in wanted):
    time.sleep(0.05)
jnp.ones((1 << 46,), jnp.float32)  # fails
"""


LINE = next(at for at, text in enumerate(PROGRAM.splitlines(), 1) if text.endswith("# held"))
COMMAND = Path(sys.executable).with_name("stormlog")
ENV = {**os.environ, "JAX_PLATFORMS": "cpu"}


class Recorded(NamedTuple):
    """A run of the program, whose heap was not recorded."""

    done: subprocess.CompletedProcess[str]
    run: Path
    program: Path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("jax")
    program = folder / "train.py"
    program.write_text(PROGRAM)
    words = [
        str(COMMAND),
        "run",
        "--no-heap",
        "--dir",
        str(folder / "runs"),
        "--",
        sys.executable,
        str(program),
    ]
    done = subprocess.run(words, env=ENV, capture_output=True, text=True, timeout=240)
    (run,) = (folder / "runs").iterdir()
    return Recorded(done, run, program)


def answer(*words: str | Path, command: Path = COMMAND) -> str:
    done = subprocess.run([command, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_run_records_a_jax_program_by_line_and_its_end(recorded: Recorded) -> None:
    done, run, program = recorded
    assert done.returncode == 1 and "RESOURCE_EXHAUSTED" in done.stderr, done.stderr
    assert "by line   stormlog stats" in done.stderr, done.stderr
    for name in ("jax-memory-peak.pb.gz", "jax-memory-end.pb.gz"):
        (profile,) = run.glob(f"*/{name}")
        top = json.loads(answer("stats", "--json", profile))["top_by_size"][0]
        assert (top["file"], top["line"], top["bytes"]) == (str(program), LINE, 40 * MIB), name
    (listed,) = run.glob("*/jax.json")
    programs = {row["name"]: row for row in json.loads(listed.read_text())["programs"]}
    assert programs["jit_train_step"]["argument_bytes"] == MIB
    assert programs["jit_train_step"]["place"].startswith(f"{program}:")
    (bundle,) = run.glob("*-host/oom_dump_*")
    assert json.loads((bundle / "evidence.json").read_text())["held_by"][0]["bytes"] == 40 * MIB


def test_views_of_a_run_without_captures_open_the_profile_of_jax(recorded: Recorded, tmp_path: Path) -> None:
    top = json.loads(answer("stats", "--json", recorded.run))["top_by_size"][0]
    assert (top["file"], top["line"], top["bytes"]) == (str(recorded.program), LINE, 40 * MIB)
    assert f"train.py:{LINE}" in answer("tree", recorded.run)
    drawn = tmp_path / "flame.html"
    answer("flamegraph", recorded.run, "-o", drawn)
    assert "<title>jax-memory-peak.pb.gz" in drawn.read_text(encoding="utf-8")
    # A process without JAX has nothing to open.
    refused = subprocess.run([COMMAND, "stats", "--pid", "1", recorded.run], capture_output=True, text=True)
    assert refused.returncode != 0


def test_the_page_of_an_out_of_memory_error_has_the_pool_of_a_stand_in_device(
    tmp_path: Path, device: Device
) -> None:
    keep = [jnp.ones((256, 1024)) + number for number in range(8)]
    tracked = MemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    with pytest.raises(RuntimeError), tracked.capture_oom("train"):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.00GiB")
    assert tracked.last_oom_dump_path is not None
    lines = answer("oom", "show", tracked.last_oom_dump_path).splitlines()
    (pool,) = [line for line in lines if line.split()[:1] == ["pool"]]
    assert "JAX reserved 768.0 MiB at the start" in pool and pool.endswith("10.00 MiB of it is in use")
    assert any(line.startswith("  failed") and "2.00 GiB" in line for line in lines), lines
    del keep


def test_an_error_of_the_autotuner_leaves_a_bundle(tmp_path: Path, device: Device) -> None:
    message = (
        "UNKNOWN: Failed to determine best cudnn convolution algorithm for:\n"
        '%cudnn-conv.1 = (f32[1]{0}) custom-call(f32[1]{0} %a), metadata={op_name="jit(encode)/conv" '
        'source_file="/work/net.py" source_line=88}\n\n'
        "Original error: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 13271040000 bytes."
    )
    tracked = MemoryTracker(enable_oom_flight_recorder=True, oom_dump_dir=str(tmp_path))
    with pytest.raises(jax.errors.JaxRuntimeError), tracked.capture_oom("compile"):
        raise jax.errors.JaxRuntimeError(message)
    assert tracked.last_oom_dump_path is not None
    page = json.loads((Path(tracked.last_oom_dump_path) / "cuda_oom.json").read_text())
    assert page["requested_bytes"] == 13271040000
    shown = answer("oom", "show", tracked.last_oom_dump_path)
    assert "12.36 GiB" in shown


SERVER = """
import sys, time
import jax, jax.numpy as jnp
keep = [jnp.ones((256, 1024)) + number for number in range(8)]  # held
jax.block_until_ready(keep)
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[int]:
    """A JAX program that runs under `stormlog run`; its pid."""
    program = tmp_path / "serve.py"
    program.write_text("import os; print(os.getpid(), flush=True)\n" + SERVER)
    words = [str(COMMAND), "run", "--quiet", "--no-heap", "--dir", str(tmp_path / "runs"), "--"]
    words += [sys.executable, str(program)]
    child = subprocess.Popen(words, env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdin is not None
    pid = int(child.stdout.readline())
    assert child.stdout.readline() == "ready\n"
    try:
        yield pid
    finally:
        child.stdin.close()
        child.wait(timeout=60)
        child.stdout.close()


def lines_of(profile: Path) -> tuple[str, int]:
    top = json.loads(answer("stats", "--json", profile))["top_by_size"][0]
    return Path(top["file"]).name, int(top["bytes"])


def test_a_snapshot_on_request_has_the_profile_of_jax(server: int) -> None:
    found = json.loads(answer("snapshot", "--pid", str(server), "--json"))
    profile = Path(found["path"]) / "jax-memory.pb.gz"
    assert lines_of(profile) == ("serve.py", 8 * MIB)
    assert f"live arrays of JAX by line: stormlog stats {profile}" in found["notes"]


@pytest.mark.parametrize("how", ["import stormlog.auto\n", ""], ids=["import", "environment"])
def test_a_program_that_records_itself_answers_requests(tmp_path: Path, how: str) -> None:
    program = tmp_path / "serve.py"
    program.write_text(how + SERVER)
    env = {**ENV, "STORMLOG_DIR": str(tmp_path / "runs"), **({} if how else {"STORMLOG": "1"})}
    command = [sys.executable, str(program)]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        wait_for(lambda: list((tmp_path / "runs").glob("*/requests/*")))
        found = json.loads(answer("snapshot", "--pid", str(child.pid), "--json"))
        assert lines_of(Path(found["path"]) / "jax-memory.pb.gz") == ("serve.py", 8 * MIB)
        child.communicate("\n", timeout=60)
    assert child.returncode == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert Path(found["path"]).is_relative_to(run)
    assert [row.status for row in query.open([run]).list_sessions()] == ["completed"]
    (profile,) = run.glob("*/jax-memory-end.pb.gz")
    assert lines_of(profile) == ("serve.py", 8 * MIB)
    # The host's heap is recorded too; a reader opens it whether it is compacted yet or not.
    heap = json.loads(answer("stats", "--json", run))
    assert heap["memory"] == "host" and heap["peak_bytes"] > MIB, heap


def test_jaxmemprof_takes_a_profile_of_the_program_it_tracked(server: int, tmp_path: Path) -> None:
    args = ["--pid", str(server), "--duration", "0.5", "--interval", "0.1", "--profile"]
    printed = answer("track", *args, "--output", tmp_path / "r.json", command=COMMAND.with_name("jaxmemprof"))
    (line,) = [line for line in printed.splitlines() if line.startswith("Device memory profile saved to: ")]
    assert lines_of(Path(line.partition(": ")[2])) == ("serve.py", 8 * MIB)
    results = json.loads((tmp_path / "r.json").read_text())
    # The interpreter with JAX in it, not the command.
    assert results["process_memory_bytes"] > 100 * MIB and not results["device_memory_available"]


def test_jaxmemprof_info_knows_the_jax_of_its_interpreter() -> None:
    command = [sys.executable, "-m", "stormlog.jax", "info"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"JAX Version: {jax.__version__}\n" in printed
    assert "\nDevice 0:\n  Name: cpu\n  Device Memory: unavailable\n" in printed
