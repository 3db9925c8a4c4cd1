"""Every object that Python's collector tracks, and what refers to some of them.

Private. `gc.get_objects` leaves out what `gc.freeze` put aside, which servers do with their model loaded; and
`gc.get_referrers` compares every reference of the program with every object asked for, in one call that no
other thread runs beside. Both are replaced by walks in short pieces. Asks no object for anything.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Collection, Iterator
from typing import Any

# Objects whose references are listed in one call: about 0.1 ms.
_AT_ONCE = 512


def live_objects() -> list[Any]:
    """All of them, frozen ones included as far as modules, threads and other objects lead to them."""
    objects = gc.get_objects()
    if gc.get_freeze_count():
        objects += _reached(objects)
    return objects


def _reached(known: list[Any]) -> list[Any]:
    """What known objects, modules and running functions lead to and is not known."""
    found: list[Any] = []
    seen = {id(known), id(found), *map(id, known)}
    seen.add(id(seen))
    level = [*known, *sys.modules.values(), *sys._current_frames().values()]
    while level:
        above, level = level, []
        seen |= {id(above), id(level)}
        for start in range(0, len(above), _AT_ONCE):
            for thing in gc.get_referents(*above[start : start + _AT_ONCE]):
                if id(thing) not in seen and gc.is_tracked(thing):
                    seen.add(id(thing))
                    level.append(thing)
        found += level
    return found


def holders_of(wanted: Collection[int], objects: list[Any]) -> Iterator[Any]:
    """Those of the objects that refer to one whose `id` is wanted; frames are left out."""
    ids = frozenset(wanted)
    for start in range(0, len(objects), _AT_ONCE):
        some = objects[start : start + _AT_ONCE]
        if ids.isdisjoint(map(id, gc.get_referents(*some))):
            continue
        for one in some:
            if type(one) is not types.FrameType and not ids.isdisjoint(map(id, gc.get_referents(one))):
                yield one
