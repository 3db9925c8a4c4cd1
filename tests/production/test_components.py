"""The frame itself: a package is fetched once, and what cannot be had is a skip with its reason."""

from __future__ import annotations

import subprocess

import components
import pytest


def test_a_package_is_unpacked_once_and_runs_from_the_cache() -> None:
    first = components.unpacked("sid", *components.MONITORING)
    before = first.stat().st_ino
    assert components.unpacked("sid", *components.MONITORING).stat().st_ino == before
    done = subprocess.run(
        [first / "usr/bin/promtool", "--version"], capture_output=True, text=True, check=True
    )
    assert "version 3." in done.stdout + done.stderr


def test_a_package_that_does_not_exist_is_a_skip_with_the_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="no-such-package-as-this: apt-get failed: "):
        components.unpacked("sid", "no-such-package-as-this")
    assert list(components.cache().glob("*no-such-package*")) == []
