// The requests and answers of the API, by its OpenAPI document: `go test ./internal/edge -run Types -update` writes this file.

/** JSON values. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export type Acknowledgement = {
  outcomes: Outcome[];
};

export type Action = {
  id: string;
  tenant: string;
  type: string;
  class: "high" | "normal" | "low";
  status: "CREATED" | "DISPATCHED" | "RUNNING" | "AGGREGATING" | "COMPLETED" | "FAILED" | "CANCELED";
  paused: boolean;
  /** How many jobs the action has; null before the seal. */
  total: number | null;
  /** How many jobs were uploaded: the sum of the counts that follow, without throttled and retried. */
  received: number;
  pending: number;
  ready: number;
  non_ready: number;
  non_ready_reasons: NonReadyReasons;
  in_flight: number;
  succeeded: number;
  failed: number;
  canceled: number;
  /** Attempts that a target throttled. */
  throttled: number;
  /** Attempts that failed and were retried. */
  retried: number;
  /** One entry for each aggregate; null until the action has finished. */
  result: { [key: string]: Json } | null;
  /** Why the action failed; empty if it did not. */
  error: string;
  /** The earliest time of the first attempt; null: at once. */
  run_at: string | null;
  created_at: string;
  /** Null until the action has finished. */
  finished_at: string | null;
  /** Null when unknown. */
  estimated_finish_at: string | null;
  /** Absent if it is the default. */
  cost?: number;
  /** Absent if it is empty. */
  key?: string;
  /** Whether the action is a stream, which takes jobs that are enqueued one at a time. Absent if not. */
  open?: boolean;
  /** Absent where the jobs have a type of their own. */
  target?: Target;
};

export type Actions = {
  actions: Action[];
  /** The after of the next page, which may be empty and have a next itself; null if there is none. */
  next: string | null;
};

export type Change = {
  /** What to do. Replay runs the failed jobs of finished actions, and of streams, again; the others look at the actions that have not finished. */
  do: "pause" | "resume" | "cancel" | "replay";
  /** Only the action with this id. */
  action?: string;
  /** The next of the request before. */
  after?: string;
  /** Needed to change every action: without anything that selects some. */
  all?: boolean;
  /** Only failed jobs with this cause: a status of HTTP such as 503, a class of them such as 5xx, or timeout. */
  cause?: string;
  /** Count what would be changed, and change nothing. */
  dry_run?: boolean;
  /** Only failed jobs whose error contains this, in upper or lower case. */
  error?: string;
  /** The most actions to change; 0 is 1,000. */
  limit?: number;
  /** Only jobs that failed at this time or later. */
  since?: string;
  /** Only those in this status. */
  status?: "CREATED" | "DISPATCHED" | "RUNNING" | "AGGREGATING" | "COMPLETED" | "FAILED" | "CANCELED";
  /** Only those with the target of this name. */
  target?: string;
  /** Only the actions of this tenant. */
  tenant?: string;
  /** Only those whose jobs have this type. */
  type?: string;
  /** Only jobs that failed before this time. */
  until?: string;
};

export type Changed = {
  /** How many actions were selected. */
  matched: number;
  /** How many of them were changed. The others were changed before, or their status does not allow it. */
  changed: number;
  /** How many jobs of the changed actions had not ended, or are replayed. */
  jobs: number;
  /** The after of the next request; null if all actions were looked at. Those created since the first request are not. */
  next: string | null;
};

export type Cluster = {
  /** The identity of the cluster. */
  cluster_id: string;
  /** The node that answers. */
  node: number;
  /** All that belong to the cluster, by number. */
  nodes: Node[];
  /** Partitions of all topics. */
  partitions: number;
  /** Those of them that nobody leads now. */
  leaderless: number;
  /** Those of them whose replicas are being moved. */
  moving: number;
};

export type Codes = {
  codes: string[];
};

export type CodesOrder = {
  /** How many. */
  count: number;
  /** When they end, at most 366 days ahead: at the end of that hour. */
  until: string;
  /** The lane of their visitors. Default: the last. */
  lane?: string;
};

