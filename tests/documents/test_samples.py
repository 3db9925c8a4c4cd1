"""The samples under `samples/` are the documents' own."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from documents import ORIGINALS, SAMPLES, holds

DOCUMENTS = {"memray": "memray-and-oom.txt", "oom": "oom-flight-recorder.txt"}
# Of the documents as they came: a formatter that meets them changes them.
SUMS = {
    "api-reference.md": "c2b612bf85d52bcf849f24872e293609effe797c4ca650eedc53b5749b5499f6",
    "architecture.txt": "3da4c00be5018821e5432502febb6e491c742403ed3c3fe8871e6c1dbcbe002f",
    "leak-detection-and-profiling.md": "6ed6598e70e056e4aae5d20fe4d62ca7a7b3dac0a78c5cd6c4141b26a4140966",
    "memray-and-oom.txt": "c35895d7ba1a4d2d348a02fafed9b0453d96b393a0f024c825c87100c76034e6",
    "oom-flight-recorder.txt": "ff104d95ef833814d367410653467532ca256c112e39f41268c5d0147e4fd021",
}


def test_documents_are_those_that_came() -> None:
    found = {path.name: sha256(path.read_bytes()).hexdigest() for path in ORIGINALS.iterdir()}
    assert found == SUMS


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_sample_differs_from_its_document_in_white_space_only(path: Path) -> None:
    assert holds(DOCUMENTS[path.stem.split("_")[0]], path.read_text(encoding="utf-8"))


def test_a_changed_sample_would_be_noticed() -> None:
    text = (SAMPLES / "oom_retention.py").read_text(encoding="utf-8")
    assert not holds("oom-flight-recorder.txt", text.replace("oom_max_dumps=5", "oom_max_dumps=6"))
