"""A collector that gives what a test wrote down, and waiting for what its tracker does."""

from __future__ import annotations

import time
from collections.abc import Callable

from stormlog.device_collectors import (
    DeviceMemoryCapabilities,
    DeviceMemoryCollector,
    DeviceMemorySample,
)


class ScriptedCollector(DeviceMemoryCollector):
    """Reports the scripted bytes, of a device of 1000; an exception in the script is raised."""

    def __init__(self, *script: int | Exception) -> None:
        self.script = list(script)
        self.asked = 0

    def name(self) -> str:
        return "xpu"

    def is_available(self) -> bool:
        return True

    def sample(self) -> DeviceMemorySample:
        self.asked += 1
        value = self.script[0] if len(self.script) == 1 else self.script.pop(0)
        if isinstance(value, Exception):
            raise value
        return DeviceMemorySample(value, value, value, 1000 - value, 1000, None, None, 3)

    def capabilities(self) -> DeviceMemoryCapabilities:
        return DeviceMemoryCapabilities(
            "xpu",
            "my.collector",
            "script",
            supports_allocator_allocated=True,
            supports_allocator_reserved=True,
            supports_device_used=True,
            supports_device_free=True,
            supports_device_total=True,
        )


def until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")
