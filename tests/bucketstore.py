"""A store in memory that speaks as Amazon's S3 does, as far as Arrow asks: objects, uploads in parts, copies, lists.

It has one bucket, and everybody may do everything.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

HOST = "127.0.0.1"
MADE = "2026-01-01T00:00:00.000Z"


class BucketStore(ThreadingHTTPServer):
    """`objects` are by bucket and key, as bucket/some/key."""

    daemon_threads = True

    def __init__(self, bucket: str) -> None:
        super().__init__((HOST, 0), _Asked)
        self.bucket = bucket
        self.objects: dict[str, bytes] = {}

    def environment(self) -> dict[str, str]:
        """What a process must know to find this store behind s3:// addresses."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self.server_port}",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def bucket_store(bucket: str) -> Iterator[BucketStore]:
    with BucketStore(bucket) as store:
        thread = threading.Thread(target=store.serve_forever)
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()


class _Asked(BaseHTTPRequestHandler):
    server: BucketStore
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        path = self._path()
        if path == self.server.bucket:
            self._answer(200)
        else:
            self._give(path)

    def do_GET(self) -> None:
        if "list-type" in self._query():
            self._list(self._query().get("prefix", ""), self._query().get("delimiter", ""))
        else:
            self._give(self._path())

    def do_PUT(self) -> None:
        body, query = self._body(), self._query()
        if (source := self.headers["x-amz-copy-source"]) is not None:
            self.server.objects[self._path()] = self.server.objects[unquote(source).lstrip("/")]
            self._answer(200, b"<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")
            return
        part = f"?{int(query['partNumber']):05}" if "partNumber" in query else ""
        self.server.objects[self._path() + part] = body
        self._answer(200)

    def do_POST(self) -> None:
        """An upload in parts begins, or ends."""
        self._body()
        path = self._path()
        if "uploads" in self._query():
            self._answer(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
            return
        parts = sorted(name for name in list(self.server.objects) if name.startswith(f"{path}?"))
        self.server.objects[path] = b"".join(self.server.objects.pop(name) for name in parts)
        self._answer(200, b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")

    def do_DELETE(self) -> None:
        self.server.objects.pop(self._path(), None)
        self._answer(204)

    def _give(self, path: str) -> None:
        found = self.server.objects.get(path)
        self._answer(404) if found is None else self._answer(200, found)

    def _list(self, prefix: str, delimiter: str) -> None:
        keys, folders = [], set()
        for name, content in sorted(self.server.objects.items()):
            key = name.removeprefix(f"{self.server.bucket}/")
            if not key.startswith(prefix):
                continue
            before, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if found:
                folders.add(f"{prefix}{before}{delimiter}")
            else:
                size = f"<Size>{len(content)}</Size><LastModified>{MADE}</LastModified>"
                keys.append(f"<Contents><Key>{escape(key)}</Key>{size}<ETag>e</ETag></Contents>")
        told = keys + [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(folders)]
        whole = f"<KeyCount>{len(told)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(told)}"
        self._answer(200, f"<ListBucketResult>{whole}</ListBucketResult>".encode())

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix("/")

    def _query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, keep_blank_values=True).items()}

    def _body(self) -> bytes:
        if self.headers["transfer-encoding"] == "chunked":
            body = self._chunks()
        else:
            body = self.rfile.read(int(self.headers["content-length"] or 0))
        return _without_signatures(body) if "aws-chunked" in (self.headers["content-encoding"] or "") else body

    def _chunks(self) -> bytes:
        found = b""
        while length := int(self.rfile.readline(), 16):
            found += self.rfile.read(length)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("etag", '"e"')
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def _without_signatures(body: bytes) -> bytes:
    """What is left of aws-chunked: each piece has its length and perhaps a signature in front, the last none behind."""
    found = b""
    while body:
        head, _, rest = body.partition(b"\r\n")
        length = int(head.partition(b";")[0], 16)
        if length == 0:
            break
        found, body = found + rest[:length], rest[length + 2 :]
    return found
