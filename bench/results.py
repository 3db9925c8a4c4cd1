"""What was measured: one file a measurement under `results/`, and the one page made of them.

    python bench/results.py            # writes RESULTS.md again
    python bench/results.py --check    # fails where the page is not what the files give

A measurement calls `keep` when it has ended. The page has one form for all: what, ours, the peer's, their
ratio, the goal; machine, date and command above the table. Only ratios carry over to another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
FOLDER, PAGE = BENCH / "results", BENCH / "RESULTS.md"
#: The order of the page; what is not named comes after.
ORDER = (
    "heap",
    "heap-short",
    "heap-workloads",
    "heap-views",
    "telemetry",
    "watching",
    "gpu",
    "snapshot",
    "tui",
    "serve",
    "fleet",
    "fleet-small-files",
    "fleet-small-files-delta",
    "ship",
)


@dataclass(frozen=True)
class Row:
    """One line of the page."""

    what: str
    ours: str
    peer: str = ""
    ratio: str = ""
    goal: str = ""


def machine() -> str:
    """The machine that measures, in a few words."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    found = (line.partition(":")[2].strip() for line in info if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    # The rest of a release names a distribution's build.
    release = ".".join(platform.release().split(".")[:2])
    system = f"{platform.system()} {release}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores, {next(found, 'unknown CPU')}, {memory:.0f} GiB, {system}"


def keep(
    name: str,
    title: str,
    rows: Iterable[Row],
    *,
    command: str,
    peer: str = "",
    notes: Iterable[str] = (),
    folder: Path = FOLDER,
) -> Path:
    """Writes the figures of one measurement in the place of those before, and the page."""
    value: dict[str, Any] = {
        "title": title,
        "command": command,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": machine(),
        "peer": peer,
        "notes": list(notes),
        "rows": [[row.what, row.ours, row.peer, row.ratio, row.goal] for row in rows],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if folder == FOLDER:
        PAGE.write_text(page(), encoding="utf-8")
    return path


def measurements() -> Iterator[dict[str, Any]]:
    """What the files hold, in the order of the page."""
    place = {name: number for number, name in enumerate(ORDER)}
    for path in sorted(FOLDER.glob("*.json"), key=lambda path: (place.get(path.stem, len(ORDER)), path.stem)):
        yield json.loads(path.read_text(encoding="utf-8"))


def page() -> str:
    """The page of all measurements."""
    lines = [
        "# Results",
        "",
        "Made by `python bench/results.py` of the files in `results/`. [README.md](README.md) says how each",
        "figure was measured. Read the ratios: the other figures belong to the machine that is named.",
    ]
    for found in measurements():
        peer = found["peer"] or "peer"
        lines += [
            "",
            f"## {found['title']}",
            "",
            f"`{found['command']}` · {found['date']} · {found['machine']}",
            "",
        ]
        lines += [f"| what | Stormlog | {peer} | ratio | goal |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in found["rows"]]
        for note in found["notes"]:
            lines += ["", note]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the page, or compares it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where the page is not current")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        raise SystemExit("bench/RESULTS.md is not what the files give: python bench/results.py")


if __name__ == "__main__":
    main()
