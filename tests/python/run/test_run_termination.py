"""The termination message of a container: written ahead of death, and nothing after a good end."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_command import cgroup, command, in_cgroup, kill_all, program, until

LIMIT = 160 << 20


@pytest.fixture
def message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty termination log, as a kubelet makes it."""
    path = tmp_path / "termination-log"
    path.touch()
    monkeypatch.setenv("STORMLOG_TERMINATION_LOG", str(path))
    return path


@contextlib.contextmanager
def started(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def kind(message: Path) -> str:
    """What the last line of a text of ours states: start, ahead or end."""
    last = message.read_text().rstrip("\n").rpartition("\n")[2]
    return last.removeprefix("-- stormlog ").partition(" ")[0]


def test_message_names_the_line_before_the_kill_and_the_verdict_after_it(
    tmp_path: Path, message: Path
) -> None:
    runs, seen = tmp_path / "runs", []
    with (
        cgroup(LIMIT) as group,
        started(in_cgroup(group, command(runs, *program("fills_its_cgroup.py", "0")))) as run,
    ):

        def has_ended() -> bool:
            seen.append(message.read_text())
            return run.poll() is not None

        until(has_ended)
        assert run.returncode == -signal.SIGKILL
    starts = [text for text in seen if "\n-- stormlog start " in text]
    assert starts and "memory was not tight" in starts[0], "from the start it states where the evidence is"
    ahead = [text for text in seen if "\n-- stormlog ahead " in text]
    assert any("fills_its_cgroup.py:18 cache" in text for text in ahead), ahead[-1:]
    assert " used 1" in ahead[-1] and f"of cgroup /{group.name}" in ahead[-1]
    text = message.read_text()
    first = text.splitlines()[0]
    assert "was killed by the kernel's OOM killer" in first and "reached its limit of 160.0 MiB" in first
    assert "fills_its_cgroup.py:18 cache" in text and "  sure      100 %" in text
    (directory,) = runs.iterdir()
    assert f"  evidence  stormlog analyze {directory}" in text
    assert kind(message) == "end" and len(text.encode()) <= 4096


def test_message_is_empty_after_a_good_end(tmp_path: Path, message: Path) -> None:
    inode = message.stat().st_ino
    with started(command(tmp_path / "runs", *program("waits_for_input.py"))) as run:
        until(lambda: kind(message) == "start")
        assert run.communicate("\n")[0] is not None
        assert run.returncode == 0
    assert message.read_bytes() == b"" and message.stat().st_ino == inode


def test_text_of_the_program_is_kept(tmp_path: Path, message: Path) -> None:
    code = f"open({str(message)!r}, 'w').write('no checkpoint to start from'); raise SystemExit(3)"
    done = subprocess.run(command(tmp_path / "runs", "-c", code), capture_output=True, check=False)
    assert done.returncode == 3
    assert message.read_text() == "no checkpoint to start from"


def test_exception_is_in_the_message_without_its_secret(tmp_path: Path, message: Path) -> None:
    code = "raise RuntimeError('login failed: password=hunter2hunter2')"
    done = subprocess.run(command(tmp_path / "runs", "-c", code), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    text = message.read_text()
    assert "RuntimeError: login failed" in text and "hunter2hunter2" not in text
    assert kind(message) == "end"


def test_message_that_cannot_be_written_is_reported_and_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "target"
    target.touch()
    link = tmp_path / "link"
    link.symlink_to(target)
    monkeypatch.setenv("STORMLOG_TERMINATION_LOG", str(link))
    words = command(tmp_path / "runs", "-c", "raise SystemExit(5)")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 5 and "the termination message cannot be written" in done.stderr
    assert target.read_bytes() == b""


def test_message_stays_when_supervisor_and_program_are_killed_together(tmp_path: Path, message: Path) -> None:
    words = command(tmp_path / "runs", *program("fills_its_cgroup.py", str(20 << 20)))
    with cgroup(LIMIT) as group, started(in_cgroup(group, words)) as run:
        assert run.stdout and run.stdout.readline() == "full\n"
        until(lambda: "fills_its_cgroup.py:18 cache" in message.read_text())
        kill_all(group)
    assert kind(message) == "ahead"
    assert "a kill after this is probably an OOM kill" in message.read_text()
