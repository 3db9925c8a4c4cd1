"""With an NVIDIA GPU and torch: `stormlog run` samples it, and a killed program's bundle says so.

Run by hand: `python tests/gpu/run_samples_gpus.py`. Uses the `stormlog` that this interpreter has, or the
command named in STORMLOG. Tells what it checked; exits with 0 when all of it holds.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HELD = 2 << 30
PROGRAM = f"""
import os, signal, time, torch
held = torch.ones({HELD} // 4, device="cuda")
torch.cuda.synchronize()
time.sleep(3)
os.kill(os.getpid(), signal.SIGKILL)
"""
STORMLOG = shlex.split(os.environ.get("STORMLOG", f"{shlex.quote(sys.executable)} -m stormlog"))


def stormlog(*words: str) -> Any:
    done = subprocess.run([*STORMLOG, *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    directory = Path(tempfile.mkdtemp(prefix="stormlog-gpu-"))
    words = [*STORMLOG, "run", "--dir", str(directory), "--interval", "0.1", "--"]
    done = subprocess.run([*words, sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == -9, (done.returncode, done.stderr)
    bundle = stormlog("oom", "show", stormlog("oom", "list", str(directory))[0]["path"])
    assert bundle["cause"] == "sigkill", bundle["cause"]

    devices = {row["device_id"]: row for row in bundle["evidence"]["devices"]}
    assert -1 in devices, "the host is a device too"
    gpus = {number: row for number, row in devices.items() if number >= 0}
    assert gpus, f"no GPU in the bundle: {devices}"
    used = max(row["device_used_bytes"] for row in gpus.values())
    assert used >= HELD, f"a GPU holds at least what the program took, not {used}"
    for row in gpus.values():
        assert row["collector"] == "stormlog.nvml", row
        assert row["device_used_bytes"] + row["device_free_bytes"] <= row["device_total_bytes"], row
    say(f"ok: the bundle has {len(gpus)} GPU(s), {used / 2**30:.2f} GiB in use at the end")

    exported = directory / "events.json"
    subprocess.run([*STORMLOG, "oom", "export", bundle["path"], str(exported)], check=True)
    events = json.loads(exported.read_text())["events"]
    samples = [row for row in events if row["device_id"] >= 0]
    assert len(samples) >= 10, f"3 seconds at 10 Hz gave {len(samples)} samples"
    first, most = samples[0]["device_used_bytes"], max(row["device_used_bytes"] for row in samples)
    assert most - first >= HELD, f"the rise of {HELD} is seen, not {most - first}"
    say(f"ok: {len(samples)} samples, {first / 2**30:.2f} to {most / 2**30:.2f} GiB")

    own = [row["metadata"]["process_device_used_bytes"] for row in samples]
    own = [number for number in own if number is not None]
    if own:
        assert max(own) >= HELD, f"the process's own share is {max(own)}"
        holders = [row["place"] for row in bundle["evidence"]["held_by"]]
        assert any(place.startswith("GPU ") for place in holders), holders
        say(f"ok: the process's own share is {max(own) / 2**30:.2f} GiB; held by {holders}")
    else:
        say("note: the driver shows other process numbers than ours, as in a container: shares are unknown")


if __name__ == "__main__":
    main()
