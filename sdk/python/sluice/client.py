"""Submits jobs and watches them."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Optional, Union

from . import types
from ._api import Api, delay, path, transient
from .errors import ConnectionFailed, Refused, SluiceError

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The most jobs and bytes of one chunk of an upload. The server takes up to 32 MiB.
CHUNK_JOBS, CHUNK_BYTES = 10_000, 4 << 20
# How long a watch may be silent before its connection counts as broken: three heartbeats.
SILENCE = 45.0


class Client:
    """Calls the API of bulk of one server: https://…/openapi.json describes all fields.

    Actions are dicts as the server gives them. A call raises Refused where the server refuses it, and
    ConnectionFailed where it cannot be reached after 12 attempts. It may be used by several threads.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", token: Optional[str] = None, attempts: int = 12) -> None:
        self._api = Api(url, token, attempts)
        self._attempts = attempts

    def submit(self, payloads: Iterable[types.Json], *, tenant: str, **spec: Unpack[types.NewActionOptions]) -> types.Action:
        """Creates an action of all payloads of an iterable, uploads and seals it, and returns the action.

        spec has the other fields of an action: type or target, aggregate, run_at and so on. With an
        id, a submission that was interrupted continues when it is repeated with the same payloads.
        """
        action = self.create(tenant=tenant, **spec)
        return self.seal(action["id"], self.upload(action["id"], payloads))

    def create(self, *, tenant: str, **spec: Unpack[types.NewActionOptions]) -> types.Created:
        """Creates an action without jobs. Without an id it gets one here, so a repetition creates it once."""
        return self._api.call("POST", path("actions"), {"tenant": tenant, **spec, "id": spec.get("id") or uuid.uuid4().hex})

    def upload(self, id: str, payloads: Iterable[types.Json]) -> int:
        """Uploads the payloads of an action from its first job on, and returns how many jobs it has.

        The server is asked how many it has; so many are passed over.
        """
        payloads = iter(payloads)
        received = self.action(id)["received"]
        skipped = sum(1 for _ in itertools.islice(payloads, received))
        if skipped < received:
            raise SluiceError(f"the server has {received} jobs of {id}, but there are only {skipped} payloads: they are not the same upload")
        for chunk in _chunks(payloads):
            received = self._send(id, received, chunk)
        return received

    def _send(self, id: str, offset: int, lines: list[bytes]) -> int:
        """Sends one chunk. After a failure, the server is asked what it has of it."""
        headers = {"Content-Type": "application/x-ndjson", "Upload-Offset": str(offset)}
        for attempt in itertools.count(1):
            try:
                return self._api.once("POST", path("actions", id, "jobs"), b"".join(lines), headers=headers, timeout=120)["received"]
            except (ConnectionFailed, Refused) as error:
                if attempt >= self._attempts or not transient(error):
                    raise
                time.sleep(delay(attempt, getattr(error, "retry_after", 0.0)))

    def seal(self, id: str, total: int) -> types.Action:
        """Declares the upload complete: the action starts."""
        return self._api.call("POST", path("actions", id, "seal"), {"total": total})

    def enqueue(self, payload: types.Json, *, tenant: str, **options: Unpack[types.NewJobOptions]) -> types.Enqueued:
        """Enqueues one job into the tenant's stream, and returns where it is.

        options has type or target, and run_at, unique, class and so on. Without unique the request is
        not repeated once it was sent, as the job may be there: then it raises ConnectionFailed.
        """
        body = {"tenant": tenant, "payload": payload, **options}
        return self._api.call("POST", path("jobs"), body, repeat="unique" in options)

    def action(self, id: str) -> types.Action:
        """Returns an action with its counts."""
        return self._api.call("GET", path("actions", id))

    def actions(self, **filters: Optional[str]) -> Iterator[types.Action]:
        """Yields actions in order of creation; filters are tenant and status."""
        return self._pages(path("actions"), "actions", "after", filters)

    def job(self, id: str, index: Union[int, Literal["first"]] = "first") -> types.JobState:
        """Returns where a job of an action is, and what holds it back; by default the first that has not ended."""
        return self._api.call("GET", path("actions", id, "jobs", index))

    def failures(self, id: str) -> Iterator[types.DeadLetter]:
        """Yields the failed jobs of an action, with payload and error."""
        return self._pages(path("actions", id, "failures"), "failures", "from", {})

    def replay(self, id: str) -> types.Created:
        """Creates an action of the failed jobs of one that has finished."""
        return self._api.call("POST", path("dead-letters", "replay"), {"action": id})

    def pause(self, id: str) -> types.Action:
        """Starts no more jobs of an action."""
        return self._api.call("POST", path("actions", id, "pause"))

    def resume(self, id: str) -> types.Action:
        """Goes on with an action that was paused."""
        return self._api.call("POST", path("actions", id, "resume"))

    def cancel(self, id: str) -> types.Action:
        """Starts no more jobs of an action, for good."""
        return self._api.call("POST", path("actions", id, "cancel"))

    def watch(self, id: str) -> Iterator[types.Action]:
        """Yields the action now, whenever its counts change, and last when it has finished."""
        failed = 0
        while True:
            try:
                for action in self._api.events(path("actions", id, "watch"), SILENCE):
                    failed = 0
                    yield action
                    if action["finished_at"]:
                        return
                raise ConnectionFailed("the server ended the watch")
            except (ConnectionFailed, Refused) as error:
                failed += 1
                if failed >= self._attempts or not transient(error):
                    raise
                time.sleep(delay(failed, getattr(error, "retry_after", 0.0)))

    def wait(self, id: str) -> types.Action:
        """Returns an action once it has finished."""
        for action in self.watch(id):
            if action["finished_at"]:
                return action
        raise AssertionError("a watch ends with a finished action")

    def _pages(self, path: str, items: str, place: str, query: dict[str, Any]) -> Iterator[Any]:
        while True:
            page = self._api.call("GET", path, query=query)
            yield from page[items]
            if page["next"] is None:
                return
            query = {**query, place: page["next"]}


def _chunks(payloads: Iterable[types.Json]) -> Iterator[list[bytes]]:
    """Yields lists of lines of NDJSON, each list of at most CHUNK_JOBS, or a line above CHUNK_BYTES."""
    lines, size = [], 0
    for payload in payloads:
        line = json.dumps(payload, separators=(",", ":")).encode() + b"\n"
        if lines and (len(lines) == CHUNK_JOBS or size + len(line) > CHUNK_BYTES):
            yield lines
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield lines
