"""SmallBucket: a bucket of a cloud, on loopback."""

import hashlib
import threading
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3
"""So few objects are listed at once: every test follows pages."""


class SmallBucket(ThreadingHTTPServer):
    """A bucket on loopback that answers as S3 and Google do, or, with an `account`, as Azure.

    It holds `objects`, name to content; `requested` are the names that were fetched, in order.

    `refused` are answered with 403, "*" is the list. `before_get` is called with the name of what
    is fetched next. `put` also says when an object changed, in seconds.
    """

    daemon_threads = True

    def __init__(self, name="models", account=""):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.base = f"/{account}/{name}" if account else f"/{name}"
        self.is_azure = bool(account)
        self.objects = {}
        self.times = {}
        self.refused = set()
        self.requested = []
        self.before_get = None
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def put(self, name, content, time_s=1_700_000_000):
        self.objects[name] = content
        self.times[name] = time_s


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        path, query = urlsplit(self.path)[2:4]
        path = unquote(path)
        requested = {name: values[0] for name, values in parse_qs(query).items()}
        if path.rstrip("/") == self.server.base:
            self._list(requested.get("prefix", ""), self._after(requested))
        else:
            self._get(path.removeprefix(self.server.base + "/"))

    def log_message(self, *_):
        """Say nothing."""

    def _after(self, requested):
        return next((requested[n] for n in ("continuation-token", "marker") if n in requested), "")

    def _list(self, prefix, after):
        if "*" in self.server.refused:
            return self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        names = sorted(n for n in self.server.objects if n.startswith(prefix) and n > after)
        page, more = names[:PAGE], len(names) > PAGE
        as_azure = self.server.is_azure
        rows = "".join(map(self._azure_row if as_azure else self._row, page))
        if as_azure:
            token = f"<NextMarker>{escape(page[-1])}</NextMarker>" if more else "<NextMarker/>"
            text = f"<EnumerationResults><Blobs>{rows}</Blobs>{token}</EnumerationResults>"
        else:
            token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" * more
            text = f"<ListBucketResult>{rows}{token}</ListBucketResult>"
        return self._answer(200, text.encode(), {"Content-Type": "application/xml"})

    def _row(self, name):
        time = datetime.fromtimestamp(self.server.times[name], UTC)
        return (
            f"<Contents><Key>{escape(name)}</Key><Size>{len(self.server.objects[name])}</Size>"
            f"<LastModified>{time:%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            f"<ETag>{escape(self._tag(name))}</ETag></Contents>"
        )

    def _azure_row(self, name):
        time = datetime.fromtimestamp(self.server.times[name], UTC)
        return (
            f"<Blob><Name>{escape(name)}</Name><Properties>"
            f"<Last-Modified>{format_datetime(time, usegmt=True)}</Last-Modified>"
            f"<Content-Length>{len(self.server.objects[name])}</Content-Length>"
            f"<Content-Type>application/octet-stream</Content-Type>"
            f"<Etag>{escape(self._tag(name))}</Etag></Properties></Blob>"
        )

    def _tag(self, name):
        return f'"{hashlib.sha256(self.server.objects[name]).hexdigest()[:32]}"'

    def _get(self, name):
        if self.command == "GET":
            self.server.requested.append(name)
            if self.server.before_get:
                self.server.before_get(name)
        if name in self.server.refused:
            return self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
        if name not in self.server.objects:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        if self.headers.get("If-Match", self._tag(name)) != self._tag(name):
            return self._answer(412, b"")
        time = datetime.fromtimestamp(self.server.times[name], UTC)
        headers = {"ETag": self._tag(name), "Last-Modified": format_datetime(time, usegmt=True)}
        return self._answer(200, self.server.objects[name], headers)

    def _answer(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
