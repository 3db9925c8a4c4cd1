"""tests/readme/check.py itself: what it must notice in the outputs of documents, and what it must not."""

from __future__ import annotations

import runpy

import pytest
from places import ROOT

CHECK = runpy.run_path(str(ROOT / "tests/readme/check.py"), run_name="check")
SHOWN = [
    "train.py (pid 27170) was killed after 11.7 s, 256.0 MiB in use, growing 19.51 MiB/s",
    "  held by   about 229.0 MiB  train.py:27 decode · kept by `cache`, local of main() at train.py:43",
    "             about 2.31 MiB  train.py:9 <module>",
    "  more      stormlog oom show stormlog-runs/2026-11-16T23-05-24Z-train-6a3b/rank0-pid27170",
]


def test_numbers_times_and_names_of_runs_may_differ() -> None:
    printed = [
        "train.py (pid 5) was killed after 2 min 3 s, 1.25 GiB in use, growing 950.0 KiB/min",
        "  held by   about 1.00 GiB  train.py:27 decode · kept by `cache`, local of main() at train.py:42",
        "  more      stormlog oom show stormlog-runs/2027-01-01T00-00-00Z-train-ffff/rank0-pid5",
    ]
    assert CHECK["differs"](SHOWN, printed) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [("train.py:27", "train.py:28"), ("decode", "encode"), ("killed", "ended"), ("-train-", "-other-")],
)
def test_lines_words_and_programs_may_not(old: str, new: str) -> None:
    printed = [line.replace(old, new) for line in SHOWN]
    assert "shown: " in CHECK["differs"](SHOWN, printed)


def test_whole_output_must_be_shown_but_where_it_is_cut() -> None:
    assert CHECK["differs"](SHOWN, [*SHOWN, "one line more"]) == "not shown: one line more"
    assert "(nothing more)" in CHECK["differs"](SHOWN, SHOWN[:-1])
    assert CHECK["differs"]([SHOWN[0], "..."], SHOWN) is None
    assert CHECK["differs"](["...", SHOWN[3]], SHOWN) is None
    assert CHECK["differs"](["...", SHOWN[1]], [*SHOWN[1:], "more"]) is not None


def test_numbers_are_renewed_and_cuts_stay() -> None:
    printed = [line.replace("27170", "5").replace("229.0", "230.5") for line in SHOWN]
    assert CHECK["renewed"](SHOWN, printed) == printed
    assert CHECK["renewed"](["...", SHOWN[1], "..."], printed) == ["...", printed[1], "..."]


def test_block_is_written_as_it_was_read() -> None:
    body = "$ one \\\n>   two\nprinted\n$ three\n"
    block = CHECK["Block"].read(" exit=3 cgroup=256M", body)
    assert [command.text for command in block.commands] == ["one \\\n  two", "three"]
    assert block.written() == f"```console exit=3 cgroup=256M\n{body}```"
    with pytest.raises(SystemExit, match="unknown options"):
        CHECK["Block"].read(" exits=3", body)
    with pytest.raises(SystemExit, match="unknown options"):
        CHECK["Block"].read(" not-run=because", body)
