"""`stormlog run` and `jaxmemprof` with JAX programs on a real GPU: memory by line, the pool, errors.

Every program is a process of its own. Without pytest: `python tests/gpu/plain.py tests/gpu/test_jax_gpu.py`.
Where JAX has no GPU they are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import SkipTest

MB = 1 << 20
STORMLOG = [sys.executable, "-m", "stormlog"]
JAXMEMPROF = [sys.executable, "-m", "stormlog.jax"]
# The client of each process reads them when its backend starts.
ALLOCATOR = "XLA_PYTHON_CLIENT_ALLOCATOR"
# Keeps 1 GiB in one line, compiles a step with a temporary, and waits until the peak was seen.
HEALTHY = """
import glob, os, time
import jax, jax.numpy as jnp
weights = [jnp.ones((64, 1024, 1024)) + number for number in range(4)]  # held

@jax.jit
def train_step(x):
    return jnp.tanh(x @ x.T).sum()

for _ in range(50):
    train_step(weights[0][0]).block_until_ready()
until = time.monotonic() + 30
run = os.environ["STORMLOG_RUN_DIR"]
while time.monotonic() < until and not glob.glob(run + "/*/jax-memory-peak.pb.gz"):
    time.sleep(0.05)
time.sleep(1.5)
"""
EXHAUSTED = """
import jax, jax.numpy as jnp
kept = []
while True:
    kept.append(jnp.ones((64, 1024, 1024)) + 1)  # held
    kept[-1].block_until_ready()
"""


# The pool before and after the first allocation, as the collector samples it.
UNTOUCHED = """
import json, jax, jax.numpy as jnp
from stormlog._jax.collector import JaxDeviceCollector
collector = JaxDeviceCollector(jax.devices()[0])
before = collector.sample()
stats_before = dict(jax.devices()[0].memory_stats())
jnp.ones((1024, 1024)).block_until_ready()
after = collector.sample()
print(json.dumps({"before": before.reserved_bytes, "after": after.reserved_bytes, "total": after.total_bytes,
                  "stats_before": stats_before, "stats_after": dict(jax.devices()[0].memory_stats())}))
"""
SERVER = """
import os, sys, jax, jax.numpy as jnp
weights = [jnp.ones((64, 1024, 1024)) + number for number in range(4)]  # held
jax.block_until_ready(weights)
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


@cache
def backend() -> str:
    """What JAX finds here; asked in a process of its own, for it would take the GPU's memory."""
    ask = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    return subprocess.run(ask, capture_output=True, text=True).stdout.strip() if find_spec("jax") else ""


def needs_gpu() -> None:
    if backend() != "gpu":
        raise SkipTest("JAX has no GPU here")


def run(folder: Path, source: str, **env: str) -> tuple[subprocess.CompletedProcess[str], Path, int]:
    program = folder / "train.py"
    program.write_text(source, encoding="utf-8")
    words = [*STORMLOG, "run", "--dir", str(folder / "runs"), "--", sys.executable, str(program)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **env}, timeout=120)
    (found,) = (folder / "runs").iterdir()
    line = next(at for at, text in enumerate(source.splitlines(), 1) if text.endswith("# held"))
    return done, found, line


