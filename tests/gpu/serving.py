"""Snapshots of a serving program on a GPU: weights, a paged KV cache and the rest, by component and by line.

Starts `tests/programs/serves_a_model.py` on CUDA under `stormlog run`, sends it requests, and asks it with
`stormlog snapshot --pid` while it answers. Prints one JSON object; `"ok": true` when every check passed.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "programs" / "serves_a_model.py"
STORMLOG = [sys.executable, "-m", "stormlog"]


def generate(port: int, tokens: int) -> float:
    began = time.monotonic()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/generate?tokens={tokens}", method="POST")
    urllib.request.urlopen(request, timeout=120).read()
    return time.monotonic() - began


def snapshot(pid: int, *words: str) -> Any:
    done = subprocess.run(
        [*STORMLOG, "snapshot", "--pid", str(pid), "--json", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def by_signal(directory: Path, before: set[Path]) -> list[Path]:
    """Snapshots that were taken since, and are complete."""
    return [path for path in set(directory.iterdir()) - before if (path / "snapshot.json").exists()]


def main() -> int:
    failed: list[str] = []
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        words = [*STORMLOG, "run", "--quiet", "--snapshot-signal", "SIGUSR2", "--dir", place]
        environment = {**os.environ, "DEVICE": "cuda", "SCALE": "8"}
        server = subprocess.Popen(
            [*words, sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert server.stdout is not None
        try:
            facts = json.loads(server.stdout.readline())
            generate(facts["port"], 8)
            before = min(generate(facts["port"], 32) for _ in range(5))
            busy = threading.Thread(target=generate, args=(facts["port"], 2000))
            busy.start()
            began = time.monotonic()
            found = snapshot(facts["pid"])
            found["command_seconds"] = round(time.monotonic() - began, 3)
            busy.join()
            directory = Path(found["path"]).parent
            there = set(directory.iterdir())
            os.kill(facts["pid"], signal.SIGUSR2)
            until = time.monotonic() + 30
            while time.monotonic() < until and not by_signal(directory, there):
                time.sleep(0.05)
            if not by_signal(directory, there):
                failed.append("the signal left no snapshot")
            after = min(generate(facts["port"], 32) for _ in range(5))
            found["request_ms_before_and_after"] = [round(before * 1000, 2), round(after * 1000, 2)]
            of_device = {
                row["component"]: row["bytes"] for row in found["components"] if row["memory"] == "cuda:0"
            }
            total = next(row for row in found["memories"] if row["memory"] == "cuda:0")
            if sum(of_device.values()) != total["bytes"]:
                failed.append("the components do not sum to what is allocated")
            # Blocks are rounded up to 512 bytes.
            for name in ("weights", "kv_cache"):
                if not 0 <= of_device.get(name, 0) - facts[name] <= 512 * 64:
                    failed.append(f"{name}: {of_device.get(name)} instead of {facts[name]}")
            lines = {
                f"{Path(row['file']).name}:{row['function']}"
                for row in found["holders"] or []
                if row["memory"] == "cuda:0"
            }
            if not any("serves_a_model.py" in line for line in lines):
                failed.append(f"no line of the program holds device memory: {sorted(lines)}")
            if not found["allocator_snapshot"]:
                failed.append("there is no snapshot of the allocator")
            else:
                page = subprocess.run(
                    [*STORMLOG, "snapshot", str(Path(found["path"]) / found["allocator_snapshot"])],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if page.returncode != 0:
                    failed.append(f"the allocator's snapshot cannot be read: {page.stderr}")
        finally:
            server.terminate()
            server.wait(60)
    result = {"ok": not failed, "failed": failed, "facts": facts, "found": found}
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
