"""Driver-level events by the real CUPTI: `stormlog run --cuda-driver` and `stormlog.cuda_driver`.

Without pytest: `python tests/gpu/plain.py tests/gpu/test_driver_gpu.py`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MB = 1 << 20
PROGRAM = """
import json, os, time, torch
from stormlog import cuda_driver, hidden_memory
MB = 1 << 20
def tell(name):
    torch.cuda.synchronize()
    time.sleep(0.2)
    found = {**hidden_memory.report(0), "torch_reserved": torch.cuda.memory_reserved()}
    print(json.dumps([name, found]), flush=True)
held = torch.empty(64 * MB, dtype=torch.uint8, device="cuda")
tell("allocated")
a = torch.randn(4096, 4096, device="cuda")
for _ in range(3):
    a @ a
tell("gemm")
torch.fft.fft(torch.randn(1 << 22, device="cuda"))
tell("fft")
del held
torch.cuda.empty_cache()
tell("emptied")
if torch.distributed.is_nccl_available():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29542", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl")
    torch.distributed.all_reduce(a)
    tell("nccl")
    torch.distributed.destroy_process_group()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    a @ a
    torch.cuda.synchronize()
tell("profiled")
kernels = sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())
print(json.dumps(["kernels", kernels]))
"""


def test_each_byte_of_the_driver_has_an_owner(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    words = [
        sys.executable,
        "-m",
        "stormlog",
        "run",
        "--quiet",
        "--cuda-driver",
        "--dir",
        str(tmp_path / "runs"),
    ]
    done = subprocess.run(
        [*words, "--", sys.executable, str(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    kernels = rows.pop()[1]
    for name, found in rows:
        events = found["driver_events"]
        held = {row["owner"]: f"{row['bytes'] / MB:.1f} MiB in {row['pieces']}" for row in events["held"]}
        counts = {key: events[key] for key in ("is_on", "why_not", "allocations", "frees", "lost", "modules")}
        sys.stdout.write(f"{name}: {held} {counts} parts {found['parts']}\n")
    known = dict(rows)
    for name in ("allocated", "gemm", "fft", "emptied", "nccl"):
        if name not in known:
            continue
        events = known[name]["driver_events"]
        assert events["is_on"] and events["lost"] == 0, events
        owned = {row["owner"]: row["bytes"] for row in events["held"]}
        assert owned.get("pytorch") == known[name]["torch_reserved"], "the driver and the allocator agree"
    assert known["gemm"]["driver_events"]["modules"]["count"] > 0, "kernels are loaded when they are used"
    if "nccl" in known:
        owned = {row["owner"]: row["bytes"] for row in known["nccl"]["driver_events"]["held"]}
        assert owned.get("nccl", 0) > 0, owned
        assert known["nccl"]["parts"].get("nccl", 0) > 0, known["nccl"]["parts"]
        beside = sum(bytes for owner, bytes in owned.items() if owner != "pytorch")
        check_capture(tmp_path / "runs", beside)
    after = known["profiled"]["driver_events"]
    assert (
        not after["is_on"] and after["why_not"] == "torch.profiler has taken the only CUPTI subscription"
    ), after
    assert kernels > 0, "torch.profiler sees the device as if there were no listener"


def check_capture(runs: Path, beside: int) -> None:
    """What the driver gave beside PyTorch's segments is in the capture, and nothing of those."""
    (run,) = [path.parent for path in runs.glob("*/run.json")]
    words = [sys.executable, "-m", "stormlog", "stats", str(run), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    devices = {row["device"]: row for row in json.loads(done.stdout)["devices"]}
    driver = devices.get("cuda:0/driver")
    sys.stdout.write(f"capture: {driver}\n")
    assert driver is not None and driver["allocations"] > 0, sorted(devices)
    assert driver["peak_bytes"] == beside, "all that libraries took, and no segment of PyTorch's"


BESIDE = """
import ctypes, os, torch
held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
cudart = ctypes.CDLL(next(line.split()[-1] for line in open("/proc/self/maps") if "libcudart" in line))
cudart.cudaMalloc.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t]
cudart.cudaFree.argtypes = [ctypes.c_void_p]
def take(size):
    address = ctypes.c_void_p()
    assert cudart.cudaMalloc(ctypes.byref(address), size) == 0  # beside
    return address
kept = [take(48 << 20) for _ in range(3)]
assert cudart.cudaFree(kept.pop()) == 0
os._exit(0)
"""


def test_memory_beside_pytorch_has_a_line(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(BESIDE, encoding="utf-8")
    words = [sys.executable, "-m", "stormlog", "run", "-q", "--cuda-driver", "--dir", str(tmp_path / "runs")]
    done = subprocess.run(
        [*words, "--", sys.executable, str(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    (run,) = [path.parent for path in (tmp_path / "runs").glob("*/run.json")]
    words = [sys.executable, "-m", "stormlog", "stats", str(run), "--json"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    devices = {row["device"]: row for row in found["devices"]}
    assert devices["cuda:0"]["live_bytes"] == 64 << 20
    rows = {row["line"]: row["bytes"] for row in devices["cuda:0/driver"]["top"]}
    line = 1 + next(at for at, text in enumerate(BESIDE.splitlines()) if text.endswith("# beside"))
    assert rows.get(line) == 96 << 20, devices["cuda:0/driver"]
