"""The public Python names and their docstrings, read from the sources and stubs without importing any.

Frameworks that a module needs may be absent, and the native module is known by its stubs and its Rust
comments. Public is what `__all__` of a module lists, and of a class what has no underscore.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python"
NATIVE = ROOT / "crates" / "python" / "src"
# Values longer than this are not shown.
LONGEST_VALUE = 100

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef | ast.Assign | ast.AnnAssign


@dataclass(eq=False)
class Module:
    """A source file, or the stub of a part of the native module."""

    name: str
    tree: ast.Module
    # Names that the module defines, and the places of those that it imports.
    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Classes that are made when they are first used.
    lazy: list[str] = field(default_factory=list)

    @property
    def public(self) -> list[str]:
        """What `__all__` lists, in alphabetical order; the root lists the names of its table."""
        if self.name == "stormlog":
            table: dict[str, tuple[str, ...]] = ast.literal_eval(value_of(self.definitions["_LAZY"]))
            return sorted((name for names in table.values() for name in names), key=str.lower)
        listed = self.definitions.get("__all__")
        if listed is None:  # a module of `integrations`
            functions = [name for name, node in self.definitions.items() if isinstance(node, Function)]
            plain = (name for name in functions if not name.startswith("_"))
            return sorted({*self.lazy, *plain}, key=str.lower)
        names: list[str] = ast.literal_eval(value_of(listed))
        own = (name for name in names if not name.startswith("__") and module(f"{self.name}.{name}") is None)
        return sorted(own, key=str.lower)


@dataclass(frozen=True)
class Found:
    """A public name followed to its definition."""

    module: Module
    name: str
    node: Definition


class UndefinedNameError(Exception):
    """A public name that is not found in the sources."""


@cache
def module(name: str) -> Module | None:
    """A module of ours by its full name."""
    place = PYTHON / name.replace(".", "/")
    for path in (place / "__init__.py", place.with_suffix(".py"), place.with_suffix(".pyi")):
        if path.is_file():
            found = Module(name, ast.parse(path.read_text(encoding="utf-8")))
            _collect(found, found.tree.body)
            if name == "stormlog":
                stub = ast.parse(path.with_suffix(".pyi").read_text(encoding="utf-8"))
                _collect(found, [node for node in stub.body if isinstance(node, ast.ImportFrom)])
            return found
    return None


def _collect(found: Module, body: list[ast.stmt]) -> None:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found.definitions[target.id] = node
            _collect_lazy(found, node)
        elif isinstance(node, ast.ImportFrom):
            home = node.module or ""
            if node.level:
                home = ".".join(["stormlog", home]) if home else "stormlog"
            for one in node.names:
                found.imports[one.asname or one.name] = (home, one.name)
        elif isinstance(node, ast.If):  # TYPE_CHECKING
            _collect(found, node.body)


def _collect_lazy(found: Module, node: ast.Assign | ast.AnnAssign) -> None:
    """`__getattr__ = lazily(globals(), {"Name": maker})`: the class is defined inside of `maker`."""
    call = node.value
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "lazily"):
        return
    table = call.args[1]
    assert isinstance(table, ast.Dict)
    for key, maker in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant) and isinstance(maker, ast.Name)
        inside = ast.walk(found.definitions[maker.id])
        for one in inside:
            if isinstance(one, ast.ClassDef) and one.name == key.value:
                found.definitions[one.name] = one
                found.lazy.append(one.name)


def find(home: str, name: str) -> Found:
    """The definition of a name, through imports and `A = B`."""
    at = module(home)
    if at is None:
        raise UndefinedNameError(f"{home}.{name}: there is no such module")
    node = at.definitions.get(name)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        other = _reference(at, value_of(node))
        return find(*other) if other else Found(at, name, node)
    if node is not None:
        return Found(at, name, node)
    if name in at.imports:
        home, own = at.imports[name]
        if home == "builtins":
            return Found(at, own, _builtin(own))
        return find(home, own)
    raise UndefinedNameError(f"{home}.{name} is public and not defined")


@cache
def _builtin(name: str) -> ast.ClassDef:
    node = ast.parse(f'class {name}(Exception):\n    "Python\'s own `{name}`."').body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def value_of(node: Definition) -> ast.expr:
    """What a name is given."""
    assert isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
    return node.value


def _reference(at: Module, value: ast.expr) -> tuple[str, str] | None:
    """The place that `Other` or `_native.part.Other` means, where it is a class or a function."""
    if isinstance(value, ast.Name) and isinstance(at.definitions.get(value.id), ast.ClassDef | Function):
        return (at.name, value.id)
    words = ast.unparse(value).split(".")
    if words[0] == "_native" and len(words) == 3:
        stub = module(f"stormlog._native.{words[1]}")
        if stub and isinstance(stub.definitions.get(words[2]), ast.ClassDef | Function):
            return (stub.name, words[2])
    return None


def public_modules() -> list[Module]:
    """Every module without an underscore in its name that lists public names, the root first."""
    found = []
    for path in sorted((PYTHON / "stormlog").rglob("*.py")):
        words = path.relative_to(PYTHON).with_suffix("").parts
        words = words[:-1] if words[-1] == "__init__" else words
        if any(word.startswith("_") for word in words):
            continue
        at = module(".".join(words))
        if at and ("__all__" in at.definitions or at.lazy):
            found.append(at)
    return sorted(found, key=lambda one: one.name)


class Homes:
    """Where each definition is described: in its own module, or in the first public one that gives it out."""

    def __init__(self, modules: list[Module]) -> None:
        public = {one.name for one in modules}
        self.of: dict[ast.AST, tuple[str, str]] = {}
        for at in modules:
            for name in at.public:
                found = find(at.name, name)
                best = self.of.get(found.node)
                own = found.module.name == at.name and found.name == name
                preferred = own or (found.module.name not in public and at.name == self._root_home(name))
                if best is None or preferred or best[0] == "stormlog":
                    self.of[found.node] = (at.name, name)

    @staticmethod
    def _root_home(name: str) -> str:
        root = module("stormlog")
        assert root is not None
        return root.imports.get(name, ("", ""))[0]


# Docstrings


@cache
def native_docs() -> dict[str, str]:
    """Docstrings of the native module, from the comments they are made of: `Class` and `Class.member`."""
    found = {}
    for path in NATIVE.rglob("*.rs"):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(
            r"(?:create_exception!\(\s*[\w.]+,|\b(?:both|class)\()\s*\"?(\w+)\"?,(?:\s*\w+,)?\s*\"([^\"]+)\"",
            text,
        ):
            found[match[1]] = match[2]
        for match in re.finditer(
            r"((?:^///[^\n]*\n)+)(?:#\[[^\n]*\n)+(?:pub(?:\(crate\))? )?struct (\w+) \{\n(.*?)^\}",
            text,
            re.M | re.S,
        ):
            found[match[2]] = _comment(match[1])
            for part in re.finditer(
                r"((?: +///[^\n]*\n)+)(?: +#\[[^\n]*\n)* +(?:pub(?:\(crate\))? )?(\w+):", match[3]
            ):
                found[f"{match[2]}.{part[2]}"] = _comment(part[1])
        for match in re.finditer(r"#\[pymethods\]\nimpl (\w+) \{\n(.*?)^\}", text, re.M | re.S):
            for part in re.finditer(r"((?:    ///[^\n]*\n)+)(?:    #\[[^\n]*\n)*    fn (\w+)", match[2]):
                found[f"{match[1]}.{part[2]}"] = _comment(part[1])
    return found


def _comment(text: str) -> str:
    return "\n".join(line.strip().removeprefix("///").strip() for line in text.splitlines())


def docstring(node: Definition, owner: ast.ClassDef | None = None) -> str:
    """What is written about a class or function; of the native module, in its Rust sources."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return ""
    own = ast.get_docstring(node)
    if own:
        return own
    return native_docs().get(f"{owner.name}.{node.name}" if owner else node.name, "") if is_stub(node) else ""