export type Created = {
  id: string;
  status: string;
};

export type DeadLetter = {
  /** The job's id. */
  id: string;
  action: string;
  /** The job's place in its action, from 0, in upload order. */
  index: number;
  payload: Json;
  /** Of the last attempt. */
  error: string;
  /** What the error says: the status of HTTP with which the target answered, or timeout; else empty. */
  cause: string;
  attempts: number;
  failed_at: string;
};

export type DeadLetters = {
  dead_letters: DeadLetter[];
  /** The after of the next page, which may be empty and have a next itself; null if there is none. */
  next: string | null;
};

export type Delayed = {
  /** The id to cancel it by: its header sluice-id, or a generated one. */
  id: string;
  /** The partition in which it will appear. */
  partition: number;
  /** When it is due. */
  deliver_at: string;
};

export type DelayedList = {
  /** By the time when they are due. */
  delayed: Delayed[];
};

export type Elected = {
  /** Partitions that have got their preferred leader. */
  elected: number;
  /** Those that have not, except those that already had it. */
  refused: Refused[];
};

export type Enqueued = {
  /** The job's id. */
  id: string;
  /** The action that the job is in: a stream, or one of its own. */
  action: string;
  /** The job's place in its action, from 0. */
  index: number;
  /** Whether nothing was enqueued, as there is a job with its key: this one. */
  duplicate: boolean;
};

export type Entry = {
  /** A code that was made for the room, in place of a key: it has one place at a time, in its lane. */
  code?: string | null;
  /** A key, such as a user's id: one key has one place. It needs a token if the server has keys for tokens, or the request comes to a public listener, from a page or through a trusted proxy. */
  visitor?: string | null;
};

export type Extension = {
  leases: string[];
  /** The time from now until the leases end. Default: the server's setting bulk.lease. */
  lease_ms?: number;
};

export type Failures = {
  failures: DeadLetter[];
  /** The from of the next page; null if there is none. */
  next: number | null;
};

export type FieldError = {
  /** The field, such as target.url, or the parameter or header. */
  field: string;
  detail: string;
};

export type Group = {
  /** Its name. */
  group: string;
  /** The sum of the partitions' lag, as far as it is known. */
  lag: number;
  /** The partitions in which it has committed an offset, by topic and number. */
  partitions: GroupPartition[];
};

export type GroupPartition = {
  topic: string;
  partition: number;
  /** The offset that it has committed: that of the next record to read. */
  committed: number;
  /** The offset after the last record; null if the partition has no leader now, or its leader does not answer. */
  end: number | null;
  /** Offsets from committed to end; null if end is. */
  lag: number | null;
};

export type Health = {
  /** How much of the load that the upstream can serve well it has: 1 is all of it. */
  utilization: number;
};

export type Job = {
  /** The same in every attempt. */
  id: string;
  action: string;
  type: string;
  payload: Json;
  /** Counts from 1; throttled attempts do not count. */
  attempt: number;
  /** The token that acknowledges this attempt. */
  lease: string;
  /** When the job is given to another worker. */
  deadline: string;
  /** The attempt in the action's trace, as W3C Trace Context has it, for the spans of the worker. Absent if the action is not traced. */
  traceparent?: string;
  /** The vendor state of traceparent, if there is any. */
  tracestate?: string;
};

