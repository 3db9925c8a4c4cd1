"""Texts of the pages: HTML, the scripts in them, and the alert rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from .prose import is_prose

_SHOWN = ("title", "aria-label", "placeholder", "alt")
_INLINE = {"kbd", "b", "i", "em", "code", "strong", "span", "a", "small"}
_SCRIPT = re.compile(
    r"""
    //[^\n]* | /\*.*?\*/
  | (?<=[(,=:\[!&|?{};\n])\s*/(?![/*])(?:[^/\\\n\[]|\\.|\[(?:[^\]\\]|\\.)*\])+/[a-z]*
  | "(?P<double>(?:[^"\\\n]|\\.)*)" | '(?P<single>(?:[^'\\\n]|\\.)*)' | `
    """,
    re.VERBOSE | re.DOTALL,
)


def html(source: str) -> Iterator[tuple[str, str]]:
    """Texts and shown attributes of a page."""
    page = _Page()
    page.feed(source)
    page.close()
    page.flush()
    yield from (("page", text) for text in page.found if is_prose(text))


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text = ""
        self.silent = False

    def flush(self) -> None:
        self.found.append(" ".join(self.text.split()))
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.silent = self.silent or tag in ("script", "style")
        if tag not in _INLINE:
            self.flush()
        self.found += [value for name, value in attrs if name in _SHOWN and value]

    def handle_endtag(self, tag: str) -> None:
        self.silent = self.silent and tag not in ("script", "style")
        if tag not in _INLINE:
            self.flush()

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.text += data


def script(source: str) -> Iterator[tuple[str, str]]:
    """Texts of a script, with `{…}` for what is put into a template."""
    yield from (("page", text) for text in _strings(source) if text != "use strict" and is_prose(text))


def _strings(source: str) -> Iterator[str]:
    at = 0
    while match := _SCRIPT.search(source, at):
        at = match.end()
        literal = match["double"] if match["double"] is not None else match["single"]
        if literal is not None:
            yield re.sub(r"\\(.)", r"\1", literal)
        elif match.group() == "`":
            text, inner, at = _template(source, at)
            yield text
            for part in inner:
                yield from _strings(part)


def _template(source: str, at: int) -> tuple[str, list[str], int]:
    """A template from behind its first mark: its text, the code put into it, and where it ends."""
    text, inner = "", list[str]()
    while at < len(source) and source[at] != "`":
        if source[at] == "\\":
            text, at = text + source[at + 1], at + 2
        elif source.startswith("${", at):
            begin, at, depth = at + 2, at + 2, 1
            while depth and at < len(source):
                if source[at] == "`":
                    at = _template(source, at + 1)[2]
                    continue
                depth += {"{": 1, "}": -1}.get(source[at], 0)
                at += 1
            inner.append(source[begin : at - 1])
            text += "{…}"
        else:
            text, at = text + source[at], at + 1
    return text, inner, at + 1


def rules(source: str) -> Iterator[tuple[str, str]]:
    """Annotations of alert rules."""
    for line in re.findall(r"^\s*(?:summary|description): *(.*)$", source, re.MULTILINE):
        yield "page", line.strip("'\"").replace("''", "'")
