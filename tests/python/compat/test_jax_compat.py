"""The names and signatures of `stormlog.jax` beside those of the real stormlog 0.4.3; no JAX is needed."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PEER = os.environ.get("STORMLOG_PEER_PYTHON")
pytestmark = pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON names no interpreter with stormlog 0.4.3"
)
# Written by a protobuf compiler; ours reads pprof by itself. The command is native.
NOT_OURS = {"profile_pb2", "cli", "__init__"}


@pytest.fixture(scope="module")
def theirs() -> Path:
    assert PEER
    ask = [PEER, "-c", "import stormlog; print(stormlog.__path__[0])"]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()) / "jax"


def parameters(function: ast.FunctionDef) -> list[tuple[str, object]]:
    """Names with their defaults, `self` left out."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    empty: list[ast.expr | None] = [None] * (len(named) - len(arguments.defaults))
    pairs = [*zip(named, [*empty, *arguments.defaults], strict=True)]
    pairs += [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    return [
        (name.arg, inspect.Parameter.empty if value is None else ast.literal_eval(value))
        for name, value in pairs
        if name.arg != "self"
    ]


def own(function: Any) -> list[tuple[str, object]]:
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [(one.name, one.default) for one in found if one.name != "self" and one.kind not in kinds]


def test_every_public_name_of_the_peer_is_ours_with_its_parameters(theirs: Path) -> None:
    seen = 0
    for file in sorted(theirs.glob("*.py")):
        if file.stem in NOT_OURS:
            continue
        module = importlib.import_module(f"stormlog.jax.{file.stem}")
        for node in ast.parse(file.read_text()).body:
            name = getattr(node, "name", "_")
            if name.startswith("_"):
                continue
            if isinstance(node, ast.FunctionDef):
                assert own(getattr(module, name)) == parameters(node), f"{file.stem}.{name}"
                seen += 1
            elif isinstance(node, ast.ClassDef):
                seen += look_at_class(getattr(module, name), node)
    assert seen > 60


def look_at_class(kind: type, node: ast.ClassDef) -> int:
    fields = [
        one.target.id
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    if fields:
        assert list(inspect.signature(kind).parameters) == fields, node.name
    seen = 0
    for one in node.body:
        if not isinstance(one, ast.FunctionDef) or (one.name.startswith("_") and one.name != "__init__"):
            continue
        marks = [ast.unparse(mark) for mark in one.decorator_list]
        if any("last_oom_dump_path" in mark for mark in marks) or one.name == "last_oom_dump_path":
            continue  # an attribute of the instance
        if "property" in marks:
            assert hasattr(kind, one.name), f"{node.name}.{one.name}"
        else:
            given = own(getattr(kind, one.name))
            # A tracker may take more.
            assert given[: len(parameters(one))] == parameters(one), f"{node.name}.{one.name}"
        seen += 1
    return seen


def test_the_package_exports_the_peers_names(theirs: Path) -> None:
    package = importlib.import_module("stormlog.jax")
    (names,) = [
        ast.literal_eval(node.value)
        for node in ast.parse((theirs / "__init__.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert set(names) <= set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", ["info", "monitor", "track", "diagnose", "analyze"])
def test_the_command_takes_every_flag_of_the_peers(name: str) -> None:
    assert PEER
    help_of = [PEER, "-m", "stormlog.jax.cli", name, "--help"]
    help_text = subprocess.run(help_of, capture_output=True, text=True, check=True).stdout
    flags = sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_text)) - {"--help"})
    assert bool(flags) == (name != "info")
    refused = [flag for flag in flags if "unexpected argument" in _answer(name, flag, "--help").stderr]
    assert refused == []


def _answer(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stormlog.jax", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
