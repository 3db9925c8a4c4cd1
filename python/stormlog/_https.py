"""`python -m stormlog._https`: one POST over TLS for the native commands, which have no TLS of their own.

A line of JSON (`url`, `headers`, `timeout`) and the body come on standard input; the status goes to standard
output. Certificates are checked as Python does. Redirects are not followed: secrets would go along.
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from urllib.parse import urlsplit


def post(url: str, headers: list[list[str]], timeout: float, body: bytes) -> int:
    """The status of the receiver's answer."""
    parts = urlsplit(url)
    assert parts.scheme == "https" and parts.hostname
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    context = ssl.create_default_context()
    connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
    try:
        connection.request("POST", path, body, {"User-Agent": "stormlog", **dict(headers)})
        return connection.getresponse().status
    finally:
        connection.close()


def main() -> int:
    """Reads the request, posts it, prints the status or the reason."""
    asked = json.loads(sys.stdin.buffer.readline())
    try:
        status = post(asked["url"], asked["headers"], asked["timeout"], sys.stdin.buffer.read())
    except (OSError, http.client.HTTPException) as error:
        # The text of such an error names the host at most, never the path.
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return 1
    sys.stdout.write(f"{status}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
