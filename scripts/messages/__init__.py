"""The catalogue of every text that Stormlog shows: one page to review the language of the product.

`python -m messages` in `scripts/` writes it (so does `STORMLOG_BLESS=1` with its test). A line is a kind and
a text, under the file that has it; there are no line numbers, so that only a changed text changes the page.
Standard library only.

Texts that stormlog 0.4.3 has too are marked and kept as they are, since programs and people search for them.
`tests/golden/peer-0.4.3/messages.txt` lists them, made by `python -m messages --peer DIRECTORY` from the
sources of 0.4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from . import pages, python, rust
from .prose import is_prose, one_line, shape

__all__ = [
    "CATALOGUE",
    "COMPATIBLE",
    "ROOT",
    "catalogue",
    "compatible_with",
    "files",
    "of_file",
    "read_compatible",
    "shape",
]

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = ROOT / "tests/golden/messages.txt"
COMPATIBLE = ROOT / "tests/golden/peer-0.4.3/messages.txt"
# Texts of others that are recognised (kernel, allocators, gdb), not ours.
OTHERS = {
    "crates/collect/src/kernel_log/message.rs",
    "crates/oom-text/src/bfc.rs",
    "crates/oom-text/src/tensorflow.rs",
    "crates/oom-text/src/xla.rs",
    "crates/postmortem/src/classify.rs",
    "crates/supervise/src/attach/gdb.py",
}
HEAD = """\
# Every text that Stormlog shows, by file. Extracted by scripts/messages; `make bless` writes it again.
# Kinds: help (a line of -h), details (--help), heading, value, error, warning, text, page.
# [0.4.3]: stormlog 0.4.3 has this text too; it is kept as it is.
"""


def files(root: Path = ROOT) -> Iterator[Path]:
    """Sources with texts for users, in the order of the catalogue."""
    found = [
        *root.glob("crates/*/src/**/*.rs"),
        *root.glob("crates/*/src/**/*.py"),
        *root.glob("python/**/*.py"),
    ]
    found += [path for path in root.glob("crates/*/assets/**/*") if path.suffix in (".js", ".html", ".yml")]
    for_tests = set[Path]()
    for path in found:
        if path.suffix == ".rs":
            home = path.parent if path.stem in ("lib", "mod", "main") else path.with_suffix("")
            for name in rust.test_modules(path.read_text(encoding="utf-8")):
                for_tests |= {home / f"{name}.rs", home / name}
    for path in sorted(found):
        for_test = path.stem.endswith("tests") or for_tests & {path, *path.parents}
        if not for_test and path.relative_to(root).as_posix() not in OTHERS:
            yield path


@cache
def of_file(path: Path) -> frozenset[tuple[str, str]]:
    """Kinds and texts of one file."""
    readers = {
        ".rs": rust.messages,
        ".py": python.messages,
        ".js": pages.script,
        ".html": pages.html,
        ".yml": pages.rules,
    }
    found = readers[path.suffix](path.read_text(encoding="utf-8"))
    return frozenset((kind, one_line(text)) for kind, text in found)


def catalogue(root: Path = ROOT, compatible: Iterable[str] | None = None) -> str:
    """The page: a heading for each file, a line for each text, sorted."""
    older = set(read_compatible() if compatible is None else compatible)
    lines = [HEAD]
    for path in files(root):
        found = of_file(path)
        if found:
            lines.append(f"\n## {path.relative_to(root).as_posix()}\n")
        for kind, text in sorted(found):
            lines.append(f"{kind:<8} {'[0.4.3] ' if shape(text) in older else ''}{text}\n")
    return "".join(lines)


def read_compatible() -> list[str]:
    """Texts, without the names of what is put into them, that 0.4.3 has too."""
    lines = COMPATIBLE.read_text(encoding="utf-8").splitlines() if COMPATIBLE.exists() else []
    return [line for line in lines if line and not line.startswith("# ")]


def compatible_with(peer: Path, root: Path = ROOT) -> list[str]:
    """Texts of ours that are in the sources of 0.4.3, whole or as a part of one."""
    theirs = {
        shape(text)
        for path in peer.rglob("*.py")
        for _, text in python.messages(path.read_text(encoding="utf-8"))
    }
    together = "\x00".join(theirs)
    ours = {shape(text) for path in files(root) for kind, text in of_file(path) if kind != "value"}
    return sorted(
        text for text in ours if text in theirs or (is_prose(text) and len(text) > 24 and text in together)
    )
