"""The timeline page in a real browser: it opens alone, shows what the recording holds, and answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

DATA = ROOT / "crates/torch/tests/data"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def timeline(name: str, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs the command."""
    words = [sys.executable, "-m", "stormlog", "timeline", str(DATA / f"{name}.pickle.gz"), "-o", str(output)]
    return subprocess.run([*words, *options], capture_output=True, text=True)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless browser."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


def open_page(browser: Any, name: str, folder: Path) -> Any:
    """The page of a recording, ready, with nothing fetched and no error."""
    output = folder / "page.html"
    assert timeline(name, output).returncode == 0
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else pytest.fail(request.url))
    page.goto(output.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    return page


def test_the_page_shows_the_peak_and_its_stacks(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, "gpt-oom", tmp_path)
    assert "3.83 GiB in use, 4.04 GiB held" in page.text_content("#moment")
    assert "gpu_probe.py:39 forward" in page.text_content("#rows")
    page.click("#rows button >> nth=0")
    assert "gpu_probe.py:74 <module>" in page.text_content("#detail")
    page.fill("#search", "functional.py")
    assert page.input_value("#search") == "functional.py"
    matches = page.evaluate("document.getElementById('matches').value")
    assert "blocks, at most" in matches and not matches.startswith("0 ")
    address = page.evaluate("'0x' + stormlog.state.trace.blocks.addr[0].toString(16)")
    page.fill("#search", address)
    assert page.evaluate("stormlog.state.matching[0]") == 1


def test_pointing_moving_and_zooming(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, "leak-s11-default", tmp_path)
    box = page.locator("#chart").bounding_box()
    page.mouse.move(box["x"] + 700, box["y"] + box["height"] - 40)
    page.wait_for_function("document.getElementById('detail').textContent.includes(' at 0x')")
    before = page.text_content("#moment")
    page.mouse.click(box["x"] + 200, box["y"] + box["height"] - 40)
    page.wait_for_function("(before) => document.getElementById('moment').textContent !== before", arg=before)
    whole = page.evaluate("stormlog.state.view")
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 200)
    page.mouse.up()
    page.wait_for_function("(whole) => stormlog.state.view[0] !== whole[0]", arg=whole)
    part = page.evaluate("stormlog.state.view")
    assert whole[0] < part[0] < part[1] < whole[1]
    page.keyboard.press("Escape")
    assert page.evaluate("stormlog.state.view") == whole
    page.select_option("#axis", "time")
    page.keyboard.press("p")
    assert "611.3 MiB in use" in page.text_content("#moment")


def test_private_pools_can_be_shown_alone(browser: Any, tmp_path: Path) -> None:
    page = open_page(browser, "graph-s11-default", tmp_path)
    names = page.evaluate("[...document.getElementById('home').options].map((option) => option.text)")
    private = next(i for i, name in enumerate(names) if "private pool" in name)
    page.select_option("#home", index=private)
    shown = page.evaluate(
        """() => {
            const homes = stormlog.state.trace.blocks.home;
            return new Set([...stormlog.chart.ids].filter((id) => id >= 0).map((id) => homes[id])).size;
        }"""
    )
    assert shown == 1


def test_blocks_too_small_to_draw_do_not_look_free(browser: Any, tmp_path: Path) -> None:
    """More blocks than a page draws: what the small ones take is said and shades what is not drawn."""
    base, size, count = 0x7F0000000000, 512, 104_000
    small = [(base + at * size, size) for at in range(count)]
    large = [(base + (1 << 30), 12 << 20)]

    def event(action: str, place: tuple[int, int]) -> dict[str, Any]:
        return {"action": action, "addr": place[0], "size": place[1], "stream": 0, "frames": []}

    def segment(kind: str, places: list[tuple[int, int]], total: int) -> dict[str, Any]:
        used = sum(size for _, size in places)
        state = "active_allocated"
        blocks = [
            {"address": at, "size": size, "requested_size": size, "state": state} for at, size in places
        ]
        rest = {
            "address": places[0][0] + used,
            "size": total - used,
            "requested_size": 0,
            "state": "inactive",
        }
        known = {"device": 0, "stream": 0, "address": places[0][0], "segment_type": kind, "total_size": total}
        return {**known, "blocks": [*blocks, rest]}

    held = [("small", small, 80 << 20), ("large", large, 20 << 20)]
    trace = [event("segment_alloc", (places[0][0], total)) for _, places, total in held]
    trace += [event("alloc", place) for _, places, _ in held for place in places]
    source = tmp_path / "many.json"
    source.write_text(
        json.dumps({"segments": [segment(*segment_held) for segment_held in held], "device_traces": [trace]})
    )
    output = tmp_path / "page.html"
    words = [sys.executable, "-m", "stormlog", "timeline", str(source), "-o", str(output)]
    subprocess.run(words, check=True, capture_output=True)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto(output.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    heads = page.evaluate("stormlog.segments.heads.map((head) => head.text)")
    assert any("small" in head and "50.78 MiB of it are blocks below 513 B" in head for head in heads), heads
    assert any("large" in head and "of it" not in head for head in heads), heads
    shades = page.evaluate(
        """() => { const { trace } = stormlog.state;
            return trace.device.homes.map((home, i) => [home.small, stormlog.segments.fullness.get(i)]); }"""
    )
    assert {bool(small): round(shade, 2) for small, shade in shades} == {True: 0.63, False: 0}
    # A pool alone has its band too.
    homes = page.evaluate("stormlog.state.trace.device.homes.map((home) => home.small)")
    page.select_option("#home", str(homes.index(True)))
    assert page.evaluate("[...stormlog.chart.ids].some((id) => id === OTHER)")


def test_other_formats_and_files_in_the_way(tmp_path: Path) -> None:
    plain, trace = tmp_path / "plain.json", tmp_path / "trace.json"
    assert timeline("streams-s11-default", plain, "--format", "json").returncode == 0
    assert timeline("streams-s11-default", trace, "--format", "perfetto").returncode == 0
    blocks = json.loads(plain.read_text())["blocks"]
    events = json.loads(trace.read_text())["traceEvents"]
    assert len(blocks) == sum(event["ph"] == "b" for event in events) > 100
    again = timeline("streams-s11-default", plain)
    assert again.returncode == 2 and "--force" in again.stderr
    assert timeline("streams-s11-default", plain, "--force").returncode == 0


def test_parquet_has_a_row_for_each_block(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert timeline("streams-s11-default", tmp_path / "p", "--format", "parquet").returncode == 0
    assert timeline("streams-s11-default", tmp_path / "j", "--format", "json").returncode == 0
    table = parquet.read_table(tmp_path / "p").to_pylist()
    blocks = json.loads((tmp_path / "j").read_text())["blocks"]
    assert [row["addr"] for row in table] == [block["addr"] for block in blocks]
    assert [row["born_event"] for row in table] == [block["born_event"] for block in blocks]
