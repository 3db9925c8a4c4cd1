"""The GPU programs of `exact.py`: `python exact_cases.py CASE DIRECTORY`.

Each process that uses CUDA ends in `finish`: it writes what PyTorch's allocator counted to DIRECTORY/PID.json
and is gone at once, by SIGKILL or `_exit`, so that nothing is freed between the count and the end. Needs
nothing but torch.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

COUNTERS = (
    "allocation.all.allocated",
    "allocated_bytes.all.allocated",
    "allocated_bytes.all.current",
    "allocated_bytes.all.peak",
    "reserved_bytes.all.peak",
    "num_ooms",
    "num_alloc_retries",
)
MB = 1 << 20
PLUGGABLE = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/types.h>
static void* runtime(const char* name) { return dlsym(dlopen(getenv("EXACT_CUDART"), RTLD_NOW), name); }
void* take(ssize_t size, int device, void* stream) {
    void* found = NULL;
    ((int (*)(void**, size_t))runtime("cudaMalloc"))(&found, size);
    return found;
}
void give(void* block, ssize_t size, int device, void* stream) {
    ((int (*)(void*))runtime("cudaFree"))(block);
}
"""


def finish(directory: Path, notes: dict[str, Any], kill: bool) -> None:
    """Write the allocator's counters and end without freeing anything."""
    gc.collect()
    gc.disable()
    torch.cuda.synchronize()
    try:
        counted = torch.cuda.memory_stats()
    except RuntimeError as error:  # an allocator that counts nothing
        counted, notes = {}, {**notes, "no_statistics": str(error).splitlines()[0]}
    page = {name: counted.get(name) for name in COUNTERS}
    page |= {"pid": os.getpid(), "torch": torch.__version__, "notes": notes}
    with (directory / f"{os.getpid()}.json").open("w", encoding="utf-8") as file:
        json.dump(page, file)
        file.flush()
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)


def model(width: int = 1024, layers: int = 4) -> torch.nn.Sequential:
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)]
    return torch.nn.Sequential(*parts, torch.nn.Linear(width, 10)).cuda()


