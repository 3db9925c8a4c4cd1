"""`stormlog sql PATH "select …"`: any recording as tables, asked by DuckDB (`pip install 'stormlog[sql]'`).

Tables, each made only of what the other commands say: `events` (the Parquet file of `stormlog convert`),
`sessions`, `runs`, `ooms` and `issues` (the rows of `stormlog query`), `findings` (those of `stormlog
analyze`). The statement sees copies: it can change nothing of a recording.

Of a lake (`stormlog publish`) the tables are views over its files: `samples`, `processes`, `deaths`,
`findings`, `heap_holders`, `gpu_holders`. Only statements that read are run, and no file outside the lake is
opened; links and damaged files are left out. `--csv` and `--json` write rows as they come.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._native.text import inert_text

_ROWS = ("sessions", "runs", "ooms", "issues")
_OF_RECORDINGS = ("events", *_ROWS, "findings")
_WANTED = "give a recording, a directory of them, or a lake that `stormlog publish` made"
#: Rows that are fetched at once.
_FETCHED = 10_000
_OK, _ERROR, _USAGE, _FINDINGS, _INVALID_INPUT = 0, 1, 2, 3, 5


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = argparse.ArgumentParser(prog="stormlog sql", description=__doc__)
    parser.add_argument("path", type=Path, help="a recording of any kind, a directory of them, or a lake")
    parser.add_argument("statement", help='SQL, as in "select max(device_used_bytes) from events"')
    parser.add_argument("--json", action="store_true", help="rows as a JSON list")
    parser.add_argument("--csv", action="store_true", help="rows as CSV")
    typed = parser.parse_args(arguments)
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError:
        return _told("stormlog sql needs DuckDB: pip install 'stormlog[sql]'", _USAGE)
    if not typed.path.exists():
        return _told(f"{typed.path} does not exist; {_WANTED}", _INVALID_INPUT)
    if (typed.path / "_stormlog" / "lake.json").is_file():
        return _ask_lake(duckdb, typed)
    with tempfile.TemporaryDirectory(prefix="stormlog-sql-") as folder:
        if not any(name in typed.statement.lower() for name in _OF_RECORDINGS):
            names = ", ".join(_OF_RECORDINGS)
            return _told(f"the statement names none of the tables of a recording: {names}", _USAGE)
        made = _tables(typed.path, Path(folder), typed.statement)
        if not made:
            return _told(f"{typed.path} has no readable recording; {_WANTED}", _INVALID_INPUT)
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
        return _print([column[0] for column in rows.description or ()], _rows(rows), typed)


def _ask_lake(duckdb: Any, typed: argparse.Namespace) -> int:
    lake = typed.path.resolve()
    text = _quietly("lake", "info", str(lake), "--json", "--files")
    if text is None:
        return _INVALID_INPUT
    found = json.loads(text)
    tables = found["tables"]
    for problem in found["problems"]:
        _warn(f"{problem['path']}: {problem['problem']}")
    try:
        with duckdb.connect(":memory:") as database:
            database.execute("set TimeZone = 'UTC'")
            for name, table in tables.items():
                database.execute(_view(name, table))
            # What comes next is a stranger's: nothing but the lake can be opened, and that only to be read.
            database.execute(f"set allowed_directories = [{_quoted(f'{lake}/')}]")
            database.execute("set enable_external_access = false")
            database.execute("set python_enable_replacements = false")
            database.execute("set lock_configuration = true")
            reading = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
            if [one.type in reading for one in database.extract_statements(typed.statement)] != [True]:
                return _told(
                    "stormlog sql runs one statement that reads: select, describe or explain", _USAGE
                )
            names, rows = _rows_of_lake(database, typed.statement)
            return _print(names, rows, typed)
    except duckdb.Error as error:
        return _told(f"{error}\nTables here: {', '.join(sorted(tables))}", _USAGE)


def _view(name: str, table: dict[str, Any]) -> str:
    """The view of a table. One without files has its columns all the same: no death is an answer."""
    if not table["paths"]:
        cells = ", ".join(f"null::{column['type']} as {column['name']}" for column in table["columns"])
        return f"create view {name} as select {cells} where false"
    # Each file by its name: a pattern would follow links, and fail for a file that is damaged.
    files = ", ".join(_quoted(path) for path in table["paths"])
    types = "hive_types = {'date': DATE, 'job_id': VARCHAR}"
    options = f"hive_partitioning = true, {types}, union_by_name = true"
    return f"create view {name} as select * from read_parquet([{files}], {options})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _rows_of_lake(database: Any, statement: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
    """Names and rows, with moments as DuckDB writes them: as Python objects they need another package."""
    relation = database.sql(statement)
    if relation is None:
        return [], iter(())
    names = list(relation.columns)
    is_moment = ["TIME ZONE" in str(kind) for kind in relation.types]
    if any(is_moment):
        cells = (f"#{at}::VARCHAR" if moment else f"#{at}" for at, moment in enumerate(is_moment, start=1))
        statement = relation.project(", ".join(cells)).sql_query()
    # A relation gives all rows at once.
    return names, _rows(database.execute(statement))


def _rows(result: Any) -> Iterator[tuple[Any, ...]]:
    """The rows of a result, some thousand at a time."""
    while rows := result.fetchmany(_FETCHED):
        yield from rows


def _print(names: list[str], rows: Iterator[tuple[Any, ...]], typed: argparse.Namespace) -> int:
    try:
        if typed.json:
            _write_json(names, rows)
        elif typed.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(names)
            writer.writerows(rows)
        elif names == ["explain_key", "explain_value"]:
            for _, plan in rows:
                sys.stdout.write("".join(f"{inert_text(line)}\n" for line in plan.splitlines()))
        else:
            sys.stdout.write(_table(names, list(rows)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough. The interpreter would complain at its exit about what is buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return _OK


def _write_json(names: list[str], rows: Iterator[tuple[Any, ...]]) -> None:
    """A list of objects, as `json.dumps` with an indent of two writes it."""
    before = "[\n"
    for row in rows:
        text = json.dumps(dict(zip(names, row, strict=True)), indent=2, default=str)
        sys.stdout.write(before + textwrap.indent(text, "  "))
        before = ",\n"
    sys.stdout.write("[]\n" if before == "[\n" else "\n]\n")


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
    cells = [[_cell(value) for value in row] for row in (names, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])


def _cell(value: Any) -> str:
    """A value in one line, without what would steer the terminal."""
    return "" if value is None else inert_text(str(value))


def _warn(sentence: str) -> None:
    sys.stderr.write(f"Warning: {inert_text(sentence)}\n")


def _told(sentence: str, code: int) -> int:
    sys.stderr.write(f"Error: {sentence}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
