"""`run --ship s3://…` and `fetch` against moto's server, a stand-in for S3 that checks each signature."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from components import python_with
from run_command import STORMLOG, command, until

#: Makes a user who may use S3 and a bucket, in the four requests that moto takes without a signature.
PREPARE = """
import boto3, json, sys
common = {"endpoint_url": sys.argv[1], "region_name": "us-east-1"}
common.update(aws_access_key_id="x", aws_secret_access_key="y")
users = boto3.client("iam", **common)
users.create_user(UserName="ship")
key = users.create_access_key(UserName="ship")["AccessKey"]
allow = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
users.put_user_policy(UserName="ship", PolicyName="s3", PolicyDocument=json.dumps(allow))
boto3.client("s3", **common).create_bucket(Bucket="our-runs")
print(json.dumps({"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}))
"""


def listens(number: int) -> bool:
    """Without a request: moto counts those."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", number)) == 0


def files(run: Path) -> dict[str, bytes]:
    found = (path for path in run.rglob("*") if path.is_file() and not path.name.startswith(".ship"))
    return {str(path.relative_to(run)): path.read_bytes() for path in found}


def test_runs_go_to_a_bucket_and_come_back(
    tmp_path: Path, started: Callable[..., Any], port: Callable[[], int]
) -> None:
    python, number = python_with("moto[server]", "boto3"), port()
    url = f"http://127.0.0.1:{number}"
    started(
        python,
        "-m",
        "moto.server",
        "-p",
        str(number),
        name="moto",
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "4"},
    )
    until(lambda: listens(number))
    keys = json.loads(subprocess.run([python, "-c", PREPARE, url], capture_output=True, check=True).stdout)
    env = {**os.environ, **keys, "AWS_ENDPOINT_URL": url}
    runs, to = tmp_path / "runs", "s3://our-runs/team a/nightly"
    for code in ("x = bytearray(30 << 20); 1 / 0", "pass"):
        words = command(runs, sys.executable, "-c", code, options=("--ship", to, "--wait"))
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
        assert f"to {to}" in done.stderr, done.stderr
        assert keys["AWS_SECRET_ACCESS_KEY"] not in done.stderr
    fetch = [*STORMLOG, "fetch", to, str(tmp_path / "back")]
    fetched = subprocess.run(fetch, capture_output=True, text=True, env=env, check=False)
    assert fetched.returncode == 0 and fetched.stdout.count("complete") == 2, fetched
    copies = sorted((tmp_path / "back").iterdir())
    assert [files(copy) for copy in copies] == [files(run) for run in sorted(runs.iterdir())]
    one = [*STORMLOG, "fetch", f"{to}/{copies[0].name}", str(tmp_path / "one")]
    assert subprocess.run(one, capture_output=True, env=env, check=False).returncode == 0
    assert files(tmp_path / "one" / copies[0].name) == files(copies[0])
    wrong = {**env, "AWS_SECRET_ACCESS_KEY": "another"}
    refused = subprocess.run(fetch, capture_output=True, text=True, env=wrong, check=False)
    assert refused.returncode != 0 and "status 403" in refused.stderr, "signatures are checked"
