"""What the differential drill draws: small federations, methods and options, as tables of a spec; and the steps in which the folder
of a sweep grows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

Table = dict[str, Any]

WITH_REFERENCE = ("fedavg", "fedprox", "local", "oracle", "ifca", "fesem", "ditto", "cfl_mgd")
"""Methods that whole_run.py has in plain numpy."""
CHOOSING = ("ifca", "fesem", "cfl_mgd")
OTHERS = ("fl_hc", "cfl_sattler", "fedgroup", "fedbcd", "joint", "ccs_rfedavg", "one_shot", "pacfl", "ocfl")
PARTITIONS = ("label_permutation", "label_swap", "feature_shift", "quantity", "dirichlet", "classes", "iid")
GROUPED = ("label_permutation", "label_swap", "feature_shift")
LRS, SEEDS = (0.02, 0.05, 0.1, 0.2), (0, 1, 2, 3)
NUMBERS: dict[str, tuple[Any, ...]] = {
    "lr_decay": (0.5, 0.9),
    "momentum": (0.5, 0.9),
    "weight_decay": (0.01, 0.1),
    "dropout": (0.2, 0.5, 0.8),
    "stragglers": (0.3, 0.7),
    "straggler_work": (0.25, 0.5, 0.6),
}
"""Of training, that reach compiled code as arguments."""


def planned_table(draw: Random) -> Table:
    """A spec of one run of any method by a plan that is drawn, too."""
    table = run_table(draw, draw.choice(WITH_REFERENCE if draw.random() < 0.6 else OTHERS))
    table["train"]["plan"] = plan_table(draw)
    if draw.random() < 0.15:
        table["train"]["optimizer"] = "adam"
    return table


def plain_table(draw: Random) -> Table:
    """A spec of one run that there is a plain program for."""
    table = run_table(draw, draw.choice(WITH_REFERENCE))
    if table["method"][0]["name"] == "cfl_mgd":  # whose buffers go the same way, which the plain program leaves out
        table["train"] = {
            k: v for k, v in table["train"].items() if k not in ("compress", "attack", "robust", "privacy", "momentum")
        }
    return table


def run_table(draw: Random, name: str) -> Table:
    """A spec of one run of that method."""
    data = _data(draw, name)
    model = {"name": "mclr"} if draw.random() < 0.7 else {"name": "mlp", "hidden": [5]}
    train = _train(draw, data["clients"])
    method = {"name": name} | _options(draw, name, train["rounds"])
    return {"name": "drawn", "data": data, "model": model, "train": train, "method": [method], "seeds": [draw.choice(SEEDS)]}


def _data(draw: Random, method: str) -> Table:
    partition = draw.choice(GROUPED if method == "oracle" or draw.random() < 0.5 else PARTITIONS)
    data: Table = {"name": "blobs", "samples": draw.choice((200, 330)), "features": 5, "classes": 4, "spread": 0.8}
    data |= {"partition": partition, "clients": draw.choice((6, 9, 12)), "seed": draw.choice((0, 1, "run"))}
    if partition in GROUPED:
        data["groups"] = 2
        if draw.random() < 0.3:
            data["test_clients"] = draw.choice((2, 4))
    if partition == "dirichlet":
        data |= {"alpha": draw.choice((0.1, 0.5)), "min_samples": draw.choice((0, 1, 2))}
    if partition == "quantity":
        data |= {"sigma": draw.choice((1.0, 2.0)), "min_samples": 1}
    if draw.random() < 0.25:
        data["test"] = "global"
    if draw.random() < 0.25:
        data["normalise"] = "pixel"
    if draw.random() < 0.3:
        late = {"clients": draw.choice((1, 2, 3))} if draw.random() < 0.5 else {"rate": draw.choice((0.2, 0.4))}
        data["arrive"] = late | ({"round": draw.choice((1, 2))} if draw.random() < 0.5 else {"from": 0, "until": 3})
    return data


def _train(draw: Random, clients: int) -> Table:
    train: Table = {"rounds": draw.choice((2, 3, 5)), "lr": draw.choice(LRS), "batch": draw.choice((4, 7, "full"))}
    train["participation"] = draw.choice((1.0, 0.5, 0.34, 3, clients - 1))
    train |= {"steps": draw.choice((1, 3, 8))} if draw.random() < 0.4 else {"epochs": draw.choice((1, 2))}
    some = NUMBERS | {
        "eval_every": (2, 3),
        "score": ("assigned",),
        "test_clients_choose": ("test_loss",),
        "eval_clients": (4,),
        "discrepancy": ("start",),
    }
    train |= {name: draw.choice(values) for name, values in some.items() if draw.random() < 0.25}
    if "stragglers" not in train:
        train.pop("straggler_work", None)
    return train | _transit(draw)


def _transit(draw: Random) -> Table:
    """What happens to updates on their way; noise and robust rules exclude each other."""
    found: Table = {}
    if draw.random() < 0.2:
        found["compress"] = draw.choice(
            ({"name": "topk", "keep": 0.3}, {"name": "int8"}, {"name": "int8", "rounding": "nearest"}, {"name": "sign"})
        )
    if draw.random() < 0.2:
        share = {"share": draw.choice((0.2, 0.4)), "seed": draw.choice((0, 1))}
        how = draw.choice(({"name": "sign_flip", "factor": 2.0}, {"name": "noise", "factor": 0.5}, {"name": "label_flip"}))
        found["attack"] = how | share
    if draw.random() < 0.2:
        found["robust"] = draw.choice(({"name": "median"}, {"name": "trimmed_mean", "trim": 0.3}, {"name": "krum", "liars": 0.3}))
    if draw.random() < 0.2:
        found["privacy"] = {"clip": draw.choice((0.05, 0.5))} | ({} if "robust" in found else {"noise": draw.choice((0.0, 0.3))})
    return found


def _options(draw: Random, name: str, rounds: int) -> Table:
    """Options of the method, those among them without which it would do nothing here."""
    clusters = draw.choice((2, 3))
    weights = draw.choice(("samples", "uniform"))
    own: dict[str, Table] = {
        "fedavg": {"average": weights},
        "fedprox": {"mu": draw.choice((0.1, 1.0))},
        "ditto": {"lam": draw.choice((0.1, 1.0)), "average": weights},
        "ifca": {"clusters": clusters, "average": weights, "reseed": draw.choice(("never", "never", "when_empty", "always"))},
        "fesem": {"clusters": clusters, "average": weights, "fesem_init": draw.choice(("shared", "own"))},
        "cfl_mgd": {"clusters": clusters, "beta": draw.choice((0.0, 0.5, 0.9))},
        "fl_hc": {"warmup_rounds": 1},
        "cfl_sattler": {"min_rounds": 1, "eps1": 10.0, "eps2": 0.0, "split_every": 2, "max_clusters": 12},
        "fedgroup": {"clusters": 2, "alpha": 2, "pretrain_steps": 4},
        "ocfl": {"clients_per_cluster": 4},
        "ccs_rfedavg": {"theta": 0.3},
        "one_shot": {"clusters": 2},
        "joint": {"clusters": clusters},
    }
    if name == "ifca":
        more = draw.choice(({}, {"estimate": "batch"}, {"aggregate": "gradient"}))
        return own[name] | more
    return own.get(name, {})


def variations(draw: Random, table: Table, number: int) -> Iterator[Table]:
    """Runs that share the table's program: other seeds, and other values of the numbers that reach compiled code and are not 0."""
    numbers = {"lr": LRS} | {name: values for name, values in NUMBERS.items() if table["train"].get(name)}
    for _ in range(number):
        train = table["train"] | {name: draw.choice(values) for name, values in numbers.items()}
        yield table | {"train": train, "seeds": [draw.choice(SEEDS)]}


