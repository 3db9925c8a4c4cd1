"""An HTTP server that keeps what is PUT: a stand-in for an object store, or nginx with `dav_methods`."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading
from collections.abc import Iterator


class ObjectStandIn:
    """Objects by path. `hold` keeps answers back, `status` refuses."""

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.tokens: set[str] = set()
        self.puts = 0
        self.asked = threading.Event()
        self.released = threading.Event()
        self.released.set()
        self.status = 201
        keeper = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status: int, body: bytes = b"") -> None:
                keeper.tokens.add(self.headers.get("Authorization", ""))
                keeper.asked.set()
                keeper.released.wait()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                keeper.puts += 1
                if keeper.status < 300:
                    keeper.objects[self.path] = body
                self.answer(keeper.status)

            def do_GET(self) -> None:
                found = keeper.objects.get(self.path)
                self.answer(404 if found is None else 200, found or b"")

            def do_DELETE(self) -> None:
                keeper.objects.pop(self.path, None)
                self.answer(204)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}/runs"
        if context:
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.port}/runs"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.released.set()
        self.server.shutdown()
        self.server.server_close()


@contextlib.contextmanager
def object_stand_in(port: int = 0, context: ssl.SSLContext | None = None) -> Iterator[ObjectStandIn]:
    made = ObjectStandIn(port, context)
    try:
        yield made
    finally:
        made.close()
