"""memray-and-oom.txt: its simulator under our recorder, and each view that the page asks Memray for.

The page limits the process because the OOM killer would take Memray's profile with it. The limit is kept
here; the last test shows that the profile does not depend on it.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from documents import SAMPLES
from pseudo_terminal import Terminal

STORMLOG = Path(sys.executable).with_name("stormlog")
PARTS = ("memray_limit", "memray_python", "memray_numpy", "memray_main")
CHOICES = {"leak_python": "True", "leak_numpy": "False"}


@pytest.fixture
def simulator(tmp_path: Path) -> Path:
    """The program of the page."""
    path = tmp_path / "oom_simulator.py"
    path.write_text(
        "\n\n".join((SAMPLES / f"{part}.py").read_text(encoding="utf-8") for part in PARTS), encoding="utf-8"
    )
    return path


def lowered(simulator: Path, limit: str) -> None:
    """Another limit than the page's: a gigabyte of random bytes takes the kernel many seconds."""
    text = simulator.read_text(encoding="utf-8")
    assert "limit_memory(1 * 1024**3)" in text
    simulator.write_text(text.replace("limit_memory(1 * 1024**3)", limit), encoding="utf-8")


def stormlog(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [STORMLOG, *words], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def recorded(simulator: Path, choice: str) -> tuple[Path, str]:
    """The capture of a simulator whose coin falls on one side, and what it printed."""
    place = simulator.parent
    # The page tosses a coin; a module of that name in front of Python's tosses it for the test.
    (place / "secrets.py").write_text(f"def choice(_): return {CHOICES[choice]}\n", encoding="utf-8")
    done = stormlog(
        "run", "--heap", "--native", "-o", place / "capture", "--wait", sys.executable, simulator, cwd=place
    )
    assert done.returncode == 0, done.stderr
    assert "[!] MemoryError caught." in done.stdout
    # To release something would not help: the request alone is larger than the limit.
    assert re.search(rf"try +request less at \S+oom_simulator.py:\d+ {choice}: ", done.stderr), done.stderr
    return place / "capture", done.stdout


@pytest.mark.parametrize(("choice", "called"), [("leak_python", "urandom"), ("leak_numpy", "ones")])
def test_every_view_of_the_page_names_the_allocation(simulator: Path, choice: str, called: str) -> None:
    if choice == "leak_python":
        lowered(simulator, "limit_memory(512 * 1024**2)")
    capture, printed = recorded(simulator, choice)
    assert f"Attempting to allocate {10} MB" in printed
    for view in ("stats", "tree"):
        shown = stormlog(view, capture, cwd=simulator.parent)
        assert shown.returncode == 0, shown.stderr
        assert choice in shown.stdout, view
    page = simulator.parent / "page.html"
    made = stormlog("flamegraph", capture, "-o", page, cwd=simulator.parent)
    assert made.returncode == 0, made.stderr
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    # What the page draws is packed; the same stacks as text:
    made = stormlog(
        "flamegraph",
        capture,
        "--format",
        "collapsed",
        "-o",
        page.with_suffix(".folded"),
        cwd=simulator.parent,
    )
    assert made.returncode == 0, made.stderr
    stacks = [
        line
        for line in page.with_suffix(".folded").read_text(encoding="utf-8").splitlines()
        if choice in line
    ]
    assert any(called in line for line in stacks)


def test_statistics_have_the_three_parts_of_the_page(simulator: Path) -> None:
    capture, _ = recorded(simulator, "leak_numpy")
    shown = stormlog("stats", capture, cwd=simulator.parent)
    assert re.search(r"^allocated +\S+ \S+ in \d+ allocations", shown.stdout, re.MULTILINE), shown.stdout
    assert "LARGEST BY SIZE" in shown.stdout
    assert "SIZE UP TO" in shown.stdout, "the histogram"


def test_live_view_of_the_page_names_the_allocation_while_the_program_runs(simulator: Path) -> None:
    place = simulator.parent
    # Its loop is left with the array in hand, so that there is something to see.
    text = simulator.read_text(encoding="utf-8")
    waits = "arr = np.ones(current_elements, dtype=np.float64)\n        import time; time.sleep(600)"
    held = text.replace("arr = np.ones(current_elements, dtype=np.float64)", waits)
    assert held != text
    simulator.write_text(held, encoding="utf-8")
    (place / "secrets.py").write_text("def choice(_): return False\n", encoding="utf-8")
    command = [STORMLOG, "run", "--native", "--live", "--dir", place / "runs", sys.executable, simulator]
    terminal = Terminal([str(word) for word in command], 120, 30)
    try:
        assert "ones  numpy" in terminal.wait_for("ones  numpy"), "the function that allocates"
    finally:
        terminal.close()


def test_the_profile_outlives_what_the_page_limits_memory_against(simulator: Path) -> None:
    (simulator.parent / "secrets.py").write_text("def choice(_): return True\n", encoding="utf-8")
    lowered(simulator, "pass")
    killed = "data = os.urandom(current_size); os.kill(os.getpid(), 9)"
    text = simulator.read_text(encoding="utf-8").replace("data = os.urandom(current_size)", killed)
    simulator.write_text(text, encoding="utf-8")
    place = simulator.parent
    done = stormlog("run", "--heap", "-o", place / "capture", "--wait", sys.executable, simulator, cwd=place)
    assert done.returncode == -signal.SIGKILL, done.stderr
    shown = stormlog("stats", place / "capture", cwd=place)
    assert shown.returncode == 0, shown.stderr
    assert "leak_python" in shown.stdout
