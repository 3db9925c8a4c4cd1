"""`stormlog sql PATH "select …"`: any recording as tables, asked by DuckDB (`pip install 'stormlog[sql]'`).

Tables, each made only of what the other commands say: `events` (the Parquet file of `stormlog convert`),
`sessions`, `runs`, `ooms` and `issues` (the rows of `stormlog query`), `findings` (those of `stormlog
analyze`). The statement sees copies: it can change nothing of a recording.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stormlog import _native

_ROWS = ("sessions", "runs", "ooms", "issues")
_OK, _ERROR, _USAGE, _FINDINGS, _INVALID_INPUT = 0, 1, 2, 3, 5


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="stormlog sql", description=__doc__)
    parser.add_argument("path", type=Path, help="a recording of any kind, or a directory of them")
    parser.add_argument("statement", help='SQL, as in "select max(device_used_bytes) from events"')
    parser.add_argument("--json", action="store_true", help="rows as a JSON list")
    parser.add_argument("--csv", action="store_true", help="rows as CSV")
    typed = parser.parse_args(arguments)
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError:
        return _told("stormlog sql needs DuckDB: pip install 'stormlog[sql]'", _USAGE)
    if not typed.path.exists():
        return _told(f"{typed.path} is not there", _INVALID_INPUT)
    with tempfile.TemporaryDirectory(prefix="stormlog-sql-") as folder:
        made = _tables(typed.path, Path(folder), typed.statement)
        if not made:
            return _told(f"{typed.path} holds nothing that can be read", _INVALID_INPUT)
        try:
            return _answer(duckdb, made, typed)
        except duckdb.Error as error:
            return _told(f"{error}\nTables here: {', '.join(sorted(made))}", _USAGE)


def _answer(duckdb: Any, made: dict[str, Path], typed: argparse.Namespace) -> int:
    with duckdb.connect(":memory:") as database:
        for name, file in made.items():
            reader = "read_parquet" if file.suffix == ".parquet" else "read_json_auto"
            database.execute(f"create table {name} as select * from {reader}('{file}')")
        # What comes next is a stranger's: no files, no network.
        database.execute("set enable_external_access = false")
        rows = database.execute(typed.statement)
        names = [column[0] for column in rows.description or ()]
        found = rows.fetchall()
    if typed.json:
        text = json.dumps([dict(zip(names, row, strict=True)) for row in found], indent=2, default=str)
    elif typed.csv:
        text = "\n".join([",".join(names), *(",".join(_cell(value) for value in row) for row in found)])
    else:
        text = _table(names, found)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(text + "\n")
    return _OK


def _tables(path: Path, folder: Path, statement: str) -> dict[str, Path]:
    """The tables the statement names, as files. What is not named is not made: it may be large."""
    made = {}
    asked = statement.lower()
    events = folder / "events.parquet"
    if "events" in asked and _quietly("convert", str(path), str(events)) is not None and events.exists():
        made["events"] = events
    for name in _ROWS:
        if name in asked and (text := _quietly("query", name, str(path), "--json")):
            made.update(_kept(name, json.loads(text), folder))
    if "findings" in asked and (text := _quietly("analyze", str(path), "--json")):
        made.update(_kept("findings", json.loads(text)["findings"], folder))
    return made


def _kept(name: str, rows: list[dict[str, Any]], folder: Path) -> Iterator[tuple[str, Path]]:
    if rows:
        file = folder / f"{name}.json"
        file.write_text(json.dumps(rows))
        yield name, file


def _quietly(*arguments: str) -> str | None:
    """What another command prints; None where it could not do it. Findings and damage are no failure here."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        code = _with_streams(out.fileno(), complaints.fileno(), arguments)
        out.seek(0)
        complaints.seek(0)
        if code not in (_OK, _FINDINGS):
            sys.stderr.write(complaints.read().decode(errors="replace"))
        return None if code in (_ERROR, _USAGE) else out.read().decode()


def _with_streams(out: int, complaints: int, arguments: tuple[str, ...]) -> int:
    """Runs a command whose standard output and error go elsewhere."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    try:
        os.dup2(out, 1)
        os.dup2(complaints, 2)
        return _native.command.run_cli("stormlog", arguments)
    finally:
        for number, old in enumerate(kept, start=1):
            os.dup2(old, number)
            os.close(old)


def _table(names: list[str], rows: list[tuple[Any, ...]]) -> str:
    cells = [names, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return json.dumps(text) if "," in text or "\n" in text else text


def _told(sentence: str, code: int) -> int:
    sys.stderr.write(f"Error: {sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
