"""Measures a flame graph page in a real headless Chromium: how soon it is drawn, and how smooth it stays.

    python bench/heap/open_page.py PAGE.html [--repeat 5] [--chromium /usr/bin/chromium] [--json]

The page of a large capture comes from `bench/heap/views.py --keep DIR` and
`stormlog flamegraph DIR/heap.bin --temporal`. Needs the Python package playwright, and Debian's chromium.

`drawn` is from the start of the navigation to the frame after the graph was drawn, in a fresh browser context
each time. The other rows are real mouse and keyboard input; of the frames that the browser showed meanwhile,
the time from one to the next: the median, the longest, and how many took longer than 50 ms. `answer` is the
longest time from an input event to the frame that shows its effect.
Writes Markdown to standard output.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

SLOW_MS = 50
# The graph is drawn when the page says it is ready; what the user sees comes with the next frame.
WATCH = """
(() => {
  const measured = { drawn: 0, frames: [], answer: 0 };
  window.measured = measured;
  new MutationObserver((_, watcher) => {
    if (document.documentElement.dataset.ready !== 'yes') return;
    watcher.disconnect();
    requestAnimationFrame(() => setTimeout(() => { measured.drawn = performance.now(); }));
  }).observe(document, { attributes: true, subtree: true, attributeFilter: ['data-ready'] });
  let last = 0;
  const { frames } = measured;
  const tick = (now) => { if (last) frames.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) measured.answer = Math.max(measured.answer, entry.duration);
  }).observe({ type: 'event', durationThreshold: 16, buffered: true });
})();
"""
# The places of the widest boxes, each in the middle.
BOXES = """
() => {
  const { graph } = window.stormlog;
  const box = graph.canvas.getBoundingClientRect();
  const boxes = graph.shown.filter(([node]) => node > 0);
  const wide = boxes.sort((a, b) => b[2] - b[1] - a[2] + a[1]).slice(0, 40);
  const inside = wide.filter(([, , , y]) => box.top + y + 8 < innerHeight - 90);
  return inside.map(([, left, right, y]) => [box.left + (left + right) / 2, box.top + y + 8]);
}
"""


def opened(browser: Browser, path: Path) -> Page:
    """The page in a context of its own, drawn."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(path.resolve().as_uri())
    page.wait_for_function("window.measured.drawn > 0", timeout=60_000)
    return page


def zoom(page: Page) -> None:
    """Into the widest boxes, and out again."""
    for _ in range(10):
        boxes = page.evaluate(BOXES)
        x, y = boxes[min(3, len(boxes) - 1)]
        page.mouse.click(x, y)
        page.mouse.move(x, y + 25, steps=4)
        page.keyboard.press("Escape")


def hover(page: Page) -> None:
    """Over the whole graph."""
    for row in range(8):
        y = 360 + 40 * row
        page.mouse.move(40, y)
        page.mouse.move(1240, y, steps=25)


def brush(page: Page) -> None:
    """Spans of the plot, dragged."""
    box = page.locator("#strip").bounding_box()
    assert box is not None
    for start in (0.1, 0.3, 0.5):
        page.mouse.move(box["x"] + box["width"] * start, box["y"] + 30)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * (start + 0.4), box["y"] + 30, steps=25)
        page.mouse.up()
    page.keyboard.press("Escape")


def search(page: Page) -> None:
    """Letter by letter."""
    page.keyboard.press("/")
    page.keyboard.type("leaf", delay=60)
    page.keyboard.press("Escape")


def turn(page: Page) -> None:
    """Inverted, and back; without imports."""
    for key in ("i", "i", "m", "m"):
        page.keyboard.press(key)


ACTIONS: dict[str, Callable[[Page], None]] = {
    "hover": hover,
    "zoom": zoom,
    "brush": brush,
    "search": search,
    "turn": turn,
}


def measure(page: Page, act: Callable[[Page], None]) -> dict[str, float]:
    """The frames shown while something is done."""
    page.evaluate("() => { measured.frames.length = 0; measured.answer = 0; }")
    act(page)
    page.wait_for_timeout(300)
    measured: dict[str, Any] = page.evaluate("() => ({ frames: measured.frames, answer: measured.answer })")
    frames: list[float] = measured["frames"]
    return {
        "frames": len(frames),
        "median_ms": statistics.median(frames),
        "longest_ms": max(frames),
        "slow": sum(frame > SLOW_MS for frame in frames),
        "answer_ms": measured["answer"],
    }


def main() -> None:
    """Opens, measures, prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        drawn: list[float] = []
        for _ in range(options.repeat):
            page = opened(browser, options.page)
            drawn.append(page.evaluate("measured.drawn"))
            page.context.close()
        page = opened(browser, options.page)
        rows = {
            name: measure(page, act)
            for name, act in ACTIONS.items()
            if name != "brush" or page.evaluate("!!stormlog.data.spans")
        }
        browser.close()
    size = options.page.stat().st_size
    if options.json:
        print(json.dumps({"page_bytes": size, "drawn_ms": drawn, "actions": rows}))
        return
    times = ", ".join(f"{ms:.0f}" for ms in sorted(drawn))
    print(f"page {size / 1e6:.2f} MB; drawn after {times} ms\n")
    print("| action | frames | median ms | longest ms | frames over 50 ms | answer ms |")
    print("|---|---|---|---|---|---|")
    for name, row in rows.items():
        figures = (f"{row[key]:.0f}" for key in ("frames", "median_ms", "longest_ms", "slow", "answer_ms"))
        print(f"| {name} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
