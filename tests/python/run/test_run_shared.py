"""Memory that forked processes share counts once in the budget of a run, by their shares (PSS)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from run_command import STORMLOG, command

# The children live until the shares of all of them were read: their recordings have them.
FORKS = """
import glob, multiprocessing, os, time
kept = bytearray(os.urandom(1 << 20) * 200)
def work():
    time.sleep(600)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    run = os.environ["STORMLOG_RUN_DIR"]
    pids = [os.getpid()] + [worker.pid for worker in workers]
    def recorded(pid):
        files = glob.glob(f"{run}/rank0-pid{pid}/**", recursive=True)
        return any(b"pss_bytes" in open(file, "rb").read() for file in files if os.path.isfile(file))
    while not all(map(recorded, pids)):
        time.sleep(0.1)
    for worker in workers:
        worker.terminate()
        worker.join()
"""


def test_budget_counts_pages_of_forked_workers_once(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(FORKS, encoding="utf-8")
    runs = tmp_path / "runs"
    words = command(runs, sys.executable, str(tmp_path / "main.py"), options=("--no-heap",))
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    def is_within(budget: str) -> bool:
        words = [*STORMLOG, "check", str(runs), "--max-peak", budget]
        return subprocess.run(words, capture_output=True, text=True).returncode == 0

    assert not is_within("200MiB")
    # Each share is read at a moment of its own; read after each fork they are 200, 100, 67 and 50 MiB.
    assert is_within("450MiB"), "four processes with 200 MiB each"
