"""What the tests share: whole records, and files of them."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nvml_library
import pytest
from compat_cases import v4
from opened_page import Opened, started_browser
from places import PROGRAMS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Started in the background of a shell, the tests ignore the keyboard; the programs they start must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes a JSON file of the given number of events, one nanosecond apart."""

    def make(count: int = 3, name: str = "events.json", **changes: Any) -> Path:
        path = tmp_path / name
        records = [v4(timestamp_ns=1000 + number, **changes) for number in range(count)]
        path.write_text(json.dumps(records), encoding="utf-8")
        return path

    return make


@pytest.fixture
def nvml_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library under NVML's name that answers for GPUs there are none of."""
    return nvml_library.built(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`libc10.so` and `libc10_cuda.so`, which calls it as PyTorch's does."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    place, sources = tmp_path_factory.mktemp("stand_in"), PROGRAMS / "heap"
    build = [compiler, "-shared", "-fPIC", "-O1", "-pthread", f"-L{place}"]
    for name, others in (("libc10", []), ("libc10_cuda", ["-lc10"])):
        source = sources / f"stand_in_{name.removeprefix('lib')}.c"
        words = [f"-Wl,-rpath,$ORIGIN,-soname,{name}.so", "-o", str(place / f"{name}.so"), str(source)]
        subprocess.run([*build, *words, *others], check=True)
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    yield from started_browser()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opened]:
    """A page that may not print, fail or fetch anything."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = Opened(context.new_page())
    yield page
    context.close()
    assert page.problems == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
