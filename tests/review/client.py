"""Requests over a real socket, as a browser sends them or as nobody should."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import suppress
from typing import Any, NamedTuple

from hoarfrost.review.server import HOST, Server


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class Client:
    """The page of a server, without a browser."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.own = f"http://{HOST}:{server.port}"

    def raw(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """A request for any path; underscores in names of headers stand for hyphens."""
        connection = http.client.HTTPConnection(HOST, self.server.port, timeout=30)
        try:
            named = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.putrequest(method, path, skip_host="Host" in named, skip_accept_encoding=True)
            for key, value in named.items():
                connection.putheader(key, value)
            if body is not None and "Transfer-Encoding" not in named:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str = "", **headers: str) -> Answer:
        return self.raw("GET", f"/{self.server.token}/{path}", None, **headers)

    def post(self, told: Any, **headers: str) -> Answer:
        body = told if isinstance(told, bytes) else json.dumps(told).encode()
        return self.raw("POST", f"/{self.server.token}/decide", body, Origin=headers.pop("Origin", self.own), **headers)

    @property
    def state(self) -> Any:
        return self.get("state").told

    def decide(self, verb: str, version: str | None = None, **decision: Any) -> Answer:
        """With `class_`, `into` or `name`; of the present version, if no other is given."""
        given = {key.rstrip("_"): value for key, value in decision.items()}
        return self.post({"version": version or self.state["version"], "decision": {"verb": verb, **given}})

    def bytes(self, content: bytes) -> bytes:
        """What comes back for bytes that need not be a request."""
        parts = []
        with suppress(OSError), socket.create_connection((HOST, self.server.port), timeout=10) as line:
            line.sendall(content)
            line.shutdown(socket.SHUT_WR)
            while part := line.recv(65536):
                parts.append(part)
        return b"".join(parts)
