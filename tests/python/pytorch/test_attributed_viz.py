"""Pages of real allocator snapshots where blocks have the names of tensors."""

from __future__ import annotations

import gzip
import pickle
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from places import ROOT
from stormlog._torch.attributed_blocks import attribute
from stormlog.attributed_viz import render_attributed_html, render_attributed_wandb_preview_html

SNAPSHOTS = ROOT / "crates" / "torch" / "tests" / "data"
EVIL = "</td><script>alert(1)</script>"


def snapshot(name: str) -> dict[str, Any]:
    with gzip.open(SNAPSHOTS / f"{name}.pickle.gz") as file:
        found: dict[str, Any] = pickle.load(file)
    return found


def index_of(whole: dict[str, Any], name: str) -> dict[str, Any]:
    """An index that knows one block, the largest in use."""
    blocks = [block for segment in whole["segments"] for block in segment["blocks"]]
    largest = max((b for b in blocks if b["state"] == "active_allocated"), key=lambda block: block["size"])
    tensor = {"shape": [3, 4], "dtype": "torch.float32"}
    entry = {"storage_ptr_int": largest["address"], "names": [name], "tensors": [tensor]}
    return {"storage_pointer_count": 1, "attributed_storage_pointers": [entry]}


class Balance(HTMLParser):
    """Fails where elements are not closed in the order they were opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag not in {"meta", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", ["gpt-train", "gpt-oom", "gpt-leak"])
def test_a_real_snapshot_becomes_a_page(name: str) -> None:
    whole = snapshot(name)
    page = render_attributed_html(whole, index_of(whole, "model.head.weight"))
    assert "script" not in Balance(page).tags
    assert "model.head.weight" in page and "[3, 4]" in page and "torch.float32" in page
    assert page.count("<svg") == 1 and "http" not in re.sub(r'xmlns="[^"]*"', "", page)
    small = render_attributed_wandb_preview_html(whole, index_of(whole, "model.head.weight"))
    Balance(small)
    assert "model.head.weight" in small and len(small) < len(page)


def test_the_numbers_are_those_of_the_allocator() -> None:
    whole = snapshot("gpt-oom")
    found = attribute(whole, {}, 0)
    segments = [segment for segment in whole["segments"] if segment["device"] == 0]
    assert found.reserved == sum(segment["total_size"] for segment in segments)
    assert found.active == sum(segment["allocated_size"] for segment in segments)
    assert found.peak >= found.timeline[-1][1] and found.ooms_ms
    assert found.peak == max(held for _, held, _ in found.timeline)
    assert sum(size for segment in found.segments for size, _, _ in segment.blocks) == found.reserved


def test_a_name_from_the_program_is_never_markup() -> None:
    whole = snapshot("gpt-train")
    for page in (
        render_attributed_html(whole, index_of(whole, EVIL)),
        render_attributed_wandb_preview_html(whole, index_of(whole, EVIL)),
    ):
        assert EVIL not in page and "&lt;script&gt;" in page
        assert "script" not in Balance(page).tags


def test_without_history_the_end_is_shown() -> None:
    segments = snapshot("gpt-train")["segments"]
    page = render_attributed_html(segments, {})
    assert "Active Alloc" in page and "No history was recorded" in page and "<svg" not in page
    assert "Nothing is in use." in render_attributed_html({}, {}, device=3)


@pytest.mark.parametrize("wrong", [None, 5, "snapshot"])
def test_invalid_snapshot_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="Unsupported snapshot payload type"):
        render_attributed_html(wrong, {})
