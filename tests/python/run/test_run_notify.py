"""`run --on-alert` and `--webhook`: receivers that take, hang or refuse. The program never notices."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from run_command import cgroup, command, in_cgroup, program, until

DIES = "1 / 0"


class Receiver:
    """A real HTTP server on loopback that keeps what it is sent."""

    def __init__(self, status: int = 204, location: str = "") -> None:
        self.payloads: list[Any] = []
        self.headers: list[dict[str, str]] = []
        keeper = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                keeper.headers.append(dict(self.headers))
                keeper.payloads.append(json.loads(body))
                self.send_response(status)
                if location:
                    self.send_header("Location", location)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def receiver(**settings: Any) -> Iterator[Receiver]:
    made = Receiver(**settings)
    try:
        yield made
    finally:
        made.close()


def run(directory: Path, *options: str, code: str = DIES, **env: str) -> subprocess.CompletedProcess[str]:
    words = command(directory, sys.executable, "-c", code, options=options)
    return subprocess.run(
        words, capture_output=True, text=True, timeout=120, env={**os.environ, **env}, check=False
    )


def test_a_death_is_posted_with_the_answer_of_the_run(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret-of-mine\n")
    token.chmod(0o600)
    with receiver() as hook:
        done = run(tmp_path / "runs", "--webhook", hook.url, "--webhook-token", str(token))
        (payload,) = hook.payloads
    assert done.returncode == 1
    assert hook.headers[0]["Authorization"] == "Bearer s3cret-of-mine"
    assert hook.headers[0]["Content-Type"] == "application/json"
    assert payload["version"] == 1 and payload["event"] == "death"
    assert payload["headline"][0] in done.stderr, "the first line of the summary"
    assert any("ZeroDivisionError" in line for line in payload["headline"])
    assert payload["details"]["cause"] == "exit" and payload["details"]["is_program"]
    assert payload["run"] == str(next((tmp_path / "runs").iterdir()))
    assert "s3cret" not in json.dumps(payload) and "s3cret" not in done.stderr


def test_a_good_end_and_a_deliberate_one_are_not_reported(tmp_path: Path) -> None:
    with receiver() as hook:
        assert run(tmp_path / "runs", "--webhook", hook.url, code="pass").returncode == 0
        assert run(tmp_path / "runs", "--webhook", hook.url, code="import sys; sys.exit(3)").returncode == 3
    assert hook.payloads == []


def test_a_forecast_is_reported_while_the_program_runs_and_its_kill_afterwards(tmp_path: Path) -> None:
    with cgroup(300 << 20) as group, receiver() as hook:
        words = command(tmp_path / "runs", *program("leaks.py", "30", "800"), options=("--webhook", hook.url))
        done = subprocess.run(in_cgroup(group, words), capture_output=True, text=True, check=False)
        until(lambda: any(payload["event"] == "death" for payload in hook.payloads))
    events = [payload["event"] for payload in hook.payloads]
    assert events[0] == "alert" and events[-1] == "death", done.stderr
    first, last = hook.payloads[0], hook.payloads[-1]
    assert first["details"]["alert"].startswith("forecast_")
    assert "limit" in first["headline"][0]
    assert last["details"]["cause"] == "cgroup_oom_kill"
    assert last["details"]["limit_bytes"] == 300 << 20


def test_a_worker_that_dies_under_a_living_program_is_reported(tmp_path: Path) -> None:
    with receiver() as hook:
        words = command(
            tmp_path / "runs", *program("worker_dies.py", "fork", "segfault"), options=("--webhook", hook.url)
        )
        subprocess.run(words, capture_output=True, check=False)
        payload = until(lambda: hook.payloads and hook.payloads[0])
    assert payload["event"] == "death" and not payload["details"]["is_program"]
    assert "SIGSEGV" in payload["headline"][0]


def test_a_command_gets_the_payload_and_a_few_variables_without_a_shell(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    script = tmp_path / "hook with a space.sh"
    script.write_text(f'#!/bin/sh\n{{ cat; echo "$STORMLOG_EVENT|$STORMLOG_HEADLINE|$1"; }} > {kept}\n')
    script.chmod(0o755)
    done = run(tmp_path / "runs", "--on-alert", f"'{script}' '$HOME; touch {tmp_path}/no'")
    first, second, _ = until(
        lambda: kept.exists() and kept.read_text().count("\n") == 2 and kept.read_text()
    ).split("\n")
    assert json.loads(first)["event"] == "death"
    event, headline, word = second.split("|")
    assert event == "death" and headline == json.loads(first)["headline"][0]
    assert word == f"$HOME; touch {tmp_path}/no" and not (tmp_path / "no").exists()
    assert done.returncode == 1


def test_a_receiver_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    """The exit waits a second at most: the sentence shows that it did not wait for the delivery."""
    with contextlib.closing(socket.socket()) as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen()
        done = run(tmp_path / "runs", "--webhook", f"http://127.0.0.1:{hanging.getsockname()[1]}/")
        assert done.returncode == 1
        assert "still being delivered in the background" in done.stderr
        # It holds no stream of ours: the pipes above would not have ended.
        taken, _ = hanging.accept()
        taken.close()


def test_a_command_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    done = run(tmp_path / "runs", "--on-alert", f"sh -c 'echo $$ > {pid}; sleep 300'")
    assert done.returncode == 1 and "still being delivered" in done.stderr
    os.killpg(int(until(lambda: pid.exists() and pid.read_text().strip())), 9)


def test_failures_are_one_line_that_shows_no_secret(tmp_path: Path) -> None:
    with contextlib.closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))
        refused = closed.getsockname()[1]
    done = run(tmp_path / "runs", "--webhook", f"http://127.0.0.1:{refused}/services/T0P-SECRET")
    assert done.returncode == 1
    assert "1 of 1 alerts were not delivered: " in done.stderr and "cannot be reached" in done.stderr
    assert "T0P-SECRET" not in done.stderr
    with receiver(status=500) as broken:
        assert "answered with status 500" in run(tmp_path / "runs", "--webhook", broken.url).stderr
    done = run(tmp_path / "runs", "--on-alert", "/nonexistent/program x")
    assert done.returncode == 1 and "/nonexistent/program cannot be started" in done.stderr


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with receiver() as other, receiver(status=307, location=other.url) as hook:
        done = run(tmp_path / "runs", "--webhook", hook.url, STORMLOG_WEBHOOK_TOKEN="of-the-environment")
        assert "redirects are not followed" in done.stderr
        assert other.payloads == []
    assert hook.headers[0]["Authorization"] == "Bearer of-the-environment"


def test_secrets_in_what_is_reported_are_scrubbed(tmp_path: Path) -> None:
    with receiver() as hook:
        run(tmp_path / "runs", "--webhook", hook.url, code="raise ValueError('--password=hunter2hunter2')")
    assert "ValueError" in json.dumps(hook.payloads) and "hunter2" not in json.dumps(hook.payloads)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--webhook", "ftp://h/x"], "neither http:// nor https://"),
        (["--webhook", "http://user:word@h/x"], "give a token in a file instead"),
        (["--on-alert", "'open"], "unclosed quotation mark"),
        (["--webhook", "http://h/", "--webhook-token", "/etc/passwd"], "other users can read it"),
    ],
)
def test_invalid_alert_options_are_rejected_before_the_start(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    done = run(tmp_path / "runs", *options, code=f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert done.returncode == 2 and sentence in done.stderr
    assert not (tmp_path / "ran").exists() and not (tmp_path / "runs").exists()


def test_https_goes_through_the_package_and_checks_the_certificate(tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    about = ["-keyout", str(key), "-out", str(certificate), "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(
        [*make, *about, "-addext", "subjectAltName=DNS:localhost"], capture_output=True, check=True
    )
    with receiver() as hook:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        hook.server.socket = context.wrap_socket(hook.server.socket, server_side=True)
        url = f"https://localhost:{hook.server.server_port}/hook"
        run(tmp_path / "runs", "--webhook", url, SSL_CERT_FILE=str(certificate))
        until(lambda: hook.payloads)
        run(tmp_path / "runs", "--webhook", url)
    assert len(hook.payloads) == 1, "a certificate that no one vouches for is refused"
