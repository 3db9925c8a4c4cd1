"""Prometheus, Alertmanager and `stormlog serve` on loopback, with their files in one directory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import components
from run_command import until

Start = Callable[..., Any]
# Of a version that needs a file at a fixed place: it gets a root of its own, in a mount namespace of its own.
ALERTMANAGER = """
cd "$1"; mkdir -p usr/lib usr/lib64 usr/bin usr/share/prometheus data
ln -s usr/lib lib; ln -s usr/lib64 lib64
for folder in lib lib64; do mount --bind /usr/$folder usr/$folder; done
for folder in bin share/prometheus; do mount --bind "$2/usr/$folder" usr/$folder; done
mount --bind "$3" data
exec chroot . prometheus-alertmanager --config.file=/data/alertmanager.yml --storage.path=/data \
    --web.listen-address="127.0.0.1:$4" --cluster.listen-address=
"""
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{place}/rules.yml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alertmanager}']}}]}}]}}
scrape_configs:
  - job_name: stormlog
    static_configs: [{{targets: ['127.0.0.1:{serve}']}}]
    authorization: {{credentials_file: {place}/token}}
"""


def printed(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "stormlog", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def get(port: int, path: str, **query: str) -> Any:
    """The JSON of a server of ours; `None` while it does not answer."""
    text = f"?{urllib.parse.urlencode(query)}" if query else ""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}{text}", timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def quick_rules() -> str:
    """The printed rules with short waits: what holds for a second fires, and a death is old after ten."""
    rules = printed("rules")
    rules, waits = re.subn(r"for: \d+m\n", "for: 1s\n", rules)
    rules, deaths = re.subn(r"(timestamp_seconds\{cause.*\}) < 300", r"\1 < 10", rules)
    assert waits >= 8 and deaths == 2
    return rules


class Monitoring:
    """The three servers over one directory of runs."""

    def __init__(self, place: Path, started: Start, port: Callable[[], int]) -> None:
        root = components.unpacked("sid", *components.MONITORING)
        self.runs, self.place = place / "runs", place
        self.runs.mkdir()
        self.serve, self.prometheus, self.alertmanager = port(), port(), port()
        token = place / "token"
        token.write_text("token-of-the-test-0123")
        token.chmod(0o600)
        (place / "rules.yml").write_text(quick_rules())
        (place / "prometheus.yml").write_text(
            PROMETHEUS.format(place=place, alertmanager=self.alertmanager, serve=self.serve)
        )
        words = [sys.executable, "-m", "stormlog", "serve", "--listen", f"127.0.0.1:{self.serve}"]
        started(*words, "--token-file", token, "--holders", self.runs, name="serve")
        files = [f"--config.file={place}/prometheus.yml", f"--storage.tsdb.path={place}/tsdb"]
        address = f"--web.listen-address=127.0.0.1:{self.prometheus}"
        started(root / "usr/bin/prometheus", *files, address, name="prometheus")
        data, chroot = place / "alertmanager", place / "chroot"
        data.mkdir()
        chroot.mkdir()
        (data / "alertmanager.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        inside = ["unshare", "-m", "--propagation", "private", "sh", "-ec", ALERTMANAGER, "sh"]
        started(*inside, chroot, root, data, str(self.alertmanager), name="alertmanager")

    def query(self, expression: str) -> list[Any]:
        """What Prometheus answers now."""
        found = get(self.prometheus, "/api/v1/query", query=expression)
        return found["data"]["result"] if found else []

    def alerts(self) -> dict[str, dict[str, str]]:
        """Labels of the alerts that Alertmanager holds as firing, by name."""
        found = get(self.alertmanager, "/api/v2/alerts", active="true") or []
        return {alert["labels"]["alertname"]: alert["labels"] for alert in found}

    def firing(self, name: str) -> dict[str, str]:
        """The alert's labels, once it has reached Alertmanager."""
        found: dict[str, str] = until(lambda: self.alerts().get(name))
        return found

    def resolved(self, name: str) -> None:
        """Waits until Prometheus has it no more."""
        firing = f'ALERTS{{alertname="{name}", alertstate="firing"}}'
        until(lambda: not self.query(firing))
