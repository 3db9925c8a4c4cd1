"""PyTorch calls this at the end of `import torch` (entry point `torch.backends`, from 2.5 on).

With `STORMLOG=1` in the environment recording begins; without it nothing is imported. Must never raise:
`import torch` would fail with it.
"""

from __future__ import annotations

import contextlib
import os


def torch_is_there() -> None:
    """Begin to record, if the environment asks for it."""
    if os.environ.get("STORMLOG", "").lower() not in {"1", "on", "true", "yes"}:
        return
    with contextlib.suppress(Exception):
        import stormlog.auto  # noqa: F401