def stats(profile: Path) -> dict[str, Any]:
    done = subprocess.run([*STORMLOG, "stats", "--json", str(profile)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_a_program_is_recorded_by_line_and_its_pool_is_not_use(tmp_path: Path) -> None:
    needs_gpu()
    done, found, line = run(tmp_path, HEALTHY)
    assert done.returncode == 0, done.stderr
    sys.stdout.write(done.stderr[-1500:])
    (profile,) = found.glob("*-cuda0/jax-memory-peak.pb.gz")
    seen = stats(profile)
    assert seen["memory"] == "cuda:0" and seen["top_by_size"][0]["line"] == line
    assert seen["top_by_size"][0]["bytes"] == 1024 * MB
    page = json.loads((profile.parent / "jax.json").read_text())
    (device,) = page["devices"][:1]
    assert device["preallocated"] and device["pool_bytes"] > 8 * device["peak_bytes"] > 8 * 1024 * MB
    assert any(row["name"] == "jit_train_step" for row in page["programs"])
    assert "taken at the start (XLA_PYTHON_CLIENT_PREALLOCATE) · in use at most" in done.stderr
    judged = subprocess.run([*STORMLOG, "analyze", str(found)], capture_output=True, text=True)
    sys.stdout.write(judged.stdout)
    assert "hidden" not in judged.stdout.lower() and "% of the limit" not in judged.stdout


def test_nearly_all_of_a_device_as_a_pool_is_not_near_its_limit(tmp_path: Path) -> None:
    needs_gpu()
    done, found, _ = run(tmp_path, HEALTHY, XLA_PYTHON_CLIENT_MEM_FRACTION=".95")
    assert done.returncode == 0, done.stderr
    judged = subprocess.run([*STORMLOG, "analyze", str(found)], capture_output=True, text=True)
    sys.stdout.write(judged.stdout)
    assert "% of the limit" not in judged.stdout and "leak" not in judged.stdout.lower()


def test_an_error_leaves_a_bundle_with_the_line_that_holds_the_pool(tmp_path: Path) -> None:
    needs_gpu()
    done, found, line = run(tmp_path, EXHAUSTED, XLA_PYTHON_CLIENT_MEM_FRACTION=".03")
    assert done.returncode != 0 and "RESOURCE_EXHAUSTED" in done.stderr
    sys.stdout.write(done.stderr[-2500:])
    (bundle,) = found.glob("*-cuda0/oom_dump_*")
    page = json.loads((bundle / "cuda_oom.json").read_text())
    sys.stdout.write(
        json.dumps({key: page[key] for key in ("verdict", "preallocation", "memory_stats")}, indent=1)
    )
    largest = page["held_by"][0]
    assert f"train.py:{line} " in largest["place"] and largest["bytes"] > page["allocated_bytes"] // 2
    assert stats(bundle / "jax-memory.pb.gz")["memory"] == "cuda:0"
    shown = subprocess.run([*STORMLOG, "oom", "show", str(found)], capture_output=True, text=True)
    sys.stdout.write(shown.stdout)
    assert f"train.py:{line}" in shown.stdout and "JAX reserved" in shown.stdout
    # The same error out of a log: what asked for how much.
    assert page["requested_bytes"] == 256 * MB
    log = tmp_path / "train.log"
    log.write_text(done.stderr)
    explained = subprocess.run(
        [*STORMLOG, "oom", "explain", "--json", str(log)], capture_output=True, text=True
    )
    sys.stdout.write(explained.stdout[:3000])
    assert explained.returncode == 0 and '"framework": "jax"' in explained.stdout, explained.stderr
    assert f'"requested": {256 * MB}' in explained.stdout


def sampled(**env: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", UNTOUCHED], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    sys.stdout.write(done.stdout)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_the_pool_is_reserved_only_from_the_first_allocation_on() -> None:
    needs_gpu()
    found = sampled(XLA_PYTHON_CLIENT_MEM_FRACTION=".1")
    assert found["before"] == 0 < found["after"] == found["total"]


def test_the_pool_of_cuda_async_is_there_from_the_start(tmp_path: Path) -> None:
    needs_gpu()
    found = sampled(XLA_PYTHON_CLIENT_MEM_FRACTION=".1", **{ALLOCATOR: "cuda_async"})
    assert found["before"] == found["after"] == found["stats_before"]["bytes_limit"]
    assert found["stats_before"]["peak_bytes_in_use"] == 0, "the filling of the pool is not counted"
    assert found["total"] is None
    done, ran, _ = run(tmp_path, HEALTHY, XLA_PYTHON_CLIENT_MEM_FRACTION=".1", **{ALLOCATOR: "cuda_async"})
    assert done.returncode == 0, done.stderr
    (state,) = ran.glob("*-cuda0/jax.json")
    device = json.loads(state.read_text())["devices"][0]
    sys.stdout.write(json.dumps(device))
    assert device["preallocated"] and device["pool_bytes"] > 0
    assert device["peak_bytes"] >= 1024 * MB and device["limit_bytes"] is None
    judged = subprocess.run([*STORMLOG, "analyze", str(ran)], capture_output=True, text=True)
    assert "% of the limit" not in judged.stdout, judged.stdout


def test_the_platform_allocator_has_no_pool_and_no_false_figures() -> None:
    needs_gpu()
    ask = "import jax; jax.numpy.ones(9).block_until_ready(); print(jax.devices()[0].memory_stats())"
    done = subprocess.run(
        [sys.executable, "-c", ask],
        capture_output=True,
        text=True,
        env={**os.environ, ALLOCATOR: "platform"},
    )
    sys.stdout.write(done.stdout or done.stderr[-500:])
    assert "pool_bytes" not in done.stdout and "bytes_in_use" not in done.stdout


def test_jaxmemprof_watches_the_gpu_and_takes_a_profile_by_line(tmp_path: Path) -> None:
    needs_gpu()
    shown = subprocess.run([*JAXMEMPROF, "info"], capture_output=True, text=True)
    sys.stdout.write(shown.stdout)
    assert "Runtime Backend: gpu\n" in shown.stdout and "Accelerator Runtime: True\n" in shown.stdout
    program = tmp_path / "serve.py"
    program.write_text(SERVER, encoding="utf-8")
    words = [*STORMLOG, "run", "--quiet", "--dir", str(tmp_path / "runs"), "--", sys.executable, str(program)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdin is not None
        pid = child.stdout.readline().strip()
        args = ["--pid", pid, "--duration", "2", "--interval", "0.2", "--output", str(tmp_path / "r.json")]
        done = subprocess.run([*JAXMEMPROF, "track", *args, "--profile"], capture_output=True, text=True)
        child.stdin.close()
    sys.stdout.write(done.stdout + done.stderr)
    assert done.returncode == 0 and "the driver counts the pool that JAX takes" in done.stderr
    results = json.loads((tmp_path / "r.json").read_text())
    assert results["device_memory_available"] and results["memory_source"] == "driver"
    assert min(results["memory_usage"]) > 1024 * MB
    (line,) = [
        line for line in done.stdout.splitlines() if line.startswith("Device memory profile saved to: ")
    ]
    seen = stats(Path(line.partition(": ")[2]))
    assert seen["memory"] == "cuda:0" and seen["top_by_size"][0]["bytes"] == 1024 * MB


def test_a_program_that_records_itself_has_its_device_and_takes_requests(tmp_path: Path) -> None:
    needs_gpu()
    program = tmp_path / "serve.py"
    program.write_text(SERVER, encoding="utf-8")
    env = {**os.environ, "STORMLOG": "1", "STORMLOG_DIR": str(tmp_path / "runs")}
    words = [sys.executable, str(program)]
    with subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        pid = child.stdout.readline().strip()
        ask = [*STORMLOG, "snapshot", "--pid", pid, "--json"]
        shown = subprocess.run(ask, capture_output=True, text=True, timeout=120)
        assert shown.returncode == 0, shown.stderr
        child.communicate("\n", timeout=60)
    seen = stats(Path(json.loads(shown.stdout)["path"]) / "jax-memory.pb.gz")
    assert seen["memory"] == "cuda:0" and seen["top_by_size"][0]["bytes"] == 1024 * MB
    (run,) = (tmp_path / "runs").iterdir()
    assert list(run.glob("*-cuda0/jax-memory-end.pb.gz")) and list(run.glob("*-cuda0/session.json"))
