"""Profiles that other tools wrote in every view, and traces for other tools: what the commands do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from stormlog import _entry

ROOT = Path(__file__).parents[3]
PROFILES = ROOT / "crates/import/tests/data"
RUN = ROOT / "tests/corpus/recordings/leak_after_imports"
NAMES = (
    "go.pb.gz",
    "heaptrack.zst",
    "massif.out.gz",
    "jemalloc.heap.gz",
    "gperftools.heap.gz",
    "kineto-cpu.json.gz",
    "heapprofd.pftrace",
    "sanitizer.txt",
    "sanitizer.xml",
)


def stormlog(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = _entry.command()
    assert command is not None, "the package is installed without its commands"
    return subprocess.run(
        [command, *words],
        capture_output=True,
        text=True,
        env=os.environ | variables,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_profile_of_another_tool_opens_in_every_view(name: str, tmp_path: Path) -> None:
    profile = PROFILES / name
    stats = stormlog("stats", profile, "--json")
    assert stats.returncode == 0, stats.stderr
    figures = json.loads(stats.stdout)
    assert figures["imported"] and figures["peak_bytes"] > 0
    page = tmp_path / "page.html"
    commands: tuple[list[str | Path], ...] = (
        ["flamegraph", profile, "-o", page],
        ["table", profile, "-o", tmp_path / "table.html"],
        ["tree", profile],
        ["diff", profile, profile],
        ["analyze", profile],
    )
    for words in commands:
        done = stormlog(*words)
        found = 3 if words[0] == "analyze" and name.startswith("sanitizer") else 0
        assert done.returncode == found, f"{words[0]}: {done.stderr}"
    assert page.stat().st_size > 10_000


def test_damaged_profile_is_one_sentence_with_what_to_do(tmp_path: Path) -> None:
    cut = tmp_path / "trace.json.gz"
    cut.write_bytes((PROFILES / "kineto-cpu.json.gz").read_bytes()[:300])
    for command in ("stats", "analyze"):
        done = stormlog(command, cut)
        assert done.returncode == 5
        (line,) = done.stderr.splitlines()
        assert "is a damaged PyTorch profiler trace" in line and line.endswith(
            "copy it again, or record again"
        )


def test_blocks_that_were_not_counted_are_unknown_in_every_view() -> None:
    profile = PROFILES / "massif.out.gz"
    for view in ("stats", "summary", "tree", "table", "leaks"):
        done = stormlog(view, profile)
        assert done.returncode == 0, done.stderr
        assert "0 allocations" not in done.stdout and "BY COUNT" not in done.stdout, done.stdout
    for view in ("summary", "tree", "table", "leaks"):
        rows = json.loads(stormlog(view, profile, "--json").stdout)
        assert rows and all(row["count"] is None for row in rows if row["own_bytes"]), view
    counted = PROFILES / "heaptrack.zst"
    assert "allocations" not in stormlog("diff", counted, profile).stdout
    changes = json.loads(stormlog("diff", counted, profile, "--json").stdout)
    # Both hold as much on this line: a difference of unknown counts is not one.
    assert not [row for row in changes if row["stack"][0]["function"] == "keep(unsigned long)"]
    assert all(row["delta_count"] is None for row in changes if row["own_bytes"])


def test_profile_of_one_moment_was_held_at_no_known_time() -> None:
    first = stormlog("leaks", PROFILES / "go.pb.gz").stdout.splitlines()[0]
    assert first.endswith("allocations were held"), first
    report = stormlog("leaks", PROFILES / "sanitizer.txt").stdout.splitlines()[0]
    assert report.endswith("2 allocations never freed"), report


@pytest.mark.parametrize("command", ["stats", "analyze"])
def test_named_pipe_is_refused_in_one_sentence(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "profile"
    os.mkfifo(pipe)
    done = stormlog(command, pipe)
    assert done.returncode == 5
    (line,) = done.stderr.splitlines()
    assert "this is a named pipe, not a regular file" in line


def test_leak_report_is_a_finding_with_its_line() -> None:
    done = stormlog("analyze", PROFILES / "sanitizer.xml", "--format", "json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["id"] == "heap.never_freed"
    assert finding["title"] == "leak.cu:4 leaky never freed 1.00 MiB in 2 allocations on cuda:0/driver"


def test_profile_of_one_moment_has_no_temporary_allocations() -> None:
    done = stormlog("tree", "--temporary", PROFILES / "go.pb.gz")
    assert done.returncode == 5
    assert "use --peak or --leaks" in done.stderr


def test_own_pprof_export_reads_back_with_the_same_figures(tmp_path: Path) -> None:
    profile = tmp_path / "heap.pb.gz"
    done = stormlog("transform", "pprof", "--leaks", PROFILES / "heaptrack.zst", "-o", profile)
    assert done.returncode == 0, done.stderr
    before, after = (
        json.loads(stormlog("stats", path, "--json").stdout) for path in (PROFILES / "heaptrack.zst", profile)
    )
    for key in ("leaked_bytes", "leaked_blocks", "total_allocated_bytes", "total_allocations"):
        assert before[key] == after[key], key


def test_sanitize_without_the_tool_says_how_to_get_it(tmp_path: Path) -> None:
    done = stormlog("sanitize", "--", "true", PATH=str(tmp_path), CUDA_HOME=str(tmp_path))
    if "was not found" not in done.stderr:
        pytest.skip("the CUDA Toolkit of this machine has compute-sanitizer")
    assert done.returncode == 5
    assert done.stderr.startswith("Error: compute-sanitizer was not found: it comes with the CUDA Toolkit")


def test_sanitize_shows_the_report_and_keeps_the_exit_code(tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    # Stands in for the tool, which needs a GPU: its own report, its way of running a program.
    tool.write_text(
        f'#!/bin/sh\nwhile [ "$1" != --log-file ]; do shift; done\n'
        f'cp {PROFILES / "sanitizer.txt"} "$2"; shift 2; exec "$@"\n'
    )
    tool.chmod(0o755)
    report = tmp_path / "report.txt"
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = stormlog("sanitize", "-o", report, "--", "sh", "-c", "exit 3", PATH=path)
    assert done.returncode == 3
    assert "leaky(unsigned long) (leak.cu:4)" in done.stdout
    assert "1.00 MiB in 2 blocks" in done.stdout


def test_run_becomes_a_trace_by_the_name_of_the_output(tmp_path: Path) -> None:
    trace = tmp_path / "run.trace.json"
    done = stormlog("convert", RUN, trace)
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    counters = {event["name"] for event in events if event["ph"] == "C"}
    assert {"host RSS", "host heap"} <= counters
    for name in ("run.pftrace", "events.out.tfevents.run"):
        assert stormlog("convert", RUN, tmp_path / name).returncode == 0
        assert (tmp_path / name).stat().st_size > 1000
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    # No events, and a profile of one moment that is not known.
    for source in (nothing, PROFILES / "gperftools.heap.gz"):
        done = stormlog("convert", source, tmp_path / "none.pftrace")
        assert done.returncode == 5 and len(done.stderr.splitlines()) == 1, done.stderr
    alone = stormlog("convert", PROFILES / "heaptrack.zst", tmp_path / "heap.pftrace")
    assert alone.stderr.startswith("1 counter of 1 process written to "), alone.stderr
    refused = stormlog("convert", RUN, tmp_path / "run", "--to", "tensorboard")
    assert refused.returncode == 2 and "events.out.tfevents.stormlog" in refused.stderr
