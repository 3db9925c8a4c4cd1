"""What an import costs, what the older names stand for, and what the wheel declares."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import pickle
import pkgutil
import runpy
import subprocess
import sys
from pathlib import Path

import gpumemprof
import pytest
import stormlog
import tfmemprof
from places import ROOT
from stormlog import _native, telemetry, tensorflow

ALIASES = ["gpumemprof", "tfmemprof"]
PACKAGES = Path(stormlog.__file__).parent.parent
MODULES = sorted(
    found.name for found in pkgutil.iter_modules(stormlog.__path__) if not found.name.startswith("_")
)


def run(code: str) -> str:
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(PACKAGES)!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_the_root_imports_nothing() -> None:
    new = run("before = set(sys.modules); import stormlog; print(*sorted(set(sys.modules) - before))").split()
    assert new == ["stormlog"]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_older_name_imports_nothing_heavy(alias: str) -> None:
    new = run(f"before = set(sys.modules); import {alias}; print(*sorted(set(sys.modules) - before))").split()
    assert {"stormlog", "stormlog._alias", alias} <= set(new)
    assert not {"typing", "re", "dataclasses", "inspect", "json", "importlib.util", "importlib.abc"} & set(
        new
    )


def test_the_entry_point_imports_nothing_before_it_becomes_the_command() -> None:
    code = "before = set(sys.modules); import stormlog._entry; print(*sorted(set(sys.modules) - before))"
    assert run(code).split() == ["__future__", "stormlog", "stormlog._entry"]


@pytest.mark.parametrize("module", MODULES)
def test_no_module_needs_a_third_party(module: str) -> None:
    code = (
        f"import stormlog.{module}; "
        "names = {name.partition('.')[0] for name in sys.modules}; "
        "print(*sorted(n for n in names - set(sys.stdlib_module_names) if not n.startswith(('__', '_'))))"
    )
    assert set(run(code).split()) <= {"stormlog", "sitecustomize", "usercustomize"}


def test_the_version_is_the_one_that_was_built() -> None:
    assert stormlog.__version__ == _native.__version__ == gpumemprof.__version__ == tfmemprof.__version__
    # 0.4.3 has it there too.
    assert stormlog.__version__ == stormlog.tensorflow.__version__ == stormlog.jax.__version__


def test_the_wheel_requires_nothing() -> None:
    try:
        found = importlib.metadata.distribution("stormlog")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed from a wheel")
    assert found.version == stormlog.__version__
    required = [one for one in found.requires or [] if "extra ==" not in one]
    assert required == []
    assert [entry.name for entry in found.entry_points if entry.group == "console_scripts"] == []
    assert found.metadata["License-Expression"] == "MIT OR Apache-2.0"


def test_every_public_name_exists() -> None:
    assert set(stormlog.__all__) == set(stormlog._HOME_OF)
    for name in stormlog.__all__:
        home = importlib.import_module(f"stormlog.{stormlog._HOME_OF[name]}")
        assert getattr(stormlog, name) is getattr(home, name)
        assert name in dir(stormlog)
    for name in MODULES:
        module = importlib.import_module(f"stormlog.{name}")
        assert getattr(stormlog, name) is module
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), f"{name}.{public}"


def test_the_stub_of_the_root_gives_the_names_of_its_table() -> None:
    stub = Path(stormlog.__file__).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    homes = {name.name: node.module for node in imports if node.level == 1 for name in node.names}
    modules = {module: None for module in stormlog._LAZY if not module.startswith("_")}
    assert homes == {**modules, **stormlog._HOME_OF}


@pytest.mark.parametrize("root", ["stormlog", *ALIASES])
def test_an_unknown_name_is_an_attribute_error_of_that_root(root: str) -> None:
    package = importlib.import_module(root)
    with pytest.raises(AttributeError, match=f"module '{root}' has no attribute 'nothing'"):
        _ = package.nothing
    assert not hasattr(package, "__nothing__")
    with pytest.raises(ModuleNotFoundError, match=f"No module named '{root}.nothing'"):
        importlib.import_module(f"{root}.nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec(f"from {root} import nothing")


def home_of(alias: str, name: str) -> str:
    """The module an alias's submodule is: what TensorFlow has of its own comes first under its older name."""
    names = (
        "analyzer",
        "context_profiler",
        "diagnose",
        "profiler",
        "tf_env",
        "tracker",
        "utils",
        "visualizer",
    )
    own = {("tfmemprof", name): f"stormlog.tensorflow.{name}" for name in names}
    return own.get((alias, name), f"stormlog.{name}")


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("name", MODULES)
def test_a_submodule_is_the_very_same_module(alias: str, name: str) -> None:
    home = home_of(alias, name)
    own = importlib.import_module(home)
    assert importlib.import_module(f"{alias}.{name}") is own
    assert getattr(importlib.import_module(alias), name) is own
    assert own.__name__ == home
    assert own.__spec__ is not None and own.__spec__.name == home


