"""`stormlog run`: every signal reaches the program exactly once, from any sender and to any target."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from run_command import is_gone, until
from run_signals import run

# Counts each signal, prints the counts at the marker, after the handlers before it; ends with its input.
# The wake-up descriptor ends `select` also for a signal that came just before it: without it Python would
# run the handler only after the next input.
COUNTS = """
import os, select, signal, sys
counts, marks, (woken, wake) = {}, [], os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
def count(number, frame): counts[number] = counts.get(number, 0) + 1
for number in set(range(1, 65)) - {9, 19, 32, 33}: signal.signal(number, count)
signal.signal(int(sys.argv[1]), lambda number, frame: marks.append(number))
print("ready", os.getpid(), flush=True)
while woken in select.select([woken] + [0] * (sys.argv[2] == "input"), [], [])[0]:
    os.read(woken, 4096)
    if marks:
        marks.clear()
        print(*(f"{number}x{counts[number]}" for number in sorted(counts)), flush=True)
"""
# The last to be taken where several are pending: all that was sent before it is counted.
MARKER = int(signal.SIGRTMAX)
TO_ONE = [
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM),
    *(signal.SIGXCPU, signal.SIGPROF, signal.SIGVTALRM, signal.SIGWINCH, signal.SIGCONT, signal.SIGPIPE),
    *(signal.SIGTSTP, signal.SIGSEGV, signal.SIGXFSZ, signal.SIGRTMIN, signal.SIGRTMIN + 9),
]


class Counting:
    """A run of the counting program."""

    def __init__(self, supervisor: int, out: IO[str]) -> None:
        self.supervisor, self.out = supervisor, out
        self.program = int(self.out.readline().split()[1])

    def counted(self) -> str:
        """What came so far: the marker takes the same way as the signals before it."""
        os.kill(self.supervisor, MARKER)
        return self.out.readline().strip()

    def witness(self) -> int:
        # The process that waits for the supervisor's end has its name a moment after its birth.
        until(lambda: len(children(self.supervisor)) == 2)
        (found,) = set(children(self.supervisor)) - {self.program}
        return found


@contextlib.contextmanager
def counting(tmp_path: Path, *before: str, own_group: bool = True) -> Iterator[Counting]:
    words = [*before, *run(tmp_path, sys.executable, "-c", COUNTS, str(MARKER), "input")]
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0 if own_group else None,
    ) as running:
        assert running.stdout
        yield Counting(running.pid, running.stdout)
        running.communicate()


@pytest.mark.parametrize("number", TO_ONE)
def test_a_signal_to_the_supervisor_reaches_the_program_once(tmp_path: Path, number: int) -> None:
    with counting(tmp_path) as started:
        os.kill(started.supervisor, number)
        assert started.counted() == f"{number}x1"


@pytest.mark.parametrize("number", [number for number in TO_ONE if number != signal.SIGTSTP])
def test_a_signal_to_the_group_reaches_the_program_once(tmp_path: Path, number: int) -> None:
    with counting(tmp_path) as started:
        for times in range(1, 4):
            os.killpg(started.supervisor, number)
            assert started.counted() == f"{number}x{times}"


def test_queued_signals_all_arrive_with_their_sender(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "number = signal.SIGRTMIN + 3\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [number])\n"
        "print('ready', flush=True)\n"
        "for _ in range(50):\n"
        "    taken = signal.sigwaitinfo([number])\n"
        "    assert (taken.si_code, taken.si_pid) == (-1, int(sys.argv[1])), taken\n"
    )
    words = run(tmp_path, sys.executable, "-c", code, str(os.getpid()))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, process_group=0) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        for value in range(50):
            sent = ctypes.CDLL(None).sigqueue(running.pid, signal.SIGRTMIN + 3, ctypes.c_void_p(value))
            assert sent == 0
    assert running.returncode == 0


def test_a_manager_that_signals_process_by_process_is_one_sender(tmp_path: Path) -> None:
    with counting(tmp_path) as started:
        processes = [started.supervisor, started.witness(), started.program]
        for times, order in enumerate(([0, 1, 2], [2, 1, 0], [1, 0, 2]), start=1):
            for index in order:
                os.kill(processes[index], signal.SIGTERM)
            assert started.counted() == f"{int(signal.SIGTERM)}x{times}"


def test_senders_that_choose_by_command_line(tmp_path: Path) -> None:
    with counting(tmp_path) as started:
        pattern = f"{MARKER} input$"  # all command lines of the run end with it
        group = ["-g", str(started.supervisor)]
        subprocess.run(["pkill", "-TERM", *group, "-f", pattern], check=True)
        assert started.counted() == "15x1", "the program, the supervisor and the witness"
        subprocess.run(["pkill", "-TERM", *group, "stormlog"], check=True)
        assert started.counted() == "15x2", "the supervisor alone"


def test_timeout_and_a_group_that_the_program_left(tmp_path: Path) -> None:
    saves = (
        "import os, signal, sys, time\n"
        "if sys.argv[1] == 'leaves': os.setpgrp()\n"
        "signal.signal(signal.SIGTERM, lambda *a: (os.write(1, b'term\\n'), os._exit(3)))\n"
        "while True: time.sleep(0.05)\n"
    )
    for before in (["timeout", "0.5"], ["timeout", "--foreground", "0.5"]):
        words = [*before, *run(tmp_path, sys.executable, "-c", saves, "stays")]
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stdout) == (124, "term\n"), done.stderr
    words = run(tmp_path, sys.executable, "-c", saves, "leaves")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, process_group=0) as running:
        (child,) = until(lambda: left_the_group(running.pid))
        os.killpg(running.pid, signal.SIGTERM)
        assert running.stdout and running.stdout.read() == "term\n"
    assert (running.returncode, is_gone(child)) == (3, True)


def left_the_group(supervisor: int) -> list[int]:
    # One that leads a session too is not the program.
    return [pid for pid in children(supervisor) if os.getpgid(pid) == pid != os.getsid(pid)]


def children(supervisor: int) -> list[int]:
    """The program and the witness, not the process that waits for the supervisor's end."""
    pids = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(pid) for pid in pids if Path(f"/proc/{pid}/comm").read_text() != "stormlog-finish\n"]


