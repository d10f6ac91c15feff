"""Runs the jobs of some types, in threads."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from types import FrameType
from typing import Any, Optional, TypeVar, overload

from . import types
from ._api import Api, delay, path, transient
from .errors import ConnectionFailed, Refused, RetryAfter, SkipRetry, Throttled

# The most that one request may have of jobs, outcomes or leases, and of bytes of outcomes.
BATCH, BATCH_BYTES = 1000, 7 << 20
# How long the server holds a request for jobs when there are none: as long as a stop may take.
WAIT_MS = 2000
# So many seconds of work are leased ahead of the threads, at the rate of the last seconds.
AHEAD = 0.25

log = logging.getLogger("sluice")


class Job:
    """One attempt of a job.

    id is the same in every attempt, which makes side effects idempotent; attempt counts from 1. A
    function that runs for long looks at canceled from time to time, and raises any exception when it
    is true: the action was canceled, the lease was lost, or the grace of a stop is over. The job is
    handed back then. cost may be set to what the attempt has really cost, for limits by cost.
    """

    __slots__ = ("id", "action", "type", "payload", "attempt", "deadline", "traceparent", "lease", "canceled", "cost")

    def __init__(self, fields: types.Job) -> None:
        self.id = fields["id"]
        self.action = fields["action"]
        self.type = fields["type"]
        self.payload = fields["payload"]
        self.attempt = fields["attempt"]
        self.deadline = datetime.fromisoformat(fields["deadline"][:19] + "+00:00")
        self.traceparent = fields.get("traceparent")
        self.lease = fields["lease"]
        self.canceled = False
        self.cost = 0


# What runs a job, and returns its result: any JSON value.
Function = Callable[[Job], Any]
AnyFunction = TypeVar("AnyFunction", bound=Function)


class Worker:
    """Leases jobs from a server and runs each in one of its threads.

        Worker("http://127.0.0.1:8080", concurrency=20).job("resize", resize).run()

    What a function returns, any JSON value, is the job's result. SkipRetry, RetryAfter and Throttled
    say what else becomes of the job; after any other exception it is tried again, after a backoff.
    Every job runs at least once.

    lease is how long, in seconds, the server waits for a worker that has died; it is extended while
    jobs run. grace is how long a stop waits for running jobs: then they are handed back.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8080", token: Optional[str] = None, concurrency: int = 10, lease: float = 30.0, grace: float = 30.0
    ) -> None:
        if concurrency < 1 or not 1 <= lease <= 43200 or grace < 0:
            raise ValueError(f"concurrency={concurrency}, lease={lease}, grace={grace}: want at least 1, 1 to 43200 s, and at least 0 s")
        self._api = Api(url, token)
        self._concurrency, self._lease, self._grace = concurrency, lease, grace
        self._functions: dict[str, Function] = {}
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # jobs wait, or the worker stops
        self._room = threading.Condition(self._lock)  # jobs may be leased, or the worker stops
        self._ended = threading.Condition(self._lock)  # outcomes wait, or the threads have ended
        self._waiting: deque[Job] = deque()  # leased, not started
        self._running: dict[str, Job] = {}  # by lease
        self._outcomes: deque[str] = deque()  # in JSON
        self._done = 0  # since the worker began
        self._rate = 0.0  # jobs a second
        self._stopping = False
        self._finished = threading.Event()  # nothing is left to acknowledge

    @overload
    def job(self, type: str) -> Callable[[AnyFunction], AnyFunction]: ...
    @overload
    def job(self, type: str, function: Function) -> Worker: ...
    def job(self, type: str, function: Optional[Function] = None) -> Any:
        """Runs the jobs of a type by a function of a Job. It returns the worker, or without a function a decorator."""
        if function is None:

            def decorate(function: AnyFunction) -> AnyFunction:
                self.job(type, function)
                return function

            return decorate
        if type in self._functions:
            raise ValueError(f"type {type!r} has a function already")
        self._functions[type] = function
        return self

    def stop(self) -> None:
        """Leases no more. run returns when the running jobs have ended and all are acknowledged."""
        with self._lock:
            self._stopping = True
            for condition in (self._work, self._room, self._ended):
                condition.notify_all()

    def run(self) -> None:
        """Runs jobs until stop, SIGTERM or SIGINT (in the main thread). A second signal ends at once."""
        if not self._functions:
            raise ValueError("the worker has no job types: call job first")
        restore = self._catch_signals()
        runners = [threading.Thread(target=self._run_jobs, name=f"sluice job {i}", daemon=True) for i in range(self._concurrency)]
        keepers = [threading.Thread(target=target, name=f"sluice {target.__name__}", daemon=True) for target in (self._acknowledge, self._extend)]
        for thread in runners + keepers:
            thread.start()
        try:
            self._fetch()
        finally:
            self.stop()
            self._drain(runners)
            for thread in keepers:
                thread.join()
            restore()

    def _catch_signals(self) -> Callable[[], Any]:
        if threading.current_thread() is not threading.main_thread():
            return lambda: None

        def caught(number: int, frame: Optional[FrameType]) -> None:
            # The lock may be held by the code that the signal interrupts.
            threading.Thread(target=self.stop).start()
            signal.signal(number, signal.SIG_DFL)

        before = {number: signal.signal(number, caught) for number in (signal.SIGTERM, signal.SIGINT)}
        return lambda: [signal.signal(number, handler) for number, handler in before.items()]

    def _fetch(self) -> None:
        """Leases jobs for the threads until the worker stops."""
        began, done, failed = time.monotonic(), 0, 0
        while True:
            with self._lock:
                while not self._stopping and self._free() <= 0:
                    self._room.wait()
                if self._stopping:
                    return
                count = min(BATCH, self._free())
            body = {"types": list(self._functions), "max": count, "wait_ms": WAIT_MS, "lease_ms": int(self._lease * 1000)}
            try:
                jobs = [Job(fields) for fields in self._api.once("POST", path("leases"), body)["jobs"]]
            except (ConnectionFailed, Refused) as error:
                if not transient(error):
                    raise
                failed += 1
                if failed == 1:
                    log.warning("no jobs can be leased: %s", error)
                self._sleep(delay(failed, getattr(error, "retry_after", 0.0)))
                continue
            if failed:
                log.info("jobs are leased again")
            failed = 0
            with self._lock:
                self._waiting.extend(jobs)
                self._work.notify(len(jobs))
                if (now := time.monotonic()) - began > 0.5:
                    self._rate = (self._done - done) / (now - began)
                    began, done = now, self._done

    def _free(self) -> int:
        """Returns how many more jobs may be leased. The lock is held."""
        ahead = int(self._rate * min(AHEAD, self._lease / 4))
        return self._concurrency + ahead - len(self._waiting) - len(self._running)

    def _run_jobs(self) -> None:
        """Runs jobs, one after the other."""
        while True:
            with self._lock:
                while not self._waiting and not self._stopping:
                    self._work.wait()
                if self._stopping:
                    return
                job = self._waiting.popleft()
                self._running[job.lease] = job
            outcome = self._outcome(job)
            with self._lock:
                self._done += 1
                if self._running.pop(job.lease, None):  # else it was handed back
                    self._outcomes.append(outcome)
                    self._ended.notify()
                if self._free() > self._concurrency // 2:
                    self._room.notify()

    def _outcome(self, job: Job) -> str:
        """Runs a job and returns its outcome, in JSON."""
        began = time.monotonic()
        outcome: types.Outcome = {"lease": job.lease, "status": "succeeded"}
        try:
            result = self._functions[job.type](job)
            if result is not None:
                outcome["result"] = result
            json.dumps(outcome)
        except SkipRetry as error:
            outcome.update(status="failed", error=_text(error))
        except RetryAfter as error:
            outcome.update(status="retry", error=_text(error), retry_after_ms=_ms(error.seconds))
        except Throttled as error:
            outcome.update(status="throttled", error=_text(error), retry_after_ms=_ms(error.seconds))
        except Exception as error:
            if job.canceled:
                outcome.update(status="released")
            else:
                log.exception("job %s, attempt %d", job.id, job.attempt)
                outcome.update(status="retry", error=_text(error))
        if outcome["status"] != "succeeded":
            outcome.pop("result", None)
        outcome["took_ms"] = int((time.monotonic() - began) * 1000)
        if job.cost:
            outcome["cost"] = job.cost
        text = json.dumps(outcome, separators=(",", ":"))
        if len(text) > BATCH_BYTES:
            text = json.dumps({"lease": job.lease, "status": "failed", "error": f"the result has {len(text)} bytes, more than {BATCH_BYTES}"})
        return text

    def _acknowledge(self) -> None:
        """Reports outcomes: while one batch is on its way, the next collects."""
        while True:
            with self._lock:
                while not self._outcomes and not self._finished.is_set():
                    self._ended.wait()
                if not self._outcomes:
                    return
                batch: list[str] = []
                size = 0
                while self._outcomes and len(batch) < BATCH and size + len(self._outcomes[0]) <= BATCH_BYTES:
                    batch.append(self._outcomes.popleft())
                    size += len(batch[-1])
            self._report(path("leases", "ack"), f'{{"outcomes":[{",".join(batch)}]}}'.encode())

    def _report(self, where: str, body: bytes) -> list[types.Verdict]:
        """Sends a report until it has an answer, for as long as leases last. It may be repeated."""
        until = time.monotonic() + self._lease
        attempt = 0
        while True:
            try:
                return self._api.once("POST", where, body, headers={"Content-Type": "application/json"})["verdicts"]
            except (ConnectionFailed, Refused) as error:
                attempt += 1
                if not transient(error) or time.monotonic() > until:
                    log.error("a report is lost, its jobs run again when their leases end: %s", error)
                    return []
                time.sleep(delay(attempt, getattr(error, "retry_after", 0.0)))

    def _extend(self) -> None:
        """Extends the leases of all jobs that are held, at a third of their time, and learns which to stop."""
        while not self._finished.wait(self._lease / 3):
            with self._lock:
                held = {job.lease: job for job in (*self._waiting, *self._running.values())}
            leases = list(held)
            for i in range(0, len(leases), BATCH):
                body = {"leases": leases[i : i + BATCH], "lease_ms": int(self._lease * 1000)}
                for verdict in self._report(path("leases", "extend"), json.dumps(body).encode()):
                    if verdict["verdict"] != "accepted":
                        held[verdict["lease"]].canceled = True
            with self._lock:
                self._hand_back([job for job in self._waiting if job.canceled])

    def _hand_back(self, jobs: Iterable[Job]) -> None:
        """Hands jobs back that wait or run: they use no attempt. The lock is held."""
        for job in jobs:
            if self._running.pop(job.lease, None) is None:
                self._waiting.remove(job)
            self._outcomes.append(json.dumps({"lease": job.lease, "status": "released"}))
        self._ended.notify()

    def _drain(self, runners: list[threading.Thread]) -> None:
        """Hands back what was not started, and after the grace what still runs."""
        with self._lock:
            self._hand_back(list(self._waiting))
        until = time.monotonic() + self._grace
        for thread in runners:
            thread.join(max(0, until - time.monotonic()))
        with self._lock:
            for job in self._running.values():
                job.canceled = True
            self._hand_back(list(self._running.values()))
            self._finished.set()
            self._ended.notify_all()

    def _sleep(self, seconds: float) -> None:
        """Sleeps, but not longer than the worker runs."""
        with self._lock:
            self._room.wait_for(lambda: self._stopping, seconds)


def _text(error: Exception) -> str:
    """Returns the text of an error, of which the server keeps 1,024 bytes."""
    return (str(error) or type(error).__name__)[:1024]


def _ms(seconds: float) -> int:
    return max(0, min(int(seconds * 1000), 86_400_000))
