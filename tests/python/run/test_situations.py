"""A program under `stormlog run` and `stormlog run --heap` ends as it does bare, and prints the same."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from native import STORMLOG
from places import ROOT
from run_command import until
from situations import EXPECTED, FILES, OUR_VARIABLES, SITUATIONS, SOURCES, Situation

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
MODES: dict[str, list[str]] = {"run": [], "heap": ["--heap"]}


@dataclass(frozen=True)
class Observed:
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, where all situations are."""
    folder = tmp_path_factory.mktemp("situations")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    for name, source in SOURCES.items():
        (folder / f"{name}.c").write_text(source)
        subprocess.run(["gcc", "-w", "-o", name, f"{name}.c"], cwd=folder, check=True)
    subprocess.run(["gcc", "-static", "-o", "seven-static", "seven.c"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def bare(place: Path) -> dict[str, Observed]:
    """What was observed without us, by situation."""
    return {}


def text(raw: bytes) -> str:
    """Without our documented variables, and what differs between two starts: addresses, lines."""
    lines = re.sub(r"0x[0-9a-f]+|line \d+", "…", raw.decode(errors="replace")).splitlines()
    return "\n".join(line for line in lines if line not in OUR_VARIABLES)


def observe(situation: Situation, place: Path, prefix: list[str]) -> Observed:
    outer, inner = situation.words[: situation.outside], situation.words[situation.outside :]
    if situation.leaves:
        (place / situation.leaves).unlink(missing_ok=True)
    try:
        running = subprocess.Popen(
            [*outer, *prefix, *inner],
            stdin=subprocess.PIPE if situation.input is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=place,
            env={**os.environ, **situation.variables},
            preexec_fn=situation.before,
        )
    except (FileNotFoundError, PermissionError) as error:
        # As a shell has it.
        return Observed(127 if isinstance(error, FileNotFoundError) else 126, "", "")
    with running:
        first = b""
        if situation.sent:
            assert running.stdout
            first = running.stdout.readline()
        for number in situation.sent:
            (os.killpg if situation.to_group else os.kill)(running.pid, number)
        out, err = running.communicate(situation.input)
    if situation.leaves:
        until((place / situation.leaves).exists)
    return Observed(running.returncode, text(first + out), text(err))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_a_program_does_not_notice(
    situation: Situation, mode: str, place: Path, bare: dict[str, Observed], request: pytest.FixtureRequest
) -> None:
    if reason := EXPECTED.get((situation.name, mode)):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    if situation.name not in bare:
        bare[situation.name] = observe(situation, place, [])
    run = [STORMLOG, "run", "--quiet", "--dir", str(place / "runs"), *MODES[mode], "--"]
    recorded, plain = observe(situation, place, run), bare[situation.name]
    for what in situation.compared:
        assert getattr(recorded, what) == getattr(plain, what), what


def test_every_situation_has_a_name_of_its_own() -> None:
    names = [situation.name for situation in SITUATIONS]
    assert len(names) == len(set(names))
    assert {name for name, _ in EXPECTED} <= set(names)


def test_every_variable_that_a_program_sees_is_documented() -> None:
    page = (ROOT / "docs" / "run.md").read_text()
    assert {name for name in OUR_VARIABLES if f"`{name}`" not in page} == set()
