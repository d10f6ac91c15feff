import type { Action, Created, DeadLetter, Enqueued, JobState, Json, NewAction, NewJob, Place } from "./types.js";
export type { Action, Created, Enqueued, JobState, Json, Place } from "./types.js";
/** The requests and answers of the whole API. */
export type * as api from "./types.js";

/** Options of everything that calls a server. */
export interface Options {
  /** A token of the server, where it asks for one. */
  token?: string;
  /** The most attempts of a request that is safe to repeat: 12, which is about half a minute. */
  attempts?: number;
}

/** What an action is created with: a tenant, and a type of jobs or the target of their webhooks. */
export type Spec = NewAction;

/** What one job is enqueued with. */
export type Enqueue = Omit<NewJob, "payload">;

/** A failed job. */
export type Failure = DeadLetter;

/** What all errors of this package are. */
export class SluiceError extends Error {}

/** The server did not answer, or its answer broke off: whether it did what it was asked is not known. */
export class ConnectionFailed extends SluiceError {}

/** The server refused a request. */
export class Refused extends SluiceError {
  /** The HTTP status. */
  readonly status: number;
  /** The word for programs, such as "not_found". */
  readonly code: string;
  /** The whole problem document. */
  readonly problem: { [field: string]: Json };
  /** In seconds; 0 if the server named none. */
  readonly retryAfter: number;
}

/** Thrown by a job's function: the job has failed for good, and becomes a dead letter. */
export class SkipRetry extends SluiceError {
  constructor(reason?: string);
}

/** Thrown by a job's function: try again after so many seconds. It uses an attempt. */
export class RetryAfter extends SluiceError {
  constructor(seconds: number, reason?: string);
}

/** Thrown by a job's function: a service behind it wants less. The job waits at least so many seconds, and uses no attempt. */
export class Throttled extends SluiceError {
  constructor(seconds?: number, reason?: string);
}

/** Calls the API of bulk of one server. A call throws Refused or, after all attempts, ConnectionFailed. */
export class Client {
  /** The default address is http://127.0.0.1:8080. */
  constructor(url?: string, options?: Options);
  /**
   * Creates an action of all payloads, uploads and seals it. With an id, a submission that was interrupted continues when
   * it is repeated with the same payloads.
   */
  submit(payloads: Iterable<Json> | AsyncIterable<Json>, spec: Spec): Promise<Action>;
  /** Creates an action without jobs. */
  create(spec: Spec): Promise<Created>;
  /** Uploads the payloads of an action from its first job on; those that the server has are passed over. It returns how many jobs the action has. */
  upload(id: string, payloads: Iterable<Json> | AsyncIterable<Json>): Promise<number>;
  /** Declares the upload complete: the action starts. */
  seal(id: string, total: number): Promise<Action>;
  /** Enqueues one job into the tenant's stream. Without unique the request is not repeated, as the job may be there. */
  enqueue(payload: Json, options: Enqueue): Promise<Enqueued>;
  action(id: string): Promise<Action>;
  /** Actions in order of creation. */
  actions(filters?: { tenant?: string; status?: string }): AsyncGenerator<Action>;
  /** Where a job is and what holds it back; by default the first that has not ended. */
  job(id: string, index?: number | "first"): Promise<JobState>;
  failures(id: string): AsyncGenerator<Failure>;
  /** Creates an action of the failed jobs of one that has finished. */
  replay(id: string): Promise<Created>;
  pause(id: string): Promise<Action>;
  resume(id: string): Promise<Action>;
  cancel(id: string): Promise<Action>;
  /** The action now, whenever its counts change, and last when it has finished. */
  watch(id: string): AsyncGenerator<Action>;
  /** The action once it has finished. */
  wait(id: string): Promise<Action>;
}

/** One attempt of a job. */
export interface Job<Payload = any> {
  /** The same in every attempt, which makes side effects idempotent. */
  readonly id: string;
  readonly action: string;
  readonly type: string;
  readonly payload: Payload;
  /** Counts from 1. */
  readonly attempt: number;
  readonly deadline: Date;
  readonly traceparent?: string;
  /** Aborted when the action was canceled, the lease was lost, or the grace of a stop is over: throw, and the job is handed back. */
  readonly signal: AbortSignal;
  /** May be set to what the attempt has really cost, for limits by cost. */
  cost: number;
}

export interface WorkerOptions {
  token?: string;
  /** How many jobs run at a time: 10. */
  concurrency?: number;
  /** How long, in seconds, the server waits for a worker that has died: 30. It is extended while jobs run. */
  lease?: number;
  /** How long a stop waits for running jobs before it hands them back, in seconds: 30. */
  grace?: number;
  /** Default: the console. */
  log?: Pick<Console, "info" | "warn" | "error">;
}

/**
 * Leases jobs from a server and runs them. What a function returns, any JSON value, is the job's result; SkipRetry,
 * RetryAfter and Throttled say what else becomes of it. After any other error it is tried again, after a backoff.
 */
export class Worker {
  constructor(url?: string, options?: WorkerOptions);
  /** Runs the jobs of a type by a function. */
  job<Payload = any>(type: string, run: (job: Job<Payload>) => unknown): this;
  /** Runs jobs until stop or one of the signals; a second signal ends the process. */
  run(options?: { signals?: string[] }): Promise<void>;
  /** Leases no more. run ends when the running jobs have ended and all are acknowledged. */
  stop(): void;
}

/** The API of one room. A call throws Refused with status 410 where the place is gone. */
export class Room {
  constructor(url: string, room: string, options?: Options);
  /** Joins: inside, or in the line. The ticket proves the place: keep it, and to yourself. visitor is your own key, which has one place; token one that your shop has signed. */
  enter(who?: { visitor?: string; token?: string }): Promise<Place>;
  /** The place of a ticket; wait is how many seconds at most to wait for a change. */
  ask(ticket: string, options?: { wait?: number }): Promise<Place>;
  /** The place now and whenever it is asked for, until it is inside. */
  wait(place: Place): AsyncGenerator<Place>;
  /** Begins the time of a fixed pass again, where the room allows it. */
  renew(ticket: string): Promise<Place>;
  /** Gives the place up, so that the next visitor enters. */
  leave(ticket: string): Promise<void>;
}