export type JobState = {
  /** The job's id. */
  id: string;
  action: string;
  /** The job's place in its action, from 0, in upload order. */
  index: number;
  /** Where the action's counts have the job. */
  state: "pending" | "ready" | "non_ready" | "in_flight" | "succeeded" | "failed" | "canceled";
  /** How many attempts were made, with the present one; throttled ones do not count. Null where it is no longer known. */
  attempts: number | null;
  /** Why the job failed; empty if it did not, or if it was replayed. */
  error: string;
  /** What holds the job back; null if it has ended. */
  reason: "in_flight" | "paused" | "not_sealed" | "run_at" | "starting" | "rate_limited" | "api_throttled" | "transient_error" | "key_limited" | "target_down" | "no_worker" | "global_limit" | "tenant_limit" | "target_limit" | "global_concurrency" | "tenant_concurrency" | "target_concurrency" | "congestion" | "long_attempts" | "workers_busy" | "in_line" | "next" | null;
  /** The reason as a sentence; null if the job has ended. */
  explanation: string | null;
  /** The tenants with the most jobs ready or in flight of what the job waits for: of its type, its target, or all. */
  held_by: TenantJobs[];
  /** How many jobs of its tenant and type go before it; null if it is not in line, or if too many have returned to count. */
  place: number | null;
  /** Before this it does not start: its run_at, when it is due, or the end of the window; null if that is not known. */
  earliest_start: string | null;
  /** When the lease of a job in flight ends unless it is extended; else null. */
  deadline: string | null;
  /** Null unless the job is a dead letter. */
  failed_at: string | null;
  /** What the job returned, any JSON value, where keep_results asks for it; absent where there is none. */
  result?: Json;
  /** Whether the result was larger than 64 KiB, and was not kept. Absent if not. */
  result_truncated?: boolean;
};

export type KeyLimit = {
  /** Limits the attempts of each key in flight. Default 0: no limit. */
  concurrency?: number;
  /** The CEL expression of what an attempt counts in requests_per_second, from 1 to 1,000,000, such as payload.tokens. Default: each counts 1. */
  cost?: string;
  /** How requests_per_second is spread. Default window. */
  pacing?: "window" | "smooth";
  /** Limits the attempts started of each key. Default 0: no limit. */
  requests_per_second?: number;
};

export type KeySet = {
  keys: { [key: string]: Json }[];
};

export type LeaseRequest = {
  /** The job types to lease; jobs are taken from them in turn. */
  types: string[];
  /** The time until the lease ends. Default: the server's setting bulk.lease. */
  lease_ms?: number;
  /** The most jobs to lease. */
  max?: number;
  /** How long to wait for the first job. Default 0: answer at once. */
  wait_ms?: number;
};

export type Leases = {
  jobs: Job[];
};

export type Limits = {
  /** Limits the attempts in flight of all tenants together. Default 0: no limit. */
  concurrency?: number;
  /** How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window. */
  pacing?: "window" | "smooth";
  /** Limits the attempts started by all tenants together. Default 0: no limit. */
  requests_per_second?: number;
};

export type Lottery = {
  method: "fifo" | "lottery";
  /** The SHA-256 of the seed, in hexadecimal digits; null if there is no lottery. */
  commitment: string | null;
  opens_at: string | null;
  /** The seed, in hexadecimal digits; null until the room has opened. */
  seed: string | null;
};

export type Moved = {
  /** Partitions whose replicas begin to move. */
  moves: number;
};

export type NewAction = {
  /** The customer whose jobs these are: the unit of fairness and limits. */
  tenant: string;
  /** What is computed from the results, such as count, sum:FIELD or top-errors. */
  aggregate?: string[];
  /** Orders the actions within a tenant. Default normal. */
  class?: "high" | "normal" | "low";
  /** The value of cost in the expressions of limits by key: what one attempt of the jobs counts where a limit says so. Default 1. */
  cost?: number;
  /** What is published: jobs, an event for each finished job. Events of actions are always published; actions may be listed. */
  events?: string[];
  /** The share of failed jobs above which the action ends as FAILED. Default 1. */
  fail_above?: number | null;
  /** A repeated request with the same id creates one action. Letters, digits and . _ : - ; generated if absent. */
  id?: string;
  /** Keep what each job returns, up to 64 KiB, until the action is forgotten: GET /v1/actions/{id}/jobs/{index} has it. */
  keep_results?: boolean;
  /** Which of the tenant's own customers the jobs are for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other. */
  key?: string;
  /** The most attempts of one job; 0 is the default of its type. */
  max_attempts?: number;
  /** The earliest time of the first attempt. Default: at once. */
  run_at?: string | null;
  /** The webhook that each job is sent to. Give either a type or a target. */
  target?: Target;
  /** The most time for one attempt; 0 is the default of its type. */
  timeout_ms?: number;
  /** The handler of the jobs. Give either a type or a target. */
  type?: string;
};

