"""`stormlog serve --allow-trigger`: who may ask a process for a snapshot, how often, and what is logged."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from run_command import STORMLOG, command, until

TOKEN = "0123456789abcdef0123456789abcdef"
HOLDS = (
    "import time; kept = [bytearray(1 << 20) for _ in range(16)]; print('ready', flush=True); time.sleep(600)"
)


@contextmanager
def serving(runs: Path, log: Path, *words: str) -> Iterator[str]:
    with log.open("w") as errors:
        words = ("serve", str(runs), "--listen", "127.0.0.1:0", *words)
        service = subprocess.Popen([*STORMLOG, *words], stderr=errors)
        try:
            line = until(lambda: log.read_text().partition("\n")[1] and log.read_text().splitlines()[0])
            yield line.removeprefix("Listening at http://").removesuffix("/metrics")
        finally:
            service.terminate()
            assert service.wait(60) == 0


def ask(
    address: str, method: str, path: str, token: str | None = TOKEN, body: bytes | None = None
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request(method, path, body, headers={"Authorization": f"Bearer {token}"} if token else {})
    reply = connection.getresponse()
    status, text = reply.status, reply.read().decode()
    connection.close()
    return status, text


def test_owner_asks_for_a_snapshot_and_every_attempt_is_logged(tmp_path: Path) -> None:
    runs, log, token = tmp_path / "runs", tmp_path / "log", tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    words = command(runs, sys.executable, "-c", HOLDS, options=("--quiet", "--die-with-supervisor"))
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    try:
        (run,) = runs.iterdir()
        with serving(runs, log, "--token-file", str(token), "--allow-trigger") as address:
            path = f"/runs/{run.name}/snapshot"
            assert ask(address, "POST", path, token=None)[0] == 401
            assert ask(address, "POST", path, token="x" * 32)[0] == 401
            assert not (run / "requests").exists(), "nothing is left by a client without the token"
            assert ask(address, "POST", "/runs/none/snapshot")[0] == 404
            assert ask(address, "POST", f"{path}?pid=1")[0] == 409
            assert ask(address, "POST", path, body=b"x" * 100_000)[0] == 413
            assert ask(address, "POST", f"/runs/{run.name}/other")[0] == 405
            status, text = ask(address, "POST", path)
            assert status == 202, text
            asked = json.loads(text)
            assert ask(address, "POST", path)[0] == 429
            where = f"/runs/{run.name}/requests/{asked['pid']}-{asked['id']}"
            assert ask(address, "GET", where, token=None)[0] == 401
            assert ask(address, "GET", f"/runs/{run.name}/requests/../run")[0] == 404
            found = until(
                lambda: ask(address, "GET", where)[0] == 200 and json.loads(ask(address, "GET", where)[1])
            )
            assert found["state"] == "done" and found["lines"][0].startswith("Memory of ")
            assert str(tmp_path) not in json.dumps(found["lines"])
        lines = log.read_text().splitlines()[1:]
        assert [line.split(": ", 1)[1].split(",")[0].split(" as ")[0] for line in lines] == [
            *["refused"] * 5,
            "accepted",
            "refused",
        ], lines
        with serving(runs, tmp_path / "closed", "--token-file", str(token)) as address:
            assert ask(address, "POST", path)[0] == 405
    finally:
        program.kill()
        program.communicate()


def test_client_without_the_token_cannot_write_a_line_of_the_log(tmp_path: Path) -> None:
    runs, log, token = tmp_path / "runs", tmp_path / "log", tmp_path / "token"
    runs.mkdir()
    token.touch(0o600)
    token.write_text(TOKEN)
    forged = (
        "/runs/x\n2026-01-01\u00a000:00:00Z\u00a0snapshot\u00a0of\u00a0run\u00a0y:\u00a0accepted/snapshot"
    )
    with serving(runs, log, "--token-file", str(token), "--allow-trigger") as address:
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(f"POST {forged} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 401")
        (line,) = until(lambda: log.read_text().splitlines()[1:])
    assert line.endswith("refused, no token") and not line.startswith("2026-01-01")


STEPS_AND_ALLOCATES = """
import time, stormlog
stormlog.step(1)
print("ready", flush=True)
kept = []
while len(kept) < 6000:
    kept.append(bytes(64 << 10))
    time.sleep(0.01)
"""


def test_owner_asks_for_a_heap_recording_of_a_process_without_one(tmp_path: Path) -> None:
    runs, log, token = tmp_path / "runs", tmp_path / "log", tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    script = tmp_path / "program.py"
    script.write_text(STEPS_AND_ALLOCATES)
    options = ("--quiet", "--die-with-supervisor", "--no-heap", "--no-gpu")
    words = command(runs, sys.executable, str(script), options=options)
    program = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    try:
        (run,) = runs.iterdir()
        until(lambda: list((run / "requests").glob("*.listener.json")))
        with serving(runs, log, "--token-file", str(token), "--allow-trigger") as address:
            assert ask(address, "POST", f"/runs/{run.name}/heap", token=None)[0] == 401
            status, text = ask(address, "POST", f"/runs/{run.name}/heap")
            assert status == 202, text
            asked = json.loads(text)
            where = f"/runs/{run.name}/requests/{asked['pid']}-{asked['id']}"

            def done() -> object:
                status, text = ask(address, "GET", where)
                return status == 200 and json.loads(text)["state"] == "done" and json.loads(text)

            holders = until(done)["holders"]
            assert holders[0]["line"] == 7 and holders[0]["bytes"] > 1 << 20, holders
        assert "heap recording of run" in log.read_text()
        (capture,) = run.glob("snapshots/*/heap.bin")
        stats = [*STORMLOG, "stats", str(capture), "--json"]
        shown = json.loads(subprocess.run(stats, capture_output=True, text=True, check=True).stdout)
        assert shown["top_by_size"][0]["line"] == 7
    finally:
        program.kill()
        program.communicate()


def test_trigger_needs_a_token(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    words = [*STORMLOG, "serve", str(tmp_path / "runs"), "--allow-trigger", "--listen", "127.0.0.1:0"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--token-file" in done.stderr
