"""What the tests with real components share: free ports, and servers that end with the test."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import nvml_library
import pytest


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a server whose output is kept in a file, and ends it with the test.

    A server in a chroot or a namespace gets a PID namespace, so that nothing of it outlives its parent.
    """
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: str | Path, name: str = "server", **keywords: object) -> subprocess.Popen[bytes]:
        log = (tmp_path / f"{name}.log").open("wb")
        with log:
            server = subprocess.Popen(
                [str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **keywords
            )  # type: ignore[call-overload]
        running.append(server)
        return server

    yield start
    for server in reversed(running):
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def port() -> Callable[[], int]:
    """A free port of loopback: it was free a moment ago."""

    def free() -> int:
        with contextlib.closing(socket.socket()) as listening:
            listening.bind(("127.0.0.1", 0))
            return int(listening.getsockname()[1])

    return free


@pytest.fixture
def nvml_stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library under NVML's name that answers for GPUs there are none of."""
    return nvml_library.built(tmp_path_factory.mktemp("nvml"))
