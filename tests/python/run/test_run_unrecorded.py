"""`stormlog run`: trouble with the recording never stops the program; a sentence reports what is missing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from native import STORMLOG

# The program's own limits, directory and status, as without us.
PROGRAM = ["sh", "-c", "echo out; echo err >&2; ulimit -n; ulimit -f; exit 9"]
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def both(
    words: list[str],
    options: tuple[str, ...] = (),
    before: Callable[[], None] | None = None,
    around: tuple[str, ...] = (),
    cwd: Path | None = None,
) -> list[str]:
    """Compares the words bare and under us; gives the lines of ours on standard error."""
    bare = subprocess.run([*around, *words], capture_output=True, text=True, preexec_fn=before, cwd=cwd)
    run = [STORMLOG, "run", "--quiet", *options, "--"]
    done = subprocess.run([*around, *run, *words], capture_output=True, text=True, preexec_fn=before, cwd=cwd)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout), done.stderr
    lines = done.stderr.splitlines()
    ours = [line for line in lines if line.startswith("stormlog: ")]
    assert [line for line in lines if line not in ours] == bare.stderr.splitlines()
    return ours


def one_sentence(ours: list[str]) -> None:
    assert len(ours) == 1 and ours[0].startswith("stormlog: the program runs unrecorded: "), ours


@pytest.mark.parametrize("heap", [(), ("--heap",)])
@pytest.mark.parametrize("place", ["/dev/null/runs", "/proc/runs", "a-file/runs"])
def test_a_directory_that_cannot_be_made(tmp_path: Path, place: str, heap: tuple[str, ...]) -> None:
    (tmp_path / "a-file").touch()
    one_sentence(both(PROGRAM, ("--dir", place, *heap), cwd=tmp_path))


@needs_root
@pytest.mark.parametrize("heap", [(), ("--heap",)])
@pytest.mark.parametrize("option", ["size=4k", "nr_inodes=1", "ro"])
def test_a_disk_that_is_full_or_read_only(tmp_path: Path, option: str, heap: tuple[str, ...]) -> None:
    fill = "head -c 4096 /dev/zero > full; " if option == "size=4k" else ""
    inside = f'mount -t tmpfs -o {option} none "$0" && cd "$0" && {fill}exec "$@"'
    around = ("unshare", "--mount", "sh", "-c", inside, str(tmp_path))
    one_sentence(both(PROGRAM, heap, around=around))


@pytest.mark.parametrize("heap", [(), ("--heap",)])
def test_a_working_directory_that_is_gone(tmp_path: Path, heap: tuple[str, ...]) -> None:
    inside = 'mkdir "$0" && cd "$0" && rmdir "$0" && exec "$@"'
    one_sentence(both(PROGRAM, heap, around=("sh", "-c", inside, str(tmp_path / "gone"))))


@pytest.mark.parametrize("heap", [(), ("--heap",)])
def test_files_that_may_not_grow(tmp_path: Path, heap: tuple[str, ...]) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    one_sentence(both(PROGRAM, ("--dir", str(tmp_path), *heap), limit))
    assert list(tmp_path.iterdir()) == []
    fails = [sys.executable, "-c", "import os; os.write(os.open('file', os.O_CREAT | os.O_WRONLY), b'x')"]
    both(fails, ("--dir", str(tmp_path), *heap), limit, cwd=tmp_path)


@pytest.mark.parametrize("heap", [(), ("--heap",)])
@pytest.mark.parametrize("number", [4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24])
def test_few_descriptors(tmp_path: Path, number: int, heap: tuple[str, ...]) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))

    assert len(both(PROGRAM, ("--dir", str(tmp_path), *heap), limit)) <= 1


@needs_root
@pytest.mark.parametrize("heap", [(), ("--heap",)])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_no_room_for_another_process(tmp_path: Path, number: int, heap: tuple[str, ...]) -> None:
    """Another user than root, who has no such limit; with the right to reach this tree."""
    user = 40_000 + os.getpid() % 10_000
    rights = [
        "--inh-caps=-all,+dac_override",
        "--ambient-caps=-all,+dac_override",
        "--bounding-set=-sys_admin,-sys_resource",
    ]
    around = ("prlimit", f"--nproc={number}", "setpriv", f"--reuid={user}", "--clear-groups", *rights)
    words = ["sh", "-c", "echo out; exit 9"]
    ours = both(words, ("--dir", str(tmp_path), *heap), around=around)
    assert len(ours) <= 1
    if number == 1:
        one_sentence(ours)


def test_a_heap_that_cannot_be_recorded_is_missing_alone(tmp_path: Path) -> None:
    directory = tmp_path / "50%"
    (line,) = both(PROGRAM, ("--heap", "--dir", str(directory)))
    assert line.startswith("stormlog: the heap is not recorded: ")
    assert len(list(directory.glob("*/run.json"))) == 1
