"""Runs the tests of this folder where there is no pytest: `python tests/gpu/plain.py [FILE...]`.

They are plain functions; one that takes `tmp_path` gets an empty folder. Exits with 1 when one failed, or
when none was run: what raises `unittest.SkipTest` is counted apart.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import tempfile
import time
import traceback
from pathlib import Path
from unittest import SkipTest


def main(paths: list[str]) -> int:
    files = [Path(path) for path in paths] or sorted(Path(__file__).parent.glob("test_*.py"))
    passed = failed = skipped = 0
    for path in files:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, test in vars(module).items():
            if not name.startswith("test_") or not callable(test):
                continue
            started = time.perf_counter()
            try:
                with tempfile.TemporaryDirectory() as folder:
                    wants_folder = "tmp_path" in inspect.signature(test).parameters
                    test(tmp_path=Path(folder)) if wants_folder else test()
            except SkipTest as reason:
                skipped += 1
                sys.stdout.write(f"skipped {path.name}::{name}: {reason}\n")
            except Exception:
                failed += 1
                sys.stdout.write(f"FAILED {path.name}::{name}\n{traceback.format_exc()}")
            else:
                passed += 1
                sys.stdout.write(f"passed {path.name}::{name} ({time.perf_counter() - started:.2f} s)\n")
    sys.stdout.write(f"{passed} passed, {failed} failed, {skipped} skipped\n")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
