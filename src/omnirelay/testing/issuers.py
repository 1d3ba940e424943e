"""Issuers of bearer tokens for tests: real keys, real signatures, and servers that misbehave."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from omnirelay.model import limits

AUDIENCE = "omnirelay"


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Signer:
    """Signs with RSA under the `kid` "one", with EC under "two", whatever else the header says."""

    def __init__(self, name: str) -> None:
        self.name = name

    @cached_property
    def rsa(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @cached_property
    def ec(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    def key_set(self) -> bytes:
        one = {**RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True), "kid": "one"}
        two = {**ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True), "kid": "two"}
        return json.dumps({"keys": [one, {**two, "alg": "ES256", "use": "sig"}]}).encode()

    def claims(self, **changed: Any) -> dict[str, Any]:
        """Good ones for an hour, with `changed`; a value of None leaves a claim out. Any: claims
        are whatever JSON holds, and often wrong on purpose."""
        now = int(time.time())
        good = {"iss": self.name, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 3600}
        return {name: value for name, value in {**good, **changed}.items() if value is not None}

    def token(self, header: Mapping[str, Any] | None = None, **changed: Any) -> str:
        return self.signed(json.dumps(self.claims(**changed)).encode(), header)

    def signed(self, payload: bytes, header: Mapping[str, Any] | None = None) -> str:
        """A true signature over something that may be no claims at all."""
        is_ec = header is not None and header.get("kid") == "two"
        good = {"typ": "JWT", "alg": "ES256" if is_ec else "RS256", "kid": "one"}
        merged = {name: v for name, v in {**good, **(header or {})}.items() if v is not None}
        body = f"{b64(json.dumps(merged).encode())}.{b64(payload)}"
        if is_ec:
            signature = ECAlgorithm(ECAlgorithm.SHA256).sign(body.encode(), self.ec)
        else:
            signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(body.encode(), self.rsa)
        return f"{body}.{b64(signature)}"

    def unsigned(self, alg: str) -> str:
        return self.token({"alg": alg}).rpartition(".")[0] + "."

    def confused(self) -> str:
        """HS256 with the published RSA key as its secret, which only a careless check accepts."""
        public = self.rsa.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        body = self.token({"alg": "HS256"}).rpartition(".")[0]
        return f"{body}.{b64(hmac.new(public, body.encode(), hashlib.sha256).digest())}"

    def tampered(self) -> str:
        """Alice's signature under other claims."""
        head, _, signature = self.token().split(".")
        return f"{head}.{b64(json.dumps(self.claims(sub='root')).encode())}.{signature}"


class KeyServer:
    """Serves key sets on loopback: `/keys` as given, the other paths as no server should."""

    def __init__(self, key_set: bytes) -> None:
        self.key_set = key_set
        self.asked: list[str] = []
        server = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                status, headers, body = server.answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return None

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self._http.daemon_threads = True
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def url(self, path: str = "/keys") -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}{path}"

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        kind = {"Content-Type": "application/json"}
        answers: dict[str, tuple[int, dict[str, str], bytes]] = {
            "/keys": (200, kind, self.key_set),
            "/html": (200, {"Content-Type": "text/html"}, b"<html>please log in</html>"),
            "/text": (200, kind, b"please log in"),
            "/moved": (302, {"Location": self.url("/keys")}, b""),
            "/packed": (200, {**kind, "Content-Encoding": "gzip"}, self.key_set),
            "/long": (200, kind, b" " * (limits.KEY_SET_BYTES_MAX + 1)),
            "/many": (200, kind, json.dumps({"keys": [{}] * (limits.KEYS_MAX + 1)}).encode()),
            "/none": (200, kind, b'{"keys": []}'),
        }
        return answers.get(path, (404, kind, b"{}"))

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(timeout=5)
