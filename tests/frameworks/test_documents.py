"""The documents' samples that need PyTorch, with the real one on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from documents import SAMPLES, blocks, run, sample

REFERENCE = {block.text.split("\n")[0]: block.text for block in blocks("api-reference.md")}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_decorator_of_the_reference_calls_the_function() -> None:
    import gpumemprof
    from gpumemprof.context_profiler import clear_results, get_summary

    clear_results()
    names = run(REFERENCE["@profile_function"], profile_function=gpumemprof.profile_function)
    assert names["my_function"]() is None
    assert "my_function" in str(get_summary())


def test_context_of_the_reference_runs_its_block() -> None:
    import gpumemprof
    from gpumemprof.context_profiler import clear_results, get_summary

    clear_results()
    run(REFERENCE['with profile_context("my_context"):'], profile_context=gpumemprof.profile_context)
    assert "my_context" in str(get_summary())


def test_training_step_of_the_page_that_fits_leaves_no_bundle() -> None:
    tracker = sample(SAMPLES / "oom_enable.py")["tracker"]
    given = {
        "model": torch.nn.Linear(4, 2),
        "large_batch": torch.ones(8, 4),
        "criterion": torch.nn.MSELoss(),
        "targets": torch.ones(8, 2),
    }
    names = sample(SAMPLES / "oom_capture.py", tracker=tracker, **given)
    assert names["loss"].item() >= 0
    assert tracker.last_oom_dump_path is None


def test_training_step_of_the_page_that_does_not_fit_leaves_a_bundle() -> None:
    def model(_: Any) -> Any:
        return torch.empty(1 << 55)  # more than any address space: PyTorch's allocator refuses it

    tracker = sample(SAMPLES / "oom_enable.py")["tracker"]
    sample(
        SAMPLES / "oom_capture.py",
        tracker=tracker,
        model=model,
        large_batch=None,
        criterion=None,
        targets=None,
    )
    assert tracker.last_oom_dump_path is not None and Path(tracker.last_oom_dump_path).is_dir()


def test_failure_without_a_gpu_is_raised_as_the_page_does() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: tests/gpu/test_documents_gpu.py")
    with pytest.raises((AssertionError, RuntimeError), match=r"(?i)cuda|nvidia"):
        sample(SAMPLES / "oom_classify.py", torch=torch)