export type NewJob = {
  /** The customer whose job this is: the unit of fairness and limits. */
  tenant: string;
  /** Any JSON value, of at most 1 MiB. */
  payload: Json;
  /** Orders the actions within a tenant. Default normal. */
  class?: "high" | "normal" | "low";
  /** The value of cost in the expressions of limits by key: what one attempt of the job counts where a limit says so. Default 1. */
  cost?: number;
  /** Keep what the job returns, up to 64 KiB, until it is forgotten: GET /v1/actions/{id}/jobs/{index} has it. */
  keep_results?: boolean;
  /** Which of the tenant's own customers the job is for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other. */
  key?: string;
  /** The most attempts of the job; 0 is the default of its type. */
  max_attempts?: number;
  /** The earliest time of the first attempt, at most 10 years ahead. Default: at once. */
  run_at?: string | null;
  /** The webhook that the job is sent to. Give either a type or a target. */
  target?: Target;
  /** The most time for one attempt; 0 is the default of its type. */
  timeout_ms?: number;
  /** The handler of the job. Give either a type or a target. */
  type?: string;
  /** A key of at most 256 bytes: while a job with this key, tenant, type and target is kept, another is not enqueued. */
  unique?: string;
  /** The length of the windows of time in which the key is unique. They begin at multiples of it since 1970. Default: as long as the job is kept. */
  unique_for_ms?: number;
};

export type NewSchedule = {
  /** When: five fields (minute, hour, day of the month, month, day of the week), @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m. */
  cron: string;
  /** The payloads of each action, any JSON values, together at most 1 MiB. */
  jobs: Json[];
  /** The customer whose jobs these are: the unit of fairness and limits. */
  tenant: string;
  /** What is computed from the results, such as count, sum:FIELD or top-errors. */
  aggregate?: string[];
  /** How late a missed run may start; of several, only the latest does. Default 1 h; 0: never. */
  catch_up_ms?: number | null;
  /** Orders the actions within a tenant. Default normal. */
  class?: "high" | "normal" | "low";
  /** The value of cost in the expressions of limits by key: what one attempt of the jobs counts where a limit says so. Default 1. */
  cost?: number;
  /** What is published: jobs, an event for each finished job. Events of actions are always published; actions may be listed. */
  events?: string[];
  /** The share of failed jobs above which an action ends as FAILED. Default 1. */
  fail_above?: number | null;
  /** Keep what each job returns, up to 64 KiB, until its action is forgotten. */
  keep_results?: boolean;
  /** Which of the tenant's own customers the jobs are for: the keys of a tenant that wait have equal parts of what the tenant gets, however many actions and jobs each has. Printable characters; default: the empty key, which is one like any other. */
  key?: string;
  /** The most attempts of one job; 0 is the default of its type. */
  max_attempts?: number;
  /** Whether a run starts while the one before has not finished. Default skip. */
  overlap?: "skip" | "allow";
  /** The webhook that each job is sent to. Give either a type or a target. */
  target?: Target;
  /** The IANA time zone of the fields. Default UTC. */
  time_zone?: string;
  /** The most time for one attempt; 0 is the default of its type. */
  timeout_ms?: number;
  /** The handler of the jobs. Give either a type or a target. */
  type?: string;
};

export type Node = {
  /** Its number, from 1. */
  id: number;
  /** Where Kafka clients reach it, host:port. */
  kafka: string;
  /** The addresses of its Kafka listeners by name, host:port, that of kafka among them. Empty: clients are told the one that they have connected to. None if the listener has no name. */
  listeners: { [key: string]: string };
  /** The URL of its HTTP interface. */
  http: string;
  /** Its rack; empty if none is set. */
  rack: string;
  /** It has sent a sign of life recently. */
  alive: boolean;
  /** It gets no new replicas, and its replicas move to other nodes. */
  draining: boolean;
  /** Partitions that it leads. */
  leads: number;
  /** Partitions that it keeps a replica of. */
  replicas: number;
  /** Those of them that are not in sync or cannot be reached. */
  behind: number;
};

