"""The build backend of pyproject.toml: maturin, after the native commands have been built for it.

maturin packs what is under `build/wheel.data` and does not build it, so this builds `stormlog` and its older
names with cargo and puts them into its `scripts`, stripped, and man pages and shell completions into its
`data/share`. It also writes the stubs of the older names. As a program (`python scripts/build_backend.py`) it
does only that, for those who call maturin themselves. STORMLOG_BUILD_PROFILE=dev leaves out optimisation.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import alias_stubs
import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "build" / "wheel.data"
SCRIPTS = DATA / "scripts"
# The module is named too, and none of its targets is a program: with the features of both, each crate is
# compiled once for the commands and the module.
PACKAGES = ("stormlog-cli", "stormlog-manual", "stormlog-python")
COMMANDS = {"stormlog", "gpumemprof", "tfmemprof", "jaxmemprof"}
# Writes the man pages and completions; built and run here, and not packed.
MANUAL = "stormlog-manual"

Settings = Mapping[str, Any] | None


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata: str | None = None) -> str:
    """The wheel, with the commands in it."""
    prepare()
    return maturin.build_wheel(wheel_directory, config_settings, metadata)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata: str | None = None
) -> str:
    """As a wheel; the Python files stay where they are, the commands are copies."""
    prepare()
    return maturin.build_editable(wheel_directory, config_settings, metadata)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The sources; the commands are built from them where they are installed."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)  # maturin looks for it
    return maturin.build_sdist(sdist_directory, config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """What the wheel will say of itself."""
    SCRIPTS.mkdir(parents=True, exist_ok=True)
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def prepare() -> None:
    """Makes what maturin packs and does not build."""
    alias_stubs.write()
    build_commands()


def build_commands() -> None:
    """Builds the commands into the directory that maturin packs."""
    profile = os.environ.get("STORMLOG_BUILD_PROFILE", "release")
    packages = [word for package in PACKAGES for word in ("--package", package)]
    words = ["cargo", "build", "--locked", "--profile", profile, *packages, "--bins"]
    # cargo tells where each program is, whatever target directory or platform is configured.
    environment = maturin._get_env()  # a toolchain that maturin installed for the build, where there was none
    building = subprocess.run(
        [*words, "--message-format", "json-render-diagnostics"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        check=False,
    )
    if building.returncode != 0:
        sys.exit(f"Error: `{' '.join(words)}` failed with exit status {building.returncode}")
    messages = [json.loads(line) for line in building.stdout.splitlines() if line.startswith(b"{")]
    made = {Path(message["executable"]) for message in messages if message.get("executable")}
    programs = {program.name: program for program in made}
    missing = {*COMMANDS, MANUAL} - programs.keys()
    if missing:
        sys.exit(f"Error: `{' '.join(words)}` made no {', '.join(sorted(missing))}")
    shutil.rmtree(DATA, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    for name in COMMANDS:
        _strip(programs[name], SCRIPTS / name)
    _write_manual(programs[MANUAL])


def _write_manual(program: Path) -> None:
    """Writes man pages and completions to where a wheel has files for its prefix."""
    try:
        subprocess.run([program, DATA / "data"], check=True)
    except OSError as error:  # built for another machine than this one
        print(f"Warning: no man pages and completions: {program} cannot be run: {error}", file=sys.stderr)  # noqa: T201


def _strip(program: Path, copy: Path) -> None:
    """Symbols are a fifth of a program and nothing reads them. Without the tool it is only larger."""
    strip = shutil.which("strip")
    if strip is None or subprocess.run([strip, "-o", copy, program], check=False).returncode != 0:
        shutil.copy2(program, copy)
    copy.chmod(0o755)


if __name__ == "__main__":
    prepare()
