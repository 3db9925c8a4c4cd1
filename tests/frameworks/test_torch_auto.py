"""`stormlog.auto`, `STORMLOG=1` and `stormlog run` with the real PyTorch, on a machine without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

STORMLOG = [sys.executable, "-m", "stormlog"]
TELL = """
import json, sys, torch
auto = sys.modules.get("stormlog._torch.auto")
armed = auto is not None and auto.STATE.settings is not None
queued = [call for call, _ in torch.cuda._queued_calls if "stormlog" in getattr(call, "__module__", "")]
print(json.dumps({
    "armed": armed, "queued": len(queued), "loader": sorted(vars(torch.__spec__.loader)),
    "finders": [type(one).__name__ for one in sys.meta_path],
    "awaited": [getattr(one, "_name", None) for one in sys.meta_path],
    "initialized": torch.cuda.is_initialized(),
    "hook": sys.excepthook is sys.__excepthook__,
}))
"""


def printed(*words: str, **env: str) -> Any:
    done = subprocess.run(
        [*words], capture_output=True, text=True, env={**os.environ, **env}, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def check_armed(found: Any) -> None:
    assert found["armed"] and found["queued"] == 1
    assert found["loader"] == ["name", "path"], "nothing of ours is left on the module's loader"
    # What waits for other frameworks stays.
    assert "AfterFramework" not in found["finders"] and "torch" not in found["awaited"]
    assert not found["initialized"], "CUDA is not used by us"


# Libraries ask for the spec to see whether torch is there, and import it later.
ASKED = "from importlib.util import find_spec; assert find_spec('torch'); assert find_spec('torch')\n"


@pytest.mark.parametrize(
    "order",
    [
        "import stormlog.auto, torch\n",
        "import torch, stormlog.auto\n",
        "import stormlog.auto\n" + ASKED + "import torch\n",
    ],
)
def test_importing_it_waits_for_cuda(tmp_path: Path, order: str) -> None:
    check_armed(printed(sys.executable, "-c", order + TELL, STORMLOG_DIR=str(tmp_path)))


def test_a_run_notices_torch(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "--quiet", "--dir", str(tmp_path), sys.executable, "-c"]
    check_armed(printed(*words, ASKED + TELL))


def test_a_run_without_torch_leaves_it_alone(tmp_path: Path) -> None:
    words = [*STORMLOG, "run", "--quiet", "--no-torch", "--dir", str(tmp_path), sys.executable, "-c", TELL]
    found = printed(*words)
    assert not found["armed"] and found["queued"] == 0


@pytest.mark.parametrize(("value", "is_armed"), [("1", True), ("0", False)])
def test_the_environment_is_enough(tmp_path: Path, value: str, is_armed: bool) -> None:
    metadata = tmp_path / "site" / "stormlog_auto-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stormlog-auto\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(
        "[torch.backends]\nstormlog_auto = stormlog._autoload:torch_is_there\n"
    )
    path = os.pathsep.join(filter(None, [str(metadata.parent), os.environ.get("PYTHONPATH")]))
    found = printed(
        sys.executable, "-c", TELL, STORMLOG=value, STORMLOG_DIR=str(tmp_path / "runs"), PYTHONPATH=path
    )
    assert found["armed"] is is_armed
    assert found["hook"] is not is_armed, "without it nothing is touched"


def test_two_ranks_run_under_it(tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "sum = torch.ones(3) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(sum)\n"
        "assert sum.tolist() == [3.0] * 3 and 'stormlog._torch.auto' in sys.modules\n"
        "dist.barrier()\n"
        "if dist.get_rank() == 1:\n"
        "    raise RuntimeError('CUDA error: out of memory (a stand-in for the real one)')\n"
        "dist.destroy_process_group()\n"
    )
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(program)]
    done = subprocess.run(
        [*STORMLOG, "run", "--dir", str(tmp_path / "runs"), "--", *launch],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    listed = subprocess.run(
        [*STORMLOG, "oom", "list", str(tmp_path / "runs"), "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    # Told by what it said, not by the folder's name: a rank that is met between fork and exec still has the
    # environment of its launcher.
    (bundle,) = (Path(row["path"]) for row in json.loads(listed.stdout) if row["cause"] == "oom_exception")
    metadata = json.loads((bundle / "metadata.json").read_text())
    assert "a stand-in for the real one" in metadata["exception_message"], metadata
