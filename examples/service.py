"""An HTTP service that remembers every session, and a client of its own that keeps opening new ones.

Usage: stormlog run examples/service.py [SECONDS]
"""

from __future__ import annotations

import os
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sessions: dict[str, bytearray] = {}


class Handler(BaseHTTPRequestHandler):
    """One page; the path names the session."""

    def do_GET(self) -> None:
        self.remember(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{len(sessions)} sessions\n".encode())

    def remember(self, name: str) -> None:
        # No session ever ends.
        sessions[name] = bytearray(256 << 10)

    def log_message(self, *_: object) -> None:
        """Prints nothing."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Path("service.pid").write_text(str(os.getpid()))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    end = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else 20)
    number = 0
    while time.monotonic() < end:
        urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{number}").read()
        number += 1
        time.sleep(0.05)
    server.shutdown()


if __name__ == "__main__":
    main()
