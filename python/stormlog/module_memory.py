"""What the memory of a training step is: by category at the peak of each phase, and by module.

Hooks on the modules and the optimizer read the allocator's counters where a phase or a module begins and
ends; the peak between two such moments is the device's own. Categories of a peak sum to it, to the byte. Must
not change what the program computes, keep a tensor, or wait for the device.

    with ModuleMemory(model, optimizer) as memory:
        train_some_steps()
    print(memory.report()["peak"])
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

from stormlog._torch.cuda_categories import tensors_in
from stormlog._torch.meter import Meter, Stretch, end_stretch, meter_for
from stormlog.utils import _torch

__all__ = ["ModuleMemory"]

FORWARD, BACKWARD, STEP, BETWEEN = "forward", "backward", "optimizer_step", "between_steps"
# More calls of modules than this inside each other is a recursion we do not follow.
_MAX_DEPTH = 256


class _Held(NamedTuple):
    """Bytes that are known by their owners at one moment."""

    parameters: int
    buffers: int
    gradients: int
    optimizer_state: int

    def total(self) -> int:
        return sum(self)


class ModuleMemory:
    """Follows a model and its optimizer from `attach` to `detach`; one thread, as training is."""

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        device: Any = None,
        depth: int | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._depth = depth
        self._meter = meter or meter_for(device)
        self._handles: list[Any] = []
        self._phases: dict[str, dict[str, Any]] = {}
        self._modules: dict[str, dict[str, Any]] = {}
        self._open: list[tuple[str, Stretch, int]] = []
        self._phase = BETWEEN
        self._stretch: Stretch | None = None
        self._before = 0
        self._inputs = 0
        self._kept = 0
        self._thread = 0

    def attach(self) -> Self:
        """Start following the module's calls."""
        if self._handles:
            return self
        self._thread = threading.get_ident()
        for name, module in self._model.named_modules():
            if name and (self._depth is None or name.count(".") < self._depth):
                self._handles.append(module.register_forward_pre_hook(self._entering(name)))
                # Also when it raises: what was entered is left.
                self._handles.append(
                    module.register_forward_hook(self._leaving(name, module), always_call=True)
                )
        self._handles.append(self._model.register_forward_pre_hook(self._forward_begins, with_kwargs=True))
        self._handles.append(self._model.register_forward_hook(self._forward_ends, always_call=True))
        if self._optimizer is not None:
            self._handles.append(self._optimizer.register_step_pre_hook(lambda *_: self._next(STEP)))
            self._handles.append(self._optimizer.register_step_post_hook(lambda *_: self._next(BETWEEN)))
        self._begin(BETWEEN)
        return self

    def detach(self) -> None:
        """Stop following; what was seen stays."""
        if not self._handles:
            return
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        while self._open:
            self._open.pop()[1].end()
        self._end()

    def __enter__(self) -> Self:
        return self.attach()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()

    def report(self) -> dict[str, Any]:
        """Each phase at its highest, the highest of them, and the modules by what they keep for backward."""
        phases = {name: dict(phase) for name, phase in self._phases.items()}
        highest = max(phases, key=lambda name: int(phases[name]["peak_bytes"]), default=None)
        modules = sorted(self._modules.values(), key=lambda row: row["kept_bytes"], reverse=True)
        return {
            "peak": None if highest is None else {"phase": highest, **phases[highest]},
            "phases": phases,
            "modules": [dict(row) for row in modules],
        }

    # Phases

    def _forward_begins(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._is_elsewhere() or self._phase == FORWARD:
            return  # a model inside itself, as checkpointing calls it again in backward
        self._next(FORWARD)
        torch = _torch("ModuleMemory")
        self._inputs = _bytes(tensors_in(torch, [list(args), dict(kwargs)]), self._meter)

    def _forward_ends(self, module: Any, args: Any, output: Any) -> None:
        if not self._is_elsewhere() and self._phase == FORWARD:
            self._next(BACKWARD if _torch("ModuleMemory").is_grad_enabled() else BETWEEN)

    def _next(self, name: str) -> None:
        if self._is_elsewhere():
            return
        self._end()
        self._begin(name)

    def _begin(self, name: str) -> None:
        self._phase = name
        self._before = self._meter.read().allocated
        self._stretch = self._meter.begin()

    def _end(self) -> None:
        stretch, self._stretch = self._stretch, None
        if stretch is None:
            return
        highest, held = end_stretch(stretch, self._meter)
        peak, after = highest.allocated, held.allocated
        if self._phase == FORWARD:
            self._kept = max(after - self._before, 0)
        known = self._phases.get(self._phase)
        steps = 1 if known is None else known["times"] + 1
        if known is None or peak > known["peak_bytes"]:
            known = {"peak_bytes": peak, "categories": self._categories(peak)}
        self._phases[self._phase] = {**known, "times": steps, "end_bytes": after}

    def _categories(self, peak: int) -> dict[str, int]:
        """The parts of a peak. What no module owns is temporary while it lasts, other where it was before."""
        held = self._held()
        parts = dict(held._asdict())
        left = max(peak - held.total(), 0)

        def take(name: str, size: int) -> None:
            nonlocal left
            parts[name] = min(max(size, 0), left)
            left -= parts[name]

        take("inputs", self._inputs)
        if self._phase == FORWARD:
            take("activations", self._kept)
            take("other", self._before - held.total() - self._inputs)
            take("temporaries", left)
        elif self._phase == BACKWARD:
            # Which activations were gone when it was highest the counters do not say.
            take("activations_and_temporaries", left)
        elif self._phase == STEP:
            take("other", self._before - held.total() - self._inputs)
            take("temporaries", left)
        else:
            take("other", left)
        # Owners may hold less than the sum where gradients came after the peak.
        over = sum(parts.values()) - peak
        if over > 0:
            parts["gradients"] = max(parts["gradients"] - over, 0)
        return {name: size for name, size in parts.items() if size}

    def _held(self) -> _Held:
        torch = _torch("ModuleMemory")
        parameters = list(self._model.parameters())
        state = getattr(self._optimizer, "state", {})
        return _Held(
            _bytes(parameters, self._meter),
            _bytes(self._model.buffers(), self._meter),
            _bytes((one.grad for one in parameters if one.grad is not None), self._meter),
            _bytes(tensors_in(torch, state.values()), self._meter),
        )

    # Modules

    def _entering(self, name: str) -> Any:
        def hook(module: Any, args: Any) -> None:
            if not self._is_elsewhere() and len(self._open) < _MAX_DEPTH:
                self._open.append((name, self._meter.begin(), self._meter.read().allocated))

        return hook

    def _leaving(self, name: str, owner: Any) -> Any:
        kind = type(owner).__name__
        own = _bytes(owner.parameters(), self._meter)

        def hook(module: Any, args: Any, output: Any) -> None:
            if self._is_elsewhere() or not any(entered[0] == name for entered in self._open):
                return
            while self._open:
                entered, stretch, before = self._open.pop()
                highest, held = end_stretch(stretch, self._meter)
                peak, after = highest.allocated, held.allocated
                if entered == name:
                    break
            row = self._modules.setdefault(
                name,
                {
                    "name": name,
                    "type": kind,
                    "parameter_bytes": own,
                    "calls": 0,
                    "kept_bytes": 0,
                    "peak_bytes": 0,
                    "temporary_bytes": 0,
                },
            )
            row["calls"] += 1
            row["kept_bytes"] = max(row["kept_bytes"], after - before)
            row["peak_bytes"] = max(row["peak_bytes"], peak)
            row["temporary_bytes"] = max(row["temporary_bytes"], peak - max(after, before))

        return hook

    def _is_elsewhere(self) -> bool:
        return threading.get_ident() != self._thread


def _bytes(tensors: Iterable[Any], meter: Meter) -> int:
    """Of their storages on the device, each once."""
    return sum(dict(_storages(tensors, meter)).values())


def _storages(tensors: Iterable[Any], meter: Meter) -> Iterator[tuple[int, int]]:
    for tensor in tensors:
        if str(tensor.device) == str(meter.device):
            storage = tensor.untyped_storage()
            yield int(storage.data_ptr()), int(storage.nbytes())
