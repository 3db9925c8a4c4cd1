"""The pages in a real browser: what a person does with them, and that they do nothing else.

Without Chromium these tests are left out; with STORMLOG_NEED_BROWSER=1 that is a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from opened_page import Opened
from places import ROOT

COMMAND = [sys.executable, "-m", "stormlog"]
HOSTILE = "</script><img src=x onerror=fetch('http://127.0.0.1:9/')>"
# Turns the text around it about, clears a terminal, and is ten thousand letters long.
TURNING = r"evil\u202e\x1b[2J" + "x" * 10_000
PROGRAM = r"""
import threading, time
held = []

def keep(count):
    return [bytearray(1000) for _ in range(count)]

def feed():
    held.append(keep(3000))

def main():
    big = bytearray(8_000_000)
    feeder = threading.Thread(target=feed, name="feeder")
    feeder.start()
    feeder.join()
    time.sleep(0.02)
    del big
    for _ in range(30):
        held.append(keep(100))
        time.sleep(0.005)

name = "NAME"
code = compile("more = [bytearray(1000) for _ in range(300)]", name + ".py", "exec")
exec(code.replace(co_name=name, co_qualname=name))
name = "TURNING"
code = compile("other = [bytearray(1000) for _ in range(200)]", name + ".py", "exec")
exec(code.replace(co_name=name, co_qualname=name))
main()
""".replace("NAME", HOSTILE).replace("TURNING", TURNING)


def stormlog(*arguments: str | Path) -> str:
    done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the program, made in a process of its own."""
    folder = tmp_path_factory.mktemp("capture")
    script = folder / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    path = folder / "heap.bin"
    environment = {**os.environ, "STORMLOG_DIR": str(folder / "runs")}
    run = [*COMMAND, "run", "--quiet", "--heap", "--output", str(path), "--", sys.executable, str(script)]
    subprocess.run(run, check=True, env=environment)
    return path


@pytest.fixture(scope="module")
def graph(capture: Path) -> Path:
    return Path(stormlog("flamegraph", capture, "-o", capture.with_name("graph.html")).strip())


@pytest.fixture(scope="module")
def peak(capture: Path) -> int:
    return int(json.loads(stormlog("stats", capture, "--json"))["peak_bytes"])


def middle(opened: Opened, function: str) -> tuple[float, float]:
    """Where the widest box of a function is on the screen."""
    x, y = opened.page.evaluate(
        """(name) => {
            const { graph, state, data } = window.stormlog;
            const is = ([n]) => state.tree.frame[n] >= 0
                && data.strings[data.frames.function[state.tree.frame[n]]] === name;
            const [, left, right, y] = graph.shown.filter(is).sort((a, b) => b[2] - b[1] - a[2] + a[1])[0];
            const box = graph.canvas.getBoundingClientRect();
            return [box.left + (left + right) / 2, box.top + y + 8];
        }""",
        function,
    )
    return float(x), float(y)


def test_page_opens_at_the_peak(opened: Opened, graph: Path, peak: int) -> None:
    opened.goto(graph)
    assert opened.whole() == peak
    assert "memory at the peak" in opened.text("#title")
    assert "allocations" in opened.text("#facts")
    rows = opened.page.locator("#rows tr")
    opened.page.locator("#list summary").click()
    rows.nth(3).wait_for()
    assert 3 < rows.count() <= 100, "the same as a table, for screen readers"


def test_first_screen_shows_the_holder_and_since_when(opened: Opened, graph: Path, capture: Path) -> None:
    opened.goto(graph)
    rows = opened.page.locator("#held-rows tr")
    assert 2 <= rows.count() <= 5
    texts = [row.replace("\xa0", " ") for row in rows.all_inner_texts()]
    big = next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if "8_000_000" in line)
    assert f"program.py:{big}" in texts[0] and "7.63 MiB" in texts[0] and "%" in texts[0], texts
    assert re.search(r"since [\d.]+ m?s", texts[0])
    assert rows.nth(0).locator("svg path").count() == 1, "and its curve"
    last = opened.page.locator("#tools").bounding_box()
    assert last is not None and last["y"] < 800, "on the first screen"
    by_line: dict[str, int] = {}
    for row in json.loads(stormlog("tree", capture, "--json")):
        own = (frame for frame in row["stack"] if frame["file"].endswith("/program.py"))
        frame = next(own, None)
        if frame is not None:
            place = f"program.py:{frame['line']}"
            by_line[place] = by_line.get(place, 0) + row["own_bytes"]
    shown = opened.page.evaluate(
        """() => Object.fromEntries(stormlog.held.rows(select(stormlog.data, stormlog.state))
            .filter((row) => row.frame >= 0).map((row) => [placeOf(stormlog.data, row.frame), row.value]))"""
    )
    assert shown[f"program.py:{big}"] == by_line[f"program.py:{big}"]
    rows.nth(0).locator("button").click()
    assert "7.63 MiB" in opened.text("#matches"), "a click finds it in the graph"


