"""For tests: an issuer of JSON Web Tokens, and a service that decides logins by HTTP."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm


class Issuer:
    """Signs tokens by elliptic curve; its public key is in a key set."""

    def __init__(self, key_id: str = "first") -> None:
        self.key_id = key_id
        self._key = ec.generate_private_key(ec.SECP256R1())

    def public(self) -> dict[str, Any]:
        found: dict[str, Any] = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {**found, "kid": self.key_id, "use": "sig", "alg": "ES256"}

    def token(self, user: str | None = "alice", *, for_s: float = 60, names_key: bool = True, **claims: Any) -> bytes:
        said = {"exp": time.time() + for_s, **({"sub": user} if user is not None else {}), **claims}
        headers = {"kid": self.key_id} if names_key else {}
        return jwt.encode(
            {name: value for name, value in said.items() if value is not None}, self._key, "ES256", headers
        ).encode()


def write_keys(path: Path, *issuers: Issuer) -> Path:
    path.write_text(json.dumps({"keys": [issuer.public() for issuer in issuers]}))
    return path


class Service:
    """Answers with `answers` in turn, the last one for ever; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers: list[tuple[int, bytes]] = [(204, b"")]
        self.connections = 0
        self.delay_s = 0.0


@contextmanager
def service_running() -> Iterator[tuple[Service, str]]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            service.connections += 1
            super().setup()

        def do_POST(self) -> None:
            service.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            time.sleep(service.delay_s)
            status, body = service.answers[0] if len(service.answers) == 1 else service.answers.pop(0)
            self.send_response(status)
            if status != 204:
                self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            """The broker has given up on an answer."""

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service, f"http://127.0.0.1:{server.server_address[1]}/login"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
