"""The book of docs/: every page is listed and uses a program of examples/; the README shows whole outputs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT
from test_messages import BANNED

DOCS = ROOT / "docs"
GUIDE = sorted((DOCS / "guide").glob("*.md"))
LINK = re.compile(r"(?<!\\)\[[^\]\n]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: What is written by hand; the words of the generated reference are those of the sources.
PROSE = [
    ROOT / "README.md",
    ROOT / "examples/README.md",
    *(page for page in sorted(DOCS.rglob("*.md")) if page.parent.parent.name != "reference"),
]


def test_summary_lists_every_page_of_the_book_once() -> None:
    listed = LINK.findall((DOCS / "SUMMARY.md").read_text(encoding="utf-8"))
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"SUMMARY.md"}
    assert len(listed) == len(set(listed)), "listed twice"
    assert pages - set(listed) == set(), "not in docs/SUMMARY.md"
    assert set(listed) - pages == set(), "in docs/SUMMARY.md, but there is no such page"


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_keeps_to_the_rules_of_the_language(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "code", FENCE.sub("", page.read_text(encoding="utf-8")))
    # Of people, "who" is right.
    patterns = {pattern: instead for pattern, instead in BANNED.items() if "whoever" not in pattern}
    wrong = [
        f"{line.strip()}\n    /{pattern}/ -> {instead}"
        for line in text.splitlines()
        for pattern, instead in patterns.items()
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_flags_that_a_page_shows_exist(page: Path) -> None:
    unknown = []
    for command, rest in re.findall(r"stormlog ([a-z]+)( [^`\n|;&]*)", page.read_text(encoding="utf-8")):
        reference = DOCS / f"reference/commands/{command}.md"
        if reference.exists():
            # What follows the program that is run belongs to it.
            own = re.split(r" -- | \S*\.py\b| (?:python|torchrun|gunicorn|celery)\b", rest)[0]
            known = set(re.findall(r"--[a-z][\w-]*", reference.read_text(encoding="utf-8")))
            unknown += [
                f"{command} {flag}" for flag in re.findall(r" (--[a-z][\w-]*)", own) if flag not in known
            ]
    assert unknown == []


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