def plan_table(draw: Random) -> Table:
    """A way of carrying local training out, other than one client after another, step by step, on one device."""
    plan: Table = {"lanes": draw.choice((0, 1, 1, 3)), "gram": draw.choice((0, 16, 512)), "devices": draw.choice((1, 2, 3, 4))}
    if draw.random() < 0.5:
        plan["stream"] = draw.choice((2, 3))
    if plan["devices"] > 1 and draw.random() < 0.4:
        plan["pool"] = "sharded"
    elif draw.random() < 0.5:
        plan["keep"] = draw.random() < 0.5
    return plan


PLAIN_PLAN = {"lanes": 1, "gram": 0, "stream": 0, "devices": 1}


# --- sweeps --------------------------------------------------------------------------------------------------------------


def sweep_steps(draw: Random) -> list[Table]:
    """The specs that are started one after another on one folder; the last is what is made at once for comparison."""
    names = draw.sample(("fedavg", "ifca", "local", "fesem", "ditto"), draw.choice((1, 2)))
    whole = run_table(draw, names[0])
    whole["train"] |= {"eval_every": draw.choice((1, 1, 2))}
    if len(names) == 1 and whole["data"]["partition"] in GROUPED and draw.random() < 0.6:  # one program, whatever the seed
        whole["data"]["seed"] = draw.choice(([0, 1], [0, "run"]))
    whole["method"] = [{"name": name} | _options(draw, name, whole["train"]["rounds"]) for name in names]
    whole["seeds"] = sorted(draw.sample(SEEDS, draw.choice((1, 2, 3))))
    whole["train"]["lr"] = draw.sample(LRS, draw.choice((1, 2)))
    if "dropout" in whole["train"]:
        whole["train"]["dropout"] = [whole["train"]["dropout"], 0.1]
    for method in whole["method"]:
        if draw.random() < 0.3:
            method["label"] = f"my {method['name']}"
    if len(names) == 1 and names[0] in CHOOSING and draw.random() < 0.5:
        whole["method"].append(whole["method"][0] | {"clusters": 4, "label": "four"})
    return [_part(draw, whole) for _ in range(draw.choice((1, 2, 3)))] + [whole]


