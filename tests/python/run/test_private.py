"""What a run leaves is private, has no secrets, and nothing planted beside it is followed."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

STORMLOG = [sys.executable, "-m", "stormlog"]
SECRET = "Hush4Hush4Hush4x"
VARIABLES = {
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_SESSION_TOKEN": SECRET,
    "GITHUB_TOKEN": f"ghp_{SECRET}",
    "GITLAB_TOKEN": f"glpat-{SECRET}",
    "HF_TOKEN": f"hf_{SECRET}",
    "OPENAI_API_KEY": f"sk-{SECRET}",
    "ANTHROPIC_API_KEY": SECRET,
    "WANDB_API_KEY": SECRET,
    "SLACK_WEBHOOK": f"https://hooks.slack.com/services/T0/B0/{SECRET}",
    "DATABASE_URL": f"postgres://user:{SECRET}@host/db",
    "REDIS_URL": f"redis://:{SECRET}@host",
    "AMQP_URL": f"amqp://u:{SECRET}@host",
    **dict.fromkeys(
        ("MYSQL_PWD", "PGPASSWORD", "DB_PASS", "DB_PASSWORD", "PASS", "PASSWD", "SMTP_PW", "PIN", "CRED"),
        SECRET,
    ),
    **dict.fromkeys(
        ("CREDENTIALS", "COOKIE", "SESSION_COOKIE", "SIGNING", "SIGNATURE", "ACCESS", "KUBECONFIG_DATA"),
        SECRET,
    ),
    **dict.fromkeys(("NPM_CONFIG__AUTH", "SSH_KEY", "ANYTHING_ELSE"), SECRET),
    "JWT": f"eyJ{SECRET}.eyJ{SECRET}.{SECRET}",
    "AUTH": f"Bearer {SECRET}",
    "BASIC": f"user:{SECRET}",
    "AZURE_STORAGE_CONNECTION_STRING": f"AccountName=a;AccountKey={SECRET};Suffix=x",
    "SAS": f"?sv=1&sig={SECRET}",
    "PRIVATE_KEY": f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
    "PIP_INDEX_URL": f"https://user:{SECRET}@host/simple",
}
ARGUMENTS = [
    *("--password", SECRET),
    f"--password={SECRET}",
    *("-p", SECRET),
    f"-p{SECRET}",
    f"--token={SECRET}",
    *("--api-key", SECRET),
    *("--db-pass", SECRET),
    f"MYPASS={SECRET}",
    *("-H", f"Authorization: Bearer {SECRET}"),
    f"postgres://u:{SECRET}@h/db",
    f"--header=Cookie: {SECRET}",
]
READABLE = [
    *("--max-tokens", "512", "--tokenizer", "gpt2", "--num-key-value-heads", "8", "--key-dim", "64"),
    *("--session-id", "7", "--pass-through", "--seed", "1"),
]
MESSAGES = [
    f"cannot connect to postgresql://me:{SECRET}@db:5432/x",
    f"401 Unauthorized for ghp_{SECRET}{SECRET}",
    f"no access with AKIAIOSFODNN7EXAMPLE {SECRET}/K7MDENG/bPxRfiCYEXAMPL9",
    f"header was 'Bearer eyJ{SECRET}.eyJ{SECRET}.{SECRET}'",
    f"connect(host='h', password='{SECRET}') failed",
    f"--token {SECRET} was refused",
    f'{{"api_key": "{SECRET}", "n": 1}}',
]


def everything_below(directory: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(directory):
        for name in [*folders, *files]:
            yield Path(folder) / name


def leaks(directory: Path) -> list[Path]:
    files = [path for path in everything_below(directory) if path.is_file()]
    assert len(files) >= 3
    return [path for path in files if SECRET.encode() in path.read_bytes()]


def run(directory: Path, *words: str, **options: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **VARIABLES, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "3"}
    command = [*STORMLOG, "run", "--dir", str(directory), *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("mode", [[], ["--heap"]], ids=["plain", "heap"])
def test_secrets_of_environment_and_command_line_reach_no_file(tmp_path: Path, mode: list[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys; sys.exit(3)")
    done = run(tmp_path / "runs", *mode, "--", sys.executable, str(script), *ARGUMENTS, *READABLE)
    assert done.returncode == 3
    assert SECRET not in done.stderr
    (directory,) = (tmp_path / "runs").iterdir()
    assert leaks(directory) == []
    record = json.loads((directory / "run.json").read_text())
    environment = record["environment"]
    assert environment["TOKENIZERS_PARALLELISM"] == "false"
    assert environment["OMP_NUM_THREADS"] == "3"
    assert "DATABASE_URL" in environment
    assert environment["DATABASE_URL"] is None
    assert " ".join(READABLE) in " ".join(record["command"])


@pytest.mark.parametrize("message", MESSAGES)
def test_secrets_of_exceptions_reach_no_file_and_no_terminal(tmp_path: Path, message: str) -> None:
    script = tmp_path / "fails.py"
    script.write_text("import os\nraise RuntimeError(os.environ['MESSAGE'])")
    env = {**os.environ, "MESSAGE": message}
    command = [*STORMLOG, "run", "--dir", str(tmp_path / "runs"), "--", sys.executable, str(script)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    own, ours = done.stderr.rsplit("stormlog:", 1)
    assert SECRET in own, "the program's own output is its own"
    assert "RuntimeError" in ours
    assert SECRET not in ours
    (directory,) = (tmp_path / "runs").iterdir()
    assert leaks(directory) == []
    assert any(directory.glob("exceptions/*.json"))
    shown = subprocess.run(
        [*STORMLOG, "oom", "list", str(directory)], capture_output=True, text=True, check=True
    )
    assert SECRET not in shown.stdout


def test_no_env_records_no_environment(tmp_path: Path) -> None:
    run(tmp_path, "--no-env", "--", "true", check=True)
    (directory,) = tmp_path.iterdir()
    assert json.loads((directory / "run.json").read_text())["environment"] is None


@pytest.mark.parametrize("mode", [[], ["--heap"]], ids=["plain", "heap"])
def test_a_run_is_private_whatever_the_umask(tmp_path: Path, mode: list[str]) -> None:
    program = (
        "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start(); t.join(); raise ValueError"
    )
    run(tmp_path, *mode, "--", sys.executable, "-c", program, umask=0)
    (directory,) = tmp_path.iterdir()
    for path in [directory, *everything_below(directory)]:
        mode_of = stat.S_IMODE(path.lstat().st_mode)
        assert mode_of == (0o700 if path.is_dir() else 0o600), f"{path}: {mode_of:o}"


def test_a_shared_run_is_open_to_its_group_only(tmp_path: Path) -> None:
    run(tmp_path, "--share", "--heap", "--wait", "--", sys.executable, "-c", "raise ValueError", umask=0o077)
    (directory,) = tmp_path.iterdir()
    for path in [directory, *everything_below(directory)]:
        mode_of = stat.S_IMODE(path.lstat().st_mode)
        assert mode_of == (0o2750 if path.is_dir() else 0o640), f"{path}: {mode_of:o}"


def test_injected_code_is_not_below_the_run(tmp_path: Path) -> None:
    program = "import os; print(os.environ['PYTHONPATH'].split(':')[0])"
    done = run(tmp_path, "-q", "--", sys.executable, "-c", program, umask=0o002, check=True)
    place = Path(done.stdout.strip())
    assert tmp_path not in place.parents
    for path in [place, place.parent]:
        assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode) & 0o022) == (os.getuid(), 0), path


def test_planted_links_are_not_followed_by_readers(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    runs = tmp_path / "runs"
    run(runs, "--", "true", check=True)
    (directory,) = runs.iterdir()
    record = json.loads((directory / "run.json").read_text())
    # As if its supervisor had been killed: a reader wants to finish it.
    (directory / "run.json").write_text(json.dumps({**record, "status": "running"}))
    session = next(directory.glob("rank*"))
    pid = os.getpid()
    for number in range(pid, pid + 2000):
        (directory / f".run.json.{number}.tmp").symlink_to(precious)
        (session / f".session.json.{number}.tmp").symlink_to(precious)
    for words in (["sessions"], ["query", "runs"], ["oom", "list"], ["analyze"]):
        subprocess.run([*STORMLOG, *words, str(runs)], capture_output=True, text=True)
    assert precious.read_text() == "precious"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a device")
def test_outputs_never_replace_a_device(tmp_path: Path) -> None:
    null = tmp_path / "null"
    os.mknod(null, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    subprocess.run(
        [
            *STORMLOG,
            "run",
            "-q",
            "--heap",
            "--dir",
            str(tmp_path / "runs"),
            "--",
            sys.executable,
            "-c",
            "pass",
        ],
        check=True,
    )
    (directory,) = (tmp_path / "runs").iterdir()
    for command in (
        ["flamegraph", str(directory), "-o", str(null)],
        ["flamegraph", str(directory), "-o", str(null), "--force"],
        ["convert", str(directory), str(null), "--to", "csv"],
    ):
        done = subprocess.run([*STORMLOG, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert stat.S_ISCHR(null.lstat().st_mode), command
    into = subprocess.run(
        [*STORMLOG, "run", "-q", "--heap", "--force", "-o", str(null), "--", sys.executable, "-c", "pass"],
        cwd=tmp_path,
    )
    assert into.returncode == 0
    assert stat.S_ISCHR(null.lstat().st_mode)
