"""Runs the commands of documents and compares what they print with what is shown: check.py [--update] FILE...

Of every block marked ```console, lines that start with `$ ` are run, in order, each document in a new
directory that looks like a checkout: examples/ is a copy, tests/ and crates/ are links; it is shown as HOME.
The whole output must be shown. Numbers, times and the names of runs may differ, the lines of programs
(`train.py:31`) may not; a line `...` matches any lines. Words after `console` are options:

    exit=137      the status of the block's last command; all others must be 0
    cgroup=256M   the commands are run in a memory cgroup of that size; left out where none can be made
    after=cgroup  the commands read what such a block left, and are left out with it
    output=no     the commands are run, and what they print is not shown
    not-run=KEY   the commands are not run, for the reason in NOT_RUN

`--update` replaces what is shown by what is printed, numbers too, so that a page shows one run; look at the
difference before you commit it.
Commands that set up the checkout itself are left out: this test runs within one of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```console([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SETS_UP = ("make ", "pip ", "cargo ", "git ")
CGROUPS = Path("/sys/fs/cgroup/memory")
SECONDS = 120
#: What the directory of a document is shown as; both have the same length, so that columns stay aligned.
HOME = "/home/ada/project"
#: What a cgroup and this machine are shown as.
GROUP, HOST = "train", "node-1"
GROUP_NAME = re.compile(r"stormlog-docs-\d+-\d+")

#: Why a block is not run here, by the word that marks it.
NOT_RUN = {
    "gpu": "needs an NVIDIA GPU; tests/gpu/test_examples_gpu.py runs the examples on one",
    "kubernetes": "needs a cluster; tests/production/test_kubernetes_manifests.py checks the manifests",
    "systemd": "needs a systemd user session; the block before it sets the same limit with a cgroup",
    "slurm": "needs a SLURM controller; tests/production/test_slurm.py runs examples/slurm with one",
    "screen": "opens a screen; tests/python/views draws it in a pseudo-terminal",
    "service": "never returns; tests/python/serve runs it",
    "other-tool": "needs a tool that is not part of this project",
}

#: What may differ from one run to the next, and what replaces it in the comparison.
VOLATILE = [
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ-(.+?)-[0-9a-f]{4}\b"), r"RUN-\1"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), "TIME"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "ID"),
    (re.compile(r"(?<=pid)\d+"), "NUMBER"),
    (re.compile(r"oom_dump_[\w-]+"), "oom_dump_NAME"),
    (re.compile(r"[▁-█▒░▉-▏⠀-⣿](?:[▁-█▒░▉-▏⠀-⣿ ]*[▁-█▒░▉-▏⠀-⣿])?"), "BAR"),
    (re.compile(r"(?<![\w.])[-+\u2212]?\d[\d.,]*( [KMGT]?i?B\b)"), "SIZE"),
    (re.compile(r"(?<![\w.])\d[\d.,]* (ms|µs|s|min|h|d)\b( \d+ (s|min|h)\b)?|\b\d+\.\d+s\b"), "DURATION"),
    (re.compile(r"\b\d{1,3}( \d{3})+\b"), "NUMBER"),
    (re.compile(r"(?<![\w.:/-])[-+\u2212]?\d[\d.,]*(?![\w])"), "NUMBER"),
    (re.compile(r"SIZE/(s|min|h)\b"), "RATE"),
    # The line that a function had reached when its memory was asked for.
    (re.compile(r"(local of \w+\(\) at \S+\.py):\d+"), r"\1:LINE"),
    (re.compile(r"[─━]{3,}|-{3,}"), "RULE"),
    # A path that did not fit its column.
    (re.compile(r"…\S+"), "…"),
    (re.compile(r"\s+"), " "),
]


@dataclass
class Command:
    """A command line and what is shown of its output."""

    text: str
    shown: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A fenced block: its options and commands."""

    options: dict[str, str]
    commands: list[Command]

    @classmethod
    def read(cls, words: str, body: str) -> Block:
        """Parses the words after `console` and the lines of a block."""
        options = dict(word.partition("=")[::2] for word in words.split())
        unknown = set(options) - {"exit", "cgroup", "after", "output", "not-run"}
        if unknown or options.get("not-run", "gpu") not in NOT_RUN:
            raise SystemExit(f"unknown options of a block: {words.strip()}")
        commands: list[Command] = []
        for line in body.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line[2:]))
            elif line.startswith("> ") and commands and not commands[-1].shown:
                commands[-1].text += "\n" + line[2:]
            elif commands:
                commands[-1].shown.append(line)
        return cls(options, commands)

    def written(self) -> str:
        """The block as a document has it."""
        words = " ".join(f"{key}={value}" for key, value in self.options.items())
        lines = ["```console" + (f" {words}" if words else "")]
        for command in self.commands:
            lines += ["$ " + command.text.replace("\n", "\n> "), *command.shown]
        return "\n".join([*lines, "```"])


def normal(line: str) -> str:
    """A line without what may differ."""
    for pattern, replacement in VOLATILE:
        line = pattern.sub(replacement, line)
    return line.strip()


#: Lines that may be missing: what holds little of a sampled heap, and what is only printed on a slow machine.
UNCERTAIN = re.compile(
    r"\s*(held by\s+)?about (\d[\d.]* [KB]i?B?|[0-7]\.\d+ MiB)\s|stormlog: .*\(SIGINT skips this\)$"
)


