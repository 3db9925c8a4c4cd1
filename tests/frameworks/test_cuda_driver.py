"""Driver-level events and a stand-in for CUPTI (fake_cupti.c); the real one: tests/gpu/test_driver_gpu.py.

Each test is a process of its own, for CUPTI is one in a process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("fake_cupti.c")
COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
PROGRAM = """
import ctypes, json, logging, sys, threading
from stormlog import cuda_driver
cupti = ctypes.CDLL(sys.argv[1] + "/libcupti_fake.so", ctypes.RTLD_GLOBAL)
def library(name):
    found = ctypes.CDLL(f"{sys.argv[1]}/{name}.so")
    for call in (found.owner_take, found.owner_take_async, found.owner_take_by, found.owner_create):
        call.restype = ctypes.c_size_t
    found.owner_take_async.argtypes = [ctypes.c_size_t, ctypes.c_int]
    found.owner_take_by.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    found.owner_take.argtypes = [ctypes.c_size_t, ctypes.c_int]
    found.owner_create.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
    found.owner_give_back.argtypes = found.owner_release.argtypes = [ctypes.c_size_t]
    return found
MB = 1 << 20
for call, words in ((cupti.fake_map, 3), (cupti.fake_unmap, 2), (cupti.fake_retain, 1)):
    call.argtypes = [ctypes.c_size_t] * words
def held(device=0):
    return {row["owner"]: row["bytes"] // MB for row in cuda_driver.report(device)["held"]}
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    build = [str(COMPILER), "-shared", "-fPIC", "-O0", "-Wall", "-Werror"]
    subprocess.run([*build, "-o", str(folder / "libcupti_fake.so"), str(SOURCE)], check=True)
    for name in ("libnccl_fake", "libc10_cuda_fake", "libmine"):
        words = [
            *build,
            "-DOWNER",
            "-o",
            str(folder / f"{name}.so"),
            str(SOURCE),
            f"-L{folder}",
            "-lcupti_fake",
        ]
        subprocess.run([*words, f"-Wl,-rpath,{folder}"], check=True)
    return folder


def run(libraries: Path, source: str, **env: str) -> tuple[Any, str]:
    known = {**os.environ, "STORMLOG_CUPTI": str(libraries / "libcupti_fake.so"), **env}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + source, str(libraries)], capture_output=True, text=True, env=known
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_held_memory_is_reported_by_library_and_device(libraries: Path) -> None:
    found, said = run(
        libraries,
        """
nccl, torch_, mine = library("libnccl_fake"), library("libc10_cuda_fake"), library("libmine")
nccl.owner_take(64 * MB, 0)                       # before: not known
assert cuda_driver.start() and cuda_driver.start(), "a second time does nothing"
first = nccl.owner_take(100 * MB, 0)
nccl.owner_take(20 * MB, 0); nccl.owner_take(7 * MB, 1)
torch_.owner_take(500 * MB, 0)
handle = mine.owner_create(32 * MB, 1, 0)
mine.owner_create(999 * MB, 3, 0)                 # on the host
assert mine.owner_take(1 << 41, 0) == 0           # refused by the driver
cupti.fake_module(3 * MB)
before = held()
nccl.owner_give_back(first); mine.owner_release(handle)
after = cuda_driver.report(0)
cuda_driver.stop()
nccl.owner_take(1 * MB, 0)                        # afterwards: not known
print(json.dumps([before, held(), held(1), after, cuda_driver.report(0)["why_not"]]))
""",
    )
    before, held, other, after, why = found
    assert before == {"nccl": 120, "pytorch": 500, "libmine.so": 32}
    assert held == {"nccl": 20, "pytorch": 500} and other == {"nccl": 7}
    assert after["is_on"] and after["outside_pytorch_bytes"] == 20 << 20
    assert (after["allocations"], after["frees"], after["lost"]) == (5, 2, 0), "reported twice, counted once"
    assert after["modules"] == {"count": 1, "bytes": 3 << 20}
    assert why == "it was stopped" and said == ""


