"""The view of frameworks on a real pseudo-terminal: a list, a snapshot, its page, its replay."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyte")
from places import ROOT
from pseudo_terminal import Terminal

SNAPSHOT = ROOT / "crates" / "torch" / "tests" / "data" / "streams-s11-default.pickle.gz"


def test_a_snapshot_is_shown_opened_and_replayed(tmp_path: Path) -> None:
    shutil.copy(SNAPSHOT, tmp_path)
    (tmp_path / "bad.pickle").write_text("nothing")
    screen = Terminal([sys.executable, "-m", "stormlog", "tui", str(tmp_path)])
    try:
        screen.wait_for("4 Frameworks")
        screen.press("4")
        screen.wait_for("2 sources")
        screen.press("/streams\r")
        screen.wait_for("1 of 2 sources")
        shown = screen.wait_for("verdict  no problem found")
        assert "0x3219ec80" in shown
        assert "fragmented" in shown
        screen.press("\r")
        screen.wait_for("recorded addresses predicted")
        screen.press("r")
        screen.wait_for("SETTINGS")
        screen.press("G")
        screen.wait_for("Best: PYTORCH_ALLOC_CONF=roundup_power2_divisions:2")
        screen.press("y")
        screen.wait_for("copied: stormlog replay")
        screen.press("\x1b")
        screen.wait_for("1 of 2 sources")
        screen.press("/bad\r")
        screen.wait_for(lambda text: "verdict" not in text and "bad.pickle" in text and "reading" not in text)
        screen.resize(120, 40)
        screen.wait_for(lambda text: "q leave" in text.splitlines()[39])
        screen.press("q")
        assert screen.leave() == 0
    finally:
        screen.close()


def test_a_snapshot_given_as_a_path_opens_its_page() -> None:
    screen = Terminal([sys.executable, "-m", "stormlog.tui", str(SNAPSHOT)])
    try:
        screen.wait_for("recorded addresses predicted")
        screen.press("q")
        assert screen.leave() == 0
    finally:
        screen.close()