export type NonReadyReasons = {
  rate_limited: number;
  api_throttled: number;
  transient_error: number;
  /** Jobs that wait for a limit by their key. */
  key_limited?: number;
  /** Jobs that wait because this server takes their target for down. */
  target_down?: number;
};

export type Occurrence = {
  opens_at: string;
  ends_at: string;
  /** When visitors may come to wait for opens_at; left out: at any time. */
  prequeue_from?: string;
};

export type Outcome = {
  lease: string;
  /** failed is final; retry uses an attempt; throttled and released use none. */
  status: "succeeded" | "failed" | "retry" | "throttled" | "released";
  /** What the attempt has really cost, for limits by key with a cost. Default: what was charged when it started. */
  cost?: number;
  /** Why the attempt did not succeed. The first 1,024 bytes are kept. */
  error?: string;
  /** The result of a successful job, any JSON value, for the action's aggregates. */
  result?: Json;
  /** The Retry-After of the target, for retry and throttled. */
  retry_after_ms?: number;
  /** How long the attempt ran, for the latency aggregates. */
  took_ms?: number;
};

export type Place = {
  /** The ticket to show from now on. */
  ticket: string;
  /** The visitor's number in the room. */
  id: number;
  status: "waiting" | "inside";
  /** From 1; null inside, and before a lottery is drawn. */
  position: number | null;
  /** How many visitors are before this one: position - 1. */
  ahead: number | null;
  /** With a probability of about 90 % the wait is between low and high; null if that is not known. */
  estimated_wait_ms: Wait;
  /** When to ask again. */
  next_poll_ms: number;
  /** A JWT, if the visitor is inside. It ends after a minute at most, and each answer has a new one. */
  pass: string | null;
  /** When the visit ends. */
  pass_expires_at: string | null;
  /** The visitor's number in the lottery, once it is drawn. */
  draw?: number;
  /** The lane in which the visitor waits, in a room with lanes: position and ahead are those in it. */
  lane?: string;
};

export type Problem = {
  /** The meaning of the status. */
  title: string;
  /** The HTTP status. */
  status: number;
  /** What is wrong, and what would be right. */
  detail: string;
  /** The kind of the problem, one word that programs can rely on. */
  code: string;
  /** With code invalid: what is wrong with which field. */
  errors?: FieldError[];
  /** With code gone: the visitor's number. */
  id?: number;
  /** The line of the upload that is invalid, from 1. */
  line?: number;
  /** With code gone: why the place is gone. */
  reason?: "left" | "expired" | "abandoned" | "revoked" | "ended" | "sold_out" | "forgotten";
  /** How many jobs of the action are durable. */
  received?: number;
  /** The total that the seal gave. */
  total?: number;
};

export type Reassignment = {
  topic: string;
  partition: number;
  /** The nodes that are to keep it, the preferred leader first. */
  target: number[];
  /** The nodes that keep it now. */
  replicas: number[];
  /** Those that are getting it. */
  adding: number[];
  /** Those that give it up when the others have it. */
  removing: number[];
};

export type ReassignmentList = {
  /** By topic and partition. */
  reassignments: Reassignment[];
};

export type Received = {
  /** How many jobs of the action are durable: the next Upload-Offset. */
  received: number;
};

export type Refused = {
  topic: string;
  partition: number;
  /** Why not. */
  detail: string;
};

export type Replay = {
  /** The finished action, or the stream, whose dead letters are run again, in a new action. */
  action: string;
  /** Only failed jobs with this cause: a status of HTTP such as 503, a class of them such as 5xx, or timeout. */
  cause?: string;
  /** Only failed jobs whose error contains this, in upper or lower case. */
  error?: string;
  /** Only jobs that failed at this time or later. */
  since?: string;
  /** Only jobs that failed before this time. */
  until?: string;
};

