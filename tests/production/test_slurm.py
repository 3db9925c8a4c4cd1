"""A real SLURM on one node, in a Debian of its own: an OOM kill, and the verdict in the job's output."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import components
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples/slurm"
CGROUPS = Path("/sys/fs/cgroup")
NODE = f"node{os.getpid()}"
SLURM_CONF = """
ClusterName=t
SlurmctldHost={0}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ReturnToService=2
MpiDefault=none
KillWait=5
TaskProlog=/work/taskprolog.sh
Epilog=/work/epilog.sh
NodeName={0} NodeAddr=127.0.0.1 CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=p Nodes={0} Default=YES MaxTime=INFINITE State=UP
"""
CGROUP_CONF = """
CgroupPlugin=cgroup/v1
CgroupAutomount=no
CgroupMountpoint=/sys/fs/cgroup
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
"""
# In namespaces of its own; the address beside loopback's is what getaddrinfo() needs to answer at all.
OUTSIDE = """
set -e
mount --make-rprivate /
hostname {0}
ip link set lo up
ip addr add 10.9.9.1/32 dev lo
mount -t overlay overlay -o lowerdir={1},upperdir={2}/upper,workdir={2}/overlay {2}/root
mount -t proc proc {2}/root/proc
mount --rbind /dev {2}/root/dev
mount --rbind /sys {2}/root/sys
exec chroot {2}/root bash /work/inside.sh
"""
INSIDE = """
echo "127.0.0.1 localhost {0}" > /etc/hosts
mkdir -p /run/munge /var/spool/slurmctld /var/spool/slurmd
chown munge: /run/munge /var/log/munge /var/lib/munge /etc/munge /etc/munge/munge.key
chmod 755 /run/munge
setpriv --reuid=munge --regid=munge --clear-groups munged
slurmctld
slurmd
until [ "$(timeout -s KILL 5 sinfo -h -o %t)" = idle ]; do :; done
cd /work/job
timeout -s KILL 60 sbatch -W --mem=192 /work/job.sbatch
echo "sbatch $?"
timeout -s KILL 30 srun --mem=192 stormlog run -q -- python3 -c pass
echo "srun $?"
timeout -s KILL 30 srun --mem=192 stormlog run -q -- python3 train.py
echo "killed $?"
until [ -s /work/syslog ] && [ -z "$(timeout -s KILL 5 squeue -h)" ]; do :; done
timeout -s KILL 5 scontrol show job 3
timeout -s KILL 5 sinfo -h -o %t
"""
HOG = """
def hoard():
    kept = []
    while True:
        kept.append(bytearray(1 << 20))

hoard()
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A node that ran steps of which some were killed: its files, and what its commands printed."""
    if not (CGROUPS / "memory/memory.limit_in_bytes").exists():
        pytest.skip("SLURM 22.05 without systemd needs cgroup version 1")
    debian = components.system("bookworm", "slurm-wlm", "munge", "python3-minimal")
    place = tmp_path_factory.mktemp("slurm")
    for name in ("upper/work/job", "upper/usr/bin", "upper/etc/slurm", "overlay", "root"):
        (place / name).mkdir(parents=True)
    work = place / "upper/work"
    for example in EXAMPLES.iterdir():
        shutil.copy(example, work / example.name)
    shutil.copy(Path(sys.executable).with_name("stormlog"), place / "upper/usr/bin/stormlog")
    # The system log of this machine.
    logger = place / "upper/usr/bin/logger"
    logger.write_text("#!/bin/sh\ncat >> /work/syslog\n")
    logger.chmod(0o755)
    (work / "job/train.py").write_text(HOG)
    (work / "inside.sh").write_text(INSIDE.format(NODE))
    (place / "upper/etc/slurm/slurm.conf").write_text(SLURM_CONF.format(NODE))
    (place / "upper/etc/slurm/cgroup.conf").write_text(CGROUP_CONF)
    namespaces = ["unshare", "-m", "-u", "-n", "-p", "-f", "--kill-child"]
    try:
        done = subprocess.run(
            # `unshare` does not end by SIGTERM, and takes every daemon with it when it is killed.
            ["timeout", "-s", "KILL", "150", *namespaces, "sh", "-c", OUTSIDE.format(NODE, debian, place)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    finally:
        for controller in ("freezer", "memory", "cpuacct"):
            for folder, _, _ in os.walk(CGROUPS / controller / f"slurm_{NODE}", topdown=False):
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
    assert done.returncode == 0, done.stdout
    return work, done.stdout


def test_job_output_ends_with_the_verdict_beside_the_lines_of_slurm(job: tuple[Path, str]) -> None:
    work, printed = job
    output = (work / "job/slurm-1.out").read_text()
    assert "sbatch 1" in printed, printed
    assert re.search(r"Detected 1 oom.kill event\S* in StepId=1\.0", output), output
    verdict = output[output.rindex("\ntrain.py (pid") :]
    assert "was killed by the kernel's OOM killer" in verdict.splitlines()[1], output
    assert re.search(r"held by .*MiB +train\.py:5 hoard", verdict), output
    assert re.search(r"slurm +1 oom-kill event in step 1\.0", verdict), output
    assert "ended " in verdict and "job 1.0 · rank 0/1" in verdict, output


def test_step_that_was_killed_has_the_state_that_it_has_without_us(job: tuple[Path, str]) -> None:
    _, printed = job
    assert "task 0: Out Of Memory" in printed and "killed 1" in printed, printed
    assert "JobState=OUT_OF_MEMORY" in printed and "ExitCode=0:125" in printed, printed


def test_limit_of_the_verdict_is_that_of_the_job_above_the_task(job: tuple[Path, str]) -> None:
    work, _ = job
    (run,) = (work / "job/stormlog-runs/job-1").glob("*/run.json")
    record = json.loads(run.read_text())
    assert record["launch"] == {
        "job_id": "1",
        "job_name": "train",
        "step_id": "0",
        "rank": 0,
        "world_size": 1,
    }
    assert record["cause"] == "cgroup_oom_kill"
    (evidence,) = run.parent.glob("*/oom_dump_*/evidence.json")
    found = json.loads(evidence.read_text())
    assert found["limit_bytes"] == 192 << 20, found
    assert re.fullmatch(r"cgroup (.*/)?job_1", found["limit_source"]), found["limit_source"]


def test_scripts_of_the_node_record_by_job_and_log_the_verdict(job: tuple[Path, str]) -> None:
    work, printed = job
    assert "srun 0" in printed, printed
    assert len(list((work / "job/stormlog-runs/job-2").glob("*/run.json"))) == 1
    log = (work / "syslog").read_text()
    assert "train.py (pid" in log and "No death is recorded in /work/job/stormlog-runs/job-2." in log, log
    assert printed.rstrip().endswith("idle"), "a node whose epilog fails is drained"
