"""One look at this process: the allocator of each device, its components, and the lines that hold memory.

Private. Runs inside the user's program, in a thread of ours or at the end of a training step: uses no GPU,
waits for none, and keeps no tensor and no frame.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from stormlog import _native
from stormlog._requests.steps import CLOCK

# Two at a time would only be slower.
_ONE = threading.Lock()


def forget_other_threads() -> None:
    """For a forked child: the thread that took a snapshot at the fork is not in it, and frees no lock."""
    global _ONE
    _ONE = threading.Lock()


def take(
    directory: Path, *, request: str, asked_by: str, at_step: int | None = None
) -> _native.requests.Snapshot:
    """Write the snapshot of this process into a directory that is there."""
    with _ONE:
        return _take(directory, request, asked_by, at_step)


def _take(directory: Path, request: str, asked_by: str, at_step: int | None) -> _native.requests.Snapshot:
    began = time.monotonic()
    content: dict[str, Any] = {
        "format": _native.requests.SNAPSHOT_FORMAT,
        "schema_version": _native.requests.SNAPSHOT_VERSION,
        "id": request,
        "pid": os.getpid(),
        "program": _program(),
        "taken_at_ns": time.time_ns(),
        "asked_by": asked_by,
        "is_by_process": True,
        "step": CLOCK.made,
        "at_step": at_step,
        "memories": [],
        "components": [],
        "notes": [],
    }
    torch = sys.modules.get("torch")
    # Half imported, it has neither.
    if torch is not None and hasattr(torch, "Tensor") and hasattr(torch, "cuda"):
        from stormlog._torch.components import look

        try:
            content.update(look(torch, directory, content["notes"]))
        except Exception as error:
            content["notes"].append(f"components: {str(error).splitlines()[0] if str(error) else error!r}")
    if "jax" in sys.modules:
        from stormlog._jax.profiles import add_to

        try:
            add_to(directory, content["notes"])
        except Exception as error:
            content["notes"].append(f"JAX: {str(error).splitlines()[0] if str(error) else error!r}")
    content["seconds"] = round(time.monotonic() - began, 3)
    return _native.requests.finish_snapshot(directory, json.dumps(content, default=str).encode())


def _program() -> str:
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None and getattr(spec, "name", None):
        return str(spec.name).removesuffix(".__main__")
    return Path(getattr(main, "__file__", None) or sys.argv[0] or "python").name
