"""The book of docs/: every page is listed, every link leads somewhere, and the README shows whole outputs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT

DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
LINK = re.compile(r"(?<!\\)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINKED = [ROOT / "README.md", DOCS / "SUMMARY.md", DOCS / "commands.md", *GUIDE, ROOT / "examples/README.md"]


def headings(page: Path) -> set[str]:
    """The anchors that GitHub and mdBook make of the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in plain}


def test_summary_lists_every_page_of_the_book_once() -> None:
    listed = LINK.findall((DOCS / "SUMMARY.md").read_text(encoding="utf-8"))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"SUMMARY.md"}
    assert len(listed) == len(set(listed)), "listed twice"
    assert pages - set(listed) == set(), "not in docs/SUMMARY.md"
    assert set(listed) - pages == set(), "in docs/SUMMARY.md, but there is no such page"


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    dead = []
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            dead.append(link)
    assert dead == []


def test_readme_shows_whole_outputs() -> None:
    shown = "\n".join(FENCE.findall((ROOT / "README.md").read_text(encoding="utf-8")))
    assert not re.search(r"^\s*\.\.\.\s*$", shown, re.MULTILINE)
    assert "stormlog run" in shown and "held by" in shown


@pytest.mark.parametrize(
    "page", [page for page in GUIDE if page.stem != "README"], ids=lambda page: page.name
)
def test_page_of_the_guide_uses_a_program_of_the_examples(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"examples/[\w./-]*\w", text))
    assert named and [name for name in named if not (ROOT / name).exists()] == []
