"""What compiled programs need: arguments, outputs, temporaries and code, as XLA planned them.

XLA plans all memory of a program when it compiles it, so the need of a function is known before it runs. Its
temporaries are one block that is taken for the whole call, so the need is the sum. XLA's own
`peak_memory_in_bytes` is the same on a GPU, and too small on the CPU, where it leaves buffers out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from stormlog._jax import runtime

# Programs that are listed, the largest.
_LISTED = 64
# Executables looked at: a program that compiles without end has more.
_MOST = 4096


class CompiledMemory(NamedTuple):
    """The memory of one compiled function on one device, in bytes. Aliased outputs are arguments reused.

    `peak_bytes` is all of it while the function runs.
    """

    name: str
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    temp_bytes: int
    generated_code_bytes: int
    host_temp_bytes: int
    peak_bytes: int
    place: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The object form."""
        return self._asdict()


def compiled_memory(function: Callable[..., Any], *args: Any, **kwargs: Any) -> CompiledMemory:
    """What a call of a function with such arguments will need; compiled, not run.

    `jax.ShapeDtypeStruct` stands for an array that does not exist yet.
    """
    jax = runtime.jax()
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    stats = jitted.lower(*args, **kwargs).compile().memory_analysis()
    name = getattr(function, "__name__", type(function).__name__)
    if stats is None:
        raise RuntimeError(f"XLA reports no memory for {name} on this backend")
    return _of(str(name), stats)


def live_programs() -> list[CompiledMemory]:
    """The compiled programs of this process that are alive, the largest first; of started backends only."""
    found: dict[tuple[str, int], CompiledMemory] = {}
    for client in {id(device.client): device.client for device in runtime.started_devices()}.values():
        programs: list[Any] = runtime.quietly(client.live_executables, [], "its programs")
        for program in programs[:_MOST]:
            one = runtime.quietly(partial(_of_program, program), None, "the memory of a program")
            if one is not None:
                found[(one.name, one.peak_bytes)] = one
    return sorted(found.values(), key=lambda one: one.peak_bytes, reverse=True)[:_LISTED]


def _of_program(program: Any) -> CompiledMemory:
    stats = program.get_compiled_memory_stats()
    modules = program.hlo_modules()
    name = str(modules[0].name) if modules else "unnamed"
    return _of(name, stats)._replace(place=_place(program.traceback))


def _of(name: str, stats: Any) -> CompiledMemory:
    def size(what: str) -> int:
        return max(int(getattr(stats, f"{what}_in_bytes", 0) or 0), 0)

    arguments, outputs, aliases = size("argument_size"), size("output_size"), size("alias_size")
    temporaries, code = size("temp_size"), size("generated_code_size")
    taken = max(arguments + outputs - aliases, 0) + temporaries + code
    return CompiledMemory(name, arguments, outputs, aliases, temporaries, code, size("host_temp_size"), taken)


def _place(traceback: Any) -> str | None:
    """The user's line that had it compiled."""
    for frame in getattr(traceback, "frames", ()):
        if "/site-packages/" not in frame.file_name and not frame.file_name.startswith("<frozen"):
            return f"{frame.file_name}:{frame.line_num} {frame.function_name}"
    return None
