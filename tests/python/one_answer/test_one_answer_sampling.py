"""One living process, watched by `run`, `track --pid` and `attach`, and by itself: one list of devices,
one statement of what can be known of each, and equal numbers.

The GPUs are stand-ins: a library under NVML's name, and a sysfs of a card that no kernel here drives.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GIB = 1 << 30
HELD_MIB = 512
STORMLOG = [sys.executable, "-m", "stormlog"]
# The recorded program: it holds memory, names itself as a holder on the stand-in's devices, and answers
# questions about itself until it is asked nothing more.
PROGRAM = """
import json, os, sys
from stormlog import CPUMemoryTracker, _native
held = bytearray(64 << 20)
with open(sys.argv[1], "w") as holders:
    holders.write(f"{os.getpid()} {sys.argv[2]}\\n")
def answer(value):
    print(json.dumps(value), flush=True)
answer(os.getpid())
for line in sys.stdin:
    asked = json.loads(line)
    if asked == "host":
        with open("/proc/self/statm") as statm:
            rss = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        tracker = CPUMemoryTracker(sampling_interval=3600.0)
        tracker.start_tracking()
        tracker.stop_tracking()
        (event,) = tracker.get_events(event_type="sample")
        answer([rss, event.memory_allocated, event.device_total])
    else:
        gpu = _native.cuda.Gpu.find(asked)
        memory = gpu.memory()
        answer([[memory.used, memory.free, memory.total], gpu.processes()])
"""
AMD = {
    "uevent": "DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:03:00.0\n",
    "mem_info_vram_total": f"{64 * GIB}\n",
    "mem_info_vram_used": f"{3 * GIB}\n",
    "product_name": "Stand-in card\n",
    "unique_id": "stand-in-card\n",
}
# A sysfs with the stand-in card only, in a mount namespace of its own.
WITH_CARD = (
    'mount -t tmpfs none /sys/class && mkdir /sys/class/drm && cp -r "$0" /sys/class/drm/card0 && exec "$@"'
)

Machine = Callable[..., list[str]]


@pytest.fixture(params=["plain", "mig", "unified", "amd"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Turns a command into one that sees the stand-in machine."""
    kind = request.param
    monkeypatch.setenv("STAND_IN_HOLDERS", str(tmp_path / "holders"))
    if kind != "amd":
        library = request.getfixturevalue("nvml_stand_in")
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
        monkeypatch.setenv("STAND_IN_KIND", kind)
        monkeypatch.setenv("STAND_IN_USED_GIB", "2")
        return lambda *words: list(words)
    card = tmp_path / "fake_card"
    (card / "device").mkdir(parents=True)
    for name, text in AMD.items():
        (card / "device" / name).write_text(text)
    words = ["unshare", "-m", "sh", "-c", WITH_CARD, str(card)]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("a stand-in sysfs needs a mount namespace of its own")
    return lambda *command: [*words, *command]


