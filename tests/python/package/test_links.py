"""Every relative link of the project's Markdown leads to a file, and to a heading in it."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from places import ROOT

# Documents of others, kept as they were written.
LEFT_OUT = ("tests/documents/originals/", "tests/documents/samples/", "crates/", "fuzz/")
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)|<img[^>]*\bsrc=\"([^\"]+)\"")


def documents() -> list[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in found if not name.startswith(LEFT_OUT) and (ROOT / name).exists()]


def prose(text: str) -> str:
    """Without fenced and inline code, where brackets mean something else."""
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "code", text)


@cache
def anchors(path: Path) -> frozenset[str]:
    """The names that GitHub and mdBook give to the headings of a page."""
    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2\s*$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    found: dict[str, int] = {}
    names = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", text))
    for heading in re.findall(r"^#{1,6} +(.+?)(?: +#+)?$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        number = found.get(name, 0)
        found[name] = number + 1
        names.add(f"{name}-{number}" if number else name)
    return frozenset(names)


def dead(document: str) -> list[str]:
    """The links of a page that lead nowhere, and why."""
    path = ROOT / document
    text = prose(path.read_text(encoding="utf-8"))
    links = LINK.findall(text) + [one or other for one, other in IMAGE.findall(text)]
    wrong = []
    for link in links:
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        file, _, anchor = unquote(link).partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists():
            wrong.append(f"{link}: no such file")
        elif not target.is_relative_to(ROOT):
            wrong.append(f"{link}: outside of the project")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{link}: no such heading")
    return wrong


@pytest.mark.parametrize("document", documents())
def test_no_link_is_dead(document: str) -> None:
    assert dead(document) == []


def test_dead_links_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.md").write_text("# One `two` (three)\n\n## One `two` (three)\n")
    (tmp_path / "b.md").write_text(
        "[ok](a.md) [ok](a.md#one-two-three) [ok](a.md#one-two-three-1) [ok](https://example.org/x)\n"
        "`[code](no.md)`\n```\n[code](no.md)\n```\n"
        "[no](c.md) [no](a.md#four) [no](#five) ![no](d.png)\n"
    )
    assert [one.split(":")[0] for one in dead("b.md")] == ["c.md", "a.md#four", "#five", "d.png"]


def test_every_page_of_the_documentation_is_linked() -> None:
    """From README.md or docs/README.md, directly or through another page."""
    reached: set[str] = set()
    waiting = ["README.md", "docs/README.md"]
    while waiting:
        document = waiting.pop()
        if document in reached:
            continue
        reached.add(document)
        path = ROOT / document
        for link in LINK.findall(prose(path.read_text(encoding="utf-8"))):
            target = (path.parent / unquote(link).partition("#")[0]).resolve()
            if target.is_dir():
                target = target / "README.md"
            if target.suffix == ".md" and target.is_file() and target.is_relative_to(ROOT):
                waiting.append(target.relative_to(ROOT).as_posix())
    pages = {name for name in documents() if name.startswith("docs/") and not name.endswith("SUMMARY.md")}
    assert pages - reached == set(), "not linked from README.md or docs/README.md"
