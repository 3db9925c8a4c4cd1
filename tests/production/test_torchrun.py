"""The real torchrun: its own summary has the verdict, whether it started our supervisors or we started it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import components
import pytest
from run_command import cgroup, stormlog

KILLED = """
import os, signal, sys
import torch.distributed as dist
dist.init_process_group("gloo")
kept = bytearray(64 << 20)
dist.barrier()
if dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
RECORDED = """
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("boom of a rank")
main()
"""
# Ranks that do not need PyTorch: the launcher is what is tested.
HOG = """
import sys
kept = []
while True:
    kept.append(bytearray(1 << 20))
"""
AGAIN = """
import os, signal, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    # A supervisor above the launcher looks for new processes every 20 ms.
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
"""


class Torchrun:
    """torchrun of the environment with the frameworks, in a directory of its own."""

    def __init__(self, place: Path) -> None:
        self.python = components.frameworks_python()
        self.place = place
        self.runs = place / "runs"

    def supervised(self, program: str, *options: str, group: Path | None = None) -> list[str]:
        """A supervisor for each rank, in a cgroup."""
        # 0 is the writer itself; torchrun makes one of two dollars.
        join = ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(group)] if group else []
        stormlog = [str(Path(sys.executable).with_name("stormlog")), "run", "-q", "--dir", str(self.runs)]
        rank = [str(self.python), self.file(program)]
        return [*self.launcher(*options, "--no-python"), *join, *stormlog, "--", *rank]

    def launcher(self, *options: str) -> list[str]:
        return [str(self.python), "-m", "torch.distributed.run", "--standalone", *options]

    def file(self, program: str) -> str:
        path = self.place / "rank.py"
        path.write_text(program)
        return str(path)

    def run(self, words: list[str]) -> tuple[int, str]:
        # Its error files and those of a launcher around the test are kept apart.
        env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
        done = subprocess.run(
            words,
            cwd=self.place,
            env={**env, "TMPDIR": str(self.place), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
            check=False,
        )
        return done.returncode, done.stdout

    def records(self) -> list[dict[str, object]]:
        return [json.loads(path.read_text()) for path in sorted(self.runs.glob("*/run.json"))]


@pytest.fixture
def torchrun(tmp_path: Path) -> Torchrun:
    return Torchrun(tmp_path)


#: A rank in the answer; with its number where the job has several.
RANK = r"rank\.py \((?:rank \d, )?pid \d+\)"


def test_torchrun_prints_the_verdict_of_a_rank_that_was_killed(torchrun: Torchrun) -> None:
    code, text = torchrun.run(torchrun.supervised(KILLED, "--nproc-per-node=2"))
    assert code == 1, text
    cause = text.split("Root Cause")[1]
    assert "rank      : 1 " in cause and "exitcode  : -9 " in cause and "(SIGKILL)" in cause, text
    assert re.search(rf"traceback : {RANK} was killed with SIGKILL by itself", cause), text
    assert re.search(r"64\.00 MiB +rank\.py:5 <module>", cause), text
    # The other rank was stopped by the agent: an end that was intended has no error file.
    other = text.split("Failures:")[1].split("Root Cause")[0]
    assert "rank      : 0 " in other and "Signal 15 (SIGTERM) received" in other, text


def test_torchrun_prints_the_verdict_of_an_oom_kill(torchrun: Torchrun) -> None:
    with cgroup(192 << 20) as group:
        code, text = torchrun.run(torchrun.supervised(HOG, "--nproc-per-node=1", group=group))
    cause = text.split("Root Cause")[1]
    assert code == 1 and "exitcode  : -9 " in cause, text
    assert re.search(rf"traceback : {RANK} was killed by the kernel's OOM killer", cause), text
    assert re.search(r"held by .*MiB +rank\.py:5 <module>", cause), text


def test_torchrun_keeps_what_record_wrote_behind_the_answer(torchrun: Torchrun) -> None:
    code, text = torchrun.run(torchrun.supervised(RECORDED, "--nproc-per-node=1"))
    cause = text.split("Root Cause")[1]
    assert code == 1 and "exitcode  : 1 " in cause, text
    answer = re.search(rf"traceback : {RANK} exited with status 1", cause)
    stack = re.search(
        r'Traceback \(most recent call last\):\n(.*\n)*.*raise ValueError\("boom of a rank"\)', cause
    )
    assert answer and stack and answer.start() < stack.start(), text
    (file,) = torchrun.place.glob("torchelastic_*/**/error.json")
    message = json.loads(file.read_text())["message"]
    assert message["message"].endswith("\n\nValueError: boom of a rank"), message


def test_restart_of_torchrun_is_an_attempt_of_the_run(torchrun: Torchrun) -> None:
    code, text = torchrun.run(torchrun.supervised(AGAIN, "--nproc-per-node=1", "--max-restarts=1"))
    assert code == 0, text
    attempts = [record["launch"]["attempt"] for record in torchrun.records()]  # type: ignore[index]
    assert sorted(attempts) == [0, 1]
    sessions = stormlog("sessions", str(torchrun.runs))
    assert sorted((row["attempt"], row["status"]) for row in sessions) == [
        (0, "interrupted"),
        (1, "completed"),
    ]
    (death,) = stormlog("oom", "list", str(torchrun.runs))
    shown = subprocess.run(
        [sys.executable, "-m", "stormlog", "oom", "show", death["path"]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "rank 0/1 · attempt 0" in shown.stdout


def test_run_above_torchrun_leaves_the_verdict_in_the_ranks_error_file(torchrun: Torchrun) -> None:
    # By default the agent looks every 100 ms; the file is there a few milliseconds after the death.
    # A longer interval leaves no room for chance.
    words = [*torchrun.launcher("--nproc-per-node=2", "--monitor-interval=2"), torchrun.file(AGAIN)]
    supervisor = [sys.executable, "-m", "stormlog", "run", "-q", "--dir", str(torchrun.runs), "--"]
    code, text = torchrun.run([*supervisor, *words])
    assert code == 1, text
    files = list(torchrun.place.glob("torchelastic_*/**/error.json"))
    assert len(files) == 2, text
    for file in files:
        message = json.loads(file.read_text())["message"]["message"]
        assert re.match(rf"{RANK} was killed with SIGKILL by itself", message), message
    assert len(re.findall(rf"traceback : {RANK} was killed", text)) == 2, text
