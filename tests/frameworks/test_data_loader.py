"""Workers of a real DataLoader: those that copy what they only read are named, the others are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("numpy")

PROGRAM = r'''
import gc, glob, itertools, os, re, sys, time
import numpy
from torch.utils.data import DataLoader, Dataset

KIND = sys.argv[1]
COUNT = 1_000_000
MIB = 1 << 20


class Items(Dataset):
    def __init__(self):
        if KIND == "objects":
            self.items = [(number, str(number)) for number in range(COUNT)]
        else:
            self.items = numpy.arange(16 * COUNT).reshape(COUNT, 16)
        self.kept = []
        self.seen = 0
        self.cached_at = 0.0

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        self.seen += 1
        if KIND == "cache":
            # Over the seconds in which its pages are read more than once.
            if len(self.kept) < 16 and time.monotonic() - self.cached_at > 0.25:
                self.kept.append(bytearray(16 * MIB))
                self.cached_at = time.monotonic()
        elif KIND == "collected" and self.seen == 1000:
            # As it comes by itself after some time: it writes to every object that imports made.
            gc.collect()
        elif self.seen % 2000 == 0:
            # Every worker has some memory of its own, so that its pages are reported more than once.
            self.kept.append(bytearray(MIB))
            self.kept[:] = self.kept[-8:]
        return int(self.items[index][0])


def private(pid):
    """What was recorded of a worker's private memory so far."""
    files = glob.glob(os.environ["STORMLOG_RUN_DIR"] + f"/rank0-pid{pid}/**", recursive=True)
    texts = (open(file, "rb").read() for file in files if os.path.isfile(file))
    return [int(number) for text in texts for number in re.findall(rb'private_dirty_bytes": ?(\d+)', text)]


def is_enough(pids):
    least = {"array": 1, "collected": 24 * MIB}.get(KIND, 96 * MIB)
    found = [private(pid) for pid in pids]
    return all(one and max(one) - min(one) >= least for one in found)


if __name__ == "__main__":
    settings = {"num_workers": 4, "multiprocessing_context": "fork", "persistent_workers": True}
    loader = DataLoader(Items(), batch_size=500, shuffle=True, **settings)
    batches = iter(loader)
    pids = [worker.pid for worker in batches._workers]
    begin = time.monotonic()
    for number in itertools.count():
        assert time.monotonic() - begin < 120, [private(pid) for pid in pids]
        # An epoch may be over before the pages of a worker are read for the second time.
        if next(batches, None) is None:
            batches = iter(loader)
        if number % 50 == 0 and is_enough(pids):
            break
'''


def judged(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    main = tmp_path / "main.py"
    main.write_text(PROGRAM, encoding="utf-8")
    stormlog = [sys.executable, "-m", "stormlog"]
    words = ["run", "--dir", str(tmp_path / "runs"), "--", sys.executable, "-W", "ignore", str(main), kind]
    done = subprocess.run([*stormlog, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = subprocess.run(
        [*stormlog, "analyze", str(tmp_path / "runs"), "--json"], capture_output=True, text=True
    )
    findings = json.loads(report.stdout)["findings"]
    return [finding for finding in findings if finding["kind"] == "copy_on_write"]


def test_workers_that_read_a_list_of_objects_copy_it_and_its_line_is_named(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, "objects")
    assert found["severity"] == "warning"
    assert found["metrics"]["workers"] == 4
    assert found["metrics"]["copied_bytes_per_worker"] > 64 << 20
    assert "main.py:14" in found["title"], found["title"]


@pytest.mark.parametrize("kind", ["array", "cache", "collected"])
def test_workers_that_read_an_array_or_have_a_cache_of_their_own_are_not_named(
    tmp_path: Path, kind: str
) -> None:
    found = judged(tmp_path, kind)
    # A collection copies more where more was imported: mentioned at most, never by a line of the dataset.
    assert [one for one in found if one["severity"] != "info" or "main.py" in one["title"]] == []
