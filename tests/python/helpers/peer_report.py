"""Makes and checks reports with whatever stormlog is installed, and prints what came out as JSON.

Run as a script: `python peer_report.py FOLDER`. Only names that both packages have are used here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any


class ExitCode(IntEnum):
    FINDINGS = 3


NOW = "2026-03-03T15:20:30Z"
NAN = float("nan")
SUMMARY = {
    "backend": "cuda",
    "allocated_bytes": 7,
    "reserved_bytes": None,
    "peak_bytes": True,
    "utilization_ratio": 0.9,
    "fragmentation_ratio": NAN,
    "num_ooms": 2,
    "risk_flags": {"oom_occurred": True, "high_utilization": 1, "fragmentation_warning": 0, "other": True},
    "suggestions": ["less", 5],
}
# Where in a good report, and what is put there; ... takes it away.
WRONG: list[tuple[list[Any], Any]] = [
    (["verdict"], ...),
    (["findings"], ...),
    (["schema_version"], 2),
    (["schema_version"], True),
    (["schema_version"], 1.0),
    (["format"], "other"),
    (["report_kind"], "Not Lower"),
    (["report_kind"], "line\n"),
    (["report_kind"], 5),
    (["generated_at_utc"], ""),
    (["colour"], "red"),
    (["tool"], []),
    (["tool", "name"], None),
    (["tool", "version"], ""),
    (["tool", "version"], None),
    (["tool", "argv"], ["a", 1]),
    (["tool", "colour"], 1),
    (["verdict"], 5),
    (["verdict", "status"], "fine"),
    (["verdict", "status"], ["pass"]),
    (["verdict", "exit_code"], "3"),
    (["verdict", "exit_code"], 3.0),
    (["verdict", "exit_code"], 3.5),
    (["verdict", "exit_code"], True),
    (["verdict", "exit_code"], 0),
    (["verdict", "exit_code"], 77),
    (["verdict", "summary"], ""),
    (["findings"], {}),
    (["findings", 0], 5),
    (["findings", 0, "id"], "9a"),
    (["findings", 0, "kind"], ""),
    (["findings", 0, "severity"], "loud"),
    (["findings", 0, "severity"], None),
    (["findings", 0, "message"], 5),
    (["findings", 0, "message"], None),
    (["findings", 0, "metrics"], []),
    (["findings", 0, "metrics"], {"a": "b"}),
    (["findings", 0, "metrics"], {"a": True}),
    (["findings", 0, "metrics"], {"a": NAN}),
    (["findings", 0, "metrics"], {1: 2}),
    (["findings", 0, "evidence"], ...),
    (["findings", 0, "evidence", 0], []),
    (["findings", 0, "evidence", 0, "kind"], None),
    (["findings", 0, "evidence", 0, "pointer"], "no slash"),
    (["findings", 0, "evidence", 0, "pointer"], ""),
    (["findings", 0, "evidence", 0, "start_ns"], -1),
    (["findings", 0, "evidence", 0, "end_ns"], 1.5),
    (["findings", 0, "evidence", 0, "description"], 1),
    (["findings", 0, "evidence", 0, "path"], ""),
    (["findings", 0, "evidence", 0, "other"], 1),
    (["artifacts"], None),
    (["artifacts", 0, "path"], ""),
    (["artifacts", 0, "format"], ""),
    (["artifacts", 0, "schema_version"], 0),
    (["artifacts", 0, "other"], 0),
    (["metrics"], 5),
    (["recommendations"], ["", "a"]),
    (["recommendations"], "a"),
    (["session_id"], ""),
    (["run_id"], 5),
    (["payload"], []),
    (["payload"], {"any": {1, 2}}),
    (["metrics"], {"huge": 10**40}),
    (["metrics"], {"code": ExitCode.FINDINGS}),
    (["verdict", "exit_code"], ExitCode.FINDINGS),
    (["verdict", "exit_code"], 10**30),
    (["verdict", "status"], {"a": None}),
    (["findings", 0, "evidence", 0, "start_ns"], 10**40),
    (["findings", 0, "evidence", 0, "start_ns"], 3.0),
    (["recommendations"], ("a",)),
    (["findings", 0, "title"], "\ud800"),
    ([7], "a key that is not a text"),
]


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return [type(error).__name__, str(error)]


def changed(report: dict[str, Any], place: list[Any], value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(report))
    inner: Any = copy
    for key in place[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return copy


def report(**changes: Any) -> dict[str, Any]:
    from stormlog.diagnose_report import build_diagnose_report

    return build_diagnose_report(
        **{
            "tool_name": "gpumemprof",
            "summary": SUMMARY,
            "exit_code": 3,
            "session_id": "s",
            "files": ["environment.json", "report.json", "manifest.json", "mine.txt"],
            "thresholds": {"high_utilization": 0.85},
            "tool_version": "1",
            **changes,
        }
    )


def outcomes(folder: Path) -> dict[str, Any]:
    from stormlog.diagnose_report import validate_output_directory, write_incomplete_bundle
    from stormlog.report import build_report, load_report, validate_report, write_report

    good = {**report(), "generated_at_utc": NOW}
    found: dict[str, Any] = {"good": good, "checked": outcome(lambda: validate_report(good))}
    for number, (place, value) in enumerate(WRONG):
        wrong = changed(good, place, value)
        found[f"wrong {number} {place} {value!r}"] = outcome(partial(validate_report, wrong))
    found["not an object"] = outcome(lambda: validate_report([]))  # type: ignore[arg-type]
    found["error"] = {**report(exit_code=1, error="disk full"), "generated_at_utc": NOW}
    found["no risk"] = {**report(exit_code=0, summary={}), "generated_at_utc": NOW}
    found["no code"] = outcome(lambda: report(exit_code=9))
    full = build_report(
        report_kind="x", tool_name="t", command="c", exit_code=0, summary="s", argv=("a",), payload={"p": 1},
        tool_version="1", generated_at_utc=NOW, metrics={"m": 1.5}, recommendations=("r",), run_id="r",
    )  # fmt: skip
    found["full"] = full
    write_report(folder / "r.json", full)
    found["files"] = sorted(path.name for path in folder.iterdir())
    found["text"] = (folder / "r.json").read_text()
    found["loaded"] = load_report(folder / "r.json")
    found["unwritten"] = outcome(lambda: write_report(folder / "bad.json", {**full, "metrics": 1}))
    for name, text in {"list.json": "[]", "cut.json": "{", "empty.json": "{}"}.items():
        (folder / name).write_text(text)
        found[name] = outcome(partial(load_report, folder / name))
    found["missing"] = outcome(lambda: load_report(folder / "missing.json"))
    for output in [None, "", str(folder), str(folder / "a" / "b"), str(folder / "r.json" / "below")]:
        found[f"output {output}"] = outcome(partial(validate_output_directory, output))
    lists: list[list[str]] = []
    written = ["environment.json", "report.json"]
    write_incomplete_bundle(
        folder,
        tool_name="t",
        summary={},
        session_id="s",
        files_written=written,
        error="cut",
        thresholds=None,
        write_manifest=lists.append,
    )
    told_report = load_report(folder / "report.json")
    found["incomplete"] = [lists, told_report["verdict"], [one["path"] for one in told_report["artifacts"]]]
    return found


if __name__ == "__main__":
    # The script's own directory holds tests, not packages.
    sys.path.pop(0)
    sys.stdout.write(json.dumps(outcomes(Path(sys.argv[1]))))
