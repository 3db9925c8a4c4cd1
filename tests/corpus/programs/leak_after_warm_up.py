"""A server that fills its cache for fifteen seconds and keeps each session. Memory: anonymous."""

from clock import steps

cache = {}
sessions = {}


def cached(key):
    if key not in cache:
        cache[key] = bytearray(b"c") * (700 << 10)
    return cache[key]


def open_session(number):
    sessions[number] = bytearray(b"s") * (70 << 10)  # leak


for step in steps(0.1):
    cached(min(step, 150))
    open_session(step)
