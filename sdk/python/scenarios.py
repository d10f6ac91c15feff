"""Plays the scenarios of sdk/scenarios.json, or works until it is told to stop.

    scenarios.py play URL FILE      prints {"name", "action", "failures"} for each scenario
    scenarios.py work URL TYPE      prints the id of each job that it runs, and ends on SIGTERM
    scenarios.py room URL ROOM      passes three visitors through a room with one slot
    scenarios.py refused URL ROOM   enters a room that refuses, and prints the code of the refusal
"""

import json
import sys
import threading
import time

import sluice

throttled = {}


def run(job):
    do = job.payload
    attempts, times = do.get("attempts", 0), do.get("times", 0)
    if do["do"] == "skip":
        raise sluice.SkipRetry(do["reason"])
    if do["do"] == "raise" and job.attempt <= attempts:
        raise RuntimeError(do["reason"])
    if do["do"] == "retry" and job.attempt <= attempts:
        raise sluice.RetryAfter(0.05, do["reason"])
    if do["do"] == "throttle" and throttled.setdefault(job.id, 0) < times:
        throttled[job.id] += 1
        raise sluice.Throttled(0.05)
    if do["do"] == "sleep":
        time.sleep(do["seconds"])
    if do["do"] == "until_canceled":
        while not job.canceled:
            time.sleep(0.02)
        raise RuntimeError("canceled")
    if do["do"] == "not_json":
        return object()
    return do.get("value")


def play(url, file):
    client = sluice.Client(url)
    worker = sluice.Worker(url, concurrency=4, lease=1).job("scenario-python", run)
    threading.Thread(target=worker.run).start()
    try:
        with open(file) as scenarios:
            for scenario in json.load(scenarios):
                action = client.submit(iter(scenario["payloads"]), tenant="sdk", type="scenario-python", **scenario["spec"])
                for now in client.watch(action["id"]):
                    if scenario.get("cancel") and now["in_flight"] == scenario["cancel"]:
                        client.cancel(action["id"])
                print(json.dumps({"name": scenario["name"], "action": client.action(action["id"]), "failures": list(client.failures(action["id"]))}))
    finally:
        worker.stop()


def work(url, type):
    def slowly(job):
        sys.stdout.write(job.id + "\n")  # at once: print writes twice
        sys.stdout.flush()
        time.sleep(0.05)

    sluice.Worker(url, concurrency=4).job(type, slowly).run()


def room(url, name):
    line = sluice.Room(url, name)
    first, second = line.enter("first"), line.enter("second")
    assert first.inside and first.pass_ and second.status == "waiting" and second.position == 1, vars(second)
    assert line.enter("second").id == second.id
    threading.Timer(0.2, line.leave, [first.ticket]).start()
    *_, second = line.wait(second)
    assert second.pass_ and line.ask(second.ticket, wait=1).inside
    line.leave(second.ticket)
    try:
        line.ask(second.ticket)
    except sluice.Refused as error:
        assert (error.status, error.code, error.problem["reason"]) == (410, "gone", "left"), vars(error)
    else:
        raise AssertionError("a place that was left is still there")
    print("ok")


def refused(url, name):
    try:
        sluice.Room(url, name).enter("first")
    except sluice.Refused as error:
        print(error.code)


{"play": play, "work": work, "room": room, "refused": refused}[sys.argv[1]](*sys.argv[2:])
