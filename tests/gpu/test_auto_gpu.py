"""`stormlog run` and `stormlog.auto` on a real CUDA device: programs that run out of memory, what is left.

Every program is a process of its own. Without pytest: `python tests/gpu/plain.py tests/gpu/test_auto_gpu.py`.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

MB = 1 << 20
STORMLOG = [sys.executable, "-m", "stormlog"]
# A limit of 1 GiB that is PyTorch's own, so that running out affects no other process.
LIMITED = """
import gc, os, signal, sys, threading, time, torch
MB = 1 << 20
def limit(megabytes):
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(megabytes * MB / total)
def block(megabytes):
    return torch.empty(megabytes * MB, dtype=torch.uint8, device="cuda")
def load_cache():
    return block(600)
limit(1024)
"""


def run(folder: Path, source: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    program = folder / "program.py"
    program.write_text(source, encoding="utf-8")
    words = [*STORMLOG, "run", "--dir", str(folder / "runs"), "--interval", "0.02", *options, "--"]
    return subprocess.run(
        [*words, sys.executable, str(program)],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=60,
    )


def stormlog(*words: str) -> str:
    done = subprocess.run([*STORMLOG, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def own_bundles(folder: Path) -> list[Path]:
    rows = json.loads(stormlog("oom", "list", str(folder / "runs"), "--json"))
    return [Path(row["path"]) for row in rows if row["backend"] == "cuda"]


def page(bundle: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bundle / "cuda_oom.json").read_text())
    return found


def test_a_forced_oom_leaves_its_evidence(tmp_path: Path) -> None:
    source = LIMITED + (
        "layer = torch.nn.Linear(4096, 4096, device='cuda')\n"
        "layer(torch.randn(64, 4096, device='cuda')).sum().backward()\n"
        "held = load_cache()\n"
        "time.sleep(0.5)\n"
        "block(800)\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr, done.stderr
    (bundle,) = own_bundles(tmp_path)
    found = page(bundle)
    assert found["problems"] == [], found["problems"]
    assert found["requested_bytes"] == 800 * MB, found["requested_bytes"]
    assert found["largest_usable_block_bytes"] < 800 * MB
    categories = {name: part["bytes"] for name, part in found["categories"].items()}
    assert categories["data"] >= 600 * MB, categories
    assert categories["parameters"] >= 4096 * 4096 * 4, categories
    assert categories["gradients"] >= 4096 * 4096 * 4, categories
    assert sum(categories.values()) == found["allocated_bytes"]
    assert found["allocator_backend"] == "native"
    assert found["allocator_settings"]["expandable_segments"] is False
    assert "program.py:8 block" in found["held_by"][0]["place"], found["held_by"]
    assert "program.py:10 load_cache" in found["held_by"][0]["note"], found["held_by"]
    assert (found["step"], found["phase"]) == (None, None), "nothing is trained"
    assert found["device_free_bytes"] is not None and found["device_total_bytes"] > 1 << 30
    with (bundle / "cuda_allocator_snapshot.pickle").open("rb") as file:
        snapshot = pickle.load(file)
    assert snapshot["device_traces"][0][-1]["action"] == "oom"
    assert any(entry.get("frames") for entry in snapshot["device_traces"][0]), "with stacks"
    shown = stormlog("oom", "show", str(tmp_path / "runs"))
    head = "\n".join(shown.splitlines()[:8])
    assert "a request for 800.0 MiB" in head and "program.py:8 block · kept by `held`" in head, shown
    sys.stdout.write(f"{shown}categories: {categories}\nhidden: {found['hidden_memory']}\n")
    sys.stdout.write(f"the bundle took {found['seconds_to_write']} s\n")


def test_the_environment_is_not_believed(tmp_path: Path) -> None:
    done = run(tmp_path, LIMITED + "block(2048)\n", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert done.returncode == 1
    assert page(own_bundles(tmp_path)[0])["allocator_settings"]["expandable_segments"] is True


def test_another_allocator_is_sampled_and_its_error_kept(tmp_path: Path) -> None:
    source = LIMITED + (
        "layer = torch.nn.Linear(4096, 4096, device='cuda')\n"
        "layer(torch.randn(64, 4096, device='cuda')).sum().backward()\n"
        "held = load_cache()\n"
        "time.sleep(0.5)\n"
        "block(800)\n"
    )
    done = run(tmp_path, source, PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr, done.stderr
    (bundle,) = own_bundles(tmp_path)
    found = page(bundle)
    assert found["allocator_backend"] == "cudaMallocAsync"
    assert [problem.split(":")[0] for problem in found["problems"]] == ["snapshot"], "it has none to show"
    categories = {name: part["bytes"] for name, part in found["categories"].items()}
    assert categories["data"] >= 600 * MB and categories["parameters"] >= 4096 * 4096 * 4, categories
    assert sum(categories.values()) == found["allocated_bytes"]
    assert found["held_by"][0]["place"] == "held" and any("program.py" in line for line in found["stack"])
    exported = tmp_path / "events.jsonl"
    stormlog("convert", str(tmp_path / "runs"), str(exported))
    events = [json.loads(line) for line in exported.read_text().splitlines()]
    sampled = [row["allocator_allocated_bytes"] for row in events if row["event_type"] == "sample"]
    assert any(size is not None and size >= 600 * MB for size in sampled), "it is sampled all the same"
    sys.stdout.write(f"{found['verdict']}\n")


def test_memory_is_freed_when_the_error_is_caught(tmp_path: Path) -> None:
    source = LIMITED + (
        "gc.disable()\n"
        "def step():\n"
        "    held = [block(100) for _ in range(5)]\n"
        "    block(900)\n"
        "for _ in range(3):\n"
        "    try:\n"
        "        step()\n"
        "    except torch.OutOfMemoryError:\n"
        "        pass\n"
        "    print(torch.cuda.memory_allocated())\n"
        "print(block(900).numel(), 'torch._inductor' in sys.modules)\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "0", "0", str(900 * MB), "False"], done.stdout
    assert len(own_bundles(tmp_path)) == 3


def test_a_kill_a_moment_after_costs_nothing(tmp_path: Path) -> None:
    source = LIMITED + (
        "held = load_cache()\n"
        "try:\n"
        "    block(800)\n"
        "except torch.OutOfMemoryError:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == -9
    (bundle,) = own_bundles(tmp_path)
    assert page(bundle)["requested_bytes"] == 800 * MB
    shown = stormlog("oom", "show", str(tmp_path / "runs"))
    assert "800.0 MiB" in shown, shown


def test_backward_and_threads_run_out_without_a_deadlock(tmp_path: Path) -> None:
    source = LIMITED + (
        "def backward():\n"
        "    x = torch.ones(100 * MB // 4, device='cuda', requires_grad=True)\n"
        "    y = x\n"
        "    for _ in range(4):\n"
        "        y = y * y.detach()\n"
        "    limit(torch.cuda.memory_reserved() // MB + 50)\n"
        "    try:\n"
        "        y.sum().backward()\n"
        "    except torch.OutOfMemoryError:\n"
        "        print('backward')\n"
        "backward()\n"
        "limit(1024)\n"
        "def thread():\n"
        "    try:\n"
        "        block(2000)\n"
        "    except torch.OutOfMemoryError:\n"
        "        sys.stdout.write('thread\\n')\n"
        "threads = [threading.Thread(target=thread) for _ in range(8)]\n"
        "[one.start() for one in threads]\n"
        "[one.join() for one in threads]\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    words = done.stdout.split()
    assert words.count("thread") == 8 and words.count("backward") == 1, done.stdout
    found = {page(bundle)["phase"]: page(bundle)["stack"] for bundle in own_bundles(tmp_path)}
    assert any("program.py" in line for line in found["backward"]), found


def test_step_and_phase_are_reported(tmp_path: Path) -> None:
    source = LIMITED + (
        "model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(1, 1205):\n"
        "    rows = 64 if step < 1204 else 1 << 18\n"
        "    model(torch.ones(rows, 1024, device='cuda', dtype=torch.uint8).float()).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    done = run(tmp_path, source.replace("limit(1024)", "limit(1536)"))
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr, done.stderr
    (bundle,) = own_bundles(tmp_path)
    shown = stormlog("oom", "show", str(tmp_path / "runs"))
    headline = shown.splitlines()[0]
    assert headline.endswith(": CUDA out of memory at step 1 204 in forward on GPU 0."), shown
    assert page(bundle)["step"] == 1204
    sys.stdout.write(shown)


def test_the_users_history_and_observer_go_on(tmp_path: Path) -> None:
    source = LIMITED + (
        "torch.cuda.memory._record_memory_history(max_entries=50, stacks='python')\n"
        "torch._C._cuda_attach_out_of_memory_observer(lambda *facts: print('mine', flush=True))\n"
        "kept = [block(2) for _ in range(200)]\n"
        "try:\n"
        "    block(2000)\n"
        "except torch.OutOfMemoryError:\n"
        "    pass\n"
        "print(len(torch.cuda.memory._snapshot()['device_traces'][0]))\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    said, count = done.stdout.split()
    assert said == "mine" and 0 < int(count) <= 50, done.stdout
    assert own_bundles(tmp_path)


def test_samples_are_the_allocators_and_the_drivers(tmp_path: Path) -> None:
    source = LIMITED + "held = load_cache()\ntime.sleep(1.5)\n"
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    rows = json.loads(stormlog("sessions", str(tmp_path / "runs"), "--json"))
    exported = tmp_path / "events.jsonl"
    stormlog("convert", str(tmp_path / "runs"), str(exported))
    events = [json.loads(line) for line in exported.read_text().splitlines()]
    ours = [row for row in events if row["collector"] == "stormlog.cuda_tracker"]
    assert len(ours) >= 20, f"{len(ours)} samples in 1.5 s at 50 Hz"
    last = [row for row in ours if row["event_type"] == "sample"][-1]
    assert last["allocator_allocated_bytes"] == 600 * MB, last
    assert last["device_used_bytes"] > last["allocator_reserved_bytes"], "the context is there too"
    assert {row["device_id"] for row in events} >= {-1, 0} and len(rows) >= 2


def test_a_graph_is_captured_while_it_is_sampled(tmp_path: Path) -> None:
    source = LIMITED + (
        "static = block(16)\n"
        "for _ in range(20):\n"
        "    graph = torch.cuda.CUDAGraph()\n"
        "    with torch.cuda.graph(graph):\n"
        "        result = static + 1\n"
        "        time.sleep(0.05)\n"
        "    graph.replay()\n"
        "torch.cuda.synchronize()\n"
        "print('captured')\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == 0 and done.stdout.split() == ["captured"], done.stderr


def test_an_oom_of_cublas_is_seen(tmp_path: Path) -> None:
    source = LIMITED + (
        "torch.cuda.set_per_process_memory_fraction(1.0)\n"
        "a = torch.ones(64, 64, device='cuda')\n"
        "held = []\n"
        "for size in (4096, 512, 64, 16, 4, 2):\n"
        "    while True:\n"
        "        free = torch.cuda.mem_get_info()[0]\n"
        "        if free < size * MB:\n"
        "            break\n"
        "        try:\n"
        "            held.append(block(size))\n"
        "        except torch.OutOfMemoryError:\n"
        "            break\n"
        "a @ a\n"
    )
    done = run(tmp_path, source)
    if done.returncode == 0:
        sys.stdout.write("note: this driver still had room for cuBLAS\n")
        return
    assert own_bundles(tmp_path), done.stderr
    sys.stdout.write(done.stderr.strip().splitlines()[-1] + "\n")
    sys.stdout.write(page(own_bundles(tmp_path)[0])["verdict"] + "\n")


def test_of_two_ranks_the_one_that_dies_leaves_its_bundle(tmp_path: Path) -> None:
    source = LIMITED + (
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "held = block(100)\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1:\n"
        "    block(2000)\n"
        "time.sleep(30)\n"
    )
    program = tmp_path / "ranks.py"
    program.write_text(source, encoding="utf-8")
    words = [*STORMLOG, "run", "--dir", str(tmp_path / "runs"), "--", sys.executable, "-m"]
    words += ["torch.distributed.run", "--nproc-per-node", "2", str(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    (bundle,) = own_bundles(tmp_path)
    assert bundle.parent.name.startswith("rank1-"), bundle
    sampled = {path.name.split("-")[0] for path in (tmp_path / "runs").glob("*/rank*-cuda0")}
    assert sampled == {"rank0", "rank1"}, sampled


def test_hidden_memory_has_parts(tmp_path: Path) -> None:
    source = LIMITED + (
        "import json\n"
        "from stormlog import hidden_memory\n"
        "held = block(2); time.sleep(0.3)\n"
        "first = hidden_memory.report(0)\n"
        "a = torch.randn(512, 512, device='cuda'); a @ a; torch.cuda.synchronize(); time.sleep(0.3)\n"
        "second = hidden_memory.mark('first_gemm')\n"
        "third = None\n"
        "if torch.distributed.is_nccl_available():\n"
        "    os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT='29541', RANK='0', WORLD_SIZE='1')\n"
        "    torch.distributed.init_process_group('nccl')\n"
        "    torch.distributed.all_reduce(a); torch.cuda.synchronize()\n"
        "    third = hidden_memory.mark('nccl')\n"
        "    torch.distributed.destroy_process_group()\n"
        "print(json.dumps([first, second, third]))\n"
    )
    done = run(tmp_path, source)
    assert done.returncode == 0, done.stderr
    first, second, third = json.loads(done.stdout.strip().splitlines()[-1])
    sys.stdout.write(f"context: {first}\nfirst GEMM: {second['parts']}\nNCCL: {third and third['parts']}\n")
    assert first["hidden_bytes"] is not None, first
    assert 64 * MB < first["parts"]["context"] < 4096 * MB, first
    for found in filter(None, (first, second, third)):
        assert sum(found["parts"].values()) == found["hidden_bytes"], found


def test_stormlog_1_in_the_environment_is_enough(tmp_path: Path) -> None:
    source = LIMITED + "held = load_cache()\ntime.sleep(0.3)\nblock(800)\n"
    env = {**os.environ, "STORMLOG": "1", "STORMLOG_DIR": str(tmp_path / "runs")}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 1
    assert page(own_bundles(tmp_path)[0])["requested_bytes"] == 800 * MB


def test_auto_can_be_switched_off(tmp_path: Path) -> None:
    done = run(tmp_path, LIMITED + "block(2000)\n", "--no-torch")
    assert done.returncode == 1 and own_bundles(tmp_path) == []
