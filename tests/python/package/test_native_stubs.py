"""The stubs of the extension module: values cross as classes, not as JSON text or index tuples."""

from __future__ import annotations

import ast
from pathlib import Path

import stormlog
from stormlog import _native

STUBS = Path(stormlog.__file__).parent / "_native"
MODULES = sorted(stub.stem for stub in STUBS.glob("*.pyi") if stub.stem != "__init__")
MOST_FIELDS = 3

# Free-form event metadata stays JSON text, so that it is decoded only where it is read.
METADATA = {
    "tracking.Boundary.metadata",
    "tracking.Phases.enter(attributes)",
    "tracking.Tracker.add_event(metadata)",
    "tracking.TrackerSettings(metadata)",
}
# Text that is a file's own content, written as it is.
FILE_TEXT = {"sink.Sink.append(line)", "sink.write_rollups(text)"}
# A figure is described as JSON (`stormlog._plot.figure`) and drawn once.
FIGURE = {"plot.draw_figure(figure)"}
TEXT_NAMES = {"attributes", "evidence", "figure", "json", "line", "metadata", "record", "settings", "summary"}


def places(module: str) -> list[tuple[str, ast.expr | None]]:
    """Every parameter and result of a stub: its name, and its annotation."""
    found: list[tuple[str, ast.expr | None]] = []

    def visit(function: ast.FunctionDef, owner: str) -> None:
        name = owner if function.name == "__new__" else f"{owner}.{function.name}"
        if function.name != "__new__":
            found.append((name, function.returns))
        arguments = function.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            if argument.arg not in {"self", "cls"}:
                found.append((f"{name}({argument.arg})", argument.annotation))

    for node in ast.parse((STUBS / f"{module}.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            visit(node, module)
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    visit(member, f"{module}.{node.name}")
    return found


def aliases() -> dict[str, ast.expr]:
    trees = [ast.parse((STUBS / f"{module}.pyi").read_text()) for module in MODULES]
    return {
        node.target.id: node.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None
    }


def longest_tuple(annotation: ast.expr, known: dict[str, ast.expr]) -> int:
    longest = 0
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name) and node.id in known:
            longest = max(longest, longest_tuple(known[node.id], known))
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "tuple":
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            open_ended = any(isinstance(part, ast.Constant) and part.value is ... for part in parts)
            # Any number of values of any kind: only their positions can tell them apart.
            untyped = open_ended and ast.unparse(parts[0]) == "Any"
            longest = max(longest, MOST_FIELDS + 1 if untyped else 0 if open_ended else len(parts))
    return longest


def is_text(annotation: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "str" for node in ast.walk(annotation))


def is_json(name: str, annotation: ast.expr | None) -> bool:
    """By its name: a text parameter of a structured thing, or a plain text result that is a document."""
    if annotation is None or not is_text(annotation):
        return False
    last = name.rpartition("(")[2].rstrip(")") if "(" in name else name.rpartition(".")[2]
    plain = ast.unparse(annotation) in {"str", "str | None"}
    return plain and (last in TEXT_NAMES or last.endswith("_json") or last.startswith("rollup"))


def test_every_submodule_has_a_stub_and_a_docstring() -> None:
    assert sorted(name for name in _native.__all__ if name != "__version__") == MODULES
    for name in MODULES:
        assert getattr(_native, name).__doc__, name
        assert getattr(_native, name).__name__ == f"stormlog._native.{name}"


def test_no_json_text_crosses_the_boundary() -> None:
    allowed = METADATA | FILE_TEXT | FIGURE
    found = {name for module in MODULES for name, kind in places(module) if is_json(name, kind)}
    assert found - allowed == set(), "make it a class, or a dictionary where its keys are free"
    # `write_rollups` is on the list for its meaning; its parameter has a plain name.
    assert allowed - found == {"sink.write_rollups(text)"}, "no JSON text any more: take it off the list"


def test_no_index_tuple_crosses_the_boundary() -> None:
    known = aliases()
    found = {
        name
        for module in MODULES
        for name, kind in places(module)
        if kind is not None and longest_tuple(kind, known) > MOST_FIELDS
    }
    assert found == set(), "make it a class with attributes"