export type Revocation = {
  ticket?: string;
  /** The visitor's key. Give this or the ticket. */
  visitor?: string;
};

export type Room = {
  room: string;
  mode: "teller" | "park";
  state: "open" | "queueing" | "paused" | "closed" | "sold_out";
  /** Visitors in the queue that were not called. */
  waiting: number;
  /** Visitors that are inside, or were called. */
  inside: number;
  /** Those of them that have not claimed their slot yet. */
  called: number;
  /** All visitors that ever entered. */
  entered_total: number;
  /** All visitors that came in: those who were called and claimed the slot. */
  admitted_total: number;
  /** How often a called visitor did not claim the slot. */
  missed_total: number;
  /** Visitors that were gone before they came in. */
  departed_total: number;
  /** Passes that ended. */
  expired_total: number;
  /** Events that were not kept, because too many waited to be published. */
  events_dropped_total: number;
  /** How many are admitted per second, over the last minute; null if that is not known. */
  outflow_per_second: number | null;
  paused: boolean;
  /** Raised each time that all passes are revoked. */
  epoch: number;
  /** When the room was created. */
  created_at: string;
  /** The event that is on, or the next one, where events repeat. */
  event?: Occurrence;
  /** The capacity or batch in force, where it is auto. */
  found?: number;
  /** All that apply in the mode, defaults included. */
  settings?: Settings;
};

export type Rooms = {
  rooms: Room[];
  /** Give this as after for the next page; null if there is none. */
  next: string | null;
};

export type Rule = {
  /** A host name without port, or *.example.com for all below it. Default: all. */
  host?: string;
  /** An HTTP method. Default: all. */
  method?: string;
  /** One path, or with /* at its end itself and all below it. Default: all. */
  path?: string;
};

export type Schedule = {
  name: string;
  cron: string;
  time_zone: string;
  /** How many jobs each action has. */
  total: number;
  overlap: "skip" | "allow";
  /** 0: missed runs do not start. */
  catch_up_ms: number;
  tenant: string;
  type: string;
  class: "high" | "normal" | "low";
  aggregate: string[];
  /** 0: the default of the type. */
  max_attempts: number;
  /** 0: the default of the type. */
  timeout_ms: number;
  /** Null: an action is COMPLETED however many jobs fail. */
  fail_above: number | null;
  keep_results: boolean;
  events: string[];
  paused: boolean;
  created_at: string;
  /** When the definition last changed. */
  updated_at: string;
  /** Null while the schedule is paused, or if no run follows. */
  next_run_at: string | null;
  /** When the last run was due, or requested; null if there was none. */
  last_run_at: string | null;
  /** The id of the action of the last run; null if there was none. */
  last_action: string | null;
  /** When the last run was due that was skipped because the one before had not finished. */
  last_skipped_at: string | null;
  /** Why the last run did not start; empty if it did. */
  last_error: string;
  /** Absent if it is the default. */
  cost?: number;
  /** The payloads; left out of lists. */
  jobs?: Json[];
  /** Absent if it is empty. */
  key?: string;
  /** Absent where the jobs have a type of their own. */
  target?: Target;
};

export type Schedules = {
  schedules: Schedule[];
};

export type Seal = {
  /** How many jobs the action has. */
  total: number;
};