def test_taken_cupti_subscription_is_reported_in_one_line(libraries: Path) -> None:
    found, said = run(
        libraries,
        "nccl = library('libnccl_fake')\nok = cuda_driver.start()\nnccl.owner_take(MB, 0)\n"
        "print(json.dumps([ok, cuda_driver.report(0)]))",
        FAKE_CUPTI_IS_TAKEN="1",
    )
    assert found[0] is False and found[1]["held"] == [] and not found[1]["is_on"]
    assert len(said.splitlines()) == 1 and "another tool (Nsight, a profiler)" in said, said


def test_without_cupti_one_line_says_so(libraries: Path) -> None:
    found, said = run(
        libraries, "print(json.dumps(cuda_driver.start()))", STORMLOG_CUPTI="/nowhere/libcupti.so"
    )
    assert found is False
    assert len(said.splitlines()) == 1 and "/nowhere/libcupti.so" in said, said


def test_callback_never_takes_the_gil(libraries: Path) -> None:
    """PyTorch allocates under a lock others wait for with the interpreter held: to want it is deadlock."""
    found, _ = run(
        libraries,
        """
cuda_driver.start()
# Called like this the interpreter is held until the other thread, which allocates, has ended.
held_all_the_while = ctypes.PyDLL(sys.argv[1] + "/libnccl_fake.so")
held_all_the_while.owner_take_elsewhere.argtypes = [ctypes.c_size_t]
assert held_all_the_while.owner_take_elsewhere(5 * MB) == 0
nccl = library("libnccl_fake")
threads = [threading.Thread(target=lambda: [nccl.owner_take(MB, 0) for _ in range(50)]) for _ in range(8)]
[one.start() for one in threads]
while any(one.is_alive() for one in threads):
    held()
print(json.dumps(held()))
""",
    )
    assert found == {"nccl": 405}


def test_hidden_memory_is_named_after_its_library(libraries: Path) -> None:
    found, _ = run(
        libraries,
        """
cuda_driver.start()
nccl, torch_ = library("libnccl_fake"), library("libc10_cuda_fake")
torch_.owner_take(300 * MB, 0)
names = [cuda_driver.grown(0, 2 * MB)]
nccl.owner_take(80 * MB, 0)
names += [cuda_driver.grown(0, 2 * MB), cuda_driver.grown(0, 2 * MB)]
print(json.dumps(names))
""",
    )
    assert found == [None, "nccl", None]


def test_the_profiler_of_torch_gets_the_place(libraries: Path) -> None:
    pytest.importorskip("torch")
    found, _ = run(
        libraries,
        """
import torch
assert cuda_driver.start()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    torch.ones(3).sum()
names = [event.key for event in profile.key_averages()]
again = cuda_driver.start()
code = cupti.cuptiSubscribe(ctypes.byref(ctypes.c_void_p()), None, None)
print(json.dumps([cuda_driver.report(0), "aten::sum" in names, again, code]))
""",
    )
    report, is_profiled, again, code = found
    assert not report["is_on"] and report["why_not"] == "torch.profiler has taken the only CUPTI subscription"
    assert is_profiled and code == 0, "the place is free"
    assert again is False, "who asks while PyTorch lets go of it waits without end"


def test_created_memory_is_held_while_it_is_mapped(libraries: Path) -> None:
    found, _ = run(
        libraries,
        """
cuda_driver.start()
mine = library("libmine")
handle = mine.owner_create(32 * MB, 1, 0)
cupti.fake_map(0x1000000, 32 * MB, handle)
cupti.fake_retain(handle)
mine.owner_release(handle)
mine.owner_release(handle)
rows = [held()]
cupti.fake_unmap(0x1000000, 32 * MB)
print(json.dumps(rows + [held()]))
""",
    )
    assert found == [{"libmine.so": 32}, {}]