def test_the_box_at_the_pointer_has_the_source(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    assert not opened.page.locator("#tip").is_visible()
    opened.page.mouse.move(*middle(opened, "keep"))
    tip = opened.text("#tip")
    assert "program.py:" in tip and "bytearray(1000)" in tip and "%" in tip and "allocations" in tip
    opened.page.mouse.move(5, 5)
    assert not opened.page.locator("#tip").is_visible()


def test_imports_are_hidden_at_first(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    frames = """() => {
        const { data, state, graph } = stormlog;
        return graph.shown.filter(([n]) => n > 0 && data.frames.flags[state.tree.frame[n]] & 4).length;
    }"""
    whole = opened.whole()
    assert opened.page.locator("#imports").get_attribute("aria-pressed") == "true"
    assert opened.page.evaluate(frames) == 0
    opened.page.keyboard.press("m")
    assert opened.page.evaluate(frames) > 0
    assert opened.whole() == whole


def test_the_way_of_a_runner_is_one_box(opened: Opened, tmp_path: Path) -> None:
    """Under a test runner or in a notebook dozens of library frames lie over everything."""
    library = tmp_path / "site-packages"
    library.mkdir()
    calls = "".join(f"def run{n}(work): return run{n + 1}(work)\n" for n in range(9))
    (library / "runner.py").write_text(calls + "def run9(work): return work()\n")
    script = tmp_path / "mine.py"
    script.write_text("def work():\n    return [bytearray(1000) for _ in range(20_000)]\n")
    start = library / "start.py"
    places = [str(library), str(tmp_path)]
    start.write_text(f"import sys; sys.path[:0] = {places}; import mine, runner; runner.run0(mine.work)")
    heap = tmp_path / "heap.bin"
    run = [*COMMAND, "run", "--quiet", "--dir", str(tmp_path / "runs"), "-o", str(heap), "--", sys.executable]
    subprocess.run([*run, "-S", "-E", str(start)], check=True)
    opened.goto(Path(stormlog("flamegraph", heap, "-o", tmp_path / "graph.html").strip()))
    rows = "Math.max(...stormlog.graph.shown.map(([, , , y]) => y))"
    # The largest stack alone: otherwise the interpreter's own start-up is beside it.
    opened.page.evaluate(
        """() => { const { state, data } = stormlog; const whole = select(data, state);
            const big = Math.max(...whole.value); const at = whole.value.indexOf(big);
            const one = (column) => column && column.subarray(at, at + 1);
            state.tree = grow(data, { node: one(whole.node), value: one(whole.value),
                other: one(whole.other), before: null }, state);
            stormlog.redraw(); }"""
    )
    assert opened.page.evaluate("stormlog.graph.folded") > 9
    folded = opened.page.evaluate(rows)
    opened.page.evaluate("stormlog.zoom(stormlog.state.tree.child[0])")
    assert opened.page.evaluate("stormlog.graph.folded") == 0, "a click unfolds it"
    assert opened.page.evaluate(rows) > folded + 9 * 19


@pytest.mark.parametrize("command", ["flamegraph", "table", "diff"])
def test_an_empty_capture_says_so_and_no_more(opened: Opened, tmp_path: Path, command: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "nothing.c").write_text("int main(void) { return 0; }")
    program, heap, page = tmp_path / "nothing", tmp_path / "heap.bin", tmp_path / "page.html"
    subprocess.run([compiler, "-o", str(program), str(tmp_path / "nothing.c")], check=True)
    run = [*COMMAND, "run", "--quiet", "--dir", str(tmp_path / "runs"), "-o", str(heap), "--", str(program)]
    subprocess.run(run, check=True)
    captures = [heap, heap] if command == "diff" else [heap]
    options = [] if command == "flamegraph" else ["--html"]
    stormlog(command, *captures, *options, "-o", page)
    opened.goto(page)
    shown = opened.text("body")
    assert "Nothing was allocated" in shown or "Neither capture has any live memory" in shown
    assert not opened.page.locator("#tools").is_visible()


def test_nothing_runs_over_its_edge(opened: Opened, graph: Path, capture: Path) -> None:
    table = capture.with_name("narrow.html")
    stormlog("table", capture, "--html", "--force", "-o", table)
    for path in (graph, table):
        for width in (1280, 800, 400):
            opened.page.set_viewport_size({"width": width, "height": 800})
            opened.goto(path)
            assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, (path, width)


def test_a_click_zooms_and_escape_leaves(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    before = opened.whole()
    opened.page.mouse.click(*middle(opened, "keep"))
    zoom = opened.state("zoom")
    assert zoom > 0
    assert "keep" in opened.text("#path")
    assert 0 < opened.state(f"tree.total[{zoom}]") < before
    opened.page.keyboard.press("Escape")
    assert opened.state("zoom") == 0


def test_search_sums_what_matches_once(opened: Opened, graph: Path, capture: Path) -> None:
    opened.goto(graph)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("keep")
    rows = json.loads(stormlog("tree", capture, "--json"))
    inside = sum(
        row["own_bytes"] for row in rows if any("keep" in frame["function"] for frame in row["stack"])
    )
    said = opened.text("#matches")
    assert "frames" in said and "%" in said
    shown = opened.page.evaluate(
        """() => { const { tree, matching } = window.stormlog.state; let sum = 0;
            for (const n of matching) {
                let p = tree.parent[n]; while (p > 0 && !matching.has(p)) p = tree.parent[p];
                if (!matching.has(p)) sum += tree.total[n];
            } return sum; }"""
    )
    assert shown == inside
    opened.page.keyboard.press("Escape")
    assert opened.text("#matches") == ""


def test_turned_over_the_whole_stays(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    before = opened.whole()
    opened.page.locator("#invert").click()
    assert opened.page.locator("#invert").get_attribute("aria-pressed") == "true"
    assert opened.whole() == before
    for key in "ulm":
        opened.page.keyboard.press(key)
        assert opened.whole() == before, key
    opened.page.keyboard.press("s")
    assert opened.state("metric") == "count"
    assert opened.whole() != before


def test_own_is_the_same_turned_over(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    opened.page.keyboard.press("m")
    own = """() => Object.fromEntries(
        byFrame(stormlog.state.tree).map((row) => [row.frame, [row.own, row.total]]))"""
    upright = opened.page.evaluate(own)
    opened.page.locator("#invert").click()
    assert opened.page.evaluate(own) == upright
    assert sum(value for value, _ in upright.values()) > 8_000_000


def test_the_page_says_what_ran(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    header = opened.text("#subtitle")
    for part in ("program.py", "started 20", "Python 3.", "Stormlog "):
        assert part in header, header


def test_threads_are_kept_apart(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    whole = opened.whole()
    options = opened.page.locator("#thread option").all_inner_texts()
    assert options[0] == "all" and len(options) == 3, options
    parts = []
    for value in range(len(options) - 1):
        opened.page.select_option("#thread", str(value))
        parts.append(opened.whole())
    assert sum(parts) == whole and min(parts) > 1_000_000, parts


def test_the_page_switches_between_host_and_gpu_on_one_time_axis(opened: Opened, tmp_path: Path) -> None:
    # Recorded on a GPU: AMP training, beside blocks of the host.
    capture = ROOT / "crates/heap/tests/data/devices.bin"
    [device] = json.loads(stormlog("stats", capture, "--json"))["devices"]
    opened.goto(Path(stormlog("flamegraph", capture, "-o", tmp_path / "graph.html").strip()))
    assert opened.text("#memories").split("\n") == ["Host", "GPU cuda:0"]
    host, end = opened.whole(), opened.state("end")
    opened.page.locator("#memories button").nth(1).click()
    assert opened.whole() == device["peak_bytes"] != host
    assert "cuda:0 memory at the peak" in opened.text("#title")
    assert "84.00 MiB" in opened.text("#facts")
    assert opened.page.evaluate("stormlog.data.strip.names") == ["allocated", "reserved"]
    assert opened.state("end") == end >= opened.page.evaluate("stormlog.data.strip.time.at(-1)")
    # A span stays when the memory is switched, by its times.
    box = opened.page.locator("#strip").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 50, steps=4)
    opened.page.mouse.up()
    in_span = "stormlog.state.span.map((at) => stormlog.data.strip.time[at])"
    first = opened.page.evaluate(in_span)
    opened.page.locator("body").press("g")
    second = opened.page.evaluate(in_span)
    assert "memory at the peak" in opened.text("#title") and "cuda" not in opened.text("#title")
    assert first[0] <= second[0] < second[1] <= first[1]
    opened.page.keyboard.press("Escape")
    assert opened.whole() == host


def test_a_span_is_brushed(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    box = opened.page.locator("#strip").bounding_box()
    assert box is not None
    whole = opened.whole()

    def brush(start: float, end: float) -> None:
        opened.page.mouse.move(box["x"] + box["width"] * start, box["y"] + 20)
        opened.page.mouse.down()
        opened.page.mouse.move(box["x"] + box["width"] * end, box["y"] + 20, steps=5)
        opened.page.mouse.up()

    brush(0, 0.999)
    assert opened.whole() == whole, "the highest of the whole is the peak"
    # Where the program, done with its largest block, fills its list: how long it takes to start and to end is
    # the machine's business.
    start, end = opened.page.evaluate(
        """() => { const { time, heap } = stormlog.data.strip;
            const most = Math.max(...heap), peak = heap.indexOf(most);
            const from = heap.findIndex((bytes, i) => i > peak && bytes < most - 6_000_000);
            const to = heap.lastIndexOf(Math.max(...heap.slice(from + 1)));
            return [from, to].map((i) => (time[i] - time[0]) / (time.at(-1) - time[0])); }"""
    )
    brush(start, end)
    assert opened.state("span")[0] > 0
    assert 0 < opened.whole() < whole
    high = opened.whole()
    opened.page.select_option("#span-mode", "kept")
    assert 0 < opened.whole() < high, "what the span itself brought is less than what was there"
    assert "kept" in opened.text("#span-text")
    opened.page.keyboard.press("Escape")
    opened.page.locator("#strip").press("ArrowRight")
    assert opened.state("span") is not None, "spans by keyboard"
    opened.page.locator("#strip").press("Escape")
    assert opened.whole() == whole


def test_the_keyboard_is_enough(opened: Opened, graph: Path) -> None:
    opened.goto(graph)
    canvas = opened.page.locator("#graph")
    canvas.press("ArrowDown")
    canvas.press("ArrowDown")
    focus = opened.state("focus")
    assert focus > 0
    canvas.press("Enter")
    assert opened.state("zoom") == focus
    canvas.press("Backspace")
    assert opened.state("zoom") != focus
    opened.page.keyboard.press("?")
    assert opened.page.locator("#help-dialog").is_visible()


def test_dark_light_and_paper(opened: Opened, graph: Path, tmp_path: Path) -> None:
    opened.page.emulate_media(color_scheme="dark")
    opened.goto(graph)

    def theme() -> str | None:
        return opened.page.locator("html").get_attribute("data-theme")

    assert theme() == "dark"
    opened.page.locator("#theme").click()
    assert theme() == "light"
    opened.page.locator("#theme").click()
    paper = opened.page.pdf()
    assert paper.startswith(b"%PDF") and len(paper) > 10_000
    assert theme() == "dark", "printing in light colours changed nothing for the screen"


def test_hostile_names_are_text(opened: Opened, graph: Path, capture: Path) -> None:
    opened.goto(graph)
    assert opened.page.locator("img").count() == 0
    opened.page.mouse.move(*middle(opened, HOSTILE))
    assert "<img" in opened.text("#detail")
    names = opened.page.evaluate("stormlog.data.frames.function.map((f) => stormlog.data.strings[f])")
    (turning,) = (name for name in set(names) if name.startswith("evil"))
    assert turning.startswith("evil\ufffd␛[2J")
    opened.page.mouse.move(*middle(opened, turning))
    assert opened.text("#tip").startswith("evil\ufffd␛[2J") and len(opened.text("#tip")) < 2000
    box = opened.page.locator("#tip").bounding_box()
    assert box is not None and box["y"] + box["height"] <= 800, (
        "a long name does not push its box off the screen"
    )
    table = capture.with_name("table.html")
    stormlog("table", capture, "--html", "--force", "-o", table)
    opened.goto(table)
    assert opened.page.locator("img").count() == 0
    assert opened.page.get_by_text("</script><img").count() > 0
    shown = opened.text("#rows")
    assert "evil\ufffd␛[2J" in shown and "\u202e" not in shown
    assert max(map(len, shown.splitlines())) < 2000


def test_the_table_sorts_and_filters(opened: Opened, capture: Path, peak: int) -> None:
    table = capture.with_name("sorted.html")
    stormlog("table", capture, "--html", "--force", "-o", table)
    opened.goto(table)
    own = opened.page.locator("#rows tr td:first-child")
    titles = own.evaluate_all("cells => cells.map((cell) => Number(cell.title))")
    assert titles == sorted(titles, reverse=True)
    assert sum(titles) == peak
    opened.page.get_by_role("button", name="Function").click()
    names = opened.page.locator("#rows tr td:nth-child(4)").all_inner_texts()
    assert names == sorted(names)
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("keep")
    assert re.match(r"\d+ of \d+ rows", opened.text("#shown"))
    assert all("keep" in row.lower() for row in opened.page.locator("#rows tr").all_inner_texts())


def test_a_comparison_is_red_and_blue(opened: Opened, capture: Path) -> None:
    page = capture.with_name("diff.html")
    stormlog("diff", capture, capture, "--html", "--force", "-o", page)
    opened.goto(page)
    assert "before and after" in opened.text("#title")
    assert opened.state("tree.before[0]") == opened.whole() > 0
