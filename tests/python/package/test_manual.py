"""Man pages and shell completions that the wheel installs, as their readers take them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import stormlog

PREFIX = Path(sys.prefix)
NAMES = {"stormlog", "gpumemprof", "tfmemprof", "jaxmemprof"}
PROGRAMS = sorted(name for name in NAMES if (PREFIX / "bin" / name).exists())
MAN = PREFIX / "share/man/man1"


def test_files_belong_to_the_wheel() -> None:
    """So `pip uninstall` removes them."""
    listed = importlib.metadata.files("stormlog")
    assert listed is not None
    there = {Path(os.path.normpath(file.locate())) for file in listed}
    for program in PROGRAMS:
        for file in (
            MAN / f"{program}.1",
            PREFIX / "share/bash-completion/completions" / program,
            PREFIX / "share/zsh/site-functions" / f"_{program}",
            PREFIX / "share/fish/vendor_completions.d" / f"{program}.fish",
        ):
            assert file in there and file.is_file(), file


def test_every_command_has_a_man_page() -> None:
    shown = subprocess.run([PREFIX / "bin/stormlog", "--help"], capture_output=True, text=True, check=True)
    commands = re.findall(r"^  ([a-z][a-z-]*) {2,}\S", shown.stdout, re.MULTILINE)
    assert len(commands) > 40
    for command in commands:
        assert (MAN / f"stormlog-{command}.1").is_file(), command


@pytest.mark.parametrize("page", ["stormlog.1", "stormlog-run.1", "tfmemprof.1", "tfmemprof-track.1"])
def test_man_shows_a_page(page: str) -> None:
    if shutil.which("man") is None:
        pytest.skip("man is not installed")
    command = ["man", "--warnings=all", "-l", str(MAN / page)]
    environment = {**os.environ, "MANPAGER": "cat", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert page.removesuffix(".1") in done.stdout and f"stormlog {stormlog.__version__}" in done.stdout
    for heading in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
        assert re.search(f"^{heading}", done.stdout, re.MULTILINE), heading


def completed(program: str, *words: str) -> list[str]:
    """What bash offers for the last word, by the function that the script registers."""
    script = PREFIX / "share/bash-completion/completions" / program
    code = """
        source "$1"; shift
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        read -r -a registered <<< "$(complete -p "$1")"
        for ((at = 0; at < ${#registered[@]}; at++)); do
            [ "${registered[at]}" = -F ] && function=${registered[at + 1]}
        done
        "$function" "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\\n' "${COMPREPLY[@]}"
    """
    command = ["bash", "--norc", "-c", code, "bash", str(script), program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_what_is_typed() -> None:
    assert {"run", "runs", "rules"} == set(completed("stormlog", "ru"))
    assert completed("stormlog", "run", "--torch-h") == ["--torch-history"]
    assert set(completed("stormlog", "run", "--torch-history", "")) == {"off", "segments", "stacks"}
    assert {"track"} <= set(completed("tfmemprof", "tra"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_completions_are_valid(shell: str, program: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = {
        "bash": f"bash-completion/completions/{program}",
        "zsh": f"zsh/site-functions/_{program}",
        "fish": f"fish/vendor_completions.d/{program}.fish",
    }[shell]
    done = subprocess.run([shell, "-n", PREFIX / "share" / file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
