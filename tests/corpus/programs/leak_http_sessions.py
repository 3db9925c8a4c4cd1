"""An HTTP server opens a session for every visitor without a cookie; none expires. Memory: anonymous."""

import http.client
import http.server
import secrets
import threading

from clock import steps


class Shop(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Page)
        self.sessions = {}

    def open_session(self):
        token = secrets.token_hex(16)
        self.sessions[token] = {"basket": [], "history": bytes(120_000)}  # leak
        return token


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        token = self.headers.get("Cookie") or self.server.open_session()
        body = b"<p>hello</p>" * 2000
        self.send_response(200)
        self.send_header("Set-Cookie", token)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


shop = Shop()
threading.Thread(target=shop.serve_forever, daemon=True).start()
for _ in steps(0.08):
    visitor = http.client.HTTPConnection(*shop.server_address)
    visitor.request("GET", "/")
    visitor.getresponse().read()
    visitor.close()
shop.shutdown()
