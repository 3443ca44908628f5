"""Make a trace of devices for the simulated clock (`train.clock.trace`), or read one of real phones
from a published file.

    python experiments/device_traces.py nights --clients 40 --day 600 --out nights.csv
    python experiments/device_traces.py state_traces.json --clients 100 --out phones.csv

Made:
- `nights`: phones that charge at night. Each client has a time zone, goes to bed about 23 o'clock,
  gets up about 7, and in one night of ten forgets the charger.
- `warm`: devices that are always available and slow down while they are warm: full speed for one to
  four hours, then 0.3 to 0.7 of it for as long, over and over.

Published: `state_traces.json` of FLASH (Yang et al. 2021), which its authors offer at
https://github.com/PKU-Chengxu/FLASH: for each phone a text of lines `2020-01-28
23:12:05<tab>battery_charged_on`. As in that paper a phone is available while it charges, is in a
WLAN and is locked. Seconds count from the midnight before the first event of any chosen phone.
Phones whose events cannot be read, or that are never available, are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfljax.errors import CfljaxError, DataError
from cfljax.store.atomic import store_errors, write_bytes

HOUR, DAY = 3600.0, 86400.0
GENERATED = ("nights", "warm")
CELLULAR = ("unknown", "2g", "3g", "4g", "5g")
EVENT_STATES = {
    **dict.fromkeys(CELLULAR, ("wifi", False)),
    "wifi": ("wifi", True),
    "battery_charged_on": ("charging", True),
    "battery_charged_off": ("charging", False),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
}
"""Event -> (property,its new state). Other events do not change whether the phone is available."""
OTHER_EVENTS = ("battery_low", "battery_okay", "phone_on", "phone_off", "screen_on", "screen_off")


class Line(NamedTuple):
    """A line of a trace."""

    client: int
    second: float
    available: bool
    speed: float


def format_csv(lines: list[Line], second: float) -> str:
    """Format a trace as `train.clock.trace` reads it. `second`: how long one second lasts on the
    clock."""
    rows = [
        f"{line.client},{line.second * second:.10g},{int(line.available)},{line.speed:g}"
        for line in lines
    ]
    return "\n".join(["client,second,available,speed", *rows, ""])


def generate_trace(kind: str, clients: int, days: int, seed: int) -> list[Line]:
    """Generate the lines of a trace; equal arguments give equal lines."""
    rng = np.random.default_rng(seed)
    each = {"nights": _nights, "warm": _warm}[kind]
    return [line for client in range(clients) for line in each(client, days, rng)]


def _nights(client: int, days: int, rng: np.random.Generator) -> Iterator[Line]:
    zone, nights = int(rng.integers(24)), np.arange(-2, days + 1)
    bed, up = (24 * nights - zone + rng.normal(hour, 1.0, len(nights)) for hour in (23.0, 31.0))
    charged = rng.random(len(nights)) >= 0.1
    changes = {
        round(hour * HOUR): on
        for hours, on in ((bed, True), (up, False))
        for hour in hours[charged]
    }
    before = [second for second in changes if second <= 0]
    yield Line(client, 0.0, changes[max(before)] if before else False, 1.0)
    for second in sorted(changes):
        if 0 < second < days * DAY:
            yield Line(client, second, changes[second], 1.0)


def _warm(client: int, days: int, rng: np.random.Generator) -> Iterator[Line]:
    second, warm = 0.0, False
    while second < days * DAY:
        yield Line(client, second, True, round(rng.uniform(0.3, 0.7), 2) if warm else 1.0)
        second, warm = second + round(rng.uniform(1, 4) * HOUR), not warm


def sample_phones(file: Path, clients: int, seed: int) -> list[Line]:
    """Pick random phones from a file of FLASH, one for each client; raise a DataError if there are
    too few."""
    phones = _read_phones(file)
    chosen: list[list[tuple[datetime, bool]]] = []
    for name in np.random.default_rng(seed).permutation(sorted(phones)):
        if len(chosen) < clients and (changes := _changes(phones[str(name)])):
            chosen.append(changes)
    if len(chosen) < clients:
        raise DataError(
            f"{file}: {len(chosen)} of {len(phones)} phones are ever available; give "
            f"--clients {len(chosen)} or fewer"
        )
    begin = min(changes[0][0] for changes in chosen).replace(hour=0, minute=0, second=0)
    lines = []
    for client, changes in enumerate(chosen):
        if changes[0][0] > begin:
            lines.append(Line(client, 0.0, False, 1.0))
        lines += [
            Line(client, (when - begin).total_seconds(), available, 1.0)
            for when, available in changes
        ]
    return lines


def _read_phones(file: Path) -> dict[str, str]:
    """Phone -> its events, one a line."""
    try:
        table = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise DataError(f"{file}: is no JSON file; take state_traces.json of FLASH") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error})") from None
    phones = (
        table.items()
        if isinstance(table, dict)
        else enumerate(table)
        if isinstance(table, list)
        else ()
    )
    found = {
        str(name): phone["messages"]
        for name, phone in phones
        if isinstance(phone, dict) and isinstance(phone.get("messages"), str)
    }
    if not found:
        raise DataError(f'{file}: has no phone with "messages"; take state_traces.json of FLASH')
    return found


def _changes(events: str) -> list[tuple[datetime, bool]]:
    """When a phone becomes available or not, in time's order; empty if it never is, or its events
    cannot be read."""
    holds = {"wifi": False, "charging": False, "locked": False}
    states: dict[datetime, bool] = {}  # of one second the last state holds
    for text in filter(None, map(str.strip, events.splitlines())):
        when, _, event = (part.strip() for part in text.partition("\t"))
        event = event.lower()
        if event not in EVENT_STATES and event not in OTHER_EVENTS and not event.endswith("%"):
            return []
        try:
            time = datetime.strptime(when, "%Y-%m-%d %H:%M:%S")
        except ValueError:
            return []
        if states and time < next(reversed(states)):
            return []
        if event in EVENT_STATES:
            about, now = EVENT_STATES[event]
            holds[about] = now
        states[time] = all(holds.values())
    changes = [
        change
        for change, before in zip(states.items(), [None, *states.values()], strict=False)
        if change[1] != before
    ]
    return changes if any(states.values()) else []


def main(arguments: list[str] | None = None) -> None:
    """Make a trace."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source",
        help="nights (phones that charge at night), warm (devices that slow down), or FLASH's "
        "state_traces.json",
    )
    parser.add_argument("--clients", type=int, required=True, metavar="N", help="how many devices")
    parser.add_argument(
        "--days", type=int, default=7, metavar="N", help="how long a made trace is (7)"
    )
    parser.add_argument(
        "--day",
        type=float,
        default=DAY,
        metavar="SECONDS",
        help="how long a day lasts on the simulated clock (86400)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draws (0)")
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE.csv", help="where to write it"
    )
    given = parser.parse_args(arguments)
    for name in ("clients", "days", "day"):
        if not 0 < getattr(given, name) < float("inf"):
            parser.error(f"--{name} {getattr(given, name):g}: must be a number above 0")
    try:
        if given.source in GENERATED:
            lines = generate_trace(given.source, given.clients, given.days, given.seed)
        else:
            lines = sample_phones(Path(given.source), given.clients, given.seed)
        with store_errors(given.out):
            write_bytes(given.out, format_csv(lines, given.day / DAY).encode())
    except CfljaxError as error:
        sys.exit(f"device_traces: {error}")
    print(
        f"{given.out}: {len(lines)} lines of {given.clients} devices; use it with "
        f'train.clock = {{ trace = "{given.out}" }}'
    )


if __name__ == "__main__":
    main()
