"""Takes visitors through a waiting room."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Optional

from . import types
from ._api import Api, path


class Place:
    """A visitor's place, as the server has last described it.

    status is "waiting" or "inside"; position counts from 1, and is None inside and before a
    lottery is drawn; estimated_wait_ms is {"low", "high"} or None; pass_ is the JWT of somebody
    inside. ticket proves the place, so keep it, and to yourself.
    """

    def __init__(self, fields: types.Place) -> None:
        self.ticket = fields["ticket"]
        self.id = fields["id"]
        self.status = fields["status"]
        self.position = fields["position"]
        self.ahead = fields["ahead"]
        self.estimated_wait_ms = fields["estimated_wait_ms"]
        self.next_poll = fields["next_poll_ms"] / 1000
        self.pass_ = fields["pass"]
        self.pass_expires_at = fields["pass_expires_at"]

    @property
    def inside(self) -> bool:
        return self.status == "inside"


class Room:
    """The API of one room. Errors are Refused, with status 410 where the place is gone."""

    def __init__(self, url: str, room: str, token: Optional[str] = None, attempts: int = 12) -> None:
        self._api = Api(url, token, attempts)
        self._path = path("rooms", room, "visitors")

    def enter(self, visitor: Optional[str] = None, token: Optional[str] = None) -> Place:
        """Joins the room, and returns the place: inside, or in the line.

        visitor is your own key of the visitor, which has one place; token one that your shop has signed.
        Without either each call is another visitor, so it is not repeated once it was sent.
        """
        headers = {"Sluice-Token": token} if token else None
        body = {"visitor": visitor} if visitor else {}
        return Place(self._api.call("POST", self._path, body, headers=headers, repeat=bool(visitor or token)))

    def ask(self, ticket: str, wait: float = 0.0) -> Place:
        """Returns the place of a ticket; wait is for how many seconds at most to wait for a change."""
        query = {"wait_ms": int(wait * 1000)} if wait else None
        return Place(self._me("GET", ticket, query=query, timeout=wait + 30))

    def wait(self, place: Place) -> Iterator[Place]:
        """Yields the place now and whenever it is asked for, until it is inside."""
        yield place
        while not place.inside:
            time.sleep(place.next_poll)
            place = self.ask(place.ticket)
            yield place

    def renew(self, ticket: str) -> Place:
        """Begins the time of a fixed pass again, where the room allows it."""
        return Place(self._me("POST", ticket, "/renew"))

    def leave(self, ticket: str) -> None:
        """Gives the place up, so that the next visitor enters."""
        self._me("DELETE", ticket)

    def _me(self, method: str, ticket: str, more: str = "", **options: Any) -> Any:
        # Authorization has the ticket here, whatever token the server asks of others.
        return self._api.call(method, self._path + "/me" + more, headers={"Authorization": f"Bearer {ticket}"}, **options)
