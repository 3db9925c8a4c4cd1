"""`ProfiledModule`; apart from the rest because it cannot be defined without PyTorch."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from stormlog._torch.meter import _torch

if TYPE_CHECKING:
    from stormlog.profiler import GPUMemoryProfiler

_Module: Any = _torch().nn.Module


class ProfiledModule(_Module):  # type: ignore[misc]
    """A PyTorch module whose every forward pass is profiled, as `<name>_forward`."""

    def __init__(
        self,
        module: Any,
        name: str | None = None,
        device: Any = None,
        profiler: GPUMemoryProfiler | None = None,
    ) -> None:
        from stormlog.context_profiler import get_global_profiler

        super().__init__()
        self.module = module
        self.profile_name = name or type(module).__name__
        self.profiler = profiler or get_global_profiler(device)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped module's `forward` and measure it."""
        with self.profiler.profile_context(f"{self.profile_name}_forward"):
            return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """What this one does not have is the wrapped module's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":  # not there yet while it is made or unpickled
                raise
            return getattr(self.module, name)

    def __getstate__(self) -> dict[str, Any]:
        # A profiler is a thing of this process; a loaded module gets the one that is shared there.
        return {key: value for key, value in self.__dict__.items() if key != "profiler"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from stormlog.context_profiler import get_global_profiler

        super().__setstate__(state)
        self.profiler = get_global_profiler()

    def __deepcopy__(self, memo: dict[int, Any]) -> ProfiledModule:
        copy = type(self).__new__(type(self))
        memo[id(self)] = copy
        _Module.__setstate__(copy, deepcopy(self.__getstate__(), memo))
        copy.profiler = self.profiler
        return copy
