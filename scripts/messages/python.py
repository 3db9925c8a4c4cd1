"""Texts of a Python source, found in its syntax tree: exceptions, warnings, help, and other prose."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .prose import is_prose

_HELP = {"help": "help", "description": "help", "epilog": "help", "metavar": "value"}


def messages(source: str) -> Iterator[tuple[str, str]]:
    """Kind and text of every message in a source."""
    reader = _Reader()
    reader.visit(ast.parse(source))
    yield from reader.found


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self.kind = "text"

    def _add(self, text: str) -> None:
        if self.kind in ("help", "value") or is_prose(text):
            self.found.append((self.kind, text))

    def _under(self, kind: str, nodes: list[ast.expr]) -> None:
        before, self.kind = self.kind, kind
        for node in nodes:
            self.visit(node)
        self.kind = before

    def visit_Raise(self, node: ast.Raise) -> None:
        self._under("error", [part for part in (node.exc, node.cause) if part])

    def visit_Assert(self, node: ast.Assert) -> None:
        """What an assertion says is for programmers."""

    def visit_Expr(self, node: ast.Expr) -> None:
        # A text that stands alone is a docstring.
        if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
            self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """An annotation is no text."""

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        self.visit(node.func)
        if name in ("TypeVar", "cast", "NewType", "TypeAliasType"):
            return
        kind = "warning" if name in ("warn", "warning", "warn_explicit") else self.kind
        self._under(kind, list(node.args))
        for keyword in node.keywords:
            self._under(
                _HELP.get(keyword.arg or "", kind) if name.startswith("add_") else kind, [keyword.value]
            )

    def visit_BinOp(self, node: ast.BinOp) -> None:
        text = _joined(node)
        if text is None:
            self.generic_visit(node)
        else:
            self._add(text)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self._add(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        text = _joined(node)
        if text is not None:
            self._add(text)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self.visit(part.value)


def _joined(node: ast.expr) -> str | None:
    """The text of literals and of what is put into them; nothing where there is none."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_joined(part) or "" for part in parts)
        case ast.FormattedValue(value=value):
            name = ast.unparse(value)
            return "{" + (name if name.replace(".", "").replace("_", "").isalnum() else "…") + "}"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            first, second = _joined(left), _joined(right)
            return None if first is None or second is None else first + second
    return None
