# Snapshots of PyTorch's CUDA allocator: the submodule `stormlog._native.torch`.
import os
from collections.abc import Sequence
from typing import Any, final

__all__ = [
    "TorchSnapshot",
    "load_torch_snapshot",
]

@final
class TorchSnapshot:
    def device_count(self) -> int: ...
    def event_count(self, device: int) -> int: ...
    # The answers of `stormlog snapshot|replay|diff --json`; a size is bytes or a text such as "24GiB".
    def report(self, top: int, device_total: int | str | None, advise: bool) -> dict[str, Any]: ...
    def replay(
        self, settings: Sequence[str], limit: int | str | None, search: bool, device: int
    ) -> dict[str, Any]: ...
    def diff(self, after: TorchSnapshot, at: str, device: int | None) -> dict[str, Any]: ...

def load_torch_snapshot(path: str | os.PathLike[str]) -> TorchSnapshot: ...
