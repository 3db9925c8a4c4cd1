"""Allocates in functions and files named to attack a terminal or page; then waits for the given time."""

import sys
import time

NAMES = [
    "</script><img src=x onerror=alert(1)>",
    "evil\x1b]0;owned\x07\x1b[2J\u202e\u2066x",
    "x" * 10_000,
    "new\nline\ttab\r",
    "semi;colon \"quote\" 'single' \\back",
    "",
]
kept: list[bytearray] = []

for size, name in enumerate(NAMES, 1_000_000):
    code = compile(f"kept.append(bytearray({size}))", (name or "empty") + ".py", "exec")
    exec(code.replace(co_name=name, co_qualname=name))
print("ready", flush=True)
time.sleep(float(sys.argv[1]))
