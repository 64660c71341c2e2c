"""A small reverse proxy that puts a server below a path prefix, as ingresses do."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DROPPED = ("connection", "keep-alive", "transfer-encoding", "host")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def do_GET(self):
        self.pass_on()

    def do_POST(self):
        self.pass_on()

    def pass_on(self):
        prefix = self.server.prefix
        if not self.path.startswith(f"{prefix}/"):
            self.send_error(404)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in DROPPED}
        connection.request(self.command, self.path.removeprefix(prefix), body, headers)
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in DROPPED:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.close_connection = True
        self.end_headers()
        try:
            while piece := answer.read1(65536):
                self.wfile.write(piece)
        except OSError:
            pass  # the browser has left
        finally:
            connection.close()


class Prefix(ThreadingHTTPServer):
    """Listens on a free port; `url` is that of the page below the prefix."""

    daemon_threads = True

    def __init__(self, prefix, behind):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.prefix, self.behind = prefix, behind
        self.url = f"http://127.0.0.1:{self.server_address[1]}{prefix}/ui/"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
