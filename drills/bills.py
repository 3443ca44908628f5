"""What each method sends under each feature that changes it: the bytes, the simulated seconds that
follow from them, and ε.

    python -m drills.bills                    # plays all again; says what differs from bills.csv
    python -m drills.bills --methods fedgroup ifca --settings int8
    python -m drills.bills --write            # writes the table

A line of `bills.csv` has the bytes that all clients together have sent and received after each
round, and, where a clock is simulated, the seconds until then and those that all devices together
have worked. A combination that the package does not take has its error instead. A change of the
code that keeps every message keeps every number; a change that does not explains each difference in
its commit.

34 methods have all settings. 18 have the fifteen that change most what is sent, and their own:
fedclust, ditto, one_shot, fedem, fedrc, fedsoft, apfl, pfedme, per_fedavg, fedamp, pfedgraph, stocfl, feddrift,
fedper, fedbn, lg_fedavg, fedrep and fedbabu. A setting without a line is not compared."""

from __future__ import annotations

import argparse
import csv
import sys
import warnings
from pathlib import Path
from typing import Any

import cfljax
from cfljax.errors import CfljaxError
from cfljax.methods import METHODS
from tests.crossings.runs import Feature, spec_of

TABLE = Path(__file__).with_suffix(".csv")
COUNTED = ("bytes_up", "bytes_down")
CLOCKS = ("clock_s", "device_s")
COLUMNS = ("method", "setting", *COUNTED, *CLOCKS, "epsilon", "refused")
CLOCK = {"step_ms": 50.0, "down_mbps": 0.01, "up_mbps": 0.004}
CLIPPED = {"clip": 1.0}
NOISED = {"clip": 1.0, "noise": 0.5}
TOPK = {"name": "topk", "keep": 0.4}
KEPT = TOPK | {"feedback": True}
LATE = {"clients": 2, "round": 2}
NEW = {"share": 0.25, "shots": 8, "steps": [0, 1]}


def of_train(**options: object) -> dict[str, Any]:
    """A setting of `train` alone."""
    return {"train": options}


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    # who takes part
    "everybody": of_train(participation=1.0),
    "dropout": of_train(dropout=0.3),
    "stragglers": of_train(stragglers=0.5, straggler_work=0.3),
    "late clients": {"data": {"arrive": LATE}},
    "new clients": {"data": {"new_clients": NEW}},
    "drift": {"data": {"drift": {"at": [2], "share": 0.5}}},
    "a clock": of_train(clock=CLOCK),
    "a deadline": of_train(clock=CLOCK | {"deadline_s": 1.5}),
    "asynchronous": of_train(clock=CLOCK, asynchronous={"buffer": 4}),
    # what is sent
    "int8": of_train(compress="int8"),
    "sign": of_train(compress="sign"),
    "top-k": of_train(compress=TOPK),
    "top-k, feedback": of_train(compress=KEPT),
    "own heads": of_train(parts={"head": "client"}),
    "a body for all": of_train(parts={"body": "all"}),
    "a frozen head": of_train(freeze="head"),
    "a frozen body": of_train(freeze="body"),
    "states are kept": of_train(momentum=0.5, optimizer_state="client"),
    "liars": of_train(attack={"name": "sign_flip", "share": 0.3}),
    # what the server makes of it
    "a median": of_train(robust="median"),
    "a server's Adam": of_train(server={"name": "adam", "lr": 0.05, "eps": 1e-3}),
    # privacy
    "clipping": of_train(privacy=CLIPPED),
    "noise": of_train(privacy=NOISED),
    "a private choice": of_train(privacy=CLIPPED | {"choice": {"epsilon": 1.0}}),
    # crossings
    "top-k and own heads": of_train(compress=TOPK, parts={"head": "client"}),
    "top-k and a frozen body": of_train(compress=TOPK, freeze="body"),
    "int8 and a body for all": of_train(compress="int8", parts={"body": "all"}),
    "int8 and dropout": of_train(compress="int8", dropout=0.3),
    "int8, asynchronous": of_train(compress="int8", clock=CLOCK, asynchronous={"buffer": 4}),
    "int8, late clients": of_train(compress="int8") | {"data": {"arrive": LATE}},
    "noise and dropout": of_train(privacy=NOISED, dropout=0.3),
    "own heads, late clients": of_train(parts={"head": "client"}) | {"data": {"arrive": LATE}},
    "own heads and noise": of_train(parts={"head": "client"}, privacy=NOISED),
}
OPTIONS: dict[str, dict[str, dict[str, object]]] = {
    "ifca": {"one gradient": {"aggregate": "gradient"}},
    "cfl_mgd": {"one gradient": {"aggregate": "gradient"}, "by a batch": {"estimate": "batch"}},
    "ccs_rfedavg": {"K-means": {"clustering": "kmeans"}},
    "joint": {"reseed": {"reseed": True}},
    "fedgroup": {
        "again": {"every": 2},
        "newcomers by latest updates": {"newcomer": "latest"},
        "newcomers by the auxiliary model": {"newcomer": "auxiliary"},
        "random newcomers": {"assign": "random"},
    },
    "one_shot": {"again": {"every": 2}},
    "ocfl": {"again": {"every": 2}},
    "sr_fca": {"by losses": {"distance": "cross_entropy"}},
    "fedclust": {"the last layer": {"compare": "head"}},
    "wecfl": {"the last layer": {"compare": "last"}},
    "stocfl": {"sketches": {"similarity": "sketch"}},
}
"""Options of a method with which it sends something else, as settings of their own."""


