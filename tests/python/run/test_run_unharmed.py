"""`stormlog run`: the recorded program is never harmed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from run_command import command, is_gone, program, start, stormlog, until


def printed(words: list[str]) -> Any:
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("option", [(), ("--no-heap", "--no-gpu")])
def test_a_program_starts_as_it_would_without_us(tmp_path: Path, option: tuple[str, ...]) -> None:
    plain = printed(program("tells_about_itself.py"))
    watched = printed(command(tmp_path, *program("tells_about_itself.py"), options=option))
    ours = {"PYTHONPATH", "STORMLOG_RUN_DIR"}
    if not option:
        ours |= {"LD_PRELOAD", "STORMLOG_HEAP"}
        # A recorded process holds its capture open, out of the program's reach, and answers faults in it.
        assert max(watched["descriptors"]) > max(plain["descriptors"]) + 1
        watched["descriptors"].pop()
        handled = int(watched["signals"]["SigCgt"], 16)
        watched["signals"]["SigCgt"] = hex(handled & ~(1 << (signal.SIGBUS - 1)))
    before, after = plain.pop("environment"), watched.pop("environment")
    assert plain == watched, "no descriptor leaked, no signal changed, no limit moved"
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed <= ours


@pytest.mark.parametrize("option", [(), ("--no-exceptions",)])
def test_no_descriptor_of_ours_reaches_a_grandchild(tmp_path: Path, option: tuple[str, ...]) -> None:
    listing = ["sh", "-c", "sh -c 'ls /proc/self/fd'; true"]
    plain = subprocess.run(listing, capture_output=True, text=True, check=True)
    options = (*option, "--no-heap", "--no-gpu")
    watched = subprocess.run(command(tmp_path, *listing, options=options), capture_output=True, text=True)
    assert plain.stdout == watched.stdout


def test_a_grandchild_that_is_recorded_holds_its_own_capture_alone(tmp_path: Path) -> None:
    listing = ["sh", "-c", "sh -c 'ls -l /proc/self/fd'; true"]
    watched = subprocess.run(command(tmp_path, *listing), capture_output=True, text=True)
    captures = [line.split(" -> ")[1] for line in watched.stdout.splitlines() if ".live" in line]
    assert len(captures) == 1, watched.stdout


def test_its_own_signal_handlers_still_run(tmp_path: Path) -> None:
    with start(tmp_path, *program("handles_signals.py")) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT):
            running.send_signal(number)
            time.sleep(0.05)
        running.communicate()
    assert running.returncode == 4, "all four came through"


def test_its_parent_reaps_its_own_children(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys\n"
        "for _ in range(50):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os._exit(3)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3\n"
        "assert subprocess.run(['sh', '-c', 'exit 4']).returncode == 4\n"
    )
    words = command(tmp_path, sys.executable, "-c", code)
    subprocess.run(words, check=True, capture_output=True)


def ticks(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(stat[11]) + int(stat[12])


def test_unreaped_zombie_is_reported_without_busy_waiting(tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    time.sleep(0.3)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "print(child, flush=True)\n"
        "time.sleep(2)\n"
    )
    with start(tmp_path, sys.executable, "-c", code) as running:
        assert running.stdout
        child = int(running.stdout.readline())
        until(lambda: is_gone(child))
        before = ticks(running.pid)
        time.sleep(1)
        taken = ticks(running.pid) - before
        running.communicate()
    assert running.returncode == 0
    assert taken < os.sysconf("SC_CLK_TCK") * 4 // 10, "a busy loop would have taken a second"
    (row,) = stormlog("oom", "list", str(tmp_path))
    assert (row["cause"], f"-pid{child}/" in row["path"]) == ("sigkill", True)
