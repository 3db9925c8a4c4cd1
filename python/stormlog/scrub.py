"""Takes credentials out of what is about to be written down or sent.

The layer under a list of what may be sent, not in its place: patterns find the common shapes of a
credential, and `KnownSecrets` the exact ones, however they are spelt; neither finds every secret there is.
"""

from __future__ import annotations

import base64
import re
import urllib.parse
from collections.abc import Iterable
from typing import overload

from stormlog._scrub_patterns import SECRET_KEY_WORDS, Span, credential_spans, is_secret_name

__all__ = [
    "INPUT_MARGIN_CHARS",
    "MIN_SECRET_LENGTH",
    "REDACTED",
    "SECRET_KEY_WORDS",
    "KnownSecrets",
    "is_forbidden_key_name",
    "redact_url",
    "replace_spans",
    "scrub_text",
    "truncate_utf8",
    "url_secrets",
]

REDACTED = "<redacted>"
# A shorter value would take ordinary words and numbers out of the text.
MIN_SECRET_LENGTH = 8
# So far past what is kept a text is looked at, that a secret at the cut is seen whole.
INPUT_MARGIN_CHARS = 4096
_SHORT_ESCAPES = {
    '"': r"\"", "\\": r"\\", "/": r"\/", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t"
}  # fmt: skip


class KnownSecrets:
    """Exact values that must not be written: as they are, in a URL, in JSON, or in base64."""

    def __init__(self, values: Iterable[str | None] = ()) -> None:
        self._patterns: dict[str, re.Pattern[str]] = {}
        self.skipped_short = 0
        for value in values:
            self.add(value)

    def add(self, value: str | None) -> None:
        """One more; an empty or short value is left out, and a short one counted."""
        if value and len(value) < MIN_SECRET_LENGTH:
            self.skipped_short += 1
        elif value:
            for form in {value, _encodable(value)}:
                self._patterns[form] = _spellings(form)

    def redact(self, text: str) -> str:
        """The text without them."""
        return replace_spans(text, self.spans(text))

    def spans(self, text: str) -> list[Span]:
        """Where they are, overlapping ones too."""
        patterns = self._patterns.values()
        return [(found.start(), found.end(1)) for one in patterns for found in one.finditer(text)]

    def found_in(self, text: str) -> bool:
        """Whether any is there."""
        return any(pattern.search(text) for pattern in self._patterns.values())


def scrub_text(text: str, *, max_bytes: int | None = None, secrets: KnownSecrets | None = None) -> str:
    """The text without credentials, cut to `max_bytes`. All are found before any is replaced."""
    if max_bytes is not None:
        text = text[: max_bytes + INPUT_MARGIN_CHARS]
    text = _encodable(text)
    known = [] if secrets is None else secrets.spans(text)
    text = replace_spans(text, [*known, *credential_spans(text)], limit=max_bytes)
    if max_bytes is None:
        return text
    cut = truncate_utf8(text, max_bytes)
    # The redaction mark is kept whole or dropped, never cut in half.
    start = cut.rfind("<", max(0, len(cut) - len(REDACTED) + 1))
    return cut[:start] if start >= 0 and text.startswith(REDACTED, start) else cut


def replace_spans(text: str, spans: Iterable[Span], *, limit: int | None = None) -> str:
    """The text with the spans replaced; with a limit only its first `limit` characters, no span split."""
    stop = len(text) if limit is None else min(limit, len(text))
    pieces: list[str] = []
    done, is_open = 0, False
    for start, end in sorted(spans):
        if start >= stop and not (is_open and start <= done):
            break
        # What touches the place before goes with it.
        if not is_open or start > done:
            pieces += [text[done:start], REDACTED]
        is_open, done = True, max(done, end)
    return "".join([*pieces, text[done:stop]])


def truncate_utf8(text: str, max_bytes: int) -> str:
    """The text cut to at most `max_bytes` in UTF-8; a character is never split."""
    if max_bytes < 0:
        raise ValueError("max_bytes must be >= 0")
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


@overload
def redact_url(url: str, *, origin_only: bool = False) -> str: ...
@overload
def redact_url(url: None, *, origin_only: bool = False) -> None: ...
def redact_url(url: str | None, *, origin_only: bool = False) -> str | None:
    """A URL as it may be written down: no user, no password, no query; with `origin_only` no path either."""
    if url is None:
        return None
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{host}" + ("" if parts.port is None else f":{parts.port}")
    return origin if origin_only else origin + parts.path + (f"?{REDACTED}" if parts.query else "")


def url_secrets(url: str | None) -> list[str]:
    """What in a URL may be a credential: user, password, both as a header has them, values of its query."""
    if not url:
        return []
    parts = urllib.parse.urlsplit(url)
    user = urllib.parse.unquote(parts.username or "")
    found = [user] if user else []
    if parts.password is not None:
        password = urllib.parse.unquote(parts.password)
        pairs = [f"{user}:{password}", f"{parts.username or ''}:{parts.password}"]
        found += [password, *dict.fromkeys(pairs)]
    return found + [value for _, value in urllib.parse.parse_qsl(parts.query)]


def is_forbidden_key_name(name: str) -> bool:
    """Whether a name says that its value may be a credential."""
    return is_secret_name(name)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _spellings(value: str) -> re.Pattern[str]:
    """Every way a value may be written. Looked for ahead, so that places that overlap are all found."""
    raw = value.encode("utf-8", "surrogatepass")
    coded = [encode(raw).decode("ascii") for encode in (base64.b64encode, base64.urlsafe_b64encode)]
    forms = [re.escape(value), "".join(map(_character, value))]
    forms += [re.escape(form) for text in coded for form in (text, text.rstrip("="))]
    return re.compile(f"(?=({'|'.join(dict.fromkeys(forms))}))")


def _character(char: str) -> str:
    """A character as it is, as a URL has it, or as JSON has it."""
    percent = "".join(f"%{_hex(byte, 2)}" for byte in char.encode("utf-8", "surrogatepass"))
    units = char.encode("utf-16-be", "surrogatepass")
    escaped = "".join(rf"\\u{_hex(units[i] << 8 | units[i + 1], 4)}" for i in range(0, len(units), 2))
    # A plain backslash could be half of an escaped one: two ways for each would be too many to try.
    forms = [] if char == "\\" else [re.escape(char)]
    forms += [percent, escaped, *([re.escape("+")] if char == " " else [])]
    forms += [re.escape(_SHORT_ESCAPES[char])] if char in _SHORT_ESCAPES else []
    return f"(?:{'|'.join(forms)})"


def _hex(number: int, width: int) -> str:
    """A number in digits of either case."""
    return "".join(f"[{d}{d.lower()}]" if d.isalpha() else d for d in f"{number:0{width}X}")
