"""leak-detection-and-profiling.md: no samples; what it lists, by the command that does it here."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import blocks, document

STORMLOG = Path(sys.executable).with_name("stormlog")
# A line of the document, and the command with the words that its help must have.
TOPICS = {
    "Compute-sanitizer memcheck workflows": ("sanitize", "compute-sanitizer"),
    "PyTorch memory profiling": ("run", "--torch-history"),
    "Memory snapshot analysis": ("snapshot", "snapshot"),
    "Persistent allocations tracking": ("why", "cycle"),
    "Fragmentation detection": ("snapshot", "--oom"),
    "Fragmentation mitigation": ("replay", "settings"),
    "Production monitoring": ("serve", "Prometheus"),
    "Emergency procedures": ("track", "--watchdog"),
    "Long-running training job memory monitoring": ("live", "running program"),
    "Fragmentation monitoring in production": ("rules", "alert"),
    "Automated snapshot capture on OOM events": ("oom", "bundle"),
    "Multi-GPU leak detection strategies": ("analyze", "rank"),
    "Integration with existing monitoring stacks": ("rules", "Prometheus"),
}


def test_document_has_no_sample_to_run() -> None:
    assert blocks("leak-detection-and-profiling.md") == []


def test_every_gap_and_scenario_that_the_document_lists_has_a_command() -> None:
    text = document("leak-detection-and-profiling.md")
    gaps = re.findall(r"^\d\. \S+ \*\*(.+?)\*\*", text, re.MULTILINE)
    scenarios = text.split("**Real Production Scenarios**:")[1].split("---")[0]
    listed = [*gaps, *re.findall(r"^- (.+)$", scenarios, re.MULTILINE)]
    assert len(listed) == 8 + 5
    assert sorted(listed) == sorted(TOPICS)


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_topic_has_its_command(topic: str) -> None:
    assert topic in document("leak-detection-and-profiling.md")
    command, word = TOPICS[topic]
    done = subprocess.run(
        [STORMLOG, command, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert word.lower() in done.stdout.lower()
