"""The requests and answers of the API, by its OpenAPI document: `go test ./internal/edge -run Types -update` writes this file.

A TypedDict is a plain dict, as json.loads returns it; a key that is NotRequired may be absent.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired

# Any JSON value, as json.loads returns it.
Json = Any


class Acknowledgement(TypedDict):
    outcomes: list[Outcome]


Action = TypedDict(
    "Action",
    {
        "id": 'str',
        "tenant": 'str',
        "type": 'str',
        "class": 'Literal["high", "normal", "low"]',
        "status": 'Literal["CREATED", "DISPATCHED", "RUNNING", "AGGREGATING", "COMPLETED", "FAILED", "CANCELED"]',
        "paused": 'bool',
        # How many jobs the action has; null before the seal.
        "total": 'Optional[int]',
        # How many jobs were uploaded: the sum of the counts that follow, without throttled and retried.
        "received": 'int',
        "pending": 'int',
        "ready": 'int',
        "non_ready": 'int',
        "non_ready_reasons": 'NonReadyReasons',
        "in_flight": 'int',
        "succeeded": 'int',
        "failed": 'int',
        "canceled": 'int',
        # Attempts that a target throttled.
        "throttled": 'int',
        # Attempts that failed and were retried.
        "retried": 'int',
        # One entry for each aggregate; null until the action has finished.
        "result": 'Optional[dict[str, Json]]',
        # Why the action failed; empty if it did not.
        "error": 'str',
        # The earliest time of the first attempt; null: at once.
        "run_at": 'Optional[str]',
        "created_at": 'str',
        # Null until the action has finished.
        "finished_at": 'Optional[str]',
        # Null when unknown.
        "estimated_finish_at": 'Optional[str]',
        # Absent if it is the default.
        "cost": 'NotRequired[int]',
        # Absent if it is empty.
        "key": 'NotRequired[str]',
        # Whether the action is a stream, which takes jobs that are enqueued one at a time. Absent if not.
        "open": 'NotRequired[bool]',
        # Absent where the jobs have a type of their own.
        "target": 'NotRequired[Target]',
    },
)


class Actions(TypedDict):
    actions: list[Action]
    # The after of the next page, which may be empty and have a next itself; null if there is none.
    next: Optional[str]


class Change(TypedDict):
    # What to do. Replay runs the failed jobs of finished actions, and of streams, again; the others look at the actions that have not finished.
    do: Literal["pause", "resume", "cancel", "replay"]
    # Only the action with this id.
    action: NotRequired[str]
    # The next of the request before.
    after: NotRequired[str]
    # Needed to change every action: without anything that selects some.
    all: NotRequired[bool]
    # Only failed jobs with this cause: a status of HTTP such as 503, a class of them such as 5xx, or timeout.
    cause: NotRequired[str]
    # Count what would be changed, and change nothing.
    dry_run: NotRequired[bool]
    # Only failed jobs whose error contains this, in upper or lower case.
    error: NotRequired[str]
    # The most actions to change; 0 is 1,000.
    limit: NotRequired[int]
    # Only jobs that failed at this time or later.
    since: NotRequired[str]
    # Only those in this status.
    status: NotRequired[Literal["CREATED", "DISPATCHED", "RUNNING", "AGGREGATING", "COMPLETED", "FAILED", "CANCELED"]]
    # Only those with the target of this name.
    target: NotRequired[str]
    # Only the actions of this tenant.
    tenant: NotRequired[str]
    # Only those whose jobs have this type.
    type: NotRequired[str]
    # Only jobs that failed before this time.
    until: NotRequired[str]


class Changed(TypedDict):
    # How many actions were selected.
    matched: int
    # How many of them were changed. The others were changed before, or their status does not allow it.
    changed: int
    # How many jobs of the changed actions had not ended, or are replayed.
    jobs: int
    # The after of the next request; null if all actions were looked at. Those created since the first request are not.
    next: Optional[str]


class Cluster(TypedDict):
    # The identity of the cluster.
    cluster_id: str
    # The node that answers.
    node: int
    # All that belong to the cluster, by number.
    nodes: list[Node]
    # Partitions of all topics.
    partitions: int
    # Those of them that nobody leads now.
    leaderless: int
    # Those of them whose replicas are being moved.
    moving: int


class Codes(TypedDict):
    codes: list[str]


class CodesOrder(TypedDict):
    # How many.
    count: int
    # When they end, at most 366 days ahead: at the end of that hour.
    until: str
    # The lane of their visitors. Default: the last.
    lane: NotRequired[str]


class Created(TypedDict):
    id: str
    status: str


class DeadLetter(TypedDict):
    # The job's id.
    id: str
    action: str
    # The job's place in its action, from 0, in upload order.
    index: int
    payload: Json
    # Of the last attempt.
    error: str
    # What the error says: the status of HTTP with which the target answered, or timeout; else empty.
    cause: str
    attempts: int
    failed_at: str


class DeadLetters(TypedDict):
    dead_letters: list[DeadLetter]
    # The after of the next page, which may be empty and have a next itself; null if there is none.
    next: Optional[str]


class Delayed(TypedDict):
    # The id to cancel it by: its header sluice-id, or a generated one.
    id: str
    # The partition in which it will appear.
    partition: int
    # When it is due.
    deliver_at: str


class DelayedList(TypedDict):
    # By the time when they are due.
    delayed: list[Delayed]


class Elected(TypedDict):
    # Partitions that have got their preferred leader.
    elected: int
    # Those that have not, except those that already had it.
    refused: list[Refused]


class Enqueued(TypedDict):
    # The job's id.
    id: str
    # The action that the job is in: a stream, or one of its own.
    action: str
    # The job's place in its action, from 0.
    index: int
    # Whether nothing was enqueued, as there is a job with its key: this one.
    duplicate: bool


class Entry(TypedDict):
    # A code that was made for the room, in place of a key: it has one place at a time, in its lane.
    code: NotRequired[Optional[str]]
    # A key, such as a user's id: one key has one place. It needs a token if the server has keys for tokens, or the request comes to a public listener, from a page or through a trusted proxy.
    visitor: NotRequired[Optional[str]]


class Extension(TypedDict):
    leases: list[str]
    # The time from now until the leases end. Default: the server's setting bulk.lease.
    lease_ms: NotRequired[int]


class Failures(TypedDict):
    failures: list[DeadLetter]
    # The from of the next page; null if there is none.
    next: Optional[int]


class FieldError(TypedDict):
    # The field, such as target.url, or the parameter or header.
    field: str
    detail: str


class Group(TypedDict):
    # Its name.
    group: str
    # The sum of the partitions' lag, as far as it is known.
    lag: int
    # The partitions in which it has committed an offset, by topic and number.
    partitions: list[GroupPartition]


class GroupPartition(TypedDict):
    topic: str
    partition: int
    # The offset that it has committed: that of the next record to read.
    committed: int
    # The offset after the last record; null if the partition has no leader now, or its leader does not answer.
    end: Optional[int]
    # Offsets from committed to end; null if end is.
    lag: Optional[int]


class Health(TypedDict):
    # How much of the load that the upstream can serve well it has: 1 is all of it.
    utilization: float


class Job(TypedDict):
    # The same in every attempt.
    id: str
    action: str
    type: str
    payload: Json
    # Counts from 1; throttled attempts do not count.
    attempt: int
    # The token that acknowledges this attempt.
    lease: str
    # When the job is given to another worker.
    deadline: str
    # The attempt in the action's trace, as W3C Trace Context has it, for the spans of the worker. Absent if the action is not traced.
    traceparent: NotRequired[str]
    # The vendor state of traceparent, if there is any.
    tracestate: NotRequired[str]


class JobState(TypedDict):
    # The job's id.
    id: str
    action: str
    # The job's place in its action, from 0, in upload order.
    index: int
    # Where the action's counts have the job.
    state: Literal["pending", "ready", "non_ready", "in_flight", "succeeded", "failed", "canceled"]
    # How many attempts were made, with the present one; throttled ones do not count. Null where it is no longer known.
    attempts: Optional[int]
    # Why the job failed; empty if it did not, or if it was replayed.
    error: str
    # What holds the job back; null if it has ended.
    reason: Optional[Literal["in_flight", "paused", "not_sealed", "run_at", "starting", "rate_limited", "api_throttled", "transient_error", "key_limited", "target_down", "no_worker", "global_limit", "tenant_limit", "target_limit", "global_concurrency", "tenant_concurrency", "target_concurrency", "congestion", "long_attempts", "workers_busy", "in_line", "next"]]
    # The reason as a sentence; null if the job has ended.
    explanation: Optional[str]
    # The tenants with the most jobs ready or in flight of what the job waits for: of its type, its target, or all.
    held_by: list[TenantJobs]
    # How many jobs of its tenant and type go before it; null if it is not in line, or if too many have returned to count.
    place: Optional[int]
    # Before this it does not start: its run_at, when it is due, or the end of the window; null if that is not known.
    earliest_start: Optional[str]
    # When the lease of a job in flight ends unless it is extended; else null.
    deadline: Optional[str]
    # Null unless the job is a dead letter.
    failed_at: Optional[str]
    # What the job returned, any JSON value, where keep_results asks for it; absent where there is none.
    result: NotRequired[Json]
    # Whether the result was larger than 64 KiB, and was not kept. Absent if not.
    result_truncated: NotRequired[bool]


class KeyLimit(TypedDict):
    # Limits the attempts of each key in flight. Default 0: no limit.
    concurrency: NotRequired[int]
    # The CEL expression of what an attempt counts in requests_per_second, from 1 to 1,000,000, such as payload.tokens. Default: each counts 1.
    cost: NotRequired[str]
    # How requests_per_second is spread. Default window.
    pacing: NotRequired[Literal["window", "smooth"]]
    # Limits the attempts started of each key. Default 0: no limit.
    requests_per_second: NotRequired[float]


class KeySet(TypedDict):
    keys: list[dict[str, Json]]


class LeaseRequest(TypedDict):
    # The job types to lease; jobs are taken from them in turn.
    types: list[str]
    # The time until the lease ends. Default: the server's setting bulk.lease.
    lease_ms: NotRequired[int]
    # The most jobs to lease.
    max: NotRequired[int]
    # How long to wait for the first job. Default 0: answer at once.
    wait_ms: NotRequired[int]


class Leases(TypedDict):
    jobs: list[Job]


class Limits(TypedDict):
    # Limits the attempts in flight of all tenants together. Default 0: no limit.
    concurrency: NotRequired[int]
    # How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window.
    pacing: NotRequired[Literal["window", "smooth"]]
    # Limits the attempts started by all tenants together. Default 0: no limit.
    requests_per_second: NotRequired[float]


class Lottery(TypedDict):
    method: Literal["fifo", "lottery"]
    # The SHA-256 of the seed, in hexadecimal digits; null if there is no lottery.
    commitment: Optional[str]
    opens_at: Optional[str]
    # The seed, in hexadecimal digits; null until the room has opened.
    seed: Optional[str]


class Moved(TypedDict):
    # Partitions whose replicas begin to move.
    moves: int


NewActionOptions = TypedDict(
    "NewActionOptions",
    {
        # What is computed from the results, such as count, sum:FIELD or top-errors.
        "aggregate": 'list[str]',
        # Orders the actions within a tenant. Default normal.
        "class": 'Literal["high", "normal", "low"]',
        # The value of cost in the expressions of limits by key: what one attempt of the jobs counts where a limit says so. Default 1.
        "cost": 'int',
        # What is published: jobs, an event for each finished job. Events of actions are always published; actions may be listed.
        "events": 'list[str]',
        # The share of failed jobs above which the action ends as FAILED. Default 1.
        "fail_above": 'Optional[float]',
        # A repeated request with the same id creates one action. Letters, digits and . _ : - ; generated if absent.
        "id": 'str',
        # Keep what each job returns, up to 64 KiB, until the action is forgotten: GET /v1/actions/{id}/jobs/{index} has it.
        "keep_results": 'bool',
        # Which of the tenant's own customers the jobs are for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other.
        "key": 'str',
        # The most attempts of one job; 0 is the default of its type.
        "max_attempts": 'int',
        # The earliest time of the first attempt. Default: at once.
        "run_at": 'Optional[str]',
        # The webhook that each job is sent to. Give either a type or a target.
        "target": 'Target',
        # The most time for one attempt; 0 is the default of its type.
        "timeout_ms": 'int',
        # The handler of the jobs. Give either a type or a target.
        "type": 'str',
    },
    total=False,
)


class NewAction(NewActionOptions):
    # The customer whose jobs these are: the unit of fairness and limits.
    tenant: str


NewJobOptions = TypedDict(
    "NewJobOptions",
    {
        # Orders the actions within a tenant. Default normal.
        "class": 'Literal["high", "normal", "low"]',
        # The value of cost in the expressions of limits by key: what one attempt of the job counts where a limit says so. Default 1.
        "cost": 'int',
        # Keep what the job returns, up to 64 KiB, until it is forgotten: GET /v1/actions/{id}/jobs/{index} has it.
        "keep_results": 'bool',
        # Which of the tenant's own customers the job is for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other.
        "key": 'str',
        # The most attempts of the job; 0 is the default of its type.
        "max_attempts": 'int',
        # The earliest time of the first attempt, at most 10 years ahead. Default: at once.
        "run_at": 'Optional[str]',
        # The webhook that the job is sent to. Give either a type or a target.
        "target": 'Target',
        # The most time for one attempt; 0 is the default of its type.
        "timeout_ms": 'int',
        # The handler of the job. Give either a type or a target.
        "type": 'str',
        # A key of at most 256 bytes: while a job with this key, tenant, type and target is kept, another is not enqueued.
        "unique": 'str',
        # The length of the windows of time in which the key is unique. They begin at multiples of it since 1970. Default: as long as the job is kept.
        "unique_for_ms": 'int',
    },
    total=False,
)


class NewJob(NewJobOptions):
    # The customer whose job this is: the unit of fairness and limits.
    tenant: str
    # Any JSON value, of at most 1 MiB.
    payload: Json


NewSchedule = TypedDict(
    "NewSchedule",
    {
        # When: five fields (minute, hour, day of the month, month, day of the week), @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m.
        "cron": 'str',
        # The payloads of each action, any JSON values, together at most 1 MiB.
        "jobs": 'list[Json]',
        # The customer whose jobs these are: the unit of fairness and limits.
        "tenant": 'str',
        # What is computed from the results, such as count, sum:FIELD or top-errors.
        "aggregate": 'NotRequired[list[str]]',
        # How late a missed run may start; of several, only the latest does. Default 1 h; 0: never.
        "catch_up_ms": 'NotRequired[Optional[int]]',
        # Orders the actions within a tenant. Default normal.
        "class": 'NotRequired[Literal["high", "normal", "low"]]',
        # The value of cost in the expressions of limits by key: what one attempt of the jobs counts where a limit says so. Default 1.
        "cost": 'NotRequired[int]',
        # What is published: jobs, an event for each finished job. Events of actions are always published; actions may be listed.
        "events": 'NotRequired[list[str]]',
        # The share of failed jobs above which an action ends as FAILED. Default 1.
        "fail_above": 'NotRequired[Optional[float]]',
        # Keep what each job returns, up to 64 KiB, until its action is forgotten.
        "keep_results": 'NotRequired[bool]',
        # Which of the tenant's own customers the jobs are for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other.
        "key": 'NotRequired[str]',
        # The most attempts of one job; 0 is the default of its type.
        "max_attempts": 'NotRequired[int]',
        # Whether a run starts while the one before has not finished. Default skip.
        "overlap": 'NotRequired[Literal["skip", "allow"]]',
        # The webhook that each job is sent to. Give either a type or a target.
        "target": 'NotRequired[Target]',
        # The IANA time zone of the fields. Default UTC.
        "time_zone": 'NotRequired[str]',
        # The most time for one attempt; 0 is the default of its type.
        "timeout_ms": 'NotRequired[int]',
        # The handler of the jobs. Give either a type or a target.
        "type": 'NotRequired[str]',
    },
)


class Node(TypedDict):
    # Its number, from 1.
    id: int
    # Where Kafka clients reach it, host:port.
    kafka: str
    # The addresses of its Kafka listeners by name, host:port, that of kafka among them. Empty: clients are told the one that they have connected to. None if the listener has no name.
    listeners: dict[str, str]
    # The URL of its HTTP interface.
    http: str
    # Its rack; empty if none is set.
    rack: str
    # It has sent a sign of life recently.
    alive: bool
    # It gets no new replicas, and its replicas move to other nodes.
    draining: bool
    # Partitions that it leads.
    leads: int
    # Partitions that it keeps a replica of.
    replicas: int
    # Those of them that are not in sync or cannot be reached.
    behind: int


class NonReadyReasons(TypedDict):
    rate_limited: int
    api_throttled: int
    transient_error: int
    # Jobs that wait for a limit by their key.
    key_limited: NotRequired[int]
    # Jobs that wait because this server takes their target for down.
    target_down: NotRequired[int]


class Occurrence(TypedDict):
    opens_at: str
    ends_at: str
    # When visitors may come to wait for opens_at; left out: at any time.
    prequeue_from: NotRequired[str]


class Outcome(TypedDict):
    lease: str
    # failed is final; retry uses an attempt; throttled and released use none.
    status: Literal["succeeded", "failed", "retry", "throttled", "released"]
    # What the attempt has really cost, for limits by key with a cost. Default: what was charged when it started.
    cost: NotRequired[int]
    # Why the attempt did not succeed. The first 1,024 bytes are kept.
    error: NotRequired[str]
    # The result of a successful job, any JSON value, for the action's aggregates.
    result: NotRequired[Json]
    # The Retry-After of the target, for retry and throttled.
    retry_after_ms: NotRequired[int]
    # How long the attempt ran, for the latency aggregates.
    took_ms: NotRequired[int]


Place = TypedDict(
    "Place",
    {
        # The ticket to show from now on.
        "ticket": 'str',
        # The visitor's number in the room.
        "id": 'int',
        "status": 'Literal["waiting", "inside"]',
        # From 1; null inside, and before a lottery is drawn.
        "position": 'Optional[int]',
        # How many visitors are before this one: position - 1.
        "ahead": 'Optional[int]',
        # With a probability of about 90 % the wait is between low and high; null if that is not known.
        "estimated_wait_ms": 'Wait',
        # When to ask again.
        "next_poll_ms": 'int',
        # A JWT, if the visitor is inside. It ends after a minute at most, and each answer has a new one.
        "pass": 'Optional[str]',
        # When the visit ends.
        "pass_expires_at": 'Optional[str]',
        # The visitor's number in the lottery, once it is drawn.
        "draw": 'NotRequired[int]',
        # The lane in which the visitor waits, in a room with lanes: position and ahead are those in it.
        "lane": 'NotRequired[str]',
    },
)


class Problem(TypedDict):
    # The meaning of the status.
    title: str
    # The HTTP status.
    status: int
    # What is wrong, and what would be right.
    detail: str
    # The kind of the problem, one word that programs can rely on.
    code: str
    # With code invalid: what is wrong with which field.
    errors: NotRequired[list[FieldError]]
    # With code gone: the visitor's number.
    id: NotRequired[int]
    # The line of the upload that is invalid, from 1.
    line: NotRequired[int]
    # With code gone: why the place is gone.
    reason: NotRequired[Literal["left", "expired", "abandoned", "revoked", "ended", "sold_out", "forgotten"]]
    # How many jobs of the action are durable.
    received: NotRequired[int]
    # The total that the seal gave.
    total: NotRequired[int]


class Reassignment(TypedDict):
    topic: str
    partition: int
    # The nodes that are to keep it, the preferred leader first.
    target: list[int]
    # The nodes that keep it now.
    replicas: list[int]
    # Those that are getting it.
    adding: list[int]
    # Those that give it up when the others have it.
    removing: list[int]


class ReassignmentList(TypedDict):
    # By topic and partition.
    reassignments: list[Reassignment]


class Received(TypedDict):
    # How many jobs of the action are durable: the next Upload-Offset.
    received: int


class Refused(TypedDict):
    topic: str
    partition: int
    # Why not.
    detail: str


class Replay(TypedDict):
    # The finished action, or the stream, whose dead letters are run again, in a new action.
    action: str
    # Only failed jobs with this cause: a status of HTTP such as 503, a class of them such as 5xx, or timeout.
    cause: NotRequired[str]
    # Only failed jobs whose error contains this, in upper or lower case.
    error: NotRequired[str]
    # Only jobs that failed at this time or later.
    since: NotRequired[str]
    # Only jobs that failed before this time.
    until: NotRequired[str]


class Revocation(TypedDict):
    ticket: NotRequired[str]
    # The visitor's key. Give this or the ticket.
    visitor: NotRequired[str]


class Room(TypedDict):
    room: str
    mode: Literal["teller", "park"]
    state: Literal["open", "queueing", "paused", "closed", "sold_out"]
    # Visitors in the queue that were not called.
    waiting: int
    # Visitors that are inside, or were called.
    inside: int
    # Those of them that have not claimed their slot yet.
    called: int
    # All visitors that ever entered.
    entered_total: int
    # All visitors that came in: those who were called and claimed the slot.
    admitted_total: int
    # How often a called visitor did not claim the slot.
    missed_total: int
    # Visitors that were gone before they came in.
    departed_total: int
    # Passes that ended.
    expired_total: int
    # Events that were not kept, because too many waited to be published.
    events_dropped_total: int
    # How many are admitted per second, over the last minute; null if that is not known.
    outflow_per_second: Optional[float]
    paused: bool
    # Raised each time that all passes are revoked.
    epoch: int
    # When the room was created.
    created_at: str
    # The event that is on, or the next one, where events repeat.
    event: NotRequired[Occurrence]
    # The capacity or batch in force, where it is auto.
    found: NotRequired[int]
    # All that apply in the mode, defaults included.
    settings: NotRequired[Settings]


class Rooms(TypedDict):
    rooms: list[Room]
    # Give this as after for the next page; null if there is none.
    next: Optional[str]


class Rule(TypedDict):
    # A host name without port, or *.example.com for all below it. Default: all.
    host: NotRequired[str]
    # An HTTP method. Default: all.
    method: NotRequired[str]
    # One path, or with /* at its end itself and all below it. Default: all.
    path: NotRequired[str]


Schedule = TypedDict(
    "Schedule",
    {
        "name": 'str',
        "cron": 'str',
        "time_zone": 'str',
        # How many jobs each action has.
        "total": 'int',
        "overlap": 'Literal["skip", "allow"]',
        # 0: missed runs do not start.
        "catch_up_ms": 'int',
        "tenant": 'str',
        "type": 'str',
        "class": 'Literal["high", "normal", "low"]',
        "aggregate": 'list[str]',
        # 0: the default of the type.
        "max_attempts": 'int',
        # 0: the default of the type.
        "timeout_ms": 'int',
        # Null: an action is COMPLETED however many jobs fail.
        "fail_above": 'Optional[float]',
        "keep_results": 'bool',
        "events": 'list[str]',
        "paused": 'bool',
        "created_at": 'str',
        # When the definition last changed.
        "updated_at": 'str',
        # Null while the schedule is paused, or if no run follows.
        "next_run_at": 'Optional[str]',
        # When the last run was due, or requested; null if there was none.
        "last_run_at": 'Optional[str]',
        # The id of the action of the last run; null if there was none.
        "last_action": 'Optional[str]',
        # When the last run was due that was skipped because the one before had not finished.
        "last_skipped_at": 'Optional[str]',
        # Why the last run did not start; empty if it did.
        "last_error": 'str',
        # Absent if it is the default.
        "cost": 'NotRequired[int]',
        # The payloads; left out of lists.
        "jobs": 'NotRequired[list[Json]]',
        # Absent if it is empty.
        "key": 'NotRequired[str]',
        # Absent where the jobs have a type of their own.
        "target": 'NotRequired[Target]',
    },
)


class Schedules(TypedDict):
    schedules: list[Schedule]


class Seal(TypedDict):
    # How many jobs the action has.
    total: int


Settings = TypedDict(
    "Settings",
    {
        # teller: at most capacity are inside, and when one leaves the next enters. park: batch enter every interval_ms, each for stay_ms.
        "mode": 'Literal["teller", "park"]',
        # How long a visitor may be silent before it is skipped when called. Default 120000.
        "abandon_after_ms": 'NotRequired[int]',
        # The most. Default 100000.
        "auto_max": 'NotRequired[int]',
        # The least capacity or batch that is auto. Default 10.
        "auto_min": 'NotRequired[int]',
        # How many enter at each tick, or "auto". park only, required.
        "batch": 'NotRequired[Json]',
        # Binds each ticket, and its passes, to the client address that it was given to. Default false.
        "bind_tickets": 'NotRequired[bool]',
        # The requests that need none, whatever routes say.
        "bypass": 'NotRequired[list[Rule]]',
        # The most visitors inside, or "auto". teller only, required.
        "capacity": 'NotRequired[Json]',
        # How long a called visitor has to claim the slot. Default 10000.
        "claim_window_ms": 'NotRequired[int]',
        # Accepts codes that were made for the room: their visitors are in the codes' lane, and invited. Needs lanes or invitation_only. Default false.
        "codes": 'NotRequired[bool]',
        # When admission ends. Default: never.
        "ends_at": 'NotRequired[str]',
        # For how long after that the place is kept and counted. Default 180000.
        "grace_ms": 'NotRequired[int]',
        # The time between ticks. park only, required.
        "interval_ms": 'NotRequired[int]',
        # Refuses visitors without a key or a code, or without a token where the server has keys for tokens. Default false.
        "invitation_only": 'NotRequired[bool]',
        # How many visitors may enter from one client address (of IPv6, one /64, and four times as many from one /48) in a minute, at each instance; 0: any number. Default: 600, except from this machine, private networks and trusted proxies.
        "joins_per_minute": 'NotRequired[int]',
        # Lines of their own with shares of the calls, as in vip=20,members=30,public=50. A visitor is in the lane that its token names, or in the last. Default: one line.
        "lanes": 'NotRequired[str]',
        # How long after its opening each event ends. Required with repeats.
        "lasts_ms": 'NotRequired[int]',
        # How many may wait; more are refused. Default 1000000.
        "max_waiting": 'NotRequired[int]',
        # The order of visitors who came before opens_at. Default fifo.
        "method": 'NotRequired[Literal["fifo", "lottery"]]',
        # What a gate does when the store does not answer. Default closed.
        "on_store_failure": 'NotRequired[Literal["open", "closed"]]',
        # When visitors are admitted from. Default: at once.
        "opens_at": 'NotRequired[str]',
        # Whether using a pass extends it. teller only. Default sliding.
        "pass": 'NotRequired[Literal["sliding", "fixed"]]',
        # How long a pass lasts. teller only. Default 600000.
        "pass_ttl_ms": 'NotRequired[int]',
        # When visitors may come to wait for opens_at. Default: at any time.
        "prequeue_from": 'NotRequired[str]',
        # How long before each opening visitors may come to wait for it. Default: at any time.
        "prequeue_ms": 'NotRequired[int]',
        # How often a visitor may renew a fixed pass. teller only. Default 0.
        "renewals": 'NotRequired[int]',
        # When each of many events opens: a cron expression of five fields, @daily or its like, or @every 90m since the room was created. Instead of opens_at, prequeue_from and ends_at.
        "repeats": 'NotRequired[str]',
        # The requests that need a pass at a gate. Default: all.
        "routes": 'NotRequired[list[Rule]]',
        # How long after its tick each pass ends. park only, required.
        "stay_ms": 'NotRequired[int]',
        # The IANA name of the time zone of repeats. Default UTC.
        "time_zone": 'NotRequired[str]',
    },
)


class Stored(TypedDict):
    # Unfinished actions.
    actions: int
    # Their jobs, done jobs among them.
    jobs: int
    # The bytes of their payloads.
    bytes: int


class Target(TypedDict):
    # The target's name, by which it has limits, secrets and a prefix. Default: the URL's host:port.
    name: NotRequired[str]
    # Where each job is sent: the whole URL, http or https; or, if the target has a url_prefix, a path below it, or nothing for the prefix. Answers have the whole URL, with xxxxx for its user and the values of its query.
    url: NotRequired[str]


class TargetLimits(TypedDict):
    # Limits the attempts in flight against the target. Default 0: as many as the target can take, which the server finds out.
    concurrency: NotRequired[int]
    # Since when this server takes the target for down: its jobs wait, and one attempt in 2 s probes it. A PUT ignores it.
    down_since: NotRequired[str]
    # How many attempts this server lets be in flight at present, where concurrency is 0. A PUT ignores it.
    found_concurrency: NotRequired[int]
    # The rate that holds at present, where requests_per_second is auto. A PUT ignores it.
    found_requests_per_second: NotRequired[float]
    # How the rate is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window.
    pacing: NotRequired[Literal["window", "smooth"]]
    # Limits the attempts started against the target; auto finds the rate that the target sustains. Default 0: no limit.
    requests_per_second: NotRequired[Json]
    # How many secrets are stored. A PUT ignores it.
    secret_count: NotRequired[int]
    # The secrets that sign requests to the target, the current one first; they need a url_prefix. Absent: as they are; an empty list: those of the server's settings.
    secrets: NotRequired[list[str]]
    # The tenants that may use the target; they need a url_prefix. Default: all.
    tenants: NotRequired[list[str]]
    # Where the target is: requests go to URLs below it only, and actions that name the target give a path below it. Default: none, actions give the whole URL.
    url_prefix: NotRequired[str]


class Tenant(TypedDict):
    # Milliseconds by which the tenant's actions rank as older. Default 0.
    base_priority: NotRequired[int]
    # Limits the tenant's attempts in flight. Default 0: no limit of its own.
    concurrency: NotRequired[int]
    # Limits of the tenant's jobs that have one key, by the CEL expression that computes the key of a job from payload, type, target, key and tenant, such as payload.customer. At most 8. Default: none.
    keys: NotRequired[dict[str, KeyLimit]]
    # The most unfinished actions, streams among them. Default 0: no bound.
    max_actions: NotRequired[int]
    # The most bytes of payloads of unfinished actions. Default 0: no bound.
    max_bytes: NotRequired[int]
    # The most jobs of unfinished actions, done jobs among them. Default 0: no bound.
    max_jobs: NotRequired[int]
    # How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window.
    pacing: NotRequired[Literal["window", "smooth"]]
    # Limits the attempts started for the tenant. Default 0: no limit of its own.
    requests_per_second: NotRequired[float]
    # What counts in these quotas now. Absent while the part of the store that counts it does not answer. A PUT ignores it.
    stored: NotRequired[Stored]
    # The tenant's share relative to other tenants. Default 1.
    weight: NotRequired[float]


class TenantJobs(TypedDict):
    tenant: str
    jobs: int


class TopicChange(TypedDict):
    # How long the records of partitions that go can be read. Default: 7 days, or the retention of the topic if that is less.
    grace_ms: NotRequired[int]
    # How many partitions there are to be. If that is less, the highest ones go: producers do not find them any more, and their records can be read by partition number until the grace period is over.
    partitions: NotRequired[int]
    # How many nodes are to keep each partition. They are moved in the background; see GET /v1/cluster/reassignments.
    replicas: NotRequired[int]


class TypeLimits(TypedDict):
    # The workers of this type in each instance. Default 0: that of the instance's settings.
    concurrency: NotRequired[int]
    # How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window.
    pacing: NotRequired[Literal["window", "smooth"]]
    # Limits the attempts started; not for webhooks. Default 0: no limit.
    requests_per_second: NotRequired[float]
    # Limits the attempts in flight in all instances and remote workers; not for webhooks, which targets limit. Default 0: no limit.
    total_concurrency: NotRequired[int]


class Verdict(TypedDict):
    lease: str
    # Only accepted changed anything. canceled, of an extension alone: the lease goes on, but the action was canceled; stop and release the job.
    verdict: Literal["accepted", "duplicate", "expired", "unknown", "canceled"]


class Verdicts(TypedDict):
    verdicts: list[Verdict]


class WaitValue(TypedDict):
    low: int
    high: int


class WaitingAction(TypedDict):
    tenant: str
    type: str
    # The name of its target; empty if it has none.
    target: str
    # How many of its jobs wait: pending, ready and non-ready ones.
    waiting: int
    # Its first job that has not ended, and why it does not run.
    job: JobState


class WaitingActions(TypedDict):
    waits: list[WaitingAction]
    # The after of the next page, which may be empty and have a next itself; null if there is none.
    next: Optional[str]


class Workers(TypedDict):
    workers: list[Workforce]
    # The after of the next page; null if there is none.
    next: Optional[str]


class Workforce(TypedDict):
    type: str
    # The workers that the server knows: its own, and the jobs that remote workers have or wait for.
    workers: int
    # How many of them are of the server that answers.
    here: int
    # How many jobs wait in line.
    waiting: int
    # How many jobs are ready to start.
    ready: int
    # How many jobs are being done.
    in_flight: int
    # True if jobs are ready and no worker asks for them.
    idle: bool


Wait = Optional[WaitValue]
