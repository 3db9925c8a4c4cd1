"""Compiles another pattern each time; `re` keeps 512 of them at most."""

import re

from clock import steps

for step in steps(0.02):
    re.compile(f"(user|item) {step} [a-z]+(, [0-9]+)*")
