"""Requests to a server: JSON over a kept connection for each thread."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Optional, Union
from urllib.parse import quote, urlencode, urlsplit

from .errors import ConnectionFailed, Refused

# An answer larger than this is not read. The largest that a server gives is a page of failures.
MAX_ANSWER = 64 << 20
TIMEOUT = 30.0

_ended = (OSError, http.client.HTTPException)


class Api:
    """Calls one server. It may be used by several threads."""

    def __init__(self, url: str, token: Optional[str] = None, attempts: int = 12) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not the address of a server; want one like http://127.0.0.1:8080")
        self._secure = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = parts.hostname, parts.port
        self._base = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._attempts = max(1, attempts)
        self._threads = threading.local()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        repeat: bool = True,
        timeout: float = TIMEOUT,
    ) -> Any:
        """Makes a request and returns the answer, parsed; None if it has no body.

        A request that may be repeated is, when the connection fails or the server is busy: 12
        times, with growing pauses, for about half a minute.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                return self.once(method, path, body, query=query, headers=headers, timeout=timeout)
            except (ConnectionFailed, Refused) as error:
                if attempt == self._attempts or not (repeat or getattr(error, "unsent", False)) or not transient(error):
                    raise
                time.sleep(delay(attempt, getattr(error, "retry_after", 0.0)))

    def once(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Optional[Mapping[str, Any]] = None,
        headers: Optional[Mapping[str, str]] = None,
        timeout: float = TIMEOUT,
    ) -> Any:
        """Makes one attempt of call."""
        response = self._send(self._connection(timeout), method, path, body, query, headers)
        try:
            content = response.read(MAX_ANSWER + 1)
        except _ended as error:
            self.close()
            raise ConnectionFailed(f"{method} {path}: the answer broke off: {error}") from error
        if len(content) > MAX_ANSWER:
            self.close()
            raise ConnectionFailed(f"{method} {path}: the answer has more than {MAX_ANSWER} bytes")
        if response.status >= 400:
            raise refusal(response, content)
        return json.loads(content) if content else None

    def events(self, path: str, timeout: float) -> Iterator[Any]:
        """Yields the data of server-sent events until the server ends them, on a connection of its own."""
        connection = self._open(timeout)
        try:
            response = self._send(connection, "GET", path, None, None, {"Accept": "text/event-stream"})
            if response.status >= 400:
                raise refusal(response, response.read(MAX_ANSWER))
            data = b""
            for line in iter(lambda: response.readline(MAX_ANSWER), b""):
                line = line.rstrip(b"\r\n")
                if line.startswith(b"data:"):
                    data += line[5:] + b"\n"
                elif not line and data:
                    yield json.loads(data)
                    data = b""
        except _ended as error:
            raise ConnectionFailed(f"GET {path}: {error}") from error
        finally:
            connection.close()

    def close(self) -> None:
        """Closes the connection of this thread."""
        connection = self._threads.__dict__.pop("connection", None)
        if connection is not None:
            connection.close()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        connection = self._threads.__dict__.get("connection")
        if connection is None or connection.sock is None:
            connection = self._threads.connection = self._open(timeout)
        connection.sock.settimeout(timeout)
        return connection

    def _open(self, timeout: float) -> http.client.HTTPConnection:
        if self._secure:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._secure)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except _ended as error:
            failed = ConnectionFailed(f"connect to {self._host}: {error}")
            failed.unsent = True
            raise failed from error
        return connection

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Any,
        query: Optional[Mapping[str, Any]],
        headers: Optional[Mapping[str, str]],
    ) -> http.client.HTTPResponse:
        headers = {**self._headers, **(headers or {})}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = "application/json"
        if query := {name: value for name, value in (query or {}).items() if value is not None}:
            path += "?" + urlencode(query)
        try:
            connection.request(method, self._base + path, body, headers)
            return connection.getresponse()
        except _ended as error:
            self.close()
            raise ConnectionFailed(f"{method} {path}: {error}") from error


def path(*parts: Union[str, int]) -> str:
    """Returns a path below /v1, with each part escaped."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def transient(error: Union[ConnectionFailed, Refused]) -> bool:
    """Reports whether the same request may succeed later. The refusal of a quota lasts until somebody acts,
    unless it says when to ask again."""
    if isinstance(error, ConnectionFailed):
        return True
    return error.status in (408, 429, 502, 503, 504) and (error.code != "quota" or error.retry_after > 0)


def delay(attempt: int, at_least: float = 0.0) -> float:
    """Returns the pause after a failed attempt, in seconds: it doubles from 0.05 to 5, with jitter."""
    return max(at_least, min(5.0, 0.05 * 2 ** min(attempt, 10)) * random.uniform(0.5, 1.0))


def refusal(response: http.client.HTTPResponse, content: bytes) -> Refused:
    """Returns the error that an answer describes."""
    try:
        problem = json.loads(content)
    except ValueError:
        problem = None
    if not isinstance(problem, dict):
        problem = {"title": response.reason, "detail": content[:200].decode(errors="replace")}
    after = response.getheader("Retry-After", "")
    return Refused(response.status, problem, float(after) if after.isdigit() else 0.0)
