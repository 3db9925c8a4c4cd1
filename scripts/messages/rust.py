"""Texts of a Rust source: a small lexer, and the rules by which a literal or a doc comment is a message.

Left out: tests (`#[cfg(test)]`), doc comments that clap does not show, texts of assertions and `expect`, and
attributes of other crates. Nothing is parsed that the rules do not need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .prose import is_prose

_TOKEN = re.compile(
    r"""
    (?P<doc>///(?!/)[^\n]*)
  | (?P<comment>//[^\n]*)
  | (?P<block>/\*)
  | (?P<raw>(?:b|c|br|cr|r)(?P<hashes>\#+)"|(?:br|cr|r)")
  | (?P<string>[bc]?"(?:[^"\\]|\\.)*")
  | (?P<char>b?'(?:[^'\\\n]|\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|.))')
  | (?P<life>'[A-Za-z_]\w*)
  | (?P<name>r\#\w+|[A-Za-z_]\w*)
  | (?P<number>\d[\w.]*)
  | (?P<mark>[^\s\w])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|\n\s*|.)", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}

# Derives of clap whose doc comments are help.
_CLAP = {"Parser", "Args", "Subcommand", "ValueEnum"}
# Keys of clap's attributes and builders, and the kind of text behind them.
_CLAP_KEYS = {
    "help": "help",
    "long_help": "help",
    "about": "help",
    "long_about": "help",
    "after_help": "help",
    "before_help": "help",
    "help_heading": "heading",
    "next_help_heading": "heading",
    "value_name": "value",
}
# What a programmer reads, not a user.
_INNER = {
    "expect",
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "unreachable",
    "todo",
}
_INNER |= {
    "panic",
    "env",
    "option_env",
    "include_str",
    "include_bytes",
    "include",
    "compile_error",
    "unimplemented",
}
_INNER |= {"asm", "naked_asm", "global_asm", "expect_err"}
# Methods that look for a text in what others wrote.
_SEARCHES = {
    "contains",
    "starts_with",
    "ends_with",
    "strip_prefix",
    "strip_suffix",
    "find",
    "rfind",
    "split_once",
}
_SEARCHES |= {"rsplit_once", "split", "trim_start_matches", "trim_end_matches"}


@dataclass(frozen=True)
class Token:
    """A piece of a source: what it is, and its text (of a string: what it means)."""

    kind: str
    text: str


def tokens(source: str) -> Iterator[Token]:
    """The tokens of a source, without blanks and plain comments."""
    at = 0
    while match := _TOKEN.search(source, at):
        kind, text, at = match.lastgroup or "", match.group(), match.end()
        if match["hashes"] is not None or match["raw"] is not None:
            end = '"' + (match["hashes"] or "")
            stop = source.index(end, at)
            yield Token("string", source[at:stop])
            at = stop + len(end)
        elif kind == "block":
            at = _after_block_comment(source, at)
        elif kind == "string":
            yield Token("string", _meaning(text[text.index('"') + 1 : -1]))
        elif kind == "doc":
            yield Token("doc", text[3:].removeprefix(" ").rstrip())
        elif kind != "comment":
            yield Token(kind, text)


def _after_block_comment(source: str, at: int) -> int:
    depth = 1
    for mark in re.finditer(r"/\*|\*/", source[at:]):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return at + mark.end()
    return len(source)


def _meaning(literal: str) -> str:
    def one(match: re.Match[str]) -> str:
        code = match[1]
        if code.startswith("\n"):
            return ""
        if code[0] in "xu" and len(code) > 1:
            return chr(int(code.strip("xu{}").replace("_", ""), 16))
        return _PLAIN.get(code, code)

    return _ESCAPE.sub(one, literal)


def test_modules(source: str) -> set[str]:
    """Names of modules that are declared for tests only, in files of their own."""
    pattern = (
        r"#\[cfg\((?:test|all\(test[^\]]*)\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;"
    )
    return set(re.findall(pattern, source))


def messages(source: str) -> Iterator[tuple[str, str]]:
    """Kind and text of every message in a source."""
    yield from _Reader(list(tokens(source))).messages()


class _Reader:
    """Walks over the tokens of one file."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens

    def messages(self) -> Iterator[tuple[str, str]]:
        at, docs, shown = 0, list[str](), False
        clap_until = -1
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.kind == "doc":
                docs.append(token.text)
            elif token.text == "#" and self._is(at + 1, "["):
                end = self._closed(at + 1)
                inside = self.tokens[at + 2 : end]
                if _is_test(inside):
                    at, docs = self._after_item(end + 1), []
                    continue
                names = {part.text for part in inside if part.kind == "name"}
                shown = shown or (bool(inside) and inside[0].text == "derive" and bool(names & _CLAP))
                yield from _of_attribute(inside)
                at = end
            elif token.kind == "name" and token.text in _INNER and self._opens(at + 1):
                at = self._closed(at + 1 + self._is(at + 1, "!"))
                docs = []
            elif token.kind == "string":
                kind = self._kind(at)
                if kind != "text" or (is_prose(token.text) and not self._is_searched(at)):
                    yield kind, token.text
                docs = []
            else:
                if token.text in ("struct", "enum") and shown:
                    clap_until, shown = self._body_end(at), False
                    # clap shows the comment of a struct as its command's; that of an enum nowhere.
                    yield from _help(docs if token.text == "struct" else [])
                    docs = []
                elif docs and token.text not in ("pub", "(", "crate", ")", "super", "in"):
                    if at < clap_until:
                        yield from _help(docs)
                    docs = []
            at += 1

    def _kind(self, at: int) -> str:
        """Of a literal in code: behind a builder of clap it is help."""
        if at >= 2 and self._is(at - 1, "(") and self.tokens[at - 2].text in _CLAP_KEYS:
            return _CLAP_KEYS[self.tokens[at - 2].text]
        return "text"

    def _is_searched(self, at: int) -> bool:
        return at >= 2 and self._is(at - 1, "(") and self.tokens[at - 2].text in _SEARCHES

    def _is(self, at: int, text: str) -> bool:
        return at < len(self.tokens) and self.tokens[at].kind == "mark" and self.tokens[at].text == text

    def _opens(self, at: int) -> bool:
        return self._is(at, "(") or (
            self._is(at, "!") and at + 1 < len(self.tokens) and self.tokens[at + 1].text in "([{"
        )

    def _closed(self, at: int) -> int:
        """The index of the bracket that closes the one here."""
        wanted = list[str]()
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.kind == "mark" and token.text in _CLOSING:
                wanted.append(_CLOSING[token.text])
            elif token.kind == "mark" and wanted and token.text == wanted[-1]:
                wanted.pop()
                if not wanted:
                    return at
            at += 1
        return len(self.tokens)

    def _after_item(self, at: int) -> int:
        """The index behind the item that begins here: its body, its semicolon, or its comma."""
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.kind == "mark" and token.text in "([{":
                at = self._closed(at)
                if token.text == "{":
                    return at + 1
            elif token.kind == "mark" and token.text in ";,":
                return at + 1
            elif token.kind == "mark" and token.text in ")]}":
                return at
            at += 1
        return at

    def _body_end(self, at: int) -> int:
        while at < len(self.tokens) and not self._is(at, "{"):
            if self._is(at, ";"):
                return at
            at += 1
        return self._closed(at)


def _is_test(inside: list[Token]) -> bool:
    words = [token.text for token in inside if token.kind == "name"]
    if not words or words[0] not in ("cfg", "test"):
        return False
    return "test" in words and "not" not in words


def _of_attribute(inside: list[Token]) -> Iterator[tuple[str, str]]:
    if not inside or inside[0].text not in (
        "error",
        "arg",
        "command",
        "group",
        "value",
        "deprecated",
        "clap",
    ):
        return
    for number, token in enumerate(inside):
        if token.kind != "string":
            continue
        if inside[0].text == "error":
            yield "error", token.text
        elif number >= 2 and inside[number - 1].text == "=" and inside[number - 2].text in _CLAP_KEYS:
            yield _CLAP_KEYS[inside[number - 2].text], token.text


def _help(docs: list[str]) -> Iterator[tuple[str, str]]:
    """Paragraphs of a doc comment, as clap shows them: the first is the line of `-h`."""
    for number, paragraph in enumerate("\n".join(docs).split("\n\n")):
        text = " ".join(paragraph.split("\n")).strip()
        if text:
            yield ("help" if number == 0 else "details"), text
