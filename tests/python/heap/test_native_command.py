"""The commands a wheel installs: native programs that find the interpreter they belong to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import stormlog
from stormlog import _entry

NAMES = ["stormlog", "gpumemprof", "tfmemprof", "jaxmemprof"]
PACKAGE = Path(stormlog.__file__).parent
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
RECORD = f"stormlog-{stormlog.__version__}.dist-info"
WHO = "import os, sys; print(sys.executable, 'STORMLOG_PYTHON' in os.environ)"


@pytest.fixture
def native() -> Path:
    found = _entry.command()
    assert found is not None, "the package is installed without its commands"
    return Path(found)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "who.py"
    path.write_text(WHO)
    return path


def run(words: Iterable[str | Path], **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "STORMLOG_PYTHON"} | variables
    return subprocess.run(list(words), capture_output=True, text=True, env=env, timeout=120, check=False)


def recorded(command: Path, script: Path, **variables: str) -> list[str]:
    """The interpreter that `stormlog run` gives a script, and whether the script sees the variable."""
    done = run([command, "run", "--quiet", "--dir", script.parent / "runs", script], **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def installation(command: Path, packages: Path, native: Path) -> Path:
    """An installation as pip makes one: the command, the package and its record."""
    for folder in (command.parent, packages / RECORD):
        folder.mkdir(parents=True)
    (packages / "stormlog").symlink_to(PACKAGE)
    shutil.copy2(native, command)
    return command


@pytest.mark.parametrize("name", NAMES)
def test_each_command_is_a_native_program(name: str, native: Path) -> None:
    program = native.with_name(name)
    assert program.read_bytes()[:4] == b"\x7fELF"
    assert run([program, "--version"]).stdout == f"{name} {stormlog.__version__}\n"
    assert program.stat().st_size < 1 << 20 or name == "stormlog", "an older name is a few lines"


def test_an_older_name_without_the_program_says_what_to_do(tmp_path: Path, native: Path) -> None:
    alone = shutil.copy2(native.with_name("gpumemprof"), tmp_path / "gpumemprof")
    done = run([alone, "info"])
    assert done.returncode == 127
    assert str(tmp_path / "stormlog") in done.stderr and "reinstall stormlog" in done.stderr


def test_the_users_python_settings_do_not_act_on_the_command(tmp_path: Path, native: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('started'); raise SystemExit(9)")
    done = run([native, "--version"], PYTHONPATH=str(tmp_path), PYTHONHOME="/nowhere")
    assert (done.returncode, done.stdout) == (0, f"stormlog {stormlog.__version__}\n")


@pytest.mark.parametrize("module", [False, True])
def test_the_supervisor_holds_no_interpreter(module: bool, tmp_path: Path, native: Path) -> None:
    words: list[str | Path] = [sys.executable, "-m", "stormlog"] if module else [native]
    look = (
        'readlink /proc/$PPID/exe; grep -c libpython /proc/$PPID/maps; grep -c "_native.*so" /proc/$PPID/maps'
    )
    done = run([*words, "run", "--quiet", "--dir", tmp_path / "runs", "--", "sh", "-c", look + "; true"])
    assert done.stdout.split() == [str(native.resolve()), "0", "0"], done.stderr


def test_the_interpreter_beside_the_command_runs_scripts(script: Path, native: Path) -> None:
    found = recorded(native, script)[0]
    assert Path(found).parent == native.parent and Path(found).samefile(sys.executable)


def test_the_interpreter_that_was_called_runs_scripts(script: Path) -> None:
    runs = str(script.parent / "runs")
    words = [sys.executable, "-m", "stormlog", "run", "--quiet", "--dir", runs, str(script)]
    assert run(words).stdout.split() == [sys.executable, "False"]


def test_a_named_interpreter_runs_scripts_and_the_variable_stays_the_users(
    script: Path, native: Path
) -> None:
    wrapper = script.with_name("my-python")
    wrapper.write_text(f'#!/bin/sh\nPATH= exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    done = run(
        [native, "run", "--quiet", "--dir", script.parent / "runs", script], STORMLOG_PYTHON=str(wrapper)
    )
    assert done.stdout.split()[1] == "True", done.stderr
    record = next((script.parent / "runs").glob("*/run.json")).read_text()
    assert str(wrapper) in record


def test_a_user_installation_uses_the_interpreter_of_its_packages(
    tmp_path: Path, script: Path, native: Path
) -> None:
    home = tmp_path / ".local"
    command = installation(home / "bin/stormlog", home / f"lib/{VERSION}/site-packages", native)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / VERSION).symlink_to(sys.executable)
    path = os.pathsep.join([str(tools), os.environ["PATH"]])
    assert recorded(command, script, PATH=path)[0] == str(tools / VERSION)


def test_a_linked_command_is_that_of_its_environment(tmp_path: Path, script: Path, native: Path) -> None:
    (tmp_path / "bin").mkdir()
    link = tmp_path / "bin" / "stormlog"
    link.symlink_to(native)
    older = tmp_path / "bin" / "gpumemprof"
    older.symlink_to(native.with_name("gpumemprof"))
    assert recorded(link, script) == recorded(native, script)
    assert run([older, "--version"]).stdout == f"gpumemprof {stormlog.__version__}\n"


def test_a_target_directory_is_where_python_finds_the_package(tmp_path: Path, native: Path) -> None:
    target = tmp_path / "target"
    command = installation(target / "bin/stormlog", target, native)
    base = tmp_path / "tools"
    base.mkdir()
    # An interpreter without our package of its own.
    (base / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (base / "python3").chmod(0o755)
    done = run([command, "sql", "nowhere", "select 1"], PATH=f"{base}:/usr/bin:/bin", PYTHONPATH="")
    # Both are sentences of the package.
    assert "stormlog sql needs DuckDB" in done.stderr or "nowhere" in done.stderr, done.stderr
    assert "No module named" not in done.stderr


def test_a_file_here_does_not_take_the_place_of_a_module(tmp_path: Path, native: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    words = ["sh", "-c", 'cd "$0" && exec "$@"', str(tmp_path), str(native), "sql", "nowhere", "select 1"]
    assert "mine" not in run(words).stderr


def test_without_a_command_the_extension_module_is_the_program(tmp_path: Path) -> None:
    (tmp_path / "stormlog").symlink_to(PACKAGE)
    code = (
        "import sys; from stormlog import _entry; _entry.command = lambda: None; "
        "sys.argv[0] = 'stormlog'; _entry.stormlog()"
    )
    done = run([sys.executable, "-c", code, "--version"], PYTHONPATH=str(tmp_path))
    assert done.stdout == f"stormlog {stormlog.__version__}\n", done.stderr
