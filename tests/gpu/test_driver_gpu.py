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
        told = {row["owner"]: f"{row['bytes'] / MB:.1f} MiB in {row['pieces']}" for row in events["held"]}
        counts = {key: events[key] for key in ("is_on", "why_not", "allocations", "frees", "lost", "modules")}
        sys.stdout.write(f"{name}: {told} {counts} parts {found['parts']}\n")
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
    after = known["profiled"]["driver_events"]
    assert not after["is_on"] and after["why_not"] == "torch.profiler took its place", after
    assert kernels > 0, "torch.profiler sees the device as if nobody had listened"
