"""The figures of `run.py` as Markdown: what was promised beside what was measured, then every workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

Cell = dict[str, Any]
Parts = dict[str, list[Cell]]
CALL_HEAVY = ("deltablue", "raytrace", "go")


def find(cells: Iterable[Cell], workload: str, who: str, mode: str) -> Cell | None:
    """One cell of a part."""
    wanted = (workload, who, mode)
    return next((cell for cell in cells if (cell["workload"], cell["who"], cell["mode"]) == wanted), None)


def ratios(cells: list[Cell], who: str, mode: str, key: str = "cpu") -> dict[str, float]:
    """Each workload's figure divided by the bare run's."""
    found = {}
    for cell in cells:
        bare = find(cells, cell["workload"], "bare", "-")
        if (cell["who"], cell["mode"]) == (who, mode) and bare and bare.get(key):
            found[cell["workload"]] = cell[key] / bare[key]
    return found


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def text(value: float | None, form: str = "{:.2f}") -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else form.format(value)


def both(figure: Callable[[str], float | None], form: str = "{:.2f}") -> list[str]:
    """A figure of ours and of Memray's."""
    return [text(figure(who), form) for who in ("stormlog", "memray")]


def cpu(parts: Parts) -> list[list[str]]:
    """CPU of the single-threaded workloads."""
    rows = []
    for part, name, targets in [
        ("plain", "plain `stormlog run`", ("≤ 1.03", "≤ 1.10")),
        ("default", "every malloc, Python stacks", ("≤ 1.20", "≤ 1.45")),
        ("native", "native stacks", ("≤ 1.4", "≤ 2.0")),
        ("pyalloc", "every Python object", ("≤ 1.5", "≤ 1.9")),
        ("sample", "sampling", ("≤ 1.10", "≤ 1.25")),
        ("aggregate", "aggregate", ("-", "-")),
    ]:
        found = {who: ratios(parts.get(part, []), who, part) for who in ("stormlog", "memray")}
        means = [text(mean(each.values())) for each in found.values()]
        worst = [text(max(each.values(), default=None)) for each in found.values()]
        rows += [[f"{name}: mean CPU", targets[0], *means], [f"{name}: worst CPU", targets[1], *worst]]
        if part == "default":
            heavy = [[each[name] for name in CALL_HEAVY if name in each] for each in found.values()]
            calls = [text(max(each, default=None)) for each in heavy]
            rows.append(["call-heavy, few allocations: worst CPU", "≤ 1.15", *calls])
    return rows


def apart(parts: Parts) -> list[list[str]]:
    """What is not in the means: threads, imports, and starting."""
    rows = []
    for part, workload, key, name, limits in [
        ("threads", "mt_native", "wall", "four native threads, wall", ("≤ 3.5", "≤ 8", "≤ 1.8")),
        ("imports", "imports", "cpu", "imports of 194 libraries, CPU", ("≤ 1.25", "≤ 1.5")),
    ]:
        modes = {"default": "", "native": ", native stacks", "plain": ", plain `stormlog run`"}
        for (mode, addition), target in zip(modes.items(), limits, strict=False):
            cells = parts.get(part, [])
            found = [text(ratios(cells, who, mode, key).get(workload)) for who in ("stormlog", "memray")]
            rows.append([name + addition, target, *found])
    for key, name, target, unit, form in ADDED:
        found = [text(added(parts, who, "default", key, unit), form) for who in ("stormlog", "memray")]
        rows.append([name, target, *found])
    return rows


ADDED = [
    ("start", "start-up, seconds more until the program's first line", "≤ 0.05", 1e9, "{:.3f}"),
    ("rss_kb", "memory added, MB", "≤ 8", 1e3, "{:.1f}"),
    ("vm_kb", "address space added, MB", "≤ 32", 1e3, "{:.1f}"),
]


def added(parts: Parts, who: str, mode: str, key: str, unit: float) -> float | None:
    """What a program that does nothing has more than the bare one."""
    cells = parts.get("start", [])
    cell, bare = find(cells, "nothing", who, mode), find(cells, "nothing", "bare", "-")
    return None if cell is None or bare is None else float(cell[key] - bare[key]) / unit


