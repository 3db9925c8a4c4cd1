"""The charts of `analyze`: in its pages, and as files."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

import pytest
from compat_cases import v4
from rank_job import SECOND, START, ranks

COMMAND = [sys.executable, "-m", "stormlog"]


def analyzed(*arguments: str | Path) -> str:
    done = subprocess.run([*COMMAND, "analyze", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "job.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in ranks(12, 100)))
    return path


@pytest.fixture(scope="module")
def leak(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saw-tooth whose floor rises, of a program whose name is markup."""
    path = tmp_path_factory.mktemp("leak") / "leak.jsonl"
    same = {"world_size": 1, "rank": 0, "device_id": -1, "metadata": {"program": "<b>train</b>.py"}}
    counters = dict.fromkeys(
        f"allocator_{name}_bytes" for name in ("allocated", "reserved", "active", "inactive", "change")
    )
    events = (
        v4(
            **same,
            **counters,
            timestamp_ns=START + at * SECOND,
            device_used_bytes=(200 + 3 * at + at % 10 * 20) << 20,
            device_free_bytes=None,
            device_total_bytes=None,
            context=None,
        )
        for at in range(300)
    )
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_pages_of_analyze_have_the_chart_inside(leak: Path) -> None:
    page = analyzed(leak, "--format", "html")
    (chart,) = re.findall(r"<figure>(<svg.*?</svg>)", page, re.DOTALL)
    assert "<b>train" not in page and "train&lt;/b&gt;.py: memory over time" in chart
    assert ">floor<" in chart and "host memory grows" in chart, "the finding and the floor"
    text = analyzed(leak, "--format", "md")
    (packed,) = re.findall(r"!\[Memory over time\]\(data:image/svg\+xml;base64,([^)]+)\)", text)
    drawn = base64.b64decode(packed).decode()
    root = xml.dom.minidom.parseString(drawn).documentElement
    assert root is not None and root.tagName == "svg"


def test_many_ranks_are_a_median_with_a_range_and_named_outliers(job: Path, tmp_path: Path) -> None:
    analyzed(job, "--visualization", "--plot-dir", tmp_path)
    chart = (tmp_path / "cross_rank_timeline.svg").read_text()
    assert "median of all ranks" in chart and "least to greatest of 12 ranks" in chart
    assert "rank 2: outlier" in chart
    assert len(re.findall(r'id="line-0-', chart)) < 8, "the others are not drawn one by one"
