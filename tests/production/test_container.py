"""A real container (crun): the termination message on its bind mount, and a run that the next start finishes.

crun's cgroups are of version 1 here, where the kernel kills one process; `make test-vm` has version 2 with
`memory.oom.group`. The root file system is read-only, the user is not root, and the run is on a volume.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import components
import pytest
import stormlog
from run_command import until

LIMIT = 192 << 20
USER = 12345
POD = "0a6d4a0e-7f0c-4a52-9d07-3b1f8a0c9f11"
PROGRAM = """
import time
held = []
def cache():
    held.append(b"x" * (1 << 20))
while True:
    cache()
    time.sleep(0.02)
"""


class Pod:
    """A pod with one container and a volume, as a kubelet lays them out."""

    def __init__(self, place: Path) -> None:
        root = components.unpacked("bookworm", "crun", "libyajl2")
        (library,) = root.glob("usr/lib/*/libyajl.so.2")
        self.crun = [str(root / "usr/bin/crun"), "--root", str(place / "state"), "--cgroup-manager=cgroupfs"]
        self.env = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        self.place = place
        self.volume = place / "volume"
        self.volume.mkdir()
        self.volume.chmod(0o777)
        (self.volume / "train.py").write_text(PROGRAM.lstrip())
        self.starts = 0

    def start(self, *words: str) -> tuple[subprocess.Popen[str], Path]:
        """Starts the next instance of the container; and its termination log."""
        self.starts += 1
        message = self.place / "pods" / POD / "containers" / "trainer" / f"{self.starts:08x}"
        message.parent.mkdir(parents=True, exist_ok=True)
        message.touch()
        message.chmod(0o666)
        bundle = self.place / f"bundle-{self.starts}"
        (bundle / "rootfs").mkdir(parents=True)
        subprocess.run([*self.crun, "spec"], cwd=bundle, env=self.env, check=True)
        config = json.loads((bundle / "config.json").read_text())
        name = f"stormlog-{uuid.uuid4().hex[:8]}"
        # What Python needs is mounted from the host, read-only.
        shared = {Path(sys.base_prefix), Path(sys.prefix), Path(stormlog.__file__).parents[1]}
        shared |= {Path(part) for part in ("/usr", "/bin", "/lib", "/lib64", "/etc")}
        mounts = [
            {"source": str(path), "destination": str(path), "options": ["bind", "ro"]}
            for path in sorted(shared)
            if path.is_dir()
        ]
        mounts.append({"source": str(self.volume), "destination": "/data", "options": ["bind", "rw"]})
        mounts.append(
            {"source": str(message), "destination": "/dev/termination-log", "options": ["bind", "rw"]}
        )
        config["mounts"] += [{"type": "bind", **mount} for mount in mounts]
        config["mounts"].append({"type": "tmpfs", "source": "tmpfs", "destination": "/tmp"})
        config["root"]["readonly"] = True
        config["process"] |= {
            "terminal": False,
            "args": list(words),
            "user": {"uid": USER, "gid": USER},
            "env": ["PATH=/usr/bin:/bin", "HOME=/tmp", "POD_NAME=train-0", "POD_NAMESPACE=ml"],
        }
        config["linux"]["cgroupsPath"] = f"/{name}"
        config["linux"]["resources"]["memory"] = {"limit": LIMIT}
        (bundle / "config.json").write_text(json.dumps(config))
        # crun refuses a hierarchy of both versions; the unmount is seen in this namespace only.
        script = 'mount --make-rprivate / && umount /sys/fs/cgroup/unified 2>/dev/null; exec "$@"'
        container = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, "sh", *self.crun, "run", name],
            cwd=bundle,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.name = name
        return container, message

    def kill(self) -> None:
        """Ends the container's first process, and with it all others."""
        state = subprocess.run(
            [*self.crun, "state", self.name], env=self.env, capture_output=True, text=True, check=True
        )
        os.kill(json.loads(state.stdout)["pid"], signal.SIGKILL)

    def stormlog(self, *words: str) -> tuple[str, ...]:
        return (sys.executable, "-m", "stormlog", *words)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    if not Path("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists():
        pytest.skip("needs memory cgroups of version 1")
    return Pod(tmp_path)


def run_of(pod: Pod, *words: str) -> tuple[str, ...]:
    return pod.stormlog("run", "--dir", "/data/runs", "--interval", "0.05", *words)


def test_an_oom_kill_in_a_container_leaves_the_verdict_in_the_termination_message(pod: Pod) -> None:
    container, message = pod.start(*run_of(pod, "/data/train.py"))
    output, _ = container.communicate(timeout=120)
    assert container.returncode == 128 + signal.SIGKILL, output
    text = message.read_text()
    first = text.splitlines()[0]
    assert "was killed by the kernel's OOM killer" in first and "its limit of 192.0 MiB" in first, text
    assert "train.py:4 cache" in text and len(text.encode()) <= 4096
    (directory,) = (pod.volume / "runs").iterdir()
    assert f"stormlog analyze /data/runs/{directory.name}" in text
    record = json.loads((directory / "run.json").read_text())
    container_record = {key: record["container"][key] for key in ("pod", "namespace", "pod_uid", "name")}
    assert container_record == {"pod": "train-0", "namespace": "ml", "pod_uid": POD, "name": "trainer"}
    assert directory.stat().st_uid == USER


def test_a_container_killed_whole_is_finished_by_its_next_start(pod: Pod) -> None:
    container, message = pod.start(*run_of(pod, "/data/train.py"))
    until(lambda: "train.py:4 cache" in message.read_text() or container.poll() is not None)
    pod.kill()
    output, _ = container.communicate(timeout=120)
    text = message.read_text()
    assert "\n-- stormlog ahead " in text and "of 192.0 MiB" in text.splitlines()[0], (text, output)
    (directory,) = (pod.volume / "runs").iterdir()
    assert json.loads((directory / "run.json").read_text())["status"] == "running"
    container, message = pod.start(*run_of(pod, "-c", "pass"))
    output, _ = container.communicate(timeout=120)
    assert container.returncode == 0, output
    assert "completed an earlier run: train.py (pid " in output
    record = json.loads((directory / "run.json").read_text())
    assert record["status"] == "interrupted" and record["ended_at_ns"]
    assert message.read_bytes() == b"", "a good end leaves no message"
