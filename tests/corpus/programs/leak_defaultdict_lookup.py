"""Looking a key up makes it: a default of 80 KiB for every unknown user. Memory: anonymous."""

import collections

from clock import steps


def profile():
    return bytearray(b"u") * (80 << 10)  # leak


profiles = collections.defaultdict(profile)
for step in steps(0.1):
    if profiles[f"user {step}"][0] == 0:
        break
