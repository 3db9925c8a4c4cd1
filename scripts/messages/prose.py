"""What counts as a text for people: words, not keys, paths, markup, styles or queries."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{[^{}]*\}|\$\{[^{}]*\}|%[-\d.]*[sdrf](?![A-Za-z])")
_TAG = re.compile(r"</?[a-zA-Z!][^<>]*>|&[a-z]+;")
_WORD = re.compile(r"[A-Za-z][A-Za-z'\u2019-]*[A-Za-z]")
# Code of other languages: SQL, PromQL, CSS, Python and shell, C declarations.
_CODE = re.compile(
    r"^\s*(?i:create (table|view)|set \w+ =)"
    r"|^\s*(SELECT|INSERT|CREATE|UPDATE|DELETE|PRAGMA|WITH|FROM|WHERE|DROP)\s"
    r"|^\s*(import|from \w[\w.]* import|def|sys\.)\s"
    r"|\bstormlog_[a-z_]+[\[{ ]|\boffset \d+m|\bORDER BY\b|\bFROM read_|\bCREATE \w+ (VIEW|MACRO)\b"
    r"|^[a-z-]+:[^;]{1,80};\s*([a-z-]+:|$)|\{[a-z-]+:[^}]*;"
    r"|\bfont-|\bviewBox|^(if|for|return|const|let|var) .*[;{]$"
    r"|^\s*[MLHVZ] ?[-\d.]|^/\S+$|^[\w-]+/[\w.+-]+;|^import \w+( as \w+)?;|Content-Type:|^HTTP/|^Bearer "
    r"|\b\d+px\b|^\(prefers-|^\.\w+,|\b(sum|quantile|max|min) (by|without) \(|^apiVersion:|^\s*message \w+ \{"
)


def is_prose(text: str) -> bool:
    """Whether a text is for people: it has two words in a row, or more."""
    plain = _PLACEHOLDER.sub(" _ ", _TAG.sub(" ", text))
    if _CODE.search(text):
        return False
    words = [word for word in plain.split() if _WORD.fullmatch(word.strip("`'\"“”()[],.:;!?…*#<>"))]
    return len(words) >= 2 and any(word.strip("`'\"()[],.:;").islower() for word in words)


def one_line(text: str) -> str:
    """The text as one line of the catalogue: outer blanks gone, line breaks and tabs written out."""
    text = re.sub(r"[ ]{2,}", "  ", text.strip(" "))
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\e"}
    return re.sub(r"[\x00-\x1f\x7f]", lambda found: named.get(found[0], f"\\x{ord(found[0]):02x}"), text)


def shape(text: str) -> str:
    """The text without names of placeholders, to compare it with one written in another language."""
    return re.sub(r"\s+", " ", _PLACEHOLDER.sub("{}", text.replace("\\n", "\n"))).strip()