export type Settings = {
  /** teller: at most capacity are inside, and when one leaves the next enters. park: batch enter every interval_ms, each for stay_ms. */
  mode: "teller" | "park";
  /** How long a visitor may be silent before it is skipped when called. Default 120000. */
  abandon_after_ms?: number;
  /** The most. Default 100000. */
  auto_max?: number;
  /** The least capacity or batch that is auto. Default 10. */
  auto_min?: number;
  /** How many enter at each tick, or "auto". park only, required. */
  batch?: Json;
  /** Binds each ticket, and its passes, to the client address that it was given to. Default false. */
  bind_tickets?: boolean;
  /** The requests that need none, whatever routes say. */
  bypass?: Rule[];
  /** The most visitors inside, or "auto". teller only, required. */
  capacity?: Json;
  /** How long a called visitor has to claim the slot. Default 10000. */
  claim_window_ms?: number;
  /** Accepts codes that were made for the room: their visitors are in the codes' lane, and invited. Needs lanes or invitation_only. Default false. */
  codes?: boolean;
  /** When admission ends. Default: never. */
  ends_at?: string;
  /** For how long after that the place is kept and counted. Default 180000. */
  grace_ms?: number;
  /** The time between ticks. park only, required. */
  interval_ms?: number;
  /** Refuses visitors without a key or a code, or without a token where the server has keys for tokens. Default false. */
  invitation_only?: boolean;
  /** How many visitors may enter from one client address (of IPv6, one /64, and four times as many from one /48) in a minute, at each instance; 0: any number. Default: 600, except from this machine, private networks and trusted proxies. */
  joins_per_minute?: number;
  /** Lines of their own with shares of the calls, as in vip=20,members=30,public=50. A visitor is in the lane that its token names, or in the last. Default: one line. */
  lanes?: string;
  /** How long after its opening each event ends. Required with repeats. */
  lasts_ms?: number;
  /** How many may wait; more are refused. Default 1000000. */
  max_waiting?: number;
  /** The order of visitors who came before opens_at. Default fifo. */
  method?: "fifo" | "lottery";
  /** What a gate does when the store does not answer. Default closed. */
  on_store_failure?: "open" | "closed";
  /** When visitors are admitted from. Default: at once. */
  opens_at?: string;
  /** Whether using a pass extends it. teller only. Default sliding. */
  pass?: "sliding" | "fixed";
  /** How long a pass lasts. teller only. Default 600000. */
  pass_ttl_ms?: number;
  /** When visitors may come to wait for opens_at. Default: at any time. */
  prequeue_from?: string;
  /** How long before each opening visitors may come to wait for it. Default: at any time. */
  prequeue_ms?: number;
  /** How often a visitor may renew a fixed pass. teller only. Default 0. */
  renewals?: number;
  /** When each of many events opens: a cron expression of five fields, @daily or its like, or @every 90m since the room was created. Instead of opens_at, prequeue_from and ends_at. */
  repeats?: string;
  /** The requests that need a pass at a gate. Default: all. */
  routes?: Rule[];
  /** How long after its tick each pass ends. park only, required. */
  stay_ms?: number;
  /** The IANA name of the time zone of repeats. Default UTC. */
  time_zone?: string;
};

export type Stored = {
  /** Unfinished actions. */
  actions: number;
  /** Their jobs, done jobs among them. */
  jobs: number;
  /** The bytes of their payloads. */
  bytes: number;
};

export type Target = {
  /** The target's name, by which it has limits, secrets and a prefix. Default: the URL's host:port. */
  name?: string;
  /** Where each job is sent: the whole URL, http or https; or, if the target has a url_prefix, a path below it, or nothing for the prefix. Answers have the whole URL, with xxxxx for its user and the values of its query. */
  url?: string;
};

export type TargetLimits = {
  /** Limits the attempts in flight against the target. Default 0: as many as the target can take, which the server finds out. */
  concurrency?: number;
  /** Since when this server takes the target for down: its jobs wait, and one attempt in 2 s probes it. A PUT ignores it. */
  down_since?: string;
  /** How many attempts this server lets be in flight at present, where concurrency is 0. A PUT ignores it. */
  found_concurrency?: number;
  /** The rate that holds at present, where requests_per_second is auto. A PUT ignores it. */
  found_requests_per_second?: number;
  /** How the rate is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window. */
  pacing?: "window" | "smooth";
  /** Limits the attempts started against the target; auto finds the rate that the target sustains. Default 0: no limit. */
  requests_per_second?: Json;
  /** How many secrets are stored. A PUT ignores it. */
  secret_count?: number;
  /** The secrets that sign requests to the target, the current one first; they need a url_prefix. Absent: as they are; an empty list: those of the server's settings. */
  secrets?: string[];
  /** The tenants that may use the target; they need a url_prefix. Default: all. */
  tenants?: string[];
  /** Where the target is: requests go to URLs below it only, and actions that name the target give a path below it. Default: none, actions give the whole URL. */
  url_prefix?: string;
};

