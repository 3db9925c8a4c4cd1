"""The pytest plugin, run by a pytest of its own in a directory of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest


def run(tmp_path: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text("import pytest\n" + textwrap.dedent(text))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(tmp_path)]
    return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)


def test_limit_memory(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        def load(size):
            return bytearray(size)

        @pytest.mark.limit_memory("8 MB")
        def test_small():
            load(1 << 20)

        @pytest.mark.limit_memory("8 MB")
        def test_large():
            load(32 << 20)
        """,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    # Where CI is set, pytest's own summary has the whole text once more.
    report, _, _ = done.stdout.partition("short test summary")
    assert report.count("its limit is 8 MB") == 1, done.stdout
    assert "load" in done.stdout and "test_it.py:4" in done.stdout


def test_invalid_limit_is_reported_before_the_test_runs(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        @pytest.mark.limit_memory("plenty")
        def test_word():
            open("ran", "w")

        @pytest.mark.limit_leaks
        def test_nothing():
            open("ran", "w")

        @pytest.mark.limit_memory("8 MB", current_thread_only=True)
        def test_keyword():
            open("ran", "w")
        """,
    )
    assert "3 errors" in done.stdout, done.stdout
    assert "@pytest.mark.limit_memory has no argument current_thread_only" in done.stdout
    assert "@pytest.mark.limit_memory('plenty') needs a size, such as '24 MB'" in done.stdout
    assert "@pytest.mark.limit_leaks() needs a size" in done.stdout
    assert "stormlog/_pytest/" not in done.stdout and not (tmp_path / "ran").exists()


def test_limit_leaks(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        KEPT = []

        @pytest.mark.limit_leaks("1 MB")
        def test_tidy():
            bytearray(4 << 20)

        @pytest.mark.limit_leaks("1 MB")
        def test_leaky():
            KEPT.append(bytearray(4 << 20))

        @pytest.mark.limit_leaks("1 MB", filter_fn=lambda stack: stack[0][0] != "test_wanted")
        def test_wanted():
            KEPT.append(bytearray(4 << 20))
        """,
    )
    assert "1 failed, 2 passed" in done.stdout, done.stdout
    assert "left memory behind" in done.stdout and "test_leaky" in done.stdout


def test_a_failing_test_fails_for_its_own_reason(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        @pytest.mark.limit_memory("1 KB")
        def test_wrong():
            bytearray(1 << 20)
            assert 1 == 2
        """,
    )
    assert "assert 1 == 2" in done.stdout and "its limit is" not in done.stdout


def test_the_summary_and_the_captures(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        def test_one():
            bytearray(3 << 20)
        """,
        "--stormlog-heap",
        f"--stormlog-heap-dir={tmp_path / 'kept'}",
    )
    assert "heap by test" in done.stdout and "test_it.py::test_one" in done.stdout, done.stdout
    assert len(list((tmp_path / "kept").glob("*.bin"))) == 1


def test_without_marks_it_does_nothing(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        def test_plain():
            from stormlog import heap
            assert not heap.is_recording()
        """,
    )
    assert "1 passed" in done.stdout and "stormlog" not in done.stdout


def test_the_summary_is_whole_with_several_workers(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    text = """
        @pytest.mark.parametrize("size", [1 << 20, 3 << 20, 2 << 20])
        def test_it(size):
            bytearray(size)
        """
    done = run(tmp_path, text, "--stormlog-heap", "--stormlog-heap-top", "2", "-n", "2")
    assert "3 passed" in done.stdout, done.stdout
    report = done.stdout[done.stdout.index("heap by test") :]
    assert report.index("test_it[3145728]") < report.index("test_it[2097152]")
    assert "test_it[1048576]" not in report


def test_a_suite_that_is_recorded_as_a_whole_runs_as_it_would(tmp_path: Path) -> None:
    text = """
        @pytest.mark.limit_memory("1 MB")
        def test_large():
            bytearray(8 << 20)
        """
    recorded = [
        sys.executable,
        "-m",
        "stormlog",
        "run",
        "-q",
        "--heap",
        "--dir",
        str(tmp_path / "runs"),
        "--",
    ]
    (tmp_path / "test_it.py").write_text("import pytest\n" + textwrap.dedent(text))
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]
    done = subprocess.run([*recorded, *words], capture_output=True, text=True, cwd=tmp_path)
    assert "1 passed, 1 warning" in done.stdout, done.stdout
    assert "is not measured: the process is being recorded already" in done.stdout
