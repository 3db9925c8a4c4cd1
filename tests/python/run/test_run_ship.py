"""`run --ship`, `ship` and `fetch`: the program never notices; after any kill the target has everything."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_stand_in import object_stand_in
from run_command import STORMLOG, command, is_gone, pid_of, program, stormlog, until

WAITS = """
import pathlib, sys, time
print("ready", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
sys.exit(7)
"""
OWN = {".shipping.json", ".shipping.lock", ".shipment.json"}
LEFT = {".locks", "requests"}


def files(run: Path) -> dict[str, bytes]:
    """What a run directory holds, without what a shipment adds, and without locks and requests."""
    found = (path for path in run.rglob("*") if path.is_file() and LEFT.isdisjoint(path.parts))
    return {str(path.relative_to(run)): path.read_bytes() for path in found if path.name not in OWN}


def status(run: Path) -> Any:
    path = run / ".shipping.json"
    return json.loads(path.read_text()) if path.exists() else {}


def only(directory: Path) -> Path:
    (run,) = directory.iterdir()
    return run


def shipper_of(run: Path) -> int | None:
    """The process that ships this run."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ship-run" in words and os.fsencode(run) in words:
            return int(path.parent.name)
    return None


def ship(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STORMLOG, "ship", *words], capture_output=True, text=True, env={**os.environ, **env}, check=False
    )


def assert_whole(source: Path, copy: Path) -> None:
    assert files(copy) == files(source)
    manifest = json.loads((copy / ".shipment.json").read_text())
    assert manifest["is_complete"] and set(manifest["files"]) == set(files(source))


def test_run_is_at_the_target_when_waited_for_and_reads_as_the_run_itself(tmp_path: Path) -> None:
    runs, target = tmp_path / "runs", tmp_path / "target"
    words = command(
        runs,
        sys.executable,
        "-c",
        "x = bytearray(30 << 20); 1 / 0",
        options=("--ship", str(target), "--wait"),
    )
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"to {target}" in done.stderr, done.stderr
    source, copy = only(runs), only(target)
    assert copy.name.startswith(source.name)
    assert_whole(source, copy)
    assert status(source)["state"] == "complete" and status(source)["bytes_left"] == 0
    assert not (source / ".shipping.lock").exists()
    for path in [copy, *copy.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    (bundle,), (copied,) = stormlog("oom", "list", str(runs)), stormlog("oom", "list", str(target))
    assert bundle["cause"] == copied["cause"]
    listed = [row["state"] for row in stormlog("runs", "list", str(target))]
    assert listed == [row["state"] for row in stormlog("runs", "list", str(runs))]
    again = ship(str(runs), "--to", str(target))
    assert again.returncode == 0 and "complete, 0 B sent" in again.stdout, again
    assert_whole(source, only(target))


def test_target_has_a_growing_run_that_is_never_called_dead_while_the_program_runs(tmp_path: Path) -> None:
    runs, target, go = tmp_path / "runs", tmp_path / "target", tmp_path / "go"
    words = command(runs, sys.executable, "-c", WAITS, str(go), options=("--ship", str(target)))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(target.glob("*/rank*/session.json")))
        source, copy = only(runs), only(target)
        rows = stormlog("runs", "list", str(target))
        assert [row["state"] for row in rows] == ["unknown"]
        assert not (copy / "requests").exists(), "its processes cannot be asked there"
        # What every reader does with runs whose supervisor is gone: a copy is left alone.
        subprocess.run([*STORMLOG, "analyze", str(target)], capture_output=True, check=False)
        assert json.loads((copy / "run.json").read_text())["status"] == "running"
        go.touch()
        running.communicate()
    assert running.returncode == 7
    until(lambda: status(source).get("state") == "complete")
    assert_whole(source, copy)


def test_rest_is_shipped_with_verdict_and_bundle_after_a_kill_of_the_supervisor(tmp_path: Path) -> None:
    runs, target = tmp_path / "runs", tmp_path / "target"
    words = command(runs, *program("waits_for_its_parents_end.py", "raise"), options=("--ship", str(target)))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(target.glob("*/rank*/session.json")))
        child = pid_of(runs)
        running.send_signal(signal.SIGKILL)
    until(lambda: is_gone(child))
    source = only(runs)
    until(lambda: status(source).get("state") == "complete")
    copy = only(target)
    assert_whole(source, copy)
    record = json.loads((copy / "run.json").read_text())
    assert record["status"] == "interrupted" and record["verdict"]
    (bundle,) = stormlog("oom", "list", str(target))
    assert bundle["cause"] == "exit"