def _part(draw: Random, whole: Table) -> Table:
    """A start of another size: fewer or other values along each axis, other labels, another name."""
    part = copy.deepcopy(whole)
    part["seeds"] = _other(draw, whole["seeds"], SEEDS)
    part["train"]["lr"] = _other(draw, whole["train"]["lr"], LRS)
    if isinstance(part["data"]["seed"], list):
        part["data"]["seed"] = _other(draw, part["data"]["seed"], (0, 1, "run"))
    part["method"] = [method for method in part["method"] if draw.random() < 0.7] or part["method"][:1]
    for method in part["method"]:
        if draw.random() < 0.3:
            method["label"] = draw.choice(("old", f"another {method['name']}"))
    if len({method.get("label", method["name"]) for method in part["method"]}) < len(part["method"]):
        part["method"] = part["method"][:1]
    part["name"] = draw.choice(("drawn", "begun"))
    return part


def _other(draw: Random, values: list[Any], every: tuple[Any, ...]) -> list[Any]:
    """Some of them, sometimes with one that the whole does not have; in any order."""
    some = draw.sample(values, draw.randint(1, len(values)))
    if draw.random() < 0.3:
        some.append(draw.choice(every))
    return list(dict.fromkeys(some))


# --- smaller ones --------------------------------------------------------------------------------------------------------


def simpler(table: Table) -> Iterator[tuple[str, Table]]:
    """The table with one option less, of each that can be missed, and what was left out."""
    needed = {"data": ("name", "clients", "partition", "groups"), "train": ("rounds", "lr"), "model": ("name",)}
    needed["method"] = ("name",)
    for part, keep in needed.items():
        places = range(len(table["method"])) if part == "method" else [None]
        for place in places:
            options = table[part] if place is None else table[part][place]
            for key in [key for key in options if key not in (*keep, "plan")]:
                made = copy.deepcopy(table)
                del (made[part] if place is None else made[part][place])[key]
                yield f"{part}.{key}", made
    if table["train"]["rounds"] > 1:
        made = copy.deepcopy(table)
        made["train"]["rounds"] -= 1
        yield "a round", made
