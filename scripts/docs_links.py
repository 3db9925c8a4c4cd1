"""Corrects the links of the built book, and fails where one is dead: docs_links.py BOOK.

Links that leave docs/ lead to the repository. mdBook renames README.html to index.html but not the links to
it. docs/README.md is the first page of the summary, so that the book's own index.html is that page.
"""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/stormlog/stormlog/tree/main"
LINK = re.compile(r'(href|src)="([^"#:]+)(#[^"]*)?"')
NOT_PAGES = {"print.html", "404.html", "toc.html"}


def outside(page: Path, name: str) -> str | None:
    """The path in the repository that a link of a page leads to, if that is not in the book."""
    target = (DOCS / page.parent / name).resolve()
    # mdBook has renamed what it takes for pages of its own.
    source = target.with_suffix(".md") if target.suffix == ".html" and not target.exists() else target
    if source.is_relative_to(DOCS) or not source.exists():
        return None
    return source.relative_to(ROOT).as_posix()


def corrected(book: Path, page: Path, link: re.Match[str]) -> str:
    """A link of a page as it should be."""
    name, anchor = link[2], link[3] or ""
    if name.endswith("README.html"):
        name = name.removesuffix("README.html") + "index.html"
    found = outside(page, link[2])
    if found is not None:
        return f'{link[1]}="{REPOSITORY}/{found}{anchor}"'
    if not (book / page.parent / name).exists():
        raise SystemExit(f"docs: {page} has a dead link: {link[2]}")
    return f'{link[1]}="{name}{anchor}"'


def main(book: Path) -> None:
    """Changes the pages in place."""
    for path in book.rglob("*.html"):
        page = path.relative_to(book)
        if page.name not in NOT_PAGES:
            text = path.read_text(encoding="utf-8")
            path.write_text(LINK.sub(partial(corrected, book, page), text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