def is_stub(node: Function | ast.ClassDef) -> bool:
    """Whether a definition is only declared."""
    return all(
        isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and one.value.value is ...
        for one in node.body
    ) or (
        isinstance(node, ast.ClassDef)
        and all(isinstance(one, Function) and is_stub(one) for one in node.body)
    )


def member_docstring(at: Module, node: ast.ClassDef, name: str) -> str:
    """What is written about a member, in the class or in the nearest one of its bases."""
    for _, owner in lineage(at, node):
        for one in owner.body:
            if isinstance(one, Function) and one.name == name and (text := docstring(one, owner)):
                return text
    return ""


def missing() -> list[str]:
    """Public names, and members of public classes, without a docstring."""
    lacking = []
    for at in public_modules():
        if not ast.get_docstring(at.tree):
            lacking.append(at.name)
        for name in at.public:
            found = find(at.name, name)
            if isinstance(found.node, ast.Assign | ast.AnnAssign):
                continue
            if not docstring(found.node):
                lacking.append(f"{at.name}.{name}")
            if isinstance(found.node, ast.ClassDef):
                for _, member in members(found.module, found.node):
                    if not member_docstring(found.module, found.node, member.name):
                        lacking.append(f"{at.name}.{name}.{member.name}")
    return sorted(set(lacking))


# Classes


def lineage(at: Module, node: ast.ClassDef) -> Iterator[tuple[Module, ast.ClassDef]]:
    """A class and those of ours that it inherits from, nearest first."""
    yield at, node
    for base in node.bases:
        words = ast.unparse(base).split("[")[0].split(".")
        try:
            if len(words) == 1 and (words[0] in at.definitions or words[0] in at.imports):
                found = find(at.name, words[0])
            elif words[0] == "_native" and len(words) == 3:
                found = find(f"stormlog._native.{words[1]}", words[2])
            else:
                continue
        except UndefinedNameError:
            continue
        if isinstance(found.node, ast.ClassDef):
            yield from lineage(found.module, found.node)


def members(at: Module, node: ast.ClassDef) -> list[tuple[ast.ClassDef, Function]]:
    """The public methods and properties of a class, inherited ones too, each with the class that has it."""
    seen: dict[str, tuple[ast.ClassDef, Function]] = {}
    for _, owner in lineage(at, node):
        for one in owner.body:
            if isinstance(one, Function) and not one.name.startswith("_") and one.name not in seen:
                seen[one.name] = (owner, one)
    return list(seen.values())


def fields(at: Module, node: ast.ClassDef) -> list[tuple[str, str]]:
    """Annotated attributes: the fields of a dataclass, the attributes of a stub; and members of an enum."""
    found: dict[str, str] = {}
    for _, owner in reversed(list(lineage(at, node))):
        is_enum = any("Enum" in ast.unparse(base) for base in owner.bases)
        for one in owner.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                if not one.target.id.startswith("_"):
                    value = f" = {shown(one.value)}" if one.value is not None else ""
                    found[one.target.id] = f"{one.target.id}: {ast.unparse(one.annotation)}{value}"
            elif is_enum and isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                found[one.targets[0].id] = f"{one.targets[0].id} = {ast.unparse(one.value)}"
    return list(found.items())


def shown(value: ast.expr) -> str:
    """A value as it is written, where it is short."""
    text = ast.unparse(value)
    return text if len(text) <= LONGEST_VALUE else "..."
