"""With a CUDA GPU: what `stormlog stats` says GPU memory is for, beside what live objects account for.

    python tests/gpu/categories.py --stormlog PATH [MODEL...] [--run-option=--heap] [--json FILE]

Trains three models for some steps, each under `stormlog run`, and stops each in the middle of a step:
gradients, optimizer state, a batch and the activations of a forward pass are there. Needs nothing but torch
and the command. Exits with 1 when a category differs by more than 5 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

MODELS = ("perceptron", "convolution", "transformer")
CATEGORIES = ("parameters", "gradients", "optimizer_state", "activations", "data")
MOST_APART = 0.05
#: Steps before the one that is stopped; the growing program keeps something in each.
STEPS = 4
GROWING_STEPS = 40
GROWTH = 8 << 20


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


# The programs.


def perceptron(torch: Any) -> tuple[Any, Any, Any, Any, bool]:
    layers = [torch.nn.Linear(4096, 4096), torch.nn.ReLU(), torch.nn.Dropout(0.1)]
    layers += [torch.nn.Linear(4096, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 1024)]
    model = torch.nn.Sequential(*layers).cuda()
    x, y = torch.randn(2048, 4096, device="cuda"), torch.randint(0, 1024, (2048,), device="cuda")
    return model, torch.optim.Adam(model.parameters()), x, y, False


def convolution(torch: Any) -> tuple[Any, Any, Any, Any, bool]:
    def block(inputs: int, outputs: int) -> list[Any]:
        return [
            torch.nn.Conv2d(inputs, outputs, 3, padding=1),
            torch.nn.BatchNorm2d(outputs),
            torch.nn.ReLU(inplace=True),
            torch.nn.MaxPool2d(2),
        ]

    head = [torch.nn.Flatten(), torch.nn.Linear(512 * 14 * 14, 512), torch.nn.Linear(512, 1000)]
    model = torch.nn.Sequential(*block(3, 64), *block(64, 128), *block(128, 256), *block(256, 512), *head)
    model = model.to("cuda")
    x, y = torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (32,), device="cuda")
    return model, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), x, y, False


def transformer(torch: Any) -> tuple[Any, Any, Any, Any, bool]:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(32000, 768)
            layer = torch.nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, norm_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
            self.head = torch.nn.Linear(768, 32000)

        def forward(self, x: Any) -> Any:
            return self.head(self.layers(self.words(x))).flatten(0, 1)

    with torch.device("cuda"):
        model = Model()
    x, y = (torch.randint(0, 32000, (8, 512), device="cuda") for _ in range(2))
    return model, torch.optim.AdamW(model.parameters()), x, y.flatten(), True


def tensors_of_graph(torch: Any, root: Any) -> Iterator[Any]:
    """The tensors that a result keeps for its backward pass."""
    waiting, seen = [root.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [after for after, _ in node.next_functions]
        for name in dir(node):
            if name.startswith("_saved_") and not name.endswith("_self_saved"):
                try:
                    found = getattr(node, name)
                except RuntimeError:
                    continue
                yield from (
                    one for one in (found if isinstance(found, tuple) else (found,)) if torch.is_tensor(one)
                )


def count(torch: Any, groups: dict[str, Iterable[Any]]) -> dict[str, int]:
    """Bytes of storages on the GPU, each in the first group that has it, as the allocator rounds them."""
    seen: set[int] = set()
    sums = {}
    for name, tensors in groups.items():
        total = 0
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if tensor.is_cuda and storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                total += -(-storage.nbytes() // 512) * 512
        sums[name] = total
    return sums


def program(name: str, output: Path) -> None:
    torch: Any = import_module("torch")
    if name == "growing":
        return grow(torch)
    model, optimizer, x, y, is_mixed = globals()[name](torch)
    criterion = torch.nn.CrossEntropyLoss()

    def forward() -> tuple[Any, Any]:
        with torch.autocast("cuda", torch.bfloat16, enabled=is_mixed):
            result = model(x)
            return result, criterion(result, y)

    for _ in range(STEPS):
        optimizer.zero_grad()
        result, loss = forward()
        loss.backward()
        optimizer.step()
    del result, loss
    result, loss = forward()
    torch.cuda.synchronize()
    state = [one for entry in optimizer.state.values() for one in entry.values() if torch.is_tensor(one)]
    groups: dict[str, Iterable[Any]] = {
        "parameters": [*model.parameters(), *model.buffers()],
        "gradients": [one.grad for one in model.parameters() if one.grad is not None],
        "optimizer_state": state,
        "data": [x, y],
        "activations": [result, loss, *tensors_of_graph(torch, loss)],
    }
    found = {**count(torch, groups), "allocated": torch.cuda.memory_allocated()}
    output.write_text(json.dumps(found), encoding="utf-8")
    os._exit(0)


def grow(torch: Any) -> None:
    model, optimizer, x, y, _ = perceptron(torch)
    kept = []
    for _ in range(GROWING_STEPS):
        optimizer.zero_grad()
        result = model(x)
        torch.nn.functional.cross_entropy(result, y).backward()
        optimizer.step()
        kept.append(torch.empty(GROWTH, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    os._exit(0)


# The comparison.


def recorded(options: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """The figures of `cuda:0` of one program."""
    words = [options.stormlog, "run", "-q", "--dir", str(folder / "runs"), *options.run_option, "--"]
    words += [sys.executable, __file__, "--program", name, "--json", str(folder / "counted.json")]
    subprocess.run(words, check=True, timeout=options.timeout)
    (run,) = [path.parent for path in (folder / "runs").glob("*/run.json")]
    done = subprocess.run(
        [options.stormlog, "stats", str(run), "--json"], capture_output=True, text=True, check=True
    )
    devices = {row["device"]: row for row in json.loads(done.stdout)["devices"]}
    found: dict[str, Any] = devices["cuda:0"]
    return found


def compare(options: argparse.Namespace, name: str, folder: Path) -> list[str]:
    found = recorded(options, name, folder)
    counted = json.loads((folder / "counted.json").read_text(encoding="utf-8"))
    ours = {category: row["bytes"] for category, row in found["categories"].items()}
    ours["data"] = ours.get("data", 0) + ours.pop("inputs", 0)
    say(f"{name}: allocated {counted['allocated']}, live {found['live_bytes']}, steps {found['steps']}")
    wrong = []
    for category in CATEGORIES:
        wanted, got = counted[category], ours.get(category, 0)
        apart = abs(got - wanted) / max(wanted, 1)
        say(f"  {category:<16} live objects {wanted:>12}   stormlog {got:>12}   {apart:.2%}")
        if apart > MOST_APART:
            wrong.append(f"{name}: {category} {got} bytes, live objects {wanted} ({apart:.1%})")
    for category in sorted(set(ours) - set(CATEGORIES)):
        say(f"  {category:<16} {'':>25}   stormlog {ours[category]:>12}")
    if sum(ours.values()) != found["live_bytes"]:
        wrong.append(f"{name}: the categories add up to {sum(ours.values())}, not to {found['live_bytes']}")
    return wrong


def compare_growth(options: argparse.Namespace, folder: Path) -> list[str]:
    found = recorded(options, "growing", folder)
    keys = ("steps", "growth_bytes_per_step", "steps_to_oom", "peak_bytes")
    say(f"growing: { {key: found[key] for key in keys} }")
    wrong = []
    if found["steps"] != GROWING_STEPS:
        wrong.append(f"growing: {found['steps']} steps, not {GROWING_STEPS}")
    growth = found["growth_bytes_per_step"] or 0
    if abs(growth - GROWTH) > MOST_APART * GROWTH:
        wrong.append(f"growing: {growth} bytes a step, not {GROWTH}")
    if not found["steps_to_oom"]:
        wrong.append("growing: no steps_to_oom")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=[*MODELS, "growing"])
    parser.add_argument("--stormlog", default="stormlog")
    parser.add_argument("--run-option", action="append", default=[])
    parser.add_argument("--timeout", type=float, default=120)
    parser.add_argument("--program", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.program:
        program(options.program, options.json)
        return 0
    wrong = []
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            is_growing = name == "growing"
            wrong += compare_growth(options, place) if is_growing else compare(options, name, place)
    for problem in wrong:
        say(f"DIFFERS {problem}")
    if options.json:
        options.json.write_text(json.dumps(wrong), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