def test_run_records_the_driver_of_a_program_without_torch(libraries: Path, tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("", encoding="utf-8")
    program = tmp_path / "program.py"
    source = """
assert "stormlog.cuda_driver" not in sys.modules
import cupy
assert sys.modules["stormlog.cuda_driver"] is cuda_driver()
library("libmine").owner_take(20 * MB, 0)  # beside
print(json.dumps(held()))
"""
    prepare = PROGRAM.replace("from stormlog import cuda_driver\n", "").replace(
        "cuda_driver.report", "cuda_driver().report"
    )
    find = "\ndef cuda_driver():\n    return sys.modules['stormlog.cuda_driver']\n"
    program.write_text(prepare + find + source, encoding="utf-8")
    words = [
        sys.executable,
        "-m",
        "stormlog",
        "run",
        "--quiet",
        "--heap",
        "--cuda-driver",
        "--dir",
        str(tmp_path / "runs"),
    ]
    done = subprocess.run(
        [*words, "--", sys.executable, str(program), str(libraries)],
        capture_output=True,
        text=True,
        env={**os.environ, "STORMLOG_CUPTI": str(libraries / "libcupti_fake.so")},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"libmine.so": 20}
    (run_json,) = (tmp_path / "runs").glob("*/run.json")
    stats = [sys.executable, "-m", "stormlog", "stats", str(run_json.parent), "--json"]
    found = json.loads(subprocess.run(stats, capture_output=True, text=True, check=True).stdout)
    devices = {row["device"]: row for row in found["devices"]}
    (top,) = devices["cuda:0/driver"]["top"]
    lines = program.read_text(encoding="utf-8").splitlines()
    line = next(at for at, text in enumerate(lines, 1) if text.endswith("# beside"))
    assert (top["bytes"], top["line"], top["file"]) == (20 << 20, line, str(program))


# A stand-in for the hook library: it writes what it is given.
HOOK = r"""
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <dlfcn.h>
#include <string.h>
void stormlog_gpu_report(uint64_t address, int64_t size, uint64_t allocated, uint64_t reserved, uint8_t type,
                         uint8_t index, uint8_t source, uint64_t caller) {
    Dl_info info = {0};
    const char *name = caller && dladdr((void *)caller, &info) ? strrchr(info.dli_fname, '/') + 1 : "-";
    printf("%lx %ld %lu %lu %u %u %u", address, size >> 20, allocated, reserved, type, index, source);
    printf(" %s\n", name);
    fflush(stdout);
}
"""


def test_memory_beside_pytorchs_segments_is_recorded(libraries: Path, tmp_path: Path) -> None:
    source, hook = tmp_path / "hook.c", tmp_path / "libhook_stand_in.so"
    source.write_text(HOOK, encoding="utf-8")
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(hook), str(source)], check=True)
    program = """
nccl, torch_, mine = library("libnccl_fake"), library("libc10_cuda_fake"), library("libmine")
assert cuda_driver.start()
first = nccl.owner_take(100 * MB, 0)
nccl.owner_take(7 * MB, 1)
torch_.owner_take(500 * MB, 0)                    # a segment
plugged = ctypes.cast(mine.owner_take, ctypes.c_void_p)
torch_.owner_take_by(plugged, 300 * MB, 0)        # a segment by an allocator of a MemPool
torch_.owner_take_async(20 * MB, 0)               # backend:cudaMallocAsync
mine.owner_take_by(plugged, 5 * MB, 0)            # a pluggable allocator in place of PyTorch's
handle = mine.owner_create(32 * MB, 1, 0)
nccl.owner_give_back(first)
mine.owner_release(handle)
print(json.dumps(held()))
"""
    known = {
        **os.environ,
        "STORMLOG_CUPTI": str(libraries / "libcupti_fake.so"),
        "LD_PRELOAD": str(hook),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, str(libraries)], capture_output=True, text=True, env=known
    )
    assert done.returncode == 0, done.stderr
    *rows, held = done.stdout.splitlines()
    assert json.loads(held) == {"pytorch": 520, "libmine.so": 305}
    calls = [row.split() for row in rows]
    assert [(int(size), library) for _, size, *_, library in calls] == [
        (100, "libnccl_fake.so"),
        (7, "libnccl_fake.so"),
        (20, "libc10_cuda_fake.so"),
        (5, "libmine.so"),
        (32, "libmine.so"),
        (-100, "-"),
        (-32, "-"),
    ]
    assert [call[5] for call in calls] == ["0", "1", "0", "0", "0", "0", "0"], "the device"
    assert {(*call[2:5], call[6]) for call in calls} == {("0", "0", "1", "1")}
    assert calls[0][0] == calls[5][0] and calls[4][0] == calls[6][0] == f"{1 << 56:x}"