export type Tenant = {
  /** Milliseconds by which the tenant's actions rank as older. Default 0. */
  base_priority?: number;
  /** Limits the tenant's attempts in flight. Default 0: no limit of its own. */
  concurrency?: number;
  /** Limits of the tenant's jobs that have one key, by the CEL expression that computes the key of a job from payload, type, target, key and tenant, such as payload.customer. At most 8. Default: none. */
  keys?: { [key: string]: KeyLimit };
  /** The most unfinished actions, streams among them. Default 0: no bound. */
  max_actions?: number;
  /** The most bytes of payloads of unfinished actions. Default 0: no bound. */
  max_bytes?: number;
  /** The most jobs of unfinished actions, done jobs among them. Default 0: no bound. */
  max_jobs?: number;
  /** How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window. */
  pacing?: "window" | "smooth";
  /** Limits the attempts started for the tenant. Default 0: no limit of its own. */
  requests_per_second?: number;
  /** What counts in these quotas now. Absent while the part of the store that counts it does not answer. A PUT ignores it. */
  stored?: Stored;
  /** The tenant's share relative to other tenants. Default 1. */
  weight?: number;
};

export type TenantJobs = {
  tenant: string;
  jobs: number;
};

export type TopicChange = {
  /** How long the records of partitions that go can be read. Default: 7 days, or the retention of the topic if that is less. */
  grace_ms?: number;
  /** How many partitions there are to be. If that is less, the highest ones go: producers do not find them any more, and their records can be read by partition number until the grace period is over. */
  partitions?: number;
  /** How many nodes are to keep each partition. They are moved in the background; see GET /v1/cluster/reassignments. */
  replicas?: number;
};

export type TypeLimits = {
  /** The workers of this type in each instance. Default 0: that of the instance's settings. */
  concurrency?: number;
  /** How requests_per_second is spread: within each window at any time, or evenly, so that any span of a second holds at most the rate. Default window. */
  pacing?: "window" | "smooth";
  /** Limits the attempts started; not for webhooks. Default 0: no limit. */
  requests_per_second?: number;
  /** Limits the attempts in flight in all instances and remote workers; not for webhooks, which targets limit. Default 0: no limit. */
  total_concurrency?: number;
};

export type Verdict = {
  lease: string;
  /** Only accepted changed anything. canceled, of an extension alone: the lease goes on, but the action was canceled; stop and release the job. */
  verdict: "accepted" | "duplicate" | "expired" | "unknown" | "canceled";
};

export type Verdicts = {
  verdicts: Verdict[];
};

export type Wait = {
  low: number;
  high: number;
} | null;

export type WaitingAction = {
  tenant: string;
  type: string;
  /** The name of its target; empty if it has none. */
  target: string;
  /** How many of its jobs wait: pending, ready and non-ready ones. */
  waiting: number;
  /** Its first job that has not ended, and why it does not run. */
  job: JobState;
};

export type WaitingActions = {
  waits: WaitingAction[];
  /** The after of the next page, which may be empty and have a next itself; null if there is none. */
  next: string | null;
};

export type Workers = {
  workers: Workforce[];
  /** The after of the next page; null if there is none. */
  next: string | null;
};

export type Workforce = {
  type: string;
  /** The workers that the server knows: its own, and the jobs that remote workers have or wait for. */
  workers: number;
  /** How many of them are of the server that answers. */
  here: number;
  /** How many jobs wait in line. */
  waiting: number;
  /** How many jobs are ready to start. */
  ready: number;
  /** How many jobs are being done. */
  in_flight: number;
  /** True if jobs are ready and no worker asks for them. */
  idle: boolean;
};
