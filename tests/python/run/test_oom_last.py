"""`stormlog oom show --last`: the newest death, for job scripts and ExecStopPost= of systemd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from run_command import STORMLOG, command

KILLED = "import os; kept = bytearray(64 << 20); os.kill(os.getpid(), 9)"
EXAMPLES = Path(__file__).parents[3] / "examples"
SCHEDULERS = ("SLURM_", "SERVICE_RESULT", "EXIT_", "INVOCATION_ID", "TORCHELASTIC_")


def environment(**more: str) -> dict[str, str]:
    """Ours without that of a scheduler or a service manager around the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}
    return {**own, **more}


def record(runs: Path, code: str, **more: str) -> None:
    words = command(runs, sys.executable, "-c", code, options=("-q",))
    subprocess.run(words, env=environment(**more), check=False)


def last(runs: Path, *options: str, code: int = 0, **more: str) -> str:
    words = [*STORMLOG, "oom", "show", "--last", str(runs), *options]
    done = subprocess.run(words, capture_output=True, text=True, env=environment(**more), check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def test_last_shows_the_answer_about_the_newest_death(tmp_path: Path) -> None:
    record(tmp_path, KILLED)
    record(tmp_path, "raise ValueError('newer')")
    # Neither a good nor an intended end is a death.
    record(tmp_path, "pass")
    record(tmp_path, "import sys; sys.exit(3)")
    lines = last(tmp_path).splitlines()
    assert "exited with status 1" in lines[0] and "ValueError: newer" in lines[1], lines
    assert lines[-2].startswith("  ended     20") and lines[-1].startswith("  more      stormlog report "), (
        lines
    )
    found = json.loads(last(tmp_path, "--json"))
    assert found["cause"] == "exit" and found["headline"][0] == lines[0] and found["scheduler"] == []


def test_last_without_a_death_is_a_sentence_and_exit_0(tmp_path: Path) -> None:
    record(tmp_path, "pass")
    assert last(tmp_path) == f"No death is recorded in {tmp_path}.\n"
    assert last(tmp_path, "--json") == "null\n"
    assert "does not exist" in last(tmp_path / "missing", code=5)


def test_result_that_systemd_hands_over_is_evidence(tmp_path: Path) -> None:
    record(tmp_path, KILLED, INVOCATION_ID="one")
    text = last(
        tmp_path, INVOCATION_ID="one", SERVICE_RESULT="oom-kill", EXIT_CODE="killed", EXIT_STATUS="KILL"
    )
    assert "was killed with SIGKILL by itself" in text
    assert "  systemd   the service ended with result oom-kill (killed, KILL)\n" in text
    assert "  note      systemd counted an OOM kill that the supervisor could not see" in text
    # The death of an earlier start of the service is not that of this one.
    text = last(tmp_path, INVOCATION_ID="two", SERVICE_RESULT="success")
    assert text.startswith("No death of this job or service is recorded in ") and "SIGKILL" not in text
    assert "newest death (20" in text and str(tmp_path) in text


def test_lines_of_slurm_in_the_output_of_the_job_are_evidence(tmp_path: Path) -> None:
    job = {"SLURM_JOB_ID": "42", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    runs, log = tmp_path / "runs", tmp_path / "slurm-42.out"
    record(runs, KILLED, **job, SLURM_RESTART_COUNT="1")
    line = "slurmstepd: error: Detected 1 oom_kill event in StepId={}.0. Some tasks have been OOM Killed.\n"
    log.write_text(line.format(41) + line.format(42))
    text = last(runs, "--log", str(log), SLURM_JOB_ID="42")
    assert "  slurm     1 oom-kill event in step 42.0\n" in text and "41.0" not in text
    assert " · job 42.0 · rank 1/2 · attempt 1\n" in text
    assert last(runs, SLURM_JOB_ID="43").startswith("No death of this job or service is recorded")
    assert "slurm-42.out" in last(runs, "--log", str(tmp_path / "none/slurm-42.out"), code=5)
    listed = subprocess.run(
        [*STORMLOG, "runs", "list", str(runs)], capture_output=True, text=True, check=True
    )
    assert "job 42.0 · rank 1/2 · attempt 1" in listed.stdout


def test_unit_of_systemd_is_accepted_by_systemd_analyze(tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs systemd-analyze")
    text = (EXAMPLES / "systemd/stormlog@.service").read_text()
    unit = tmp_path / "stormlog@.service"
    unit.write_text(text.replace("=stormlog ", f"={Path(sys.executable).with_name('stormlog')} "))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_workers_that_a_program_forks_are_named_by_their_pool(tmp_path: Path) -> None:
    # Stands in for gunicorn's arbiter; tests/production has the real one.
    arbiter = tmp_path / "gunicorn"
    arbiter.write_text(
        "import os, pathlib\n"
        "reading, writing = os.pipe()\n"
        "workers = []\n"
        "for number in range(2):\n"
        "    workers.append(os.fork())\n"
        "    if not workers[-1]:\n"
        "        os.close(writing)\n"
        "        os.read(reading, 1)\n"
        "        os.kill(os.getpid(), 9)\n"
        "runs = pathlib.Path(os.environ['STORMLOG_RUN_DIR'])\n"
        "def is_named(worker):\n"
        "    logs = runs.glob(f'*pid{worker}/log/[0-9]*')\n"
        "    return any(b'gunicorn worker' in log.read_bytes() for log in logs)\n"
        "while not all(map(is_named, workers)): pass\n"
        "os.close(writing)\n"
        "[os.waitpid(worker, 0) for worker in workers]\n"
    )
    runs = tmp_path / "runs"
    subprocess.run(
        command(runs, sys.executable, str(arbiter), options=("-q",)), env=environment(), check=True
    )
    (file,) = runs.glob("*/run.json")
    rows = json.loads(file.read_text())["processes"]
    assert sorted(row["program"] for row in rows) == ["gunicorn", "gunicorn worker 1", "gunicorn worker 2"]
    assert "gunicorn worker " in last(runs).splitlines()[0]
