"""Draws the pictures in docs/images from real runs of examples/: `make docs-images`.

Needs root and a memory cgroup, in which the kernel's OOM killer ends train.py at 256 MiB, and chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
sys.path[:0] = [str(ROOT / "tests/readme"), str(ROOT / "tests/python/helpers")]
STORMLOG = str(Path(sys.executable).with_name("stormlog"))
#: The pages, and how much of each is shown.
HEIGHTS = {
    "report": 840,
    "timeline": 690,
    "fragmentation": 660,
    "flamegraph": 520,
    "fleet": 620,
    "against": 760,
}
#: Replaces the paths and the name of the machine that draws.
RENAME = """([names]) => {
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode())
        for (const [pattern, shown] of names)
            walk.currentNode.nodeValue = walk.currentNode.nodeValue.replace(new RegExp(pattern, "g"), shown);
}"""
#: The height up to which no line of text is cut.
CUT = """(height) => {
    const range = document.createRange();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const boxes = [];
    while (walk.nextNode()) {
        range.selectNodeContents(walk.currentNode);
        boxes.push(...range.getClientRects());
    }
    const cut = () => boxes.find(({top, bottom}) => top < height && height < bottom);
    for (let box = cut(); box; box = cut()) height = Math.floor(box.top) - 4;
    return height;
}"""


def stormlog(directory: Path, *words: str) -> None:
    """A command beside this interpreter; a finding is no failure."""
    done = subprocess.run([STORMLOG, *words], cwd=directory, stdout=subprocess.DEVNULL)
    if done.returncode not in (0, 3):
        raise SystemExit(f"stormlog {' '.join(words)}: exit code {done.returncode}")


def killed(directory: Path) -> None:
    """The run of the README."""
    from check import memory_cgroup

    with memory_cgroup("256M", name="train") as group:
        if group is None:
            raise SystemExit("needs root and a version 1 memory cgroup")
        line = f'echo $$ > "{group}/cgroup.procs"; exec "{STORMLOG}" run -q examples/train.py'
        subprocess.run(["bash", "-c", line], cwd=directory, stdout=subprocess.DEVNULL, check=False)


def pages(directory: Path) -> None:
    """The pages that are drawn, and a plot that Stormlog draws itself."""
    killed(directory)
    recorded = "examples/recorded"
    stormlog(directory, "report", "stormlog-runs", "-o", "report.html")
    stormlog(directory, "timeline", f"{recorded}/cuda_oom.pickle.gz", "-o", "timeline.html")
    stormlog(directory, "timeline", f"{recorded}/fragmentation.pickle.gz", "-o", "fragmentation.html")
    stormlog(directory, "run", "-q", "--heap", "-o", "heap.bin", "examples/train.py", "1")
    stormlog(directory, "flamegraph", "heap.bin", "-o", "flamegraph.html")
    os.environ["STORMLOG_JOB_NAME"] = "pretrain"
    stormlog(directory, "run", "-q", "--dir", "ranks", "examples/ranks.py")
    del os.environ["STORMLOG_JOB_NAME"]
    stormlog(directory, "fleet", "ranks", "--html", "fleet.html")
    stormlog(directory, "run", "-q", "--dir", "before", "examples/ci/pipeline.py")
    stormlog(directory, "run", "-q", "--dir", "after", "examples/ci/pipeline.py", "--whole")
    stormlog(directory, "report", "after", "--against", "before", "-o", "against.html")
    stormlog(directory, "run", "-q", "--dir", "leak", "examples/leak_hunt.py")
    stormlog(directory, "analyze", "leak", "--visualization", "--plot-dir", "plots")
    shutil.copy(directory / "plots/memory_timeline.svg", IMAGES / "growth.svg")


def draw(directory: Path) -> None:
    """The first screen of each page."""
    from check import HOME, HOST

    names = [[re.escape(str(place)), HOME] for place in (directory, ROOT, Path(sys.prefix).parent)]
    names.append([rf"\b{re.escape(socket.gethostname())}\b", HOST])
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or "/usr/bin/chromium"
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, height in HEIGHTS.items():
            view = browser.new_page(viewport={"width": 1280, "height": height}, color_scheme="light")
            view.goto((directory / f"{name}.html").as_uri())
            view.wait_for_timeout(1500)
            view.evaluate(RENAME, [names])
            shown = {"x": 0, "y": 0, "width": 1280, "height": view.evaluate(CUT, height)}
            view.screenshot(path=IMAGES / f"{name}.png", clip=shown)
        browser.close()


def drawn(directory: Path, name: str, words: list[str], lines: int, keys: str = "") -> None:
    """The screen of a command in a terminal, some seconds after each of these keys."""
    from check import HOME
    from pseudo_terminal import Terminal
    from terminal_svg import svg

    terminal = Terminal([STORMLOG, *words], columns=100, lines=lines)
    for key in ["", *keys]:
        terminal.press(key)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            terminal.read(0.1)
    text = svg(terminal.screen).replace(str(directory), HOME)
    (IMAGES / f"{name}.svg").write_text(text, encoding="utf-8")
    terminal.press("q")
    terminal.leave()


def screens(directory: Path) -> None:
    """The screens of `stormlog live` and `stormlog` over the service."""
    command = [STORMLOG, "run", "-q", "--dir", "service", "examples/service.py", "60"]
    with subprocess.Popen(command, cwd=directory) as service:
        time.sleep(15)
        drawn(directory, "live", ["live", (directory / "service.pid").read_text()], 24)
        drawn(directory, "tui", ["tui", str(directory / "service")], 30, keys="\r")
        service.terminate()


def main() -> None:
    """Draws all pictures."""
    IMAGES.mkdir(exist_ok=True)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="job-", dir="/tmp") as name:
        directory = Path(name)
        shutil.copytree(ROOT / "examples", directory / "examples")
        pages(directory)
        draw(directory)
        screens(directory)


if __name__ == "__main__":
    main()