def output(words: list[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def events_of(source: Path, into: Path) -> list[dict[str, Any]]:
    output([*STORMLOG, "convert", str(source), str(into)])
    loaded: list[dict[str, Any]] = json.loads(into.read_text())
    return loaded


def last_samples(events: list[dict[str, Any]], until_ns: int | None = None) -> dict[int, dict[str, Any]]:
    """The last sample of every device, or the last before a moment."""
    samples = [event for event in events if event["event_type"] == "sample"]
    in_time = [event for event in samples if until_ns is None or event["timestamp_ns"] <= until_ns]
    return {event["device_id"]: event for event in in_time}


def statement(event: dict[str, Any]) -> dict[str, Any]:
    """What an event says of its device and of what can be known of it, without what only its process has."""
    about = ("backend", "device_name", "device_parent_uuid", "device_uuid", "sampling_source", "unified")
    keys = (*about, "memory_capabilities", "supports_device_free", "supports_device_total")
    return {"collector": event["collector"], **{key: event["metadata"].get(key) for key in keys}}


def numbers(event: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(event[f"device_{name}_bytes"] for name in ("used", "total"))


def test_every_sampler_gives_the_same_answer(tmp_path: Path, machine: Machine) -> None:
    runs = tmp_path / "runs"
    # Without the recording of the heap, whose file adds to the resident memory as it is written.
    unrecorded = ["--no-heap", "--no-gpu"]
    run = [*STORMLOG, "run", "--quiet", *unrecorded, "--dir", str(runs), "--interval", "0.05", "--"]
    run += [sys.executable, "-c"]
    with subprocess.Popen(
        machine(*run, PROGRAM, os.environ["STAND_IN_HOLDERS"], str(HELD_MIB)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as supervisor:
        assert supervisor.stdin and supervisor.stdout

        def ask(question: Any) -> Any:
            assert supervisor.stdin and supervisor.stdout
            supervisor.stdin.write(json.dumps(question) + "\n")
            supervisor.stdin.flush()
            return json.loads(supervisor.stdout.readline())

        pid = json.loads(supervisor.stdout.readline())
        rss, own_rss, own_total = ask("host")
        into = tmp_path / "track.json"
        words = ["--interval", "0.05", "--duration", "0.5", "--output", str(into), "--format", "json"]
        output(machine(*STORMLOG, "track", "--pid", str(pid), *words))
        tracked = last_samples(json.loads(into.read_text()))
        attached = json.loads(output(machine(*STORMLOG, "attach", str(pid), "--duration", "0.5", "--json")))
        shown = json.loads(output(machine(*STORMLOG, "info", "--json")))["gpus"]
        asked = {gpu["uuid"]: ask(gpu["uuid"]) for gpu in shown}
        supervisor.stdin.close()
        assert supervisor.wait(timeout=60) == 0
    (directory,) = runs.iterdir()
    # At its end a program gives its memory back: what `run` saw is compared as of when `track` looked last.
    until_ns = max(event["timestamp_ns"] for event in tracked.values())
    recorded = last_samples(events_of(directory, tmp_path / "run.json"), until_ns)

    # One list of devices under one numbering: the host, and what `info` shows.
    listed = {gpu["device_id"]: gpu for gpu in shown}
    seen = {device["device_id"]: device for device in attached["devices"]}
    assert len(listed) == len(shown) >= 1
    assert set(recorded) == set(tracked) == set(seen) == {-1, *listed}
    # One statement of each, and equal numbers.
    for device, expected in recorded.items():
        assert statement(tracked[device]) == statement(expected), device
        assert numbers(tracked[device]) == numbers(expected), device
        assert (seen[device]["device_used_bytes"], seen[device]["total_bytes"]) == numbers(expected), device
    for device, gpu in listed.items():
        event = recorded[device]
        assert (gpu["used_bytes"], gpu["total_bytes"]) == numbers(event)
        assert (gpu["name"], gpu["uuid"]) == (
            event["metadata"]["device_name"],
            event["metadata"]["device_uuid"],
        )
        memory, processes = asked[gpu["uuid"]]
        assert tuple(memory[index] for index in (0, 2)) == numbers(event)
        on_nvidia = gpu["driver"] == "nvidia"
        assert processes == ([[pid, HELD_MIB << 20]] if on_nvidia else None)
        assert event["metadata"]["process_device_used_bytes"] == (HELD_MIB << 20 if on_nvidia else None)
    # From outside the kernel knows no allocator; inside, 0.4.3's tracker has the resident memory for it.
    host = recorded[-1]
    assert host["allocator_allocated_bytes"] is None
    assert not host["metadata"]["memory_capabilities"]["supports_allocator_allocated"]
    assert host["device_total_bytes"] == own_total
    assert own_rss == pytest.approx(rss, abs=8 << 20) and host["device_used_bytes"] == pytest.approx(
        rss, abs=8 << 20
    )


def test_a_split_gpu_is_listed_as_its_instances(nvml_stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_stand_in.parent))
    monkeypatch.setenv("STAND_IN_KIND", "mig")
    gpus = json.loads(output([*STORMLOG, "info", "--json"]))["gpus"]
    assert [
        (gpu["device_id"], gpu["uuid"], gpu["parent_uuid"], gpu["total_bytes"] // GIB) for gpu in gpus
    ] == [
        (0, "MIG-stand-in-0-0", "GPU-stand-in", 4),
        (2, "MIG-stand-in-0-1", "GPU-stand-in", 4),
        (1, "GPU-stand-in-1", None, 16),
    ]
    # An instance has no sensor; its physical device's is shown.
    assert {gpu["temperature_c"] for gpu in gpus} == {41}


def test_a_gpu_without_memory_of_its_own_has_the_hosts(
    nvml_stand_in: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_stand_in.parent))
    monkeypatch.setenv("STAND_IN_KIND", "unified")
    monkeypatch.setenv("STAND_IN_HOLDERS", str(tmp_path / "holders"))
    (tmp_path / "holders").write_text("11 100\n12 50\n")
    facts = json.loads(output([*STORMLOG, "info", "--json"]))
    (gpu,) = facts["gpus"]
    assert gpu["unified"] is True and gpu["used_bytes"] == 150 << 20
    assert gpu["total_bytes"] == facts["memory"]["total"] and 0 < gpu["free_bytes"] < gpu["total_bytes"]
    assert "GPU 0 (unified memory) Information:" in output([*STORMLOG, "info"])
