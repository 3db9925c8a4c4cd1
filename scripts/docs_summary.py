"""Lists the generated pages of the reference in docs/SUMMARY.md: a line for each command and module.

Run it after a page was added or removed; tests/python/package/test_guide.py fails until then.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"


def lines(folder: str) -> str:
    """The lines below the index of a folder, by the first heading of each page."""
    found = []
    for page in sorted((DOCS / folder).glob("*.md")):
        title = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        if page.name != "README.md" and title:
            found.append(f"  - [{title[1]}]({folder}/{page.name})\n")
    return "".join(found)


def updated(summary: str) -> str:
    """The summary with the lines of both folders replaced."""
    for folder in ("reference/commands", "reference/python"):
        index = rf"(?m)^(- \[[^\]]+\]\({folder}/README\.md\)\n)(?:  - \[[^\]]+\]\({folder}/[\w.]+\)\n)*"
        summary = re.sub(index, rf"\g<1>{lines(folder)}", summary)
    return summary


if __name__ == "__main__":
    page = DOCS / "SUMMARY.md"
    page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")