def test_everything_is_shipped_with_the_verdict_after_a_kill_of_the_program(tmp_path: Path) -> None:
    runs, target = tmp_path / "runs", tmp_path / "target"
    never = str(tmp_path / "never")
    words = command(runs, sys.executable, "-c", WAITS, never, options=("--ship", str(target)))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(target.glob("*/rank*/session.json")))
        os.kill(pid_of(runs), signal.SIGKILL)
        running.communicate()
    # As the program ended: by the same signal, or with the shell's number for it.
    assert running.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    source = only(runs)
    until(lambda: status(source).get("state") == "complete")
    copy = only(target)
    assert_whole(source, copy)
    record = json.loads((copy / "run.json").read_text())
    assert record["signal"] == signal.SIGKILL
    (process,) = record["processes"]
    assert (process["ended"], process["cause"]) == ("failed", "sigkill")
    (bundle,) = stormlog("oom", "list", str(target))
    assert bundle["cause"] == "sigkill"
    counted = [stormlog("query", "events", str(path), "--limit", "1000000") for path in (source, copy)]
    for row in counted[0] + counted[1]:
        assert Path(row.pop("source_path")).is_dir()
    assert counted[0] == counted[1] != []


def test_copy_of_a_run_whose_processes_are_gone_is_left_to_its_source(tmp_path: Path) -> None:
    runs, copies = tmp_path / "runs", tmp_path / "copies"
    words = command(runs, *program("waits_for_its_parents_end.py", "raise"))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(runs.glob("*/rank*/session.json")))
        child = pid_of(runs)
        running.send_signal(signal.SIGKILL)
    until(lambda: is_gone(child))
    copy = copies / "copy"
    shutil.copytree(only(runs), copy)
    (copy / ".shipment.json").write_text("{}")
    assert [row["state"] for row in stormlog("runs", "list", str(copies))] == ["unknown"]
    assert json.loads((copy / "run.json").read_text())["status"] == "running"
    assert [row["state"] for row in stormlog("runs", "list", str(runs))] != ["unknown"]
    assert json.loads((only(runs) / "run.json").read_text())["status"] == "interrupted"


def test_killed_shipper_is_continued_by_the_command_and_by_the_next_run(tmp_path: Path) -> None:
    runs, target, go = tmp_path / "runs", tmp_path / "target", tmp_path / "go"
    options = ("--ship", str(target))
    words = command(runs, sys.executable, "-c", WAITS, str(go), options=options)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(target.glob("*/rank*/session.json")))
        shipper = until(lambda: shipper_of(only(runs)))
        os.kill(shipper, signal.SIGKILL)
        go.touch()
        running.communicate()
    assert running.returncode == 7, "the program never notices"
    source, copy = only(runs), only(target)
    assert status(source)["state"] == "shipping"
    assert json.loads((copy / "run.json").read_text())["status"] == "running"
    # The next run on its way to the same place takes it along.
    later = command(runs, sys.executable, "-c", "pass", options=(*options, "--wait"))
    assert subprocess.run(later, capture_output=True, check=False).returncode == 0
    assert status(source)["state"] == "complete"
    assert_whole(source, copy)
    # A copy that lost something is whole again after the command.
    (copy / "run.json").unlink()
    assert ship(str(source), "--to", str(target)).returncode == 0
    assert_whole(source, copy)


def test_target_that_cannot_be_written_costs_the_program_nothing_and_is_tried_again(tmp_path: Path) -> None:
    runs, target = tmp_path / "runs", tmp_path / "target"
    target.write_text("a file in its place")
    words = command(runs, sys.executable, "-c", "import sys; sys.exit(5)", options=("--ship", str(target)))
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 5
    source = only(runs)
    failed = until(lambda: status(source).get("failures") and status(source))
    assert "Not a directory" in failed["error"] and failed["state"] == "shipping"
    refused = ship(str(source), "--to", str(target))
    assert refused.returncode != 0 and "being shipped by another process" in refused.stderr
    target.unlink()
    target.mkdir()
    until(lambda: status(source)["state"] == "complete")
    assert_whole(source, only(target))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_target_that_is_full_is_continued_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    runs, target = tmp_path / "runs", small_disk / "target"
    code = "x = bytearray(30 << 20); import sys; sys.exit(5)"
    words = command(runs, sys.executable, "-c", code, options=("--ship", str(target)))
    assert subprocess.run(words, capture_output=True, check=False).returncode == 5
    source = only(runs)
    until(lambda: "No space left" in status(source).get("error", ""))
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    until(lambda: status(source)["state"] == "complete")
    assert status(source)["failures"] > 0
    assert_whole(source, only(target))


def test_target_that_is_read_only_is_continued_when_it_can_be_written(
    tmp_path: Path, small_disk: Path
) -> None:
    runs, target = tmp_path / "runs", small_disk / "target"
    subprocess.run(["mount", "-o", "remount,ro,size=64m", str(small_disk)], check=True)
    words = command(runs, sys.executable, "-c", "import sys; sys.exit(5)", options=("--ship", str(target)))
    assert subprocess.run(words, capture_output=True, check=False).returncode == 5
    source = only(runs)
    until(lambda: "Read-only file system" in status(source).get("error", ""))
    assert status(source)["state"] == "shipping"
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    until(lambda: status(source)["state"] == "complete")
    assert_whole(source, only(target))


