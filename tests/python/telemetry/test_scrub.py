"""`stormlog.scrub`: it takes out what stormlog 0.4.3 does; a hostile text is no slower than a long one.

The other package is the real one: STORMLOG_PEER_PYTHON names an interpreter that has it installed.
"""

from __future__ import annotations

import json
import os
import subprocess

import peer_scrub
import pytest
from stormlog.scrub import REDACTED, KnownSecrets, scrub_text

PEER = os.environ.get("STORMLOG_PEER_PYTHON")


@pytest.mark.skipif(
    not PEER, reason="STORMLOG_PEER_PYTHON is not set: no interpreter with stormlog 0.4.3 to compare with"
)
def test_every_text_comes_out_as_from_the_peer() -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(PEER), peer_scrub.__file__]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    mine = json.loads(json.dumps(peer_scrub.outcomes()))
    for name, value in theirs.items():
        assert mine[name] == value, name
    assert len(mine) == len(theirs) > 50


@pytest.mark.parametrize(
    "part",
    [
        "a://",
        "a://b@",
        "eyJ",
        "password=",
        "key.",
        '"',
        '\\"',
        "'token': [",
        "--key ",
        "bearer ",
        "-----BEGIN ",
    ],
)
def test_a_hostile_text_is_no_slower_than_a_long_one(part: str) -> None:
    # Were any search quadratic, this would take hours.
    text = part * (500_000 // len(part))
    assert "hunter2-secret" not in scrub_text(text + " token=hunter2-secret")


def test_a_known_secret_never_gets_out_whole() -> None:
    known = KnownSecrets(["correct horse", "battery staple"])
    text = "say correct horsebattery staple, correct horse"
    assert known.redact(text) == f"say {REDACTED}, {REDACTED}"
    assert not known.found_in(scrub_text(text, max_bytes=12, secrets=known))
