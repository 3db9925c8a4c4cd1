"""The documents' samples on a real GPU: PyTorch's out-of-memory error, classified, captured, analysed.

Without pytest: `python tests/gpu/plain.py tests/gpu/test_documents_gpu.py`.
"""

from __future__ import annotations

import io
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "documents"))
from documents import SAMPLES, sample


def test_tensor_that_cannot_fit_is_an_out_of_memory_error(tmp_path: Path) -> None:
    import torch

    with chdir(tmp_path), redirect_stdout(io.StringIO()) as printed:
        sample(SAMPLES / "oom_classify.py", torch=torch)
    assert "OOM detected: " in printed.getvalue()


def test_stress_sample_leaves_a_bundle_that_the_page_can_analyse(tmp_path: Path) -> None:
    import torch

    torch.cuda.set_per_process_memory_fraction(0.05)
    try:
        with chdir(tmp_path), redirect_stdout(io.StringIO()) as printed:
            tracker = sample(SAMPLES / "oom_enable.py")["tracker"]
            sample(SAMPLES / "oom_stress.py", tracker=tracker)
            sample(SAMPLES / "oom_analyze.py", tracker=tracker)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    text = printed.getvalue()
    assert "OOM after " in text and "OOM occurred in: stress_test" in text
    assert Path(str(tracker.last_oom_dump_path)).name.split("_")[4] == "cuda"
    grown = float(text.split("Memory growth: ")[1].split(" MB")[0])
    assert grown > 1024, "64 MB at a time, up to a twentieth of the GPU"