def settings_of(name: str) -> dict[str, dict[str, Any]]:
    """The settings that a method is played in."""
    own = {setting: {"method": options} for setting, options in OPTIONS.get(name, {}).items()}
    return SETTINGS | own


def bill_of(name: str, setting: str) -> dict[str, str]:
    """A line of the table.

    Args:
      name: The method.
      setting: A key of its settings.
    """
    spec = spec_of(name, [Feature(settings_of(name)[setting])])
    spec["train"]["eval_every"] = 1
    (method,) = spec["method"]
    line = dict.fromkeys(COLUMNS, "") | {"method": name, "setting": setting}
    try:
        run = cfljax.run(method, spec["data"], spec["model"], train=spec["train"])
    except CfljaxError as error:
        return line | {"refused": str(error)}
    for quantity in COUNTED:
        line[quantity] = " ".join(f"{each:.0f}" for each in run.history[quantity])
    for clock in set(CLOCKS) & set(run.history):
        line[clock] = " ".join(f"{each:.4g}" for each in run.history[clock])
    epsilon = [run.summary[key] for key in ("epsilon", "epsilon_choice") if key in run.summary]
    line["epsilon"] = " ".join(f"{each:.5g}" for each in epsilon)
    return line


def read_table() -> dict[tuple[str, str], dict[str, str]]:
    """(method, setting) -> the line that is committed."""
    if not TABLE.exists():
        return {}
    with TABLE.open(newline="") as file:
        return {(line["method"], line["setting"]): line for line in csv.DictReader(file)}


def write_table(table: dict[tuple[str, str], dict[str, str]]) -> None:
    """Write the table in the order of methods and settings."""
    order = [(name, setting) for name in METHODS for setting in settings_of(name)]
    with TABLE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table[key] for key in order if key in table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m drills.bills", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--settings", nargs="+", help="by default all")
    parser.add_argument("--write", action="store_true", help="write the lines that were played")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    table, played, differ = read_table(), 0, 0
    for name in chosen.methods:
        for setting in settings_of(name):
            if chosen.settings and setting not in chosen.settings:
                continue
            if not chosen.write and (name, setting) not in table:
                continue
            line, old = bill_of(name, setting), table.get((name, setting), {})
            changed = [each for each in COLUMNS[2:] if old.get(each, "") != line[each]]
            for each in changed:
                print(f"{name}, {setting}: {each}: {old.get(each, '')!r} -> {line[each]!r}")
            played, differ = played + 1, differ + bool(changed)
            table[name, setting] = line
        if chosen.write:
            # After each method: all of them take an hour
            write_table(table)
    print(f"{played} lines played, {differ} differ")
    return 1 if differ and not chosen.write else 0


if __name__ == "__main__":
    sys.exit(main())
