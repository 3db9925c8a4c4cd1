"""The report page of real runs in a real browser: the memory at the cursor, links, keys, hostile names."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compat_cases import v4
from opened_page import Opened
from rank_job import GIB, HOSTILE, SECOND, START, ranks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMAND = [sys.executable, "-m", "stormlog"]
MOST_BYTES = 5_000_000
SNAPSHOT = Path(__file__).parents[3] / "crates/torch/tests/data/gpt-train.pickle.gz"
PROGRAM = """
import time
kept, model = [], [bytearray(1 << 20) for _ in range(8)]

def collect():
    kept.append(bytearray(SIZE))

for _ in range(20):
    collect()
    time.sleep(0.02)
"""


def stormlog(*arguments: str | Path) -> str:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def recorded(folder: Path, size: int, then: str = "") -> Path:
    """The run directory of the program, which keeps `size` bytes more each time."""
    folder.mkdir()
    script = folder / "keeps.py"
    script.write_text(PROGRAM.replace("SIZE", str(size)) + then)
    run = [*COMMAND, "run", "--quiet", "--heap", "--interval", "0.05", "--dir", str(folder / "runs")]
    subprocess.run([*run, "--", sys.executable, str(script)], check=not then)
    return next((folder / "runs").iterdir())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("run") / "one", 1 << 20)


@pytest.fixture(scope="module")
def page(run: Path) -> Path:
    return Path(stormlog("report", run, "-o", run.parent / "page.html").strip())


def test_report_opens_at_the_peak_with_the_lines_that_hold_it(opened: Opened, run: Path, page: Path) -> None:
    assert page.stat().st_size < MOST_BYTES
    opened.goto(page)
    assert opened.text("#title") == "keeps.py"
    peak = json.loads(stormlog("stats", run, "--json"))["peak_bytes"]
    assert opened.whole() == peak
    titles = opened.page.locator(".lane h3").all_inner_texts()
    assert {"host memory", "heap by line"} <= set(titles), titles
    first = opened.page.locator("#held-rows tr").first.inner_text()
    assert "keeps.py:6" in first and "20.00 MiB" in first
    assert "keeps.py:6 collect" in opened.text("#rows"), "the same line has a band in its lane"
    assert "exit status" in opened.text("#environment") and "keeps.py" in opened.text("#processes")


def test_snapshot_given_as_a_path_is_drawn_with_its_categories(opened: Opened, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    stormlog("report", SNAPSHOT, "-o", page)
    opened.goto(page)
    titles = opened.page.locator(".lane h3").all_inner_texts()
    assert {"GPU memory, cuda:0", "GPU memory by category, cuda:0"} <= set(titles), titles
    assert "activations" in opened.text("#rows") and "parameters" in opened.text("#rows")
    found = opened.page.evaluate(
        """() => {
            const lanes = stormlog.data.lanes.map((lane) => lane.lines), [whole, parts] = lanes;
            const sum = (at) => parts.reduce((sum, line) => sum + line.bytes[at], 0);
            return whole[0].bytes.map((bytes, at) => [bytes, sum(at)]);
        }"""
    )
    assert found and all(whole == parts for whole, parts in found), "the categories add up"
    assert opened.whole() == max(whole for whole, _ in found)


def test_every_moment_of_the_cursor_adds_up(opened: Opened, page: Path) -> None:
    opened.goto(page)
    found = opened.page.evaluate(
        """() => {
            const { moment } = stormlog, { strip } = moment.data, seen = [];
            const holders = stormlog.rows.find((row) => row.holders).holders;
            strip.time.forEach((at) => {
                stormlog.setCursor(at);
                const step = moment.step(at);
                const bands = holders.bands.reduce((sum, band) => sum + band.bytes[step], 0);
                seen.push([stormlog.state.tree.total[0], strip.heap[step], bands]);
            });
            return seen;
        }"""
    )
    assert len(found) > 10
    assert [sums for sums in found if len(set(sums)) > 1] == []


def test_keys_move_the_cursor_and_the_address_keeps_it(opened: Opened, page: Path) -> None:
    opened.goto(page)
    opened.page.keyboard.press("Home")
    assert opened.state("cursor") == 0
    for _ in range(3):
        opened.page.keyboard.press("Shift+ArrowRight")
    cursor = opened.state("cursor")
    assert cursor > 0
    opened.page.keyboard.press("+")
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("collect")
    opened.page.keyboard.press("Tab")
    whole, address = opened.whole(), opened.page.url
    assert "frame" in opened.text("#matches")
    opened.page.goto("about:blank")
    opened.goto(address)
    assert (round(opened.state("cursor")), opened.whole()) == (round(cursor), whole), (
        "the link shows the same"
    )
    assert opened.state("search") == "collect"
    assert opened.page.evaluate("stormlog.axis.isWhole") is False
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("0")
    assert opened.page.evaluate("stormlog.axis.isWhole") is True
    opened.page.keyboard.press("p")
    assert opened.whole() >= whole
    opened.page.keyboard.press("?")
    assert opened.page.locator("#help-dialog").is_visible()


def test_a_click_on_a_lane_sets_the_cursor_and_a_drag_zooms(opened: Opened, page: Path) -> None:
    opened.goto(page)
    box = opened.page.locator(".lane canvas").first.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + 20)
    opened.page.mouse.click(*middle)
    end = opened.page.evaluate("stormlog.data.end_ms")
    assert abs(opened.state("cursor") - end / 2) < end / 20
    opened.page.mouse.move(*middle)
    opened.page.mouse.down()
    opened.page.mouse.move(middle[0] + 100, middle[1])
    opened.page.mouse.up()
    assert opened.page.evaluate("stormlog.axis.isWhole") is False


def test_nothing_of_the_report_runs_over_its_edge(opened: Opened, page: Path) -> None:
    for width in (1280, 800, 400):
        opened.page.set_viewport_size({"width": width, "height": 800})
        opened.goto(page)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, width


def test_dark_and_print_are_drawn(opened: Opened, page: Path) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.goto(page)
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert len(opened.page.pdf()) > 10_000
    opened.page.locator("#theme").click()
    assert opened.page.evaluate("document.documentElement.dataset.theme") == "light"


def test_a_killed_program_has_its_death_on_the_axis(opened: Opened, tmp_path: Path) -> None:
    run = recorded(tmp_path / "killed", 1 << 20, "import os; os.kill(os.getpid(), 9)\n")
    opened.goto(Path(stormlog("report", run, "-o", tmp_path / "page.html").strip()))
    marks = opened.page.evaluate("stormlog.marks().filter((mark) => mark.name === 'died')")
    assert len(marks) == 1 and "SIGKILL" in marks[0]["text"]
    assert "SIGKILL" in opened.text("#answer") and "keeps.py:6" in opened.text("#answer")


def test_a_second_run_is_drawn_beside_and_subtracted(opened: Opened, run: Path, tmp_path: Path) -> None:
    other = recorded(tmp_path / "other", 2 << 20)
    opened.goto(Path(stormlog("report", other, "--against", run, "-o", tmp_path / "page.html").strip()))
    kinds = opened.page.evaluate("stormlog.data.lanes[0].lines.map((line) => line.kind)")
    assert kinds == ["main", "before"]
    assert opened.state("memory") == "host, difference"
    assert "What changed most" in opened.text("#held-title")
    first = opened.page.locator("#held-rows tr").first.inner_text()
    assert "+20.00 MiB" in first and "keeps.py:6" in first, first
    opened.page.keyboard.press("g")
    assert opened.state("memory") == "host"


def test_ranks_are_a_grid_and_the_odd_one_stands_out(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / f"job{HOSTILE.replace('/', '')}.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in ranks(4, 200)))
    opened.goto(Path(stormlog("report", path, "-o", tmp_path / "page.html").strip()))
    cards = opened.page.locator(".rank")
    assert cards.count() == 4
    assert opened.page.locator(".rank.odd b").all_inner_texts() == ["rank 2"]
    assert opened.text("h1") and not opened.page.locator("img").count(), "names are text"
    cards.nth(1).click()
    assert opened.page.evaluate("stormlog.data.processes[stormlog.state.process].rank") == 1
    names = opened.page.evaluate("stormlog.rows.find((row) => row.lane).lane.lines.map((line) => line.name)")
    assert names == ["allocated", "reserved", "device used", "outside the allocator"]
    hidden = opened.page.evaluate("stormlog.rows.find((row) => row.lane).lane.lines[3].bytes[0]")
    assert hidden == 2 * GIB
    steps = opened.page.evaluate("stormlog.stretches().filter((one) => one.is_step).length")
    assert steps == 10
    assert "No allocations of this process were recorded" in opened.text("#empty")
    opened.page.keyboard.press("n")
    assert opened.page.evaluate("stormlog.state.process") == 2


def test_a_long_recording_becomes_a_small_page_that_keeps_its_spike(opened: Opened, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    events = (
        v4(
            timestamp_ns=START + at * SECOND,
            world_size=1,
            rank=0,
            device_used_bytes=900 if at == 7001 else 300,
        )
        for at in range(20_000)
    )
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    page = Path(stormlog("report", path, "-o", tmp_path / "page.html").strip())
    assert page.stat().st_size < 200_000
    opened.goto(page)
    line = opened.page.evaluate(
        "stormlog.data.lanes[0].lines.filter((line) => line.name === 'device used').map("
        "(line) => [line.bytes.length, Math.max(...line.bytes), line.time[line.bytes.indexOf(900)]])[0]"
    )
    assert line[0] <= 2001 and line[1:] == [900, 7_001_000]


def test_existing_page_is_not_written_over(run: Path, page: Path) -> None:
    done = subprocess.run([*COMMAND, "report", str(run), "-o", str(page)], capture_output=True, text=True)
    assert done.returncode == 2 and "--force" in done.stderr


def test_a_path_without_a_recording_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    command = [*COMMAND, "report", str(tmp_path / "empty"), "-o", str(tmp_path / "page.html")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 5 and "empty" in done.stderr, done.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.fixture
def served(run: Path) -> Iterator[str]:
    """The address that `--serve` prints, while it serves."""
    process = subprocess.Popen([*COMMAND, "report", str(run), "--serve"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.send_signal(2)
    assert process.wait() == 0
    process.stdout.close()


def test_served_page_is_the_same_for_one_browser_on_this_machine(
    browser: Browser, served: str, run: Path
) -> None:
    address = served.removeprefix("http://").split("/")[0]
    assert address.startswith("127.0.0.1:")
    assert answered(address, "/", address) == 403, "no token"
    context = browser.new_context()
    opened = Opened(context.new_page())
    opened.goto(served)
    assert opened.text("#title") == "keeps.py" and "token" not in opened.page.url
    opened.page.reload()
    opened.page.wait_for_function("document.documentElement.dataset.ready === 'yes'")
    assert opened.problems == [] or all("favicon" in problem for problem in opened.problems)
    context.close()
    token = "/" + served.split("/", 3)[3]
    assert answered(address, token, address) == 403, "the token was good once"
    assert answered(address, token, "attacker.example") == 421, "another name for this machine"


def answered(address: str, path: str, host: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    status = connection.getresponse().status
    connection.close()
    return status


def test_report_needs_no_write_permission_beside_the_run(run: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "report", str(run), "-o", "-"], capture_output=True, env={**os.environ, "TZ": "UTC"}
    )
    assert done.returncode == 0 and done.stdout.startswith(b"<!doctype html>")
