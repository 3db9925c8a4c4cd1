"""Holds memory in every way a Python program forgets about it, 12 MiB each, and ends."""

import functools
import gc
import sys

MIB = 1 << 20
CACHE = {}
HOOKS = []
ERRORS = []
STREAMS = []


def fill_cache():
    for number in range(12):
        CACHE[f"user {number}"] = bytearray(MIB)


class Registry:
    seen = []  # noqa: RUF012


class Model:
    @functools.cache  # noqa: B019
    def predict(self, number):
        return bytearray(MIB)


class Session:
    def __init__(self):
        self.history = []


session = Session()
config = {"limits": {"rows": []}}


def make_hook():
    activations = []

    def hook(value):
        activations.append(value)

    return hook


def load():
    table = bytearray(12 * MIB)
    raise ValueError(len(table))


def stream():
    window = [bytearray(MIB) for _ in range(12)]
    yield len(window)
    yield 0


class Node:
    pass


def leave_cycles():
    gc.disable()
    for _ in range(12):
        one, other = Node(), Node()
        one.other, other.other = other, one
        one.payload = bytearray(MIB)


def hold_everything():
    fill_cache()
    Registry.seen.extend(bytearray(MIB) for _ in range(12))
    model = Model()
    for number in range(12):
        model.predict(number)
        session.history.append(bytearray(MIB))
        config["limits"]["rows"].append(bytearray(MIB))
    hook = make_hook()
    HOOKS.append(hook)
    for _ in range(12):
        hook(bytearray(MIB))
    try:
        load()
    except ValueError as error:
        ERRORS.append(error)
    STREAMS.append(stream())
    next(STREAMS[0])
    leave_cycles()


def train():
    losses = []
    for _ in range(40):
        losses.append(bytearray(MIB))
    raise MemoryError("no more")


if __name__ == "__main__":
    if "fails" in sys.argv:
        train()
    hold_everything()
    print("done")
