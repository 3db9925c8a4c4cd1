"""The library under NVML's name that answers for GPUs there are none of, built for a test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from places import HELPERS


def built(place: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = place / "libnvidia-ml.so"
    source = HELPERS / "nvml_stand_in.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    (place / "libnvidia-ml.so.1").symlink_to(library)
    return library
