import { Api, delay, path, sleep, transient } from "./api.js";
import { RetryAfter, SkipRetry, Throttled } from "./errors.js";

/** The most that one request may have of jobs, outcomes or leases, and of characters of outcomes. */
const batchSize = 1000;
const batchLength = 2 << 20;
/** How long the server holds a request for jobs when there are none: as long as a stop may take. */
const waitMS = 2000;
/** So many seconds of work are leased ahead, at the rate of the last seconds. */
const ahead = 0.25;

export class Worker {
  #api;
  #concurrency;
  #lease;
  #grace;
  #log;
  #functions = new Map();
  #waiting = []; // leased, not started
  #running = new Map(); // by lease
  #outcomes = []; // in JSON
  #done = 0;
  #rate = 0; // jobs a second
  #stop = new AbortController();
  #room = new Bell(); // jobs may be leased
  #ended = new Bell(); // a job has ended
  #report = new Bell(); // outcomes wait, or nothing is left
  #finished = new AbortController();

  constructor(url = "http://127.0.0.1:8080", { token, concurrency = 10, lease = 30, grace = 30, log = console } = {}) {
    if (!(concurrency >= 1 && lease >= 1 && lease <= 43200 && grace >= 0)) {
      throw new RangeError(`concurrency ${concurrency}, lease ${lease}, grace ${grace}: want at least 1, 1 to 43200 s, and at least 0 s`);
    }
    this.#api = new Api(url, { token });
    this.#concurrency = concurrency;
    this.#lease = lease;
    this.#grace = grace;
    this.#log = log;
  }

