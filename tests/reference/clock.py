"""The simulated clock in plain Python, from the description in the documentation alone: no JAX, one
client at a time."""

import csv
import math


def steps_of(samples, epochs=1, steps=None, batch=5, work=1.0):
    """The local steps of a client with `samples` samples."""
    full = steps if steps is not None else epochs * math.ceil(samples / batch)
    return max(1, math.ceil(work * full))


def seconds_of(steps, speed, down, up, clock):
    """The seconds of a participant that receives `down` bytes, does `steps` steps and sends `up`
    bytes."""
    receives = 8 * down / (clock["down_mbps"] * 1e6)
    computes = steps * clock["step_ms"] / 1000 / speed
    sends = 8 * up / (clock["up_mbps"] * 1e6)
    return receives + computes + sends


def walk(rounds, deadline=None, before=None):
    """`rounds`: for each round a dict client → seconds of its participants. Returns the clock after
    0, 1, … rounds, the seconds of the devices, and who is late in each round. `before`: seconds of
    what comes before each round."""
    clock, devices, late = [0.0], [0.0], []
    for t, participants in enumerate(rounds):
        slow = {
            client
            for client, took in participants.items()
            if deadline is not None and took > deadline
        }
        lasts = deadline if slow else max(participants.values(), default=0.0)
        clock.append(clock[-1] + lasts + (before[t] if before else 0.0))
        devices.append(devices[-1] + sum(min(took, lasts) for took in participants.values()))
        late.append(slow)
    return clock, devices, late


def trace_at(text, client, now):
    """(available, factor) of a client by a trace, at this second or in this round."""
    lines = list(csv.DictReader(text.splitlines()))
    time = "second" if "second" in lines[0] else "round"
    mine = [line for line in lines if int(line["client"]) == client and float(line[time]) <= now]
    if not mine:
        return True, 1.0
    last = max(mine, key=lambda line: float(line[time]))
    return last.get("available", "1") == "1", float(last.get("speed", 1.0))
