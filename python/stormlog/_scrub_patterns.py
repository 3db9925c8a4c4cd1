"""Where a text looks like it holds a credential: by its shape, by the URL it is in, or by the name before it.

Every search is linear in the length of the text: a hostile one must not cost more than a long one. What is
taken for a secret and is none is the better mistake.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

Span = tuple[int, int]

SECRET_KEY_WORDS: tuple[str, ...] = (
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "auth",
    "bearer",
    "cred",
    "cookie",
    "session",
    "signature",
    "private",
)

# What is a secret by itself.
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|sk-[\w-]{16,}|hf_[A-Za-z0-9]{20,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}|xox[abposr]-[A-Za-z0-9-]{10,}",
    re.ASCII,
)
_HEADER = re.compile(r"(?i)\b(?:proxy-)?authorization\s*[:=]\s*([^\r\n]+)")
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})")
_WORD = re.compile(r"[\w-]+", re.ASCII)
_JWT_REST = re.compile(r"\.[\w-]{8,}\.[\w-]{8,}", re.ASCII)
_URL = re.compile(r"(?<=[A-Za-z0-9+.-])://")
_AUTHORITY = re.compile(r"[^/\s]*")
_BEFORE_QUERY = re.compile(r"[^\s\"'<>?]*")
_QUERY = re.compile(r"\?([^\s\"'<>#]+)")

# A name, what is between it and its value, and what its value ends at where it has no quotes.
_MEMBER = re.compile(
    r"""(?<!\\)(?:"((?:[^"\\]|\\.){1,200})"|'((?:[^'\\]|\\.){1,200})'|\\"([^"\\]{1,200})\\")\s*:\s*"""
)
_PAIR = re.compile(r"(?<![\w.-])([\w.-]+)\s*[=:]\s*", re.ASCII)
_SPACED = re.compile(
    r"(?<![^\s\"'(\[{,=])(--?[A-Za-z0-9][\w.-]*|[A-Z][A-Z0-9_-]*[A-Z0-9])[ \t]+(?=[^\s-])", re.ASCII
)
_LISTED = re.compile(r"""['"](--?[A-Za-z0-9][\w.-]*)['"],[ \t]*(?=['"])""", re.ASCII)
_BARE = re.compile(r"[^\s&,;\"']+")
_BARE_MEMBER = re.compile(r'[^\s,}\]"]+')
_QUOTED = (
    re.compile(r'"((?:[^"\\]|\\[\s\S])*)'),
    re.compile(r"'((?:[^'\\]|\\[\s\S])*)"),
    re.compile(r'\\"((?:[^"\\]|\\[^"])*)'),
)
_BRACKETS = re.compile(r"""[\[{]|[\]}]|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?""", re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Whether a name says that its value may be a credential."""
    lower = name.lower()
    return any(word in lower for word in SECRET_KEY_WORDS)


def credential_spans(text: str) -> Iterator[Span]:
    """Where the text looks like it holds a credential; the places may overlap."""
    yield from (found.span() for found in _SHAPES.finditer(text))
    yield from (found.span(1) for found in _HEADER.finditer(text))
    for found in _SCHEME.finditer(text):
        # "the basic parameters" is a sentence; a token of lower-case letters only is most unlikely.
        if not (found[1].isalpha() and found[1].islower()):
            yield found.span(1)
    yield from _tokens(text)
    yield from _urls(text)
    for pattern, bare in ((_MEMBER, _BARE_MEMBER), (_PAIR, _BARE), (_SPACED, _BARE), (_LISTED, _BARE)):
        yield from _named(text, pattern, bare)


def _tokens(text: str) -> Iterator[Span]:
    """JSON web tokens: three parts with dots between, the first beginning with an encoded brace."""
    for word in _WORD.finditer(text):
        start = text.find("eyJ", word.start(), word.end())
        if start >= 0 and word.end() - start >= 11:
            rest = _JWT_REST.match(text, word.end())
            if rest is not None:
                yield start, rest.end()


def _urls(text: str) -> Iterator[Span]:
    """What stands before the host of a URL, and its query."""
    looked = 0
    for found in _URL.finditer(text):
        after = found.end()
        authority = _AUTHORITY.match(text, after)
        at = text.rfind("@", after, after if authority is None else authority.end())
        if at > after:
            yield after, at
        host = max(at + 1, after)
        # URLs in one word have one query.
        if host >= looked:
            before = _BEFORE_QUERY.match(text, host)
            looked = host if before is None else before.end()
            query = _QUERY.match(text, looked)
            if query is not None:
                yield query.span(1)


def _named(text: str, pattern: re.Pattern[str], bare: re.Pattern[str]) -> Iterator[Span]:
    """The values after names that say they are secret."""
    covered = 0
    for found in pattern.finditer(text):
        name = next(group for group in found.groups() if group is not None)
        if found.start() < covered or not is_secret_name(_unescaped(name)):
            continue
        span = _value(text, found.end(), bare)
        if span is not None:
            covered = span[1]
            yield span


def _unescaped(name: str) -> str:
    try:
        return str(json.loads(f'"{name}"'))
    except ValueError:
        return name


def _value(text: str, start: int, bare: re.Pattern[str]) -> Span | None:
    plain = bare.match(text, start)
    end = start if plain is None else plain.end()
    if text[start : start + 1] in ("[", "{"):
        # A list or an object goes as a whole; so does `{noop}secret`, which only begins like one.
        return start, max(end, _closing(text, start))
    for quoted in _QUOTED:
        found = quoted.match(text, start)
        if found is not None:
            return found.span(1) if found[1] else None
    return (start, end) if end > start else None


def _closing(text: str, start: int) -> int:
    """Where the bracket at a place is closed; the end of the text where it is not."""
    depth = 0
    for found in _BRACKETS.finditer(text, start):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth == 0:
            return found.end()
    return len(text)
