"""Metrics as the tests read them: the series of an exposition, by name and labels."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from run_command import STORMLOG

_SERIES = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)(?: # \{(.*)\} \S+(?: \S+)?)?$")
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"(?:,|$)')


class Metrics:
    """An exposition. Every line must be understood, and no series may be there twice."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.exemplars: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, str]] = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            found = _SERIES.match(line)
            assert found, line
            key = (found[1], frozenset(_labels(found[2] or "").items()))
            assert key not in self.series, line
            self.series[key] = float(found[3])
            if found[4]:
                self.exemplars[key] = _labels(found[4])

    def named(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        """The series of a name that have these labels."""
        wanted = set(labels.items())
        return {
            have: value
            for (is_named, have), value in self.series.items()
            if is_named == name and wanted <= have
        }

    def one(self, name: str, **labels: str) -> float:
        found = list(self.named(name, **labels).values())
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def labels(self, name: str, **labels: str) -> dict[str, str]:
        """The labels of the one series that there is."""
        (found,) = self.named(name, **labels)
        return dict(found)

    def deaths(self) -> dict[str, int]:
        """The causes that were counted."""
        found = self.named("stormlog_deaths_total")
        return {dict(have)["cause"]: int(value) for have, value in found.items() if value}


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        label = _LABEL.match(text, at)
        assert label, text
        found[label[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), label[2])
        at = label.end()
    return found


def once(*words: str | Path) -> Metrics:
    """What `stormlog serve --once` prints."""
    command = [*STORMLOG, "serve", "--once", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "", done.stderr
    return Metrics(done.stdout)
