"""A serving program with the real PyTorch on the CPU: snapshots by component, names of components, steps."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

STORMLOG = [sys.executable, "-m", "stormlog"]
PROGRAM = Path(__file__).parents[1] / "programs" / "serves_a_model.py"


def snapshot(*words: str) -> Any:
    done = subprocess.run(
        [*STORMLOG, "snapshot", *words, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_server_reports_weights_and_cache_to_the_byte_while_it_answers(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "--quiet", "--die-with-supervisor", "--dir", str(tmp_path)]
    server = subprocess.Popen([*words, sys.executable, str(PROGRAM)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        facts = json.loads(server.stdout.readline())
        url = f"http://127.0.0.1:{facts['port']}/generate?tokens=4"
        urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=60).read()
        found = snapshot("--pid", str(facts["pid"]))
        assert found["is_by_process"] and not [note for note in found["notes"] if "components" in note]
        parts = {row["component"]: row["bytes"] for row in found["components"] if row["memory"] == "host"}
        assert (parts["weights"], parts["kv_cache"]) == (facts["weights"], facts["kv_cache"])
        own = [row["function"] for row in found["holders"] if row["file"] == str(PROGRAM)]
        assert any("PagedCache" in function for function in own), found["holders"]
    finally:
        server.kill()
        server.communicate()


INSIDE = """
import json, torch, stormlog
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1000))
        self.register_buffer("k_cache", torch.ones(2000))

class CacheEngine:
    def __init__(self):
        self.gpu = [(torch.ones(3000), torch.ones(3000)) for _ in range(2)]

class Keeper:
    __slots__ = ("adapters",)

model, engine, keeper = Attention(), CacheEngine(), Keeper()
keeper.adapters = stormlog.component("lora", [torch.ones(500)])
past_key_values = tuple((torch.ones(700), torch.ones(700)) for _ in range(3))
workspace = torch.ones(1234)
plain = torch.ones(77)
result = torch.ones(55)
seen = {}

class Looks(nn.Module):
    def forward(self, x):
        hidden = [torch.zeros(4321)]
        hidden.append(hidden)
        seen.update({(row.memory, row.component): row.bytes for row in stormlog.snapshot().components})
        return hidden

with torch.no_grad():
    Looks()(plain)
stormlog.component("weights", plain)
after = {row.component: row.bytes for row in stormlog.snapshot().components}
try:
    stormlog.component("x", object())
except TypeError as error:
    wrong = str(error)
print(json.dumps([{component: size for (_, component), size in seen.items()}, after, wrong]))
"""


def test_components_are_known_by_name_class_and_use(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INSIDE], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    seen, after, wrong = json.loads(done.stdout)
    assert seen["weights"] == 4000
    assert seen["kv_cache"] == 4 * (2000 + 4 * 3000 + 6 * 700)
    assert seen["workspaces"] == 4 * 1234 and seen["lora"] == 4 * 500
    assert seen["activations"] == 4 * (4321 + 77), "what the running module holds, its input included"
    assert seen["other"] == 4 * 55, "what it does not hold"
    assert after["weights"] == 4 * (1000 + 77) and "activations" not in after
    assert "not a tensor" in wrong


FROZEN = """
import gc, json, stormlog, torch

class Engine:
    def __init__(self):
        self.model = torch.nn.Linear(10, 100)
        self.kv_cache = [torch.ones(1000) for _ in range(3)]

engine = Engine()
engine.model(torch.ones(10)).sum().backward()
gc.collect()
gc.freeze()
parts = {row.component: row.bytes for row in stormlog.snapshot().components}
print(json.dumps([parts, gc.get_freeze_count()]))
"""


def test_model_that_was_loaded_before_gc_freeze_is_seen_and_stays_frozen(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROZEN], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    parts, frozen = json.loads(done.stdout)
    assert frozen > 0, "the program's own setting"
    assert (parts["weights"], parts["kv_cache"]) == (4 * (1000 + 100), 4 * 3 * 1000)
    assert parts["gradients"] == parts["weights"], "no code of Python's had asked for them"


def test_names_are_searched_without_a_call_that_stops_other_threads() -> None:
    """`gc.get_referrers` takes seconds for a thousand tensors in a large program, in one call."""
    import gc

    import torch
    from stormlog._torch import components

    engine = {"kv_cache": [torch.ones(8) for _ in range(4)]}

    def refuses(*_: Any) -> Any:
        raise AssertionError("gc.get_referrers was called")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gc, "get_referrers", refuses)
        _, words = components.storages(torch)
    assert {words[tensor.untyped_storage().data_ptr()] for tensor in engine["kv_cache"]} == {"kv_cache"}


TRAINS = """
import os, sys, time, torch
from pathlib import Path
weight = torch.nn.Parameter(torch.ones(10))
optimizer = torch.optim.SGD([weight], lr=0.1)
def step():
    weight.grad = torch.ones(10)
    optimizer.step()
for _ in range(3):
    step()
print("ready", flush=True)
requests = Path(os.environ["STORMLOG_RUN_DIR"]) / "requests"
while not list(requests.glob(f"{os.getpid()}-*.answer.json")):
    time.sleep(0.01)
for _ in range(int(sys.argv[1])):
    step()
time.sleep(600)
"""


def test_steps_of_an_optimizer_are_waited_for(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINS)
    words = [*STORMLOG, "run", "--quiet", "--die-with-supervisor", "--dir", str(tmp_path / "runs")]
    programs = [
        subprocess.Popen([*words, sys.executable, str(script), steps], stdout=subprocess.PIPE, text=True)
        for steps in ("20", "200")
    ]
    try:
        for program in programs:
            assert program.stdout is not None and program.stdout.readline() == "ready\n"
        words = ["trigger", str(tmp_path / "runs"), "--snapshot", "--at-step", "12", "--timeout", "100"]
        done = subprocess.run([*STORMLOG, *words, "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        rows = json.loads(done.stdout)["processes"]
        assert [(row["state"], row["step"]) for row in rows] == [("recorded", 12)] * 2
        written = json.loads((Path(rows[0]["path"]) / "snapshot.json").read_text())
        parts = {row["component"]: row["bytes"] for row in written["components"]}
        assert parts["weights"] == 40 and parts["gradients"] == 40
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    assert Path(rows[0]["path"]).is_dir()
