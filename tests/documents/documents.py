"""The documents that the product was asked for from, and their samples.

A Markdown document keeps its code in fences; the others lost their line ends and indentation, so their
samples are files under `samples/` with the white space restored. That nothing else was changed is checked: a
sample's characters, white space left out, are those of its document.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ORIGINALS = HERE / "originals"
SAMPLES = HERE / "samples"
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"\[([^]]+)]|(\S+)")


class Block(NamedTuple):
    """A fenced block of a document."""

    language: str
    text: str


def document(name: str) -> str:
    """A document's text."""
    return (ORIGINALS / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[Block]:
    """The fenced blocks of a Markdown document, in order."""
    return [Block(found[1], found[2]) for found in _FENCE.finditer(document(name))]


def holds(name: str, text: str) -> bool:
    """Whether a document has these lines, whatever its white space; one page numbers notes in its margin."""
    lines = ["".join(line.split()) for line in text.splitlines() if line.strip()]
    return re.search(r"\d?".join(map(re.escape, lines)), "".join(document(name).split())) is not None


def sample(path: Path, **names: Any) -> dict[str, Any]:
    """Runs a sample with the names that its document takes for granted; gives all names afterwards."""
    return run(path.read_text(encoding="utf-8"), str(path), **names)


def run(text: str, place: str = "<document>", **names: Any) -> dict[str, Any]:
    """Runs Python text as a program of its own would."""
    space: dict[str, Any] = {"__name__": "__main__", **names}
    exec(compile(text, place, "exec"), space)
    return space


def declared(text: str) -> ast.ClassDef:
    """The class that a block declares without its body."""
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


def fields(node: ast.ClassDef) -> list[str]:
    """The annotated fields of a declared class."""
    return [
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    ]


def parameters(text: str) -> dict[str, Any]:
    """The parameters of the first function in a block, with their defaults (`...` where there is none)."""
    node = next(part for part in ast.walk(ast.parse(text)) if isinstance(part, ast.FunctionDef))
    names = [argument.arg for argument in node.args.args if argument.arg != "self"]
    values = [ast.literal_eval(value) for value in node.args.defaults]
    return dict(zip(names, [...] * (len(names) - len(values)) + values, strict=True))


def accepted(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters that a real function takes, in the same form."""
    found = inspect.signature(function).parameters.values()
    return {each.name: ... if each.default is each.empty else each.default for each in found}


def command_lines(text: str, values: dict[str, str]) -> Iterator[list[str]]:
    """The commands of a synopsis with every option given; one for each word of a choice."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        plain: list[str] = []
        choices: tuple[str, list[str]] | None = None
        for found in _OPTION.finditer(line):
            words = (found[1] or found[2]).split()
            for word in words:
                if "|" in word:
                    choices = (word, word.split("|"))
                    plain.append(word)
                else:
                    plain.append(values.get(word, word))
        for choice in choices[1] if choices else [""]:
            yield [choice if choices and word == choices[0] else word for word in plain]