def steps(network: Callable[..., Any], optimizer: Any, count: int, batch: int = 256) -> None:
    for step in range(count):
        data = torch.randn(batch + step, 1024, device="cuda")
        loss = network(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def train() -> dict[str, Any]:
    KEPT.append(network := model())
    KEPT.append(optimizer := torch.optim.Adam(network.parameters()))
    steps(network, optimizer, 40)
    return {}


def amp() -> dict[str, Any]:
    KEPT.append(network := model())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for step in range(40):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = network(torch.randn(128 + step, 1024, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    KEPT.append(optimizer)
    return {}


def streams() -> dict[str, Any]:
    KEPT.append(network := model())
    side = [torch.cuda.Stream() for _ in range(3)]
    for step in range(60):
        data = torch.randn(256 + step, 1024, device="cuda")
        stream = side[step % len(side)]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            result = network(data)
            data.record_stream(stream)
        result.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(stream)
        if step % 20 == 0:
            KEPT.append(result.detach())
        del data, result
    return {}


def graphs() -> dict[str, Any]:
    KEPT.append(network := model())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        steps(network, optimizer, 3)
    torch.cuda.current_stream().wait_stream(warm)
    pool = torch.cuda.graph_pool_handle()
    for size in (64, 128, 256):
        graph, data = torch.cuda.CUDAGraph(), torch.randn(size, 1024, device="cuda")
        with torch.cuda.graph(graph, pool=pool):
            result = network(data).square()
        graph.replay()
        KEPT.append((graph, data, result))
    sample = torch.randn(32, 1024, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model(layers=2), (sample,))
    for _ in range(5):
        graphed(torch.randn(32, 1024, device="cuda", requires_grad=True)).sum().backward()
    KEPT.append(graphed)
    return {}


def mempool() -> dict[str, Any]:
    KEPT.append(pool := torch.cuda.MemPool())
    for size in range(1, 30):
        with torch.cuda.use_mem_pool(pool):
            inside = torch.empty(size * MB // 4, device="cuda")
        outside = torch.empty(size * MB // 8, device="cuda")
        if size % 10 == 0:
            KEPT.extend((inside, outside))
    return {}


def oom() -> dict[str, Any]:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(1024 * MB / total)
    caught = 0
    for attempt in range(3):
        held: list[torch.Tensor] = []
        try:
            while True:
                held.append(torch.empty((40 + attempt) * MB // 4, device="cuda"))
        except torch.OutOfMemoryError:
            caught += 1
            del held[len(held) // 2 :]
        KEPT.append(held.pop())
        # The halves that are cached do not fit: PyTorch frees them and tries again.
        KEPT.append(torch.empty(300 * MB // 4, device="cuda"))
        del held
        KEPT.pop()
        # Else the next round cuts the large block into pieces that cannot be given back.
        torch.cuda.empty_cache()
    KEPT.append(network := model())
    steps(network, torch.optim.SGD(network.parameters(), lr=0.01), 5)
    return {"caught": caught}


def compiled() -> dict[str, Any]:
    backend = "inductor" if shutil.which("cc") or shutil.which("gcc") else "aot_eager"
    KEPT.append(network := model(layers=2))
    try:
        steps(torch.compile(network, backend=backend, dynamic=False), NoOptimizer(), 1)
    except Exception as error:  # a machine whose compiler does not work
        backend = f"aot_eager, for inductor failed: {type(error).__name__}"
        torch._dynamo.reset()
    fast = torch.compile(network, backend=backend.partition(",")[0], dynamic=True)
    KEPT.append(optimizer := torch.optim.Adam(network.parameters()))
    steps(fast, optimizer, 8)
    return {"backend": backend}


class NoOptimizer:
    def step(self) -> None: ...

    def zero_grad(self) -> None: ...


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 512

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1024,), float(index))


def loader() -> dict[str, Any]:
    # CUDA is in use before the workers are forked.
    KEPT.append(network := model())
    KEPT.append(optimizer := torch.optim.Adam(network.parameters()))
    batches = torch.utils.data.DataLoader(Rows(), batch_size=32, num_workers=3, pin_memory=True)
    for _ in range(2):
        for batch in batches:
            loss = network(batch.to("cuda", non_blocking=True)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return {}


def ipc() -> dict[str, Any]:
    import torch.multiprocessing as processes

    context = processes.get_context("spawn")
    there, back = context.Queue(), context.Queue()
    child = context.Process(target=ipc_child, args=(there, back, sys.argv[2]))
    child.start()
    KEPT.extend(torch.full((4 * MB,), float(number), device="cuda") for number in range(4))
    for tensor in KEPT:
        there.put(tensor)
    there.put(None)
    KEPT.append(sums := back.get())
    child.join()
    return {"sums": sums, "child": child.exitcode}


def ipc_child(there: Any, back: Any, directory: str) -> None:
    shared: list[torch.Tensor] = []
    while (tensor := there.get()) is not None:
        shared.append(tensor)
    own = [tensor.square() for tensor in shared]
    back.put([float(tensor.mean()) for tensor in own])
    back.close()
    back.join_thread()
    finish(Path(directory), {"role": "receiver"}, kill=False)


def empty_cache() -> dict[str, Any]:
    for number in range(20):
        blocks = [torch.empty(number * MB + size * 4096 + 1, device="cuda") for size in range(10)]
        KEPT.append(blocks[number % 10][:1].clone())
        del blocks
        torch.cuda.empty_cache()
    return {}


def threads() -> dict[str, Any]:
    def work(number: int) -> None:
        network = model(layers=2)
        with torch.cuda.stream(torch.cuda.Stream()):
            steps(network, torch.optim.Adam(network.parameters()), 15, batch=64 * (number + 1))
        KEPT.append(network)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {}


def checkpoint() -> dict[str, Any]:
    from torch.utils.checkpoint import checkpoint_sequential

    KEPT.append(network := model(layers=8))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    for step in range(10):
        data = torch.randn(256, 1024, device="cuda", requires_grad=True)
        loss = checkpoint_sequential(network, 4, data, use_reentrant=step % 2 == 0).square().mean()
        if step % 2:
            KEPT.extend(torch.autograd.grad(loss, data, retain_graph=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {}


def pluggable() -> dict[str, Any]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    maps = Path("/proc/self/maps").read_text()
    runtime = next((line.split()[-1] for line in maps.splitlines() if "libcudart" in line), None)
    if compiler is None or runtime is None:
        return {"skipped": "needs a C compiler and libcudart as a file"}
    source, library = Path(sys.argv[2]) / "plug.c", Path(sys.argv[2]) / "plug.so"
    source.write_text(PLUGGABLE)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    os.environ["EXACT_CUDART"] = runtime
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(library), "take", "give")
    torch.cuda.memory.change_current_allocator(allocator)
    KEPT.append(network := model(layers=2))
    steps(network, torch.optim.SGD(network.parameters(), lr=0.01), 5)
    return {}


KEPT: list[Any] = []
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "train": train,
    "amp": amp,
    "streams": streams,
    "graphs": graphs,
    "expandable": train,
    "settings": train,
    "mempool": mempool,
    "oom": oom,
    "compile": compiled,
    "loader": loader,
    "ipc": ipc,
    "empty_cache": empty_cache,
    "threads": threads,
    "checkpoint": checkpoint,
    "async": train,
    "pluggable": pluggable,
}

if __name__ == "__main__":
    finish(Path(sys.argv[2]), CASES[sys.argv[1]](), kill=os.environ.get("EXACT_END") != "exit")