@pytest.mark.parametrize("alias", ALIASES)
def test_the_alias_may_be_first(alias: str) -> None:
    code = (
        f"import {alias}.telemetry as old; import stormlog.telemetry as new; "
        f"from {alias} import TelemetryEventV4; from {alias}.session import SessionSummary; "
        "print(old is new, TelemetryEventV4 is new.TelemetryEventV4, importlib.reload(new) is old)"
    )
    assert run("import importlib; " + code) == "True True True"


@pytest.mark.parametrize("alias", ALIASES)
def test_a_star_import_gives_the_names_of_the_root(alias: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {alias} import *", names)
    assert set(stormlog.__all__) <= set(names)
    assert names["TelemetryEventV4"] is telemetry.TelemetryEventV4


@pytest.mark.parametrize("alias", ALIASES)
def test_patching_one_name_patches_the_other(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{alias}.session.now_ns", lambda: 42)
    assert stormlog.session.now_ns() == 42


@pytest.mark.parametrize("alias", ALIASES)
def test_pickles_made_under_the_older_name_load(alias: str) -> None:
    reference = f"c{alias}.telemetry\nTelemetryEventV3\n.".encode()
    assert pickle.loads(reference) is telemetry.TelemetryEventV3


@pytest.mark.parametrize("alias", ALIASES)
def test_type_checkers_find_every_submodule(alias: str) -> None:
    folder = Path(importlib.import_module(alias).__file__ or "").parent
    texts = {stub.name: stub.read_text() for stub in folder.glob("*.pyi")}
    root = texts.pop("__init__.pyi")
    assert [name for name in stormlog.__all__ if f" import {name} as {name}\n" not in root] == []
    own = [
        found.name for found in pkgutil.iter_modules(tensorflow.__path__) if not found.name.startswith("_")
    ]
    names = {*MODULES, *own} if alias == "tfmemprof" else set(MODULES)
    assert texts == {f"{name}.pyi": f"from {home_of(alias, name)} import *\n" for name in names}
    for name in names:
        assert importlib.import_module(f"{alias}.{name}").__name__ == home_of(alias, name)
    assert (folder / "py.typed").exists()


def test_alias_stubs_follow_the_modules(tmp_path: Path) -> None:
    generator = runpy.run_path(str(ROOT / "scripts" / "alias_stubs.py"))
    for package in ("stormlog", "stormlog/tensorflow", "stormlog/phases", "gpumemprof", "tfmemprof"):
        (tmp_path / package).mkdir(parents=True)
    for file in (
        "tracker",
        "scrub",
        "_private",
        "phases/__init__",
        "tensorflow/__init__",
        "tensorflow/tracker",
    ):
        (tmp_path / f"stormlog/{file}.py").touch()
    (tmp_path / "gpumemprof/gone.pyi").touch()
    generator["write"](tmp_path)
    kept = tmp_path / "tfmemprof/tracker.pyi"
    assert kept.read_text() == "from stormlog.tensorflow.tracker import *\n"
    assert (tmp_path / "gpumemprof/tracker.pyi").read_text() == "from stormlog.tracker import *\n"
    written = {stub.stem for stub in (tmp_path / "gpumemprof").glob("*.pyi")}
    assert written == {"__init__", "tracker", "scrub", "phases", "tensorflow"}
    before = kept.stat().st_mtime_ns
    generator["write"](tmp_path)
    assert kept.stat().st_mtime_ns == before, "a file that is right is not written again"
