"""Workers and clients of a Sluice server, with nothing but the standard library.

Worker runs jobs, Client submits and watches them, Room takes visitors through a waiting room.
"""

from .client import Client
from .errors import ConnectionFailed, Refused, RetryAfter, SkipRetry, SluiceError, Throttled
from .room import Place, Room
from .worker import Job, Worker

__all__ = [
    "Client",
    "ConnectionFailed",
    "Job",
    "Place",
    "Refused",
    "RetryAfter",
    "Room",
    "SkipRetry",
    "SluiceError",
    "Throttled",
    "Worker",
]