def test_target_that_vanishes_is_made_again_with_everything(tmp_path: Path) -> None:
    runs, target, go = tmp_path / "runs", tmp_path / "target", tmp_path / "go"
    words = command(runs, sys.executable, "-c", WAITS, str(go), options=("--ship", str(target)))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        until(lambda: list(target.glob("*/rank*/session.json")))
        # Moved away, an open directory can still be written to; nothing would be found at the target.
        target.rename(tmp_path / "elsewhere")
        go.touch()
        running.communicate()
    assert running.returncode == 7
    source = only(runs)
    until(lambda: status(source).get("state") == "complete")
    assert_whole(source, only(target))


def test_receiver_that_hangs_or_is_down_is_not_waited_for(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    url = f"http://127.0.0.1:{port}/runs"
    words = command(runs, sys.executable, "-c", "import sys; sys.exit(5)", options=("--ship", url))
    assert subprocess.run(words, capture_output=True, check=False).returncode == 5
    source = only(runs)
    until(lambda: status(source).get("failures"))
    with object_stand_in(port) as store:
        store.released.clear()
        assert store.asked.wait(60)
        # It answers nothing, and the next run is over all the same.
        words = command(
            tmp_path / "more", sys.executable, "-c", "import sys; sys.exit(6)", options=("--ship", url)
        )
        assert subprocess.run(words, capture_output=True, check=False).returncode == 6
        store.released.set()
        until(lambda: status(source)["state"] == "complete")
        until(lambda: status(only(tmp_path / "more")).get("state") == "complete")


def test_objects_are_sent_once_with_the_token_and_come_back_as_run_directories(tmp_path: Path) -> None:
    runs, token = tmp_path / "runs", tmp_path / "token"
    token.write_text("s3cret-of-mine\n")
    token.chmod(0o600)
    with object_stand_in() as store:
        options = ("--ship", store.url, "--ship-token", str(token), "--wait")
        words = command(runs, sys.executable, "-c", "x = bytearray(30 << 20); 1 / 0", options=options)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and "s3cret" not in done.stderr
        source = only(runs)
        assert status(source)["state"] == "complete", status(source)
        assert store.tokens == {"Bearer s3cret-of-mine"}
        assert not any(b"s3cret" in body for body in [*store.objects.values(), *files(source).values()])
        (name,) = {path.split("/")[2] for path in store.objects}
        puts = store.puts
        again = ship(str(runs), "--to", store.url, "--token", str(token))
        assert again.returncode == 0 and store.puts == puts, "nothing is sent twice"
        fetch = [*STORMLOG, "fetch", f"{store.url}/{name}", str(tmp_path / "back"), "--token", str(token)]
        fetched = subprocess.run(fetch, capture_output=True, text=True, check=False)
        assert fetched.returncode == 0, fetched.stderr
        copy = only(tmp_path / "back")
        assert_whole(source, copy)
        (bundle,) = stormlog("oom", "list", str(copy))
        assert bundle["cause"] == "exit"
        # A block that is not what the manifest says, and a manifest that leads elsewhere.
        damaged = next(path for path in store.objects if "/files/run.json/" in path)
        store.objects[damaged] = b"x" * len(store.objects[damaged])
        fetch[-3] = str(tmp_path / "other")
        refused = subprocess.run(fetch, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "run.json at the target is damaged" in refused.stderr
        manifest = f"/runs/{name}/manifest.json"
        store.objects[manifest] = store.objects[manifest].replace(b'"run.json":', b'"../../run.json":')
        refused = subprocess.run(fetch, capture_output=True, text=True, check=False)
        assert refused.returncode == 5 and "manifest" in refused.stderr
        assert not (tmp_path / "run.json").exists()


def test_objects_go_over_tls_to_a_receiver_with_the_right_certificate_alone(tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    runs, back = tmp_path / "runs", tmp_path / "back"
    # Few files: each request is a process of Python.
    subprocess.run(command(runs, "true", options=("--no-heap", "--no-gpu")), capture_output=True, check=True)
    trusted = {"SSL_CERT_FILE": str(certificate), "STORMLOG_PYTHON": sys.executable}
    with object_stand_in(context=context) as store:
        refused = ship(str(runs), "--to", store.url, STORMLOG_PYTHON=sys.executable, SSL_CERT_FILE="")
        assert refused.returncode == 1 and "CERTIFICATE_VERIFY_FAILED" in refused.stderr and not store.puts
        done = ship(str(runs), "--to", store.url, **trusted)
        assert done.returncode == 0, done.stderr
        (name,) = {path.split("/")[2] for path in store.objects}
        fetch = [*STORMLOG, "fetch", f"{store.url}/{name}", str(back)]
        subprocess.run(fetch, capture_output=True, env={**os.environ, **trusted}, check=True)
    assert_whole(only(runs), only(back))


def test_mistakes_are_refused_before_the_program_starts(tmp_path: Path) -> None:
    for to, sentence in [("ftp://h/x", "unsupported URL scheme"), ("s3://bucket/x", "AWS_ACCESS_KEY_ID")]:
        words = command(tmp_path / "runs", "touch", str(tmp_path / "ran"), options=("--ship", to))
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 2 and sentence in done.stderr
    assert not (tmp_path / "ran").exists()
    missing = ship(str(tmp_path / "nothing"), "--to", str(tmp_path / "target"))
    assert missing.returncode != 0 and "there is no run here" in missing.stderr
