"""Send malformed events to a running app, and count what comes of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import cycle, islice
from typing import Any

import httpx

JUNK = (None, True, -1, 10**30, 1.5, "", "x", "\x00", "x" * 10**5, [], {}, [[[]]], {"key": 1})
VISITOR = {"session_hash": "visitor"}
BEGIN = {**VISITOR, "data": [], "fn_index": 0, "event_data": None}
CALL = {**VISITOR, "data": {"key": "visitor", "p": 1}, "component_id": 1, "fn_name": "weigh"}
EVENTS = {"queue/join": BEGIN, "component_server": CALL, "cancel": {**VISITOR, "fn_index": 1}}
CLOSED = ("upload", "process_recording", "file=/etc/passwd", "queue/data?session_hash=")
OUTCOMES = ("4xx", "told", "served", "5xx", "crashed")


def attack(client: httpx.Client, events: int, seed: int = 0) -> dict[str, Counter[str]]:
    """Send malformed events; counts ``OUTCOMES`` by kind of event.

    Junk in place of an event's fields, or inside of fields that look right, for each of the page's
    handlers; cut and strange documents; doors that are closed; foreign origins.
    """
    chance, found = random.Random(seed), dict[str, Counter[str]]()
    handlers = range(len(client.get("../config").json()["dependencies"]))
    kinds = (*EVENTS, "a handler", *CLOSED)
    for kind in islice(cycle(kinds), events):
        door, event = kind, dict(EVENTS.get(kind, {}))
        for name in chance.sample(sorted(event), min(len(event), 2)):
            event[name] = chance.choice(JUNK)
        if kind == "a handler":
            inside = {name: chance.choice(JUNK) for name in ("index", "name", "data", "id")}
            data = [chance.choice(JUNK) for _ in range(chance.randrange(5))]
            own = {"data": data, "fn_index": chance.choice(handlers), "event_data": inside}
            door, event = "queue/join", {**VISITOR, **own}
        body = json.dumps(event if chance.random() < 0.8 else chance.choice(JUNK)).encode()
        body = body if chance.random() < 0.9 else body[: len(body) // 2]
        origin = chance.choice(("http://evil.example", "http://["))
        headers = {"origin": origin} if chance.random() < 0.1 else {}
        method = chance.choice(("GET", "POST")) if kind in CLOSED else "POST"
        found.setdefault(kind, Counter())[send(client, door, body, method, headers)] += 1
    return found


def send(client: httpx.Client, door: str, body: bytes, method: str = "POST", more: Any = ()) -> str:
    """What came of a request; of an event that was let in, whether the page is told of an error."""
    try:
        headers = {"content-type": "application/json", **dict(more)}
        with client.stream(method, door, content=body, headers=headers) as answer:
            outcome = "served" if answer.status_code < 400 else f"{answer.status_code // 100}xx"
        if (door, outcome) == ("queue/join", "served"):
            session = {"session_hash": json.loads(body)["session_hash"]}
            with client.stream("GET", "queue/data", params=session) as answer:
                said = (json.loads(line[5:]) for line in answer.iter_lines() if line)
                last = next(m for m in said if m["msg"] in ("process_completed", "heartbeat"))
            outcome = "served" if last["success"] else "told"
        return outcome
    except (httpx.HTTPError, StopIteration, KeyError):  # a heartbeat: nothing for 15 seconds
        return "crashed"


def report(events: int) -> None:
    """Attack an app of the shipped model, and print a table of what came of it."""
    from sea_nn.app.page import build_page, serve
    from sea_nn.app.subjects import load_subject

    page = build_page([load_subject("fashion-cnn")])
    print("| event | sent | refused with 4xx | told on the page | served | 5xx | crashed |")
    print(f"|---|{'---:|' * 6}")
    with httpx.Client(base_url=f"{serve(page)}gradio_api/", timeout=30) as client:
        for kind, came in attack(client, events).items():
            print(f"| {kind} | {came.total()} | {' | '.join(str(came[o]) for o in OUTCOMES)} |")
        print("\nThe next visitor:", send(client, "queue/join", json.dumps(BEGIN).encode()))
    page.close(verbose=False)
