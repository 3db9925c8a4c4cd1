"""A page in a real browser, and everything it must not have done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def started_browser() -> Iterator[Browser]:
    """A browser. Without Chromium the test is left out; with STORMLOG_NEED_BROWSER=1 that is a failure."""
    missing = None
    if not Path(CHROMIUM).exists():
        missing = "there is no chromium; `make browser` installs Debian's"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "the Python package playwright is not installed"
    if missing is not None:
        assert os.environ.get("STORMLOG_NEED_BROWSER") != "1", missing
        pytest.skip(missing)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


class Opened:
    """A page that is open, and everything it must not have done."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def goto(self, path: Path | str, fragment: str = "") -> None:
        url = path if isinstance(path, str) else path.as_uri()
        self.page.goto(url + fragment)
        self.page.wait_for_function("document.documentElement.dataset.ready === 'yes'", timeout=60_000)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def state(self, what: str) -> Any:
        return self.page.evaluate(f"window.stormlog.state.{what}")

    def whole(self) -> int:
        return int(self.state("tree.total[0]"))
