"""`stormlog serve` as a service: who gets what, by token, by socket and by Host header, and how it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from exposition import Metrics
from run_command import STORMLOG, command, until

TOKEN = "0123456789abcdef0123456789abcdef"
OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"


class Service:
    """A running service, and requests to it."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process, self.address = process, address
        self.trusted: ssl.SSLContext | None = None

    def connection(self) -> http.client.HTTPConnection:
        if self.trusted:
            return http.client.HTTPSConnection(self.address, timeout=60, context=self.trusted)
        if not self.address.startswith("unix:"):
            return http.client.HTTPConnection(self.address, timeout=60)
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(self.address.removeprefix("unix:"))
        return connection

    def get(
        self, path: str, token: str | None = None, method: str = "GET", **headers: str
    ) -> tuple[int, str]:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        with closing(self.connection()) as connection:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            self.headers = answer.headers
            return answer.status, answer.read().decode()


@contextmanager
def service(*words: str | Path) -> Iterator[Service]:
    command = [*STORMLOG, "serve", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = process.stderr.readline()
        found = re.match(r"Listening at (?:https?://)?(unix:\S+|[^/]+)", said)
        assert found, said + process.stderr.read()
        try:
            yield Service(process, found[1])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.stderr.read()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A directory with a run that has ended, whose program has a name that is markup."""
    program = tmp_path / "<script>alert(1)<!--.py"
    program.write_text("import os\nos.kill(os.getpid(), 11)\n")
    directory = tmp_path / "runs"
    subprocess.run(command(directory, sys.executable, str(program)), stderr=subprocess.DEVNULL)
    return directory


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text(TOKEN + "\n")
    return path


def test_without_a_token_only_metrics_and_health_are_answered(runs: Path) -> None:
    with service("--listen", "127.0.0.1:0", runs) as node:
        status, text = node.get("/metrics")
        metrics = Metrics(text)
        assert status == 200 and metrics.deaths() == {"signal": 1}
        assert node.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert node.get("/healthz") == (200, "ok\n")
        assert node.get("/healthz", method="HEAD") == (200, "")
        for path in ("/runs", "/runs/", f"/runs/{next(runs.iterdir()).name}/report"):
            status, said = node.get(path)
            assert status == 401 and "token" in said and str(runs) not in said
        assert node.get("/runs", token=TOKEN)[0] == 401, "there is no token"
        assert node.get("/metrics", token="wrong")[0] == 401, "a wrong token is a mistake of the caller"
        assert node.get("/metrics", method="POST")[0] == 405
        assert node.get("/other")[0] == 404


def test_with_the_token_runs_and_pages_are_answered(runs: Path, token_file: Path) -> None:
    with service("--listen", "127.0.0.1:0", "--token-file", token_file, runs) as node:
        status, text = node.get("/runs", token=TOKEN)
        (row,) = json.loads(text)
        assert status == 200 and set(row) >= {"path", "state", "started_at", "ended_at", "bytes", "verdict"}
        run = Path(row["path"])
        status, page = node.get(f"/runs/{run.name}/report", token=TOKEN)
        assert status == 200 and node.headers["Content-Type"].startswith("text/html")
        assert "<script>alert(1)" not in page, "a program's name is no markup"
        for path in (
            "/runs/../report",
            "/runs/%2e%2e/report",
            f"/runs/{run.parent.name}/report",
            "/runs//report",
        ):
            assert node.get(path, token=TOKEN)[0] == 404, path
        assert node.get("/runs", token=TOKEN + "0")[0] == 401
        status, text = node.get("/metrics", token=TOKEN, Accept=OPENMETRICS)
        assert status == 200 and text.endswith("# EOF\n")
        assert node.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")


def test_other_hosts_are_refused(runs: Path, token_file: Path) -> None:
    with service("--listen", "127.0.0.1:0", "--token-file", token_file, runs) as node:
        for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.1:9464"):
            assert node.get("/metrics", Host=host)[0] == 421, host
            assert node.get("/runs", token=TOKEN, Host=host)[0] == 421, host
        assert node.get("/metrics", Host="localhost:1")[0] == 200, "a forwarded port"


def test_a_unix_socket_is_its_owners_and_needs_no_token(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "node.sock"
    with service("--listen", f"unix:{path}", runs) as node:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert node.get("/runs")[0] == 200 and node.get("/metrics")[0] == 200
    assert not path.exists()


def test_token_files_and_addresses_that_protect_nothing_are_refused(runs: Path, token_file: Path) -> None:
    def refused(*words: str | Path) -> str:
        command = [*STORMLOG, "serve", *map(str, words), str(runs)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, done
        return done.stderr

    assert "other machines" in refused("--listen", "0.0.0.0:0", "--token-file", token_file)
    assert "other machines" in refused("--listen", "0.0.0.0:0")
    token_file.chmod(0o640)
    assert "chmod 600" in refused("--token-file", token_file)
    token_file.chmod(0o600)
    token_file.write_text("short")
    assert "at least" in refused("--token-file", token_file)
    if os.getuid() == 0:
        token_file.write_text(TOKEN)
        os.chown(token_file, 65534, 65534)
        assert "belong to you" in refused("--token-file", token_file)


def test_a_service_sees_a_death_between_two_scrapes_and_keeps_it(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    with service("--listen", "127.0.0.1:0", runs) as node:
        assert Metrics(node.get("/metrics")[1]).deaths() == {}
        code = "import os; os.kill(os.getpid(), 11)"
        subprocess.run(command(runs, sys.executable, "-c", code), stderr=subprocess.DEVNULL)
        until(lambda: Metrics(node.get("/metrics")[1]).deaths() == {"signal": 1})
        (run,) = runs.iterdir()
        run.rename(tmp_path / "removed")
        until(lambda: Metrics(node.get("/metrics")[1]).one("stormlog_runs", state="failed") == 0)
        assert Metrics(node.get("/metrics")[1]).deaths() == {"signal": 1}
        (tmp_path / "removed").rename(run)
        until(lambda: Metrics(node.get("/metrics")[1]).one("stormlog_runs", state="failed") == 1)
        assert Metrics(node.get("/metrics")[1]).deaths() == {"signal": 1}, "the same run again"


def test_another_address_speaks_tls_and_needs_the_token_for_everything(
    runs: Path, token_file: Path, tmp_path: Path
) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", "-x509", *curve, *subject, *files], check=True, capture_output=True)
    words = ["--listen", "0.0.0.0:0", "--token-file", str(token_file)]
    words += ["--tls-cert", str(certificate), "--tls-key", str(key)]
    key.chmod(0o644)
    command = [*STORMLOG, "serve", *words, str(runs)]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and "chmod 600" in refused.stderr
    key.chmod(0o600)
    with service(*words, runs) as node:
        node.address = node.address.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises((http.client.HTTPException, OSError)):
            node.get("/metrics", token=TOKEN)
        node.trusted = ssl.create_default_context(cafile=str(certificate))
        assert node.get("/metrics")[0] == 401 and node.get("/other")[0] == 401
        assert node.get("/healthz", Host="node-1.example:9464") == (200, "ok\n")
        status, text = node.get("/metrics", token=TOKEN, Host="node-1.example:9464")
        assert status == 200 and Metrics(text).deaths() == {"signal": 1}
        assert node.get("/runs", token=TOKEN)[0] == 200
