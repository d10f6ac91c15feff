import { Api, delay, path, sleep, transient } from "./api.js";
import { ConnectionFailed, SluiceError } from "./errors.js";

/** The most jobs and bytes of one chunk of an upload. The server takes up to 32 MiB. */
const chunkJobs = 10_000;
const chunkBytes = 4 << 20;
/** How long a watch may be silent before its connection counts as broken: three heartbeats. */
const silence = 45_000;

export class Client {
  #api;

  constructor(url = "http://127.0.0.1:8080", options) {
    this.#api = new Api(url, options);
  }

  async submit(payloads, spec) {
    const { id } = await this.create(spec);
    return this.seal(id, await this.upload(id, payloads));
  }

  create(spec) {
    return this.#api.call("POST", path("actions"), { ...spec, id: spec.id ?? crypto.randomUUID() });
  }

  async upload(id, payloads) {
    let { received } = await this.action(id);
    let skip = received;
    for await (const lines of chunks(payloads, () => skip > 0 && skip-- > 0)) received = await this.#send(id, received, lines);
    if (skip > 0) {
      throw new SluiceError(`the server has ${skip} jobs of ${id} more than there are payloads: they are not the same upload`);
    }
    return received;
  }

  async #send(id, offset, lines) {
    const headers = { "Content-Type": "application/x-ndjson", "Upload-Offset": String(offset) };
    return (await this.#api.call("POST", path("actions", id, "jobs"), lines, { headers, wait: 90_000 })).received;
  }

  seal(id, total) {
    return this.#api.call("POST", path("actions", id, "seal"), { total });
  }

  enqueue(payload, options) {
    return this.#api.call("POST", path("jobs"), { ...options, payload }, { repeat: options.unique !== undefined });
  }

  action(id) {
    return this.#api.call("GET", path("actions", id));
  }

  actions(filters = {}) {
    return this.#pages(path("actions"), "actions", "after", filters);
  }

  job(id, index = "first") {
    return this.#api.call("GET", path("actions", id, "jobs", index));
  }

  failures(id) {
    return this.#pages(path("actions", id, "failures"), "failures", "from", {});
  }

  replay(id) {
    return this.#api.call("POST", path("dead-letters", "replay"), { action: id });
  }

  pause(id) {
    return this.#api.call("POST", path("actions", id, "pause"));
  }

  resume(id) {
    return this.#api.call("POST", path("actions", id, "resume"));
  }

  cancel(id) {
    return this.#api.call("POST", path("actions", id, "cancel"));
  }

  async *watch(id) {
    for (let failed = 0; ; ) {
      try {
        for await (const action of this.#api.events(path("actions", id, "watch"), silence)) {
          failed = 0;
          yield action;
          if (action.finished_at) return;
        }
        throw new ConnectionFailed("the server ended the watch");
      } catch (error) {
        if (++failed >= this.#api.attempts || !transient(error)) throw error;
        await sleep(delay(failed, error.retryAfter));
      }
    }
  }

  async wait(id) {
    let last;
    for await (const action of this.watch(id)) last = action;
    return last;
  }

  async *#pages(path, items, place, query) {
    for (let next; next !== null; ) {
      const page = await this.#api.call("GET", path, undefined, { query: { ...query, [place]: next } });
      yield* page[items];
      next = page.next;
    }
  }
}

/** chunks yields lines of NDJSON for the payloads that are not passed over. */
async function* chunks(payloads, pass) {
  let lines = "";
  let jobs = 0;
  for await (const payload of payloads) {
    if (pass()) continue;
    const line = JSON.stringify(payload) + "\n";
    if (jobs && (jobs === chunkJobs || lines.length + line.length > chunkBytes)) {
      yield lines;
      lines = "";
      jobs = 0;
    }
    lines += line;
    jobs++;
  }
  if (jobs) yield lines;
}