  job(type, run) {
    if (this.#functions.has(type)) throw new RangeError(`type ${type} has a function already`);
    this.#functions.set(type, run);
    return this;
  }

  stop() {
    this.#stop.abort();
    this.#room.ring();
  }

  async run({ signals = ["SIGTERM", "SIGINT"] } = {}) {
    if (!this.#functions.size) throw new RangeError("the worker has no job types: call job first");
    const caught = () => this.stop();
    for (const signal of signals) process.once(signal, caught);
    const keepers = [this.#acknowledge(), this.#extend()];
    try {
      await this.#fetch();
    } finally {
      this.stop();
      await this.#drain();
      await Promise.all(keepers);
      for (const signal of signals) process.removeListener(signal, caught);
    }
  }

  async #fetch() {
    const types = [...this.#functions.keys()];
    let since = performance.now();
    for (let done = 0, failed = 0; ; ) {
      while (this.#free() <= 0 && !this.#stop.signal.aborted) await this.#room.rung();
      if (this.#stop.signal.aborted) return;
      const max = Math.min(batchSize, this.#free());
      try {
        const { jobs } = await this.#api.once("POST", path("leases"), { types, max, wait_ms: waitMS, lease_ms: Math.floor(this.#lease * 1000) });
        if (failed) this.#log.info("sluice: jobs are leased again");
        failed = 0;
        for (const fields of jobs) this.#waiting.push(jobOf(fields));
        this.#start();
      } catch (error) {
        if (!transient(error)) throw error;
        if (++failed === 1) this.#log.warn(`sluice: no jobs can be leased: ${error.message}`);
        await sleep(delay(failed, error.retryAfter), this.#stop.signal);
      }
      const now = performance.now();
      if (now - since > 500) {
        this.#rate = ((this.#done - done) / (now - since)) * 1000;
        since = now;
        done = this.#done;
      }
    }
  }

  /** #free returns how many more jobs may be leased. */
  #free() {
    return this.#concurrency + Math.floor(this.#rate * Math.min(ahead, this.#lease / 4)) - this.#waiting.length - this.#running.size;
  }

  /** #start starts jobs that wait, as many as may run. */
  #start() {
    while (this.#waiting.length && this.#running.size < this.#concurrency && !this.#stop.signal.aborted) {
      const job = this.#waiting.shift();
      this.#running.set(job.lease, job);
      this.#run(job);
    }
    if (this.#free() > this.#concurrency / 2) this.#room.ring();
  }

  async #run(job) {
    const outcome = await this.#outcome(job);
    this.#done++;
    if (this.#running.delete(job.lease)) this.#tell(outcome); // else it was handed back
    this.#ended.ring();
    this.#start();
  }

  /** #outcome runs a job and returns its outcome, in JSON. */
  async #outcome(job) {
    const began = performance.now();
    let outcome;
    try {
      const result = await this.#functions.get(job.type)(job);
      JSON.stringify(result);
      outcome = { status: "succeeded", result: result ?? undefined };
    } catch (error) {
      const text = String(error?.message || error).slice(0, 1024);
      if (error instanceof SkipRetry) outcome = { status: "failed", error: text };
      else if (error instanceof Throttled) outcome = { status: "throttled", error: text, retry_after_ms: bounded(error.seconds) };
      else if (error instanceof RetryAfter) outcome = { status: "retry", error: text, retry_after_ms: bounded(error.seconds) };
      else if (job.signal.aborted) outcome = { status: "released" };
      else {
        this.#log.error(`sluice: job ${job.id}, attempt ${job.attempt}:`, error);
        outcome = { status: "retry", error: text };
      }
    }
    const text = JSON.stringify({ lease: job.lease, ...outcome, took_ms: Math.floor(performance.now() - began), cost: job.cost || undefined });
    if (text.length <= batchLength) return text;
    return JSON.stringify({ lease: job.lease, status: "failed", error: `the result has ${text.length} characters, more than ${batchLength}` });
  }

  #tell(outcome) {
    this.#outcomes.push(outcome);
    this.#report.ring();
  }

  /** #acknowledge reports outcomes: while one batch is on its way, the next collects. */
  async #acknowledge() {
    for (;;) {
      while (!this.#outcomes.length) {
        if (this.#finished.signal.aborted) return;
        await this.#report.rung();
      }
      let count = 0;
      for (let length = 0; count < Math.min(batchSize, this.#outcomes.length); count++) {
        length += this.#outcomes[count].length;
        if (count && length > batchLength) break;
      }
      await this.#send(path("leases", "ack"), `{"outcomes":[${this.#outcomes.splice(0, count).join(",")}]}`);
    }
  }

  /** #send sends a report until it has an answer, for as long as leases last. It may be repeated. */
  async #send(where, body) {
    const until = performance.now() + this.#lease * 1000;
    for (let attempt = 1; ; attempt++) {
      try {
        return (await this.#api.once("POST", where, body)).verdicts;
      } catch (error) {
        if (!transient(error) || performance.now() > until) {
          this.#log.error(`sluice: a report is lost, its jobs run again when their leases end: ${error.message}`);
          return [];
        }
        await sleep(delay(attempt, error.retryAfter));
      }
    }
  }

  /** #extend extends the leases of all jobs that are held, at a third of their time, and learns which to stop. */
  async #extend() {
    for (;;) {
      await sleep(this.#lease / 3, this.#finished.signal);
      if (this.#finished.signal.aborted) return;
      const held = new Map([...this.#waiting, ...this.#running.values()].map((job) => [job.lease, job]));
      const leases = [...held.keys()];
      for (let i = 0; i < leases.length; i += batchSize) {
        const body = { leases: leases.slice(i, i + batchSize), lease_ms: Math.floor(this.#lease * 1000) };
        for (const { lease, verdict } of await this.#send(path("leases", "extend"), body)) {
          if (verdict !== "accepted") held.get(lease).abort();
        }
      }
      const canceled = this.#waiting.filter((job) => job.signal.aborted);
      this.#waiting = this.#waiting.filter((job) => !job.signal.aborted);
      canceled.forEach((job) => this.#handBack(job));
    }
  }

  /** #handBack hands back a job: it uses no attempt. */
  #handBack(job) {
    this.#tell(JSON.stringify({ lease: job.lease, status: "released" }));
  }

  /** #drain hands back what was not started, and after the grace what still runs. */
  async #drain() {
    this.#waiting.splice(0).forEach((job) => this.#handBack(job));
    const end = new AbortController();
    const grace = sleep(this.#grace, end.signal);
    while (this.#running.size && (await Promise.race([this.#ended.rung().then(() => true), grace.then(() => false)])));
    end.abort();
    for (const job of this.#running.values()) {
      job.abort();
      this.#handBack(job);
    }
    this.#running.clear();
    this.#finished.abort();
    this.#report.ring();
  }
}

/** jobOf returns a job with a signal, and a way to abort it that is not the job's own. */
function jobOf({ id, action, type, payload, attempt, deadline, traceparent, lease }) {
  const controller = new AbortController();
  const job = { id, action, type, payload, attempt, deadline: new Date(deadline), traceparent, lease, cost: 0, signal: controller.signal };
  Object.defineProperty(job, "abort", { value: () => controller.abort() });
  return job;
}

/** Bell wakes whoever waits, or the next who does. */
class Bell {
  #ringing = false;
  #wake;

  ring() {
    this.#ringing = true;
    this.#wake?.();
  }

  async rung() {
    if (!this.#ringing) await new Promise((resolve) => (this.#wake = resolve));
    this.#ringing = false;
    this.#wake = undefined;
  }
}

const bounded = (seconds) => Math.max(0, Math.min(Math.floor(seconds * 1000), 86_400_000));
