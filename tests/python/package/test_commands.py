"""The commands as Python runs them: exit codes, output, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import stormlog
from compat_cases import v4
from stormlog import _native

PACKAGES = Path(stormlog.__file__).parent.parent
PROGRAMS = ["stormlog", "gpumemprof", "tfmemprof", "jaxmemprof"]
# In 0.4.3 it was no package of its own.
MODULES = {"jaxmemprof": "stormlog.jax"}
ENV = {**os.environ, "PYTHONPATH": str(PACKAGES)}


def run(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", MODULES.get(program, program), *args]
    return subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=60, check=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_command_answers_for_itself(program: str) -> None:
    done = run(program, "--version")
    assert done.returncode == 0
    assert stormlog.__version__ in done.stdout and program in done.stdout


def test_a_wrong_command_line_is_2() -> None:
    assert run("stormlog", "--no-such-option").returncode == 2


def test_bad_input_is_5_with_one_sentence(tmp_path: Path) -> None:
    done = run("stormlog", "validate", str(tmp_path / "missing.json"))
    assert done.returncode == 5
    assert "missing.json" in done.stderr and "Traceback" not in done.stderr


def test_an_answer_goes_to_standard_output(write: Callable[..., Path]) -> None:
    done = run("stormlog", "sessions", str(write()), "--json")
    assert done.returncode == 0 and '"session_id"' in done.stdout


def test_an_unknown_program_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown command other"):
        _native.command.run_cli("other", [])


def interrupt(before: str, after: str, wait: float = 0.2) -> int:
    """The exit code of a process that gets Ctrl-C while it runs `after`."""
    code = f"{before}\nimport sys, time\nprint('ready', flush=True)\n{after}"
    child = subprocess.Popen([sys.executable, "-c", code], env=ENV, stdout=subprocess.PIPE, text=True)
    assert child.stdout and child.stdout.readline() == "ready\n"
    time.sleep(wait)
    child.send_signal(signal.SIGINT)
    try:
        return child.wait(timeout=60)
    finally:
        child.kill()
        child.stdout.close()


TAKE_OVER = "from stormlog import _native; _native.command.release_interrupts()"


def test_ctrl_c_ends_a_command_with_130(tmp_path: Path) -> None:
    line = json.dumps(v4()) + "\n"
    path = tmp_path / "long.jsonl"
    for megabytes in (100, 400, 1600):
        path.write_text(line * (megabytes * 1_000_000 // len(line)))
        run_it = f"sys.exit(_native.command.run_cli('stormlog', ['validate', {str(path)!r}]))"
        code = interrupt(TAKE_OVER, run_it, wait=0.1)
        if code != 0:  # else the machine was faster than the signal
            break
    assert code == 130


def test_ctrl_c_ends_a_process_that_waits_in_native_code() -> None:
    assert interrupt(TAKE_OVER, "import os; r, w = os.pipe(); os.read(r, 1)") == -signal.SIGINT


def test_an_ignored_ctrl_c_stays_ignored() -> None:
    before = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{TAKE_OVER}"
    assert interrupt(before, "time.sleep(1); sys.exit(7)") == 7


def test_ctrl_c_is_pythons_own_until_a_command_takes_over() -> None:
    caught = "try:\n    time.sleep(10)\nexcept KeyboardInterrupt:\n    sys.exit(9)"
    assert interrupt("from stormlog import _native", caught) == 9
