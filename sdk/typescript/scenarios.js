/**
 * Plays the scenarios of sdk/scenarios.json, or works until it is told to stop.
 *
 *     scenarios.js play URL FILE      prints {"name", "action", "failures"} for each scenario
 *     scenarios.js work URL TYPE      prints the id of each job that it runs, and ends on SIGTERM
 *     scenarios.js room URL ROOM      passes three visitors through a room with one slot
 *     scenarios.js refused URL ROOM   enters a room that refuses, and prints the code of the refusal
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, Refused, RetryAfter, Room, SkipRetry, Throttled, Worker } from "./index.js";

const throttled = new Map();

async function run(job) {
  const { do: what, reason, attempts = 0, times = 0, seconds, value } = job.payload;
  if (what === "skip") throw new SkipRetry(reason);
  if (what === "raise" && job.attempt <= attempts) throw new Error(reason);
  if (what === "retry" && job.attempt <= attempts) throw new RetryAfter(0.05, reason);
  if (what === "throttle" && (throttled.get(job.id) ?? 0) < times) {
    throttled.set(job.id, (throttled.get(job.id) ?? 0) + 1);
    throw new Throttled(0.05);
  }
  if (what === "sleep") await sleep(seconds * 1000);
  if (what === "until_canceled") await new Promise((_, reject) => job.signal.addEventListener("abort", reject));
  if (what === "not_json") return 1n;
  return value;
}

async function play(url, file) {
  const client = new Client(url);
  const worker = new Worker(url, { concurrency: 4, lease: 1 }).job("scenario-typescript", run);
  const running = worker.run();
  for (const scenario of JSON.parse(readFileSync(file))) {
    const { id } = await client.submit(scenario.payloads, { tenant: "sdk", type: "scenario-typescript", ...scenario.spec });
    for await (const now of client.watch(id)) {
      if (scenario.cancel && now.in_flight === scenario.cancel) await client.cancel(id);
    }
    const failures = [];
    for await (const failure of client.failures(id)) failures.push(failure);
    console.log(JSON.stringify({ name: scenario.name, action: await client.action(id), failures }));
  }
  worker.stop();
  await running;
}

async function work(url, type) {
  const slowly = async (job) => {
    console.log(job.id);
    await sleep(50);
  };
  await new Worker(url, { concurrency: 4 }).job(type, slowly).run();
}

async function room(url, name) {
  const line = new Room(url, name);
  const first = await line.enter({ visitor: "first" });
  let second = await line.enter({ visitor: "second" });
  assert.equal(first.status, "inside");
  assert.ok(first.pass);
  assert.deepEqual([second.status, second.position], ["waiting", 1]);
  assert.equal((await line.enter({ visitor: "second" })).id, second.id);
  setTimeout(() => line.leave(first.ticket), 200);
  for await (second of line.wait(second));
  assert.ok(second.pass);
  assert.equal((await line.ask(second.ticket, { wait: 1 })).status, "inside");
  await line.leave(second.ticket);
  await assert.rejects(line.ask(second.ticket), (error) => error instanceof Refused && error.status === 410 && error.problem.reason === "left");
  console.log("ok");
}

async function refused(url, name) {
  const error = await new Room(url, name).enter({ visitor: "first" }).catch((error) => error);
  console.log(error.code);
}

await { play, work, room, refused }[process.argv[2]](...process.argv.slice(3));