def files_and_reading(parts: Parts) -> list[list[str]]:
    """What is on disk, and how long reading it takes."""
    disk = parts.get("disk", [])
    sizes = [
        cell["file"] / max(other["file"], 1)
        for cell in disk
        if cell["who"] == "stormlog" and (other := find(disk, cell["workload"], "memray", cell["mode"]))
    ]
    above = both(
        lambda who: max(((c["disk"] - c["file"]) / 1e6 for c in disk if c["who"] == who), default=None),
        "{:.1f}",
    )
    times = {(c["workload"], c["file_of"], c["reader"]): c["wall"] for c in parts.get("reading", [])}
    reading = [
        times[name, "stormlog", "stormlog"] / wall
        for (name, _, reader), wall in times.items()
        if reader == "memray" and (name, "stormlog", "stormlog") in times
    ]
    return [
        ["finished file by Memray's: mean", "≤ 0.4", text(mean(sizes)), "1"],
        ["finished file by Memray's: worst", "≤ 0.4", text(max(sizes, default=None)), "1"],
        ["disk during the run, most MB above the finished file", "threads + 4", *above],
        ["reading (`stats`) by Memray's time: worst", "≤ 0.125", text(max(reading, default=None)), "1"],
    ]


def figures(parts: Parts) -> list[list[str]]:
    """What was asked for, and what came out: figure, goal, ours, Memray's."""
    return cpu(parts) + apart(parts) + files_and_reading(parts)


def promises(parts: Parts) -> list[str]:
    """The figures as a table."""
    rows = figures(parts)
    lines = ["| figure | target | Stormlog | Memray |", "|---|---|---|---|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def starts(parts: Parts) -> list[str]:
    """What each mode adds to a program that does nothing."""
    lines = ["### start", "", "| more than bare | seconds | MB | MB of address space |", "|---|---|---|---|"]
    for who in ("stormlog", "memray"):
        for mode in ("default", "native"):
            row = [text(added(parts, who, mode, key, unit), form) for key, _, _, unit, form in ADDED]
            lines.append(f"| {who} {mode} | " + " | ".join(row) + " |")
    return [*lines, ""]


def workloads(part: str, cells: list[Cell]) -> list[str]:
    """One part's ratios to the bare run."""
    modes = list(dict.fromkeys(cell["mode"] for cell in cells if cell["mode"] != "-"))
    here = [(who, mode) for mode in modes for who in ("stormlog", "memray") if ratios(cells, who, mode)]
    columns = [("cpu", "CPU"), ("wall", "wall"), ("whole_cpu", "whole CPU")]
    heads = [f"{who} {mode} {title}" for _, title in columns for who, mode in here]
    lines = [
        f"### {part}",
        "",
        "| workload | bare s | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 2) + "|",
    ]
    for cell in (cell for cell in cells if cell["who"] == "bare"):
        name = cell["workload"]
        row = [ratios(cells, who, mode, key).get(name) for key, _ in columns for who, mode in here]
        lines.append(f"| {name} | {cell['cpu']:.2f} | " + " | ".join(text(value) for value in row) + " |")
    means = [mean(ratios(cells, who, mode, key).values()) for key, _ in columns for who, mode in here]
    lines.append("| **geometric mean** | | " + " | ".join(f"**{text(value)}**" for value in means) + " |")
    return [*lines, ""]


def files(cells: list[Cell]) -> list[str]:
    """Bytes on disk."""
    lines = [
        "### disk",
        "",
        "| workload | written by | finished kB | most during the run, kB |",
        "|---|---|---|---|",
    ]
    for cell in cells:
        size, most = cell["file"] / 1000, cell["disk"] / 1000
        lines.append(f"| {cell['workload']} | {cell['who']} | {size:,.0f} | {most:,.0f} |")
    return [*lines, ""]


def reports(cells: list[Cell]) -> list[str]:
    """Seconds to read."""
    lines = [
        "### reading",
        "",
        "| capture of | written by | read by | wall s | CPU s |",
        "|---|---|---|---|---|",
    ]
    for cell in cells:
        names = f"{cell['workload']} | {cell['file_of']} | {cell['reader']}"
        lines.append(f"| {names} | {cell['wall']:.2f} | {cell['cpu']:.2f} |")
    return [*lines, ""]


def markdown(parts: Parts) -> str:
    """Everything that was measured."""
    lines = promises(parts)
    for part, cells in parts.items():
        if part == "start":
            lines += starts(parts)
            continue
        special = {"disk": files, "reading": reports}.get(part)
        lines += special(cells) if special else workloads(part, cells)
    return "\n".join(lines)
