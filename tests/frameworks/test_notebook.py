"""``%%stormlog_heap`` in a real notebook: the graph is in the cell's output, and nothing else is."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

HOLDS = """%%stormlog_heap
def hold():
    return [bytearray(1_000_000) for _ in range(20)]
kept = hold()"""
FAILS = """%%stormlog_heap --leaks
print("printed")
raise ValueError("as the test wants it")"""


def outputs(*cells: str) -> list[list[Any]]:
    """What the cells of a notebook give, run by a kernel of its own."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(text) for text in cells]
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    return [cell.outputs for cell in notebook.cells]


def test_the_graph_is_the_output_of_the_cell() -> None:
    loaded, shown, after = outputs("%load_ext stormlog", HOLDS, "len(kept)")
    assert loaded == []
    (graph,) = shown
    assert graph["output_type"] == "display_data"
    page = re.search(r'^<iframe srcdoc="([^"]*)" style=', graph["data"]["text/html"])
    assert page is not None
    data = re.search(r'<script id="data" type="text/plain">([^<]*)</script>', html.unescape(page[1]))
    assert data is not None
    tree = json.loads(gzip.decompress(base64.b64decode(data[1])))
    assert 20_000_000 <= sum(tree["entries"]["bytes"]) < 25_000_000
    assert any("hold" in name for name in tree["strings"])
    assert after[0]["data"]["text/plain"] == "20", "what the cell made is there"


def test_a_cell_that_fails_fails_and_the_next_is_recorded() -> None:
    _, failed, shown = outputs("%load_ext stormlog", FAILS, HOLDS)
    printed, error, graph, again = failed
    assert (printed["output_type"], error["ename"], again["ename"]) == ("stream", "ValueError", "ValueError")
    assert error["traceback"] and not again["traceback"], "the traceback is printed once"
    assert "text/html" in graph["data"], "what it held is shown all the same"
    assert "text/html" in shown[-1]["data"]


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%stormlog_heap --colour\n1", "unrecognized arguments: --colour"),
        ("%%stormlog_heap\nimport asyncio\nawait asyncio.sleep(0)", "a cell that awaits"),
    ],
)
def test_impossible_cell_is_reported_in_one_line(cell: str, said: str) -> None:
    _, (line,), after = outputs("%load_ext stormlog", cell, "stormlog = 1")
    assert (line["output_type"], line["name"]) == ("stream", "stderr")
    assert line["text"].startswith("UsageError") and said in line["text"]
    assert after == []
