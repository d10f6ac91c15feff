"""The errors that calls raise, and those that a job's function raises."""

from __future__ import annotations

from typing import Any


class SluiceError(Exception):
    """What all errors of this package are."""


class ConnectionFailed(SluiceError):
    """The server did not answer, or its answer broke off. Whether it did what it was asked is not known."""

    unsent = False  # whether the server cannot have got the request


class Refused(SluiceError):
    """The server refused a request.

    status is the HTTP status, code the word for programs (such as "not_found"), and problem the
    whole problem document. retry_after is in seconds, 0 if the server named none.
    """

    def __init__(self, status: int, problem: dict[str, Any], retry_after: float = 0.0) -> None:
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title') or 'no reason was given'}")
        self.status = status
        self.code: str = problem.get("code", "")
        self.problem = problem
        self.retry_after = retry_after


class SkipRetry(Exception):
    """Raised by a job's function: the job has failed for good, and becomes a dead letter."""


class RetryAfter(Exception):
    """Raised by a job's function: try again after so many seconds. It uses an attempt."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or f"try again after {seconds} s")
        self.seconds = seconds


class Throttled(Exception):
    """Raised by a job's function: a service behind it wants less. The job waits for at least so many
    seconds (0: for its slot alone), and uses no attempt."""

    def __init__(self, seconds: float = 0.0, reason: str = "") -> None:
        super().__init__(reason or "throttled")
        self.seconds = seconds