SAVES = """
import signal, sys, time
def stop(number, frame): raise SystemExit(0)
signal.signal(signal.SIGTERM, stop)
try:
    print("ready", flush=True)
    time.sleep(60)
finally:
    for part in range(20):
        time.sleep(0.01)
    open(sys.argv[1], "w").write("whole")
"""


def test_a_checkpoint_is_saved_thirty_times_of_thirty(tmp_path: Path) -> None:
    """The second SIGTERM of a group signal interrupted the saving that the first one began."""
    for batch in range(5):
        running = []
        for index in range(6):
            checkpoint = tmp_path / f"checkpoint-{batch}-{index}"
            words = run(tmp_path / "runs", sys.executable, "-c", SAVES, str(checkpoint))
            started = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
            running.append((started, checkpoint))
        for started, _ in running:
            assert started.stdout and started.stdout.readline() == "ready\n"
            os.killpg(started.pid, signal.SIGTERM)
        for started, checkpoint in running:
            started.communicate()
            assert (started.returncode, checkpoint.read_text()) == (0, "whole")


def on_a_terminal(words: list[str], out: int) -> tuple[int, int]:
    """Starts the words as the leader of a session with a terminal; its number, and the other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.dup2(out, 1)
        os.execvp(words[0], words)
    return pid, terminal


@pytest.mark.parametrize("leader", [(), ("sh", "-c", '"$@"; exit 0', "sh")])
def test_a_hang_up_reaches_the_program_once(tmp_path: Path, leader: tuple[str, ...]) -> None:
    """The session's leader is the supervisor, or a shell, whose end hangs up the group in front."""
    read, write = os.pipe()
    words = [*leader, *run(tmp_path, sys.executable, "-c", COUNTS, str(MARKER), "no input")]
    pid, terminal = on_a_terminal(words, write)
    os.close(write)
    with os.fdopen(read) as out:
        program = int(out.readline().split()[1])
        supervisor = int(Path(f"/proc/{program}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.close(terminal)
        os.kill(pid, signal.SIGHUP) if leader else None
        seen = until(lambda: counted_hang_up(supervisor, out))
        os.kill(program, signal.SIGKILL)
        assert "1x1" in seen.split() and not any(word.startswith("1x2") for word in seen.split())
    os.waitpid(pid, 0)
    until(lambda: is_gone(supervisor))


def counted_hang_up(supervisor: int, out: IO[str]) -> str | None:
    os.kill(supervisor, MARKER)
    line = out.readline()
    return line if "1x" in line.split("11x")[0] else None


def test_ctrl_c_on_a_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    read, write = os.pipe()
    words = run(tmp_path, sys.executable, "-c", COUNTS, str(MARKER), "no input")
    pid, terminal = on_a_terminal(words, write)
    os.close(write)
    with os.fdopen(read) as out:
        started = Counting(pid, out)
        os.write(terminal, b"\x03")
        counts = until(lambda: started.counted() or None)
        assert counts == "2x1"
        os.kill(started.program, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_the_supervisor_stops_and_continues_with_the_program(tmp_path: Path) -> None:
    code = "import os; print(os.getpid(), flush=True); input(); print('end')"
    words = run(tmp_path, sys.executable, "-c", code)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0
    ) as running:
        assert running.stdout
        program = int(running.stdout.readline())
        for to_all in (False, True):
            send = os.killpg if to_all else os.kill
            send(running.pid, signal.SIGTSTP)
            stopped = os.waitid(os.P_PID, running.pid, os.WSTOPPED)
            assert stopped and stopped.si_status == signal.SIGTSTP
            assert state(program) == "T"
            send(running.pid, signal.SIGCONT)
            until(lambda: state(program) != "T")
        out, _ = running.communicate("\n")
    assert (running.returncode, out) == (0, "end\n")


def test_a_program_that_is_stopped_and_continued_alone_is_still_supervised(tmp_path: Path) -> None:
    with counting(tmp_path) as started:
        os.kill(started.program, signal.SIGSTOP)
        until(lambda: state(started.program) == "T")
        os.kill(started.program, signal.SIGCONT)
        assert started.counted() == f"{int(signal.SIGCONT)}x1"


def test_signal_of_the_program_to_its_parent_reaches_ours(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        code = "import os, signal; os.kill(os.getppid(), signal.SIGUSR1); input()"
        words = run(tmp_path, sys.executable, "-c", code)
        with subprocess.Popen(words, stdin=subprocess.PIPE, text=True, process_group=0) as running:
            taken = signal.sigwaitinfo([signal.SIGUSR1])
            assert taken.si_pid == running.pid
            running.communicate("\n")
        assert running.returncode == 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])


def test_the_witness_leaves_with_the_supervisor_and_holds_nothing(tmp_path: Path) -> None:
    with counting(tmp_path) as started:
        witness = started.witness()
        held = {str(entry.readlink()) for entry in Path(f"/proc/{witness}/fd").iterdir()}
        assert len(held) == 2 and "/dev/null" in held, "the null device and the pipe of its reports"
    until(lambda: is_gone(witness))
    with counting(tmp_path) as started:
        witness = started.witness()
        os.kill(started.supervisor, signal.SIGKILL)
        until(lambda: is_gone(witness))
        os.kill(started.program, signal.SIGKILL)
