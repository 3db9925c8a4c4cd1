"""A threaded HTTP service with sessions that expire after ten seconds."""

import http.client
import http.server
import random
import threading
import time

from clock import steps

random.seed(2)


class Service(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.sessions = {}
        self.lock = threading.Lock()

    def touch(self, user):
        now = time.monotonic()
        with self.lock:
            self.sessions[user] = (now, bytes(random.randrange(50_000, 250_000)))
            for name in [name for name, (at, _) in self.sessions.items() if now - at > 10]:
                del self.sessions[name]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.touch(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_):
        pass


service = Service()
threading.Thread(target=service.serve_forever, daemon=True).start()
for step in steps(0.08):
    client = http.client.HTTPConnection(*service.server_address)
    client.request("POST", f"/user/{step}", body=bytes(random.randrange(1 << 20)))
    client.getresponse().read()
    client.close()
service.shutdown()
