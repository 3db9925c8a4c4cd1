"""Holds memory of a few lines in two threads, one named to fool a terminal; then waits to be ended."""

import sys
import threading
import time

HOSTILE_NAME = "evil\x1b]0;owned\x07\x1b[2J\u202e"
HOSTILE_FILE = "/nowhere/\x1b[31mhostile\x07.py"

kept: list[object] = []


def big() -> None:
    kept.append(bytearray(64 << 20))


def small() -> None:
    for _ in range(1000):
        kept.append(bytearray(4 << 10))


def in_thread() -> None:
    kept.append(bytearray(16 << 20))
    time.sleep(600)


def hostile() -> None:
    names: dict[str, object] = {"kept": kept}
    exec(compile("def f():\n    kept.append(bytearray(8 << 20))\n", HOSTILE_FILE, "exec"), names)
    function = names["f"]
    assert callable(function)
    code = function.__code__.replace(co_name=HOSTILE_NAME, co_qualname=HOSTILE_NAME)  # type: ignore[attr-defined]
    function.__code__ = code  # type: ignore[attr-defined]
    function()


big()
small()
hostile()
threading.Thread(target=in_thread, name="loader", daemon=True).start()
print("ready", flush=True)
time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
