"""leak-detection-and-profiling.md: no samples; what it lists, by the command that does it here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from documents import blocks, document

STORMLOG = Path(sys.executable).with_name("stormlog")
# A line of the document, and the command with the words that its help must have.
TOPICS = {
    "Compute-sanitizer memcheck workflows": ("sanitize", "compute-sanitizer"),
    "Memory snapshot analysis": ("snapshot", "snapshot"),
    "Fragmentation mitigation": ("replay", "settings"),
    "Production monitoring": ("serve", "Prometheus"),
    "Automated snapshot capture on OOM events": ("oom", "bundle"),
    "Multi-GPU leak detection strategies": ("analyze", "rank"),
    "Integration with existing monitoring stacks": ("rules", "Prometheus"),
}


def test_document_has_no_sample_to_run() -> None:
    assert blocks("leak-detection-and-profiling.md") == []


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_topic_has_its_command(topic: str) -> None:
    assert topic in document("leak-detection-and-profiling.md")
    command, word = TOPICS[topic]
    done = subprocess.run(
        [STORMLOG, command, "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert word.lower() in done.stdout.lower()
