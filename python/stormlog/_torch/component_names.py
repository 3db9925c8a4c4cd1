"""What the program called the memory of its tensors: by `stormlog.component`, and by the names of attributes.

Private. Keeps nothing alive. Names are found from the tensors upwards, by what refers to them, so that no
object is asked for its attributes but those that hold a tensor.
"""

from __future__ import annotations

import re
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

from stormlog._torch.live_objects import holders_of

KV_CACHE, WORKSPACES = "kv_cache", "workspaces"
# `kv_cache`, `k_caches`, `key_cache`, `cache_k`, `past_key_values`, vLLM's `gpu_cache` and `kv_caches`.
_KV_NAME = re.compile(
    r"(^|[_.])(kv|k|v|key|value|paged_kv|attention|attn)_?(caches?|pools?)($|[_.])"
    r"|(^|_)cache_(k|v|kv|keys?|values?)($|_)|^(past_key_values?|gpu_caches?|paged_kv|kv_blocks|kv_buffers?)$",
    re.IGNORECASE,
)
_WORK_NAME = re.compile(r"(^|_)(workspaces?|scratch|work_buffers?)($|_)", re.IGNORECASE)
# `CacheEngine`, `PagedKVCache`, and the caches of Transformers.
_KV_CLASS = re.compile(
    r"^(Paged|Static|Dynamic|Hybrid|Quantized|Offloaded|SlidingWindow|EncoderDecoder)\w*Cache(Layer)?$"
    r"|KV(Cache|Pool)\w*$|^KeyValueCache$|^CacheEngine$|^(Dynamic|Static|SlidingWindow)\w*Layer$"
)
_CONTAINERS = (list, tuple, dict, set, deque, OrderedDict)
# Levels from a tensor to the name of what holds it: layer, list of layers, cache, engine.
_LEVELS = 5
_MOST_ELEMENTS = 100_000

#: Tensors and modules that the program named.
_NAMED: list[tuple[weakref.ref[Any], str]] = []


def name(word: str, thing: Any) -> None:
    """Remember what the memory of a thing is for."""
    if not isinstance(word, str) or not word.strip() or len(word) > 64:
        raise ValueError(f"{word!r} is not the name of a component: a word of at most 64 characters")
    things = list(_parts(thing))
    if not things:
        raise TypeError(f"{type(thing).__name__} is not a tensor, a module, or a list or dictionary of these")
    _NAMED[:] = [(ref, known) for ref, known in _NAMED if ref() is not None]
    _NAMED.extend((weakref.ref(one), word.strip()) for one in things)


def _parts(thing: Any) -> Iterator[Any]:
    if isinstance(thing, dict):
        thing = list(thing.values())
    if isinstance(thing, (list, tuple, set)):
        for one in thing:
            yield from _parts(one)
    elif hasattr(thing, "untyped_storage") or hasattr(thing, "named_parameters"):
        yield thing


def named_storages() -> dict[int, str]:
    """The component of each storage that the program named, by its address."""
    found: dict[int, str] = {}
    for ref, word in _NAMED:
        thing = ref()
        if thing is None:
            continue
        tensors = [thing]
        if hasattr(thing, "named_parameters"):
            tensors = [*thing.parameters(), *thing.buffers()]
        for tensor in tensors:
            address = address_of(tensor)
            if address:
                found[address] = word
    return found


def found_storages(tensors: list[weakref.ref[Any]], objects: list[Any]) -> dict[int, str]:
    """The component of each storage that the name of an attribute or a class tells, by its address.

    `objects` is everything that may hold a tensor. Other threads run while it is searched, and tensors that
    only a running function holds are freed meanwhile.
    """
    found: dict[int, str] = {}
    below: dict[int, set[int]] = {}
    places: list[tuple[weakref.ref[Any], int]] = []
    for ref in tensors:
        tensor = ref()
        address = 0 if tensor is None else address_of(tensor)
        if address:
            below[id(tensor)] = {address}
            places.append((ref, address))
        del tensor
    skipped = {id(objects), id(below)}
    level = set(below)
    for _ in range(_LEVELS):
        if not level:
            break
        above: set[int] = set()
        for holder in holders_of(level, objects):
            if id(holder) in skipped:
                continue
            is_new = id(holder) not in below
            inside = _look_into(holder, below, found)
            if inside:
                below.setdefault(id(holder), set()).update(inside)
                if is_new:
                    above.add(id(holder))
        level = above
    # Another object may have got the number of a tensor that was freed meanwhile.
    alive = {address for ref, address in places if ref() is not None}
    return {address: word for address, word in found.items() if address in alive}


def _look_into(holder: Any, below: dict[int, set[int]], found: dict[int, str]) -> set[int]:
    """The storages below a holder; those that its names tell are noted."""
    kind = type(holder)
    inside: set[int] = set()
    if issubclass(kind, dict):
        pairs: Iterable[tuple[Any, Any]] = list(dict.items(holder))[:_MOST_ELEMENTS]
    elif kind in _CONTAINERS:
        pairs = ((None, value) for value in list(holder)[:_MOST_ELEMENTS])
    else:
        # Its attributes are where Python keeps them without a dictionary; to ask for them makes one.
        attributes = getattr(holder, "__dict__", None)
        pairs = list(attributes.items()) if type(attributes) is dict else ()
    for key, value in pairs:
        addresses = below.get(id(value))
        if not addresses:
            continue
        inside |= addresses
        word = word_of(key) if isinstance(key, str) else None
        if word is not None:
            for address in addresses:
                found.setdefault(address, word)
    if kind not in _CONTAINERS and _KV_CLASS.search(kind.__name__):
        # Also one whose dictionary was met a level below.
        attributes = getattr(holder, "__dict__", None)
        inside |= below.get(id(attributes), set())
        for address in inside:
            found.setdefault(address, KV_CACHE)
    elif kind not in _CONTAINERS and not issubclass(kind, dict):
        inside |= below.get(id(getattr(holder, "__dict__", None)), set())
    # A module, a class or a function holds the whole program: names above it tell nothing.
    return set() if issubclass(kind, (types.ModuleType, type, types.FunctionType)) else inside


def word_of(key: str) -> str | None:
    """The component that the name of a variable tells."""
    if _KV_NAME.search(key):
        return KV_CACHE
    return WORKSPACES if _WORK_NAME.search(key) else None


def address_of(tensor: Any) -> int:
    """Where the storage of a tensor is; 0 where it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except Exception:  # a subclass without a storage of its own, or one that is not there
        return 0