def differs(shown: list[str], printed: list[str]) -> str | None:
    """The first difference between what is shown and what is printed."""
    certain = ([line for line in lines if not UNCERTAIN.match(line)] for lines in (shown, printed))
    wanted, found = ([line for line in map(normal, lines) if line] for lines in certain)
    at = 0
    gap = False
    for line in wanted:
        if line == "...":
            gap = True
            continue
        if gap:
            at = next((n for n in range(at, len(found)) if found[n] == line), len(found))
        if at >= len(found) or found[at] != line:
            return f"shown:   {line}\nprinted: {found[at] if at < len(found) else '(nothing more)'}"
        at, gap = at + 1, False
    return f"not shown: {found[at]}" if not gap and at < len(found) else None


def renewed(shown: list[str], printed: list[str]) -> list[str]:
    """What is printed, cut where what is shown is cut."""
    if "..." not in shown:
        return printed
    left = [line for line in printed if not UNCERTAIN.match(line)]
    found = []
    for line in shown:
        if UNCERTAIN.match(line):
            continue
        if line != "..." and normal(line):
            at = next(n for n, other in enumerate(left) if normal(other) == normal(line))
            line, left = left[at], left[at + 1 :]
        found.append(line)
    return found


def has_cgroups() -> bool:
    """Whether a memory cgroup can be made: by root, where version 1 is mounted."""
    return (CGROUPS / "memory.limit_in_bytes").exists() and os.getuid() == 0


@contextlib.contextmanager
def memory_cgroup(size: str, name: str = "") -> Iterator[Path | None]:
    """A memory cgroup with a hard limit, or nothing where none can be made."""
    if not has_cgroups():
        yield None
        return
    group = CGROUPS / (name or f"stormlog-docs-{os.getpid()}-{time.time_ns()}")
    group.mkdir()
    try:
        for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            with contextlib.suppress(OSError):  # kernels without swap accounting have no memsw
                (group / name).write_text(size)
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


def run(command: Command, directory: str, group: Path | None, status: int) -> tuple[str | None, list[str]]:
    """What is wrong with a command, and what it printed."""
    # The package under test is the one beside this interpreter.
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("STORMLOG")}
    text = f'echo $$ > "{group}/cgroup.procs"\n{command.text}' if group else command.text
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=directory,
        env={**kept, "PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
    )
    printed = GROUP_NAME.sub(GROUP, done.stdout.replace(directory, HOME))
    printed = re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, printed)
    # A command that is killed kills the shell that became it, or is reported by it.
    if done.returncode not in (status, 128 - status if status > 128 else status):
        return f"exit status {done.returncode} instead of {status}\n{printed}", []
    lines = [line.rstrip() for line in printed.splitlines()]
    difference = differs(command.shown, lines)
    return f"{difference}\n\n{printed}" if difference else None, lines


class Checked:
    """The result of all documents."""

    def __init__(self, update: bool) -> None:
        self.update = update
        self.passed = self.failed = 0
        self.left_out: dict[str, int] = {}

    def leave_out(self, reason: str, count: int) -> None:
        """Counts commands that are not run."""
        self.left_out[reason] = self.left_out.get(reason, 0) + count

    def block(self, path: Path, block: Block, directory: str) -> None:
        """Runs the commands of a block."""
        if "not-run" in block.options:
            return self.leave_out(NOT_RUN[block.options["not-run"]], len(block.commands))
        commands = [command for command in block.commands if not command.text.startswith(SETS_UP)]
        if {"cgroup", "after"} & set(block.options) and not has_cgroups():
            return self.leave_out("needs root and a version 1 memory cgroup", len(commands))
        size = block.options.get("cgroup")
        with memory_cgroup(size) if size else contextlib.nullcontext() as group:
            for command in commands:
                status = int(block.options.get("exit", "0")) if command is commands[-1] else 0
                wrong, printed = run(command, directory, group, status)
                if block.options.get("output") == "no" and (printed or not wrong):
                    wrong = None
                elif self.update and printed and (not wrong or "..." not in command.shown):
                    if wrong:
                        sys.stdout.write(f"{path}: updated: $ {command.text}\n")
                    command.shown[:] = renewed(command.shown, printed)
                    wrong = None
                self.passed, self.failed = self.passed + (wrong is None), self.failed + (wrong is not None)
                if wrong:
                    sys.stdout.write(f"{path}: $ {command.text}\n{wrong}\n")
        return None

    def document(self, path: Path) -> None:
        """Runs a document, and writes it again where that is asked for."""
        document = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory(prefix="job-", dir="/tmp") as directory:
            shutil.copytree(ROOT / "examples", Path(directory, "examples"))
            for name in ("tests", "crates"):
                Path(directory, name).symlink_to(ROOT / name)
            written = []
            end = 0
            for fence in FENCE.finditer(document):
                block = Block.read(fence[1], fence[2])
                self.block(path, block, directory)
                written += [document[end : fence.start()], block.written()]
                end = fence.end()
        if self.update:
            path.write_text("".join([*written, document[end:]]), encoding="utf-8")


def main(arguments: list[str]) -> None:
    """Checks the documents."""
    checked = Checked(update="--update" in arguments)
    for path in [word for word in arguments if word != "--update"]:
        checked.document(Path(path))
    for reason, count in checked.left_out.items():
        sys.stdout.write(f"{count} not run: {reason}\n")
    sys.stdout.write(f"{checked.passed} passed, {checked.failed} failed\n")
    if checked.failed or not checked.passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
