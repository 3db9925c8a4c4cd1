"""`python -m stormlog._https`: one request over TLS for the native commands, which have no TLS of their own.

A line of JSON (`method`, `url`, `headers`, `timeout`, `most`) and the body come on standard input; a line
with the status and up to `most` bytes of the answer go to standard output. Certificates are checked as
Python does. Redirects are not followed: secrets would go along.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from typing import Any
from urllib.parse import urlsplit


def send(asked: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """The status and the beginning of the receiver's answer."""
    url, timeout = asked["url"], asked["timeout"]
    parts = urlsplit(url)
    assert parts.scheme == "https" and parts.hostname
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    context = ssl.create_default_context()
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
    try:
        headers = {"User-Agent": "stormlog", **dict(asked["headers"])}
        connection.request(asked.get("method", "POST"), path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(asked.get("most", 0))
    finally:
        connection.close()


def main() -> int:
    """Reads the request, sends it, prints the status and the answer, or the reason."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        status, body = send(asked, sys.stdin.buffer.read())
    except (OSError, http.client.HTTPException) as error:
        # The text of such an error names the host at most, never the path.
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.buffer.write(f"{status}\n".encode() + body)
    return 0


if __name__ == "__main__":
    sys.exit(main())
