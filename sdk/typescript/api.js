import { ConnectionFailed, Refused } from "./errors.js";

const timeout = 30_000;

/** Api makes requests to one server: JSON, repeated where that is safe. */
export class Api {
  constructor(url, { token, attempts = 12 } = {}) {
    const parsed = new URL(url);
    if (!/^https?:$/.test(parsed.protocol) || parsed.search || parsed.hash) {
      throw new TypeError(`${url} is not the address of a server; want one like http://127.0.0.1:8080`);
    }
    this.base = parsed.href.replace(/\/+$/, "");
    this.headers = token ? { Authorization: `Bearer ${token}` } : {};
    this.attempts = Math.max(1, attempts);
  }

  /** call makes a request and returns the answer, parsed; undefined if it has no body. */
  async call(method, path, body, { repeat = true, ...options } = {}) {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.once(method, path, body, options);
      } catch (error) {
        if (attempt === this.attempts || !repeat || !transient(error)) throw error;
        await sleep(delay(attempt, error.retryAfter));
      }
    }
  }

  /** once makes one attempt of call. */
  async once(method, path, body, { headers, query, wait = 0 } = {}) {
    const response = await this.open(method, path, body, headers, query, AbortSignal.timeout(timeout + wait));
    const text = await connected(method, path, () => response.text());
    return text ? JSON.parse(text) : undefined;
  }

  /** events yields the data of server-sent events until the server ends them. */
  async *events(path, silence) {
    const connection = new AbortController();
    let alarm = setTimeout(() => connection.abort(), silence);
    try {
      const response = await this.open("GET", path, undefined, { Accept: "text/event-stream" }, undefined, connection.signal);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ; ) {
        const { done, value } = await connected("GET", path, () => reader.read());
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(() => connection.abort(), silence);
        const events = (text + value).split("\n\n");
        text = events.pop();
        for (const event of events) {
          const data = event.split("\n").filter((line) => line.startsWith("data:"));
          if (data.length) yield JSON.parse(data.map((line) => line.slice(5)).join("\n"));
        }
      }
    } finally {
      clearTimeout(alarm);
      connection.abort();
    }
  }

  async open(method, path, body, headers, query, signal) {
    const url = new URL(this.base + path);
    for (const [name, value] of Object.entries(query ?? {})) if (value != null) url.searchParams.set(name, value);
    const type = body === undefined ? {} : { "Content-Type": "application/json" };
    const response = await connected(method, path, () =>
      fetch(url, {
        method,
        headers: { ...this.headers, ...type, ...headers },
        body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
        signal,
      }),
    );
    if (response.status >= 400) throw await refusal(response);
    return response;
  }
}

async function connected(method, path, act) {
  try {
    return await act();
  } catch (error) {
    throw new ConnectionFailed(`${method} ${path}: ${error.cause?.message ?? error.message}`, { cause: error });
  }
}

async function refusal(response) {
  const text = await response.text().catch(() => "");
  let problem = { title: response.statusText, detail: text.slice(0, 200) };
  try {
    const parsed = JSON.parse(text);
    if (parsed && typeof parsed === "object") problem = parsed;
  } catch {
    // A proxy has answered, not the server.
  }
  return new Refused(response.status, problem, Number(response.headers.get("Retry-After")) || 0);
}

/** path returns a path below /v1, with each part escaped. */
export const path = (...parts) => "/v1/" + parts.map(encodeURIComponent).join("/");

/** transient reports whether the same request may succeed later. The refusal of a quota lasts until somebody acts, unless it says when to ask again. */
export const transient = (error) =>
  error instanceof ConnectionFailed ||
  (error instanceof Refused && [408, 429, 502, 503, 504].includes(error.status) && (error.code !== "quota" || error.retryAfter > 0));

/** delay returns the pause after a failed attempt, in seconds: it doubles from 0.05 to 5, with jitter. */
export const delay = (attempt, atLeast = 0) =>
  Math.max(atLeast, Math.min(5, 0.05 * 2 ** Math.min(attempt, 10)) * (0.5 + Math.random() / 2));

/** sleep waits for some seconds, or until a signal. */
export const sleep = (seconds, signal) =>
  new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    signal?.addEventListener("abort", done);
  });
