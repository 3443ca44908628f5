"""Small results folders, written through the store, that look like those of a sweep."""

import numpy as np

from cfljax.store import Store, summarise

VERSIONS = {"python": "3.13.0", "cfljax": "0.1.0", "jax": "0.12.0"}


def arrays_of(
    seed,
    level,
    clients=12,
    groups=3,
    evaluations=6,
    own=None,
    nan=False,
    known_groups=True,
    personal=False,
):
    """Arrays of a unit: accuracies that rise to `level`, clusters that settle on the true
    groups."""
    rng = np.random.default_rng(seed)
    rounds = np.arange(evaluations)
    accuracy = level * (1 - np.exp(-rounds / 2)) + 0.01 * rng.standard_normal(evaluations) + 0.05
    group = np.arange(clients) % groups
    labels = np.array([np.where(rng.random(clients) < t / 3, group, -1) for t in rounds], np.int16)
    history = {
        "round": rounds.astype(np.int32), "accuracy": accuracy, "accuracy_worst10": accuracy - 0.1, "loss": 2 - accuracy,
        "ari": np.minimum(rounds / 3, 1), "nmi": np.minimum(rounds / 3, 1), "clusters": np.minimum(rounds, groups),
        "bytes_up": 1000.0 * rounds, "bytes_down": 2000.0 * rounds,
    }  # fmt: skip
    history = {
        k: v if k == "round" else np.full(evaluations, np.nan) if nan else v.astype(np.float32)
        for k, v in history.items()
    }
    made = {f"history/{k}": v for k, v in history.items()}
    made |= {f"diag/{k}": v for k, v in (own or {}).items()}
    made["client_accuracy"] = (
        np.full(clients, np.nan) if nan else rng.uniform(0.5, 1, clients).astype(np.float32)
    )
    own_labels = np.where(np.arange(clients) == 3, -1, np.arange(clients)).astype(
        np.int16
    )  # client 3 is a newcomer
    made["labels"] = np.tile(own_labels, (evaluations, 1)) if personal else labels
    if known_groups:
        made["group"] = group.astype(np.int32)
    return made


def record_of(name, seed, arrays, label=None, method="ifca", status="done", **changes):
    """The record of a unit."""
    history = {k.removeprefix("history/"): v for k, v in arrays.items() if k.startswith("history/")}
    base = {
        "id": name,
        "method": method,
        "label": label or method,
        "seed": seed,
        "status": status,
        "config": {
            "data": {"name": "digits", "partition": "rotated", "clients": 12},
            "model": {"name": "mlp"},
            "train": {"rounds": 5},
        },
        "varies": {},
        "timings": {"compile": 1.5, "train": 2.0, "eval": 0.25} if arrays else {},
        "summary": summarise(history, arrays.get("client_accuracy")) if arrays else {},
        "versions": VERSIONS,
        "device": "cpu, 1",
        "diverged_at": 3 if status == "diverged" else None,
        "error": "ValueError: it went wrong" if status == "failed" else None,
    }
    return base | changes


def add(
    store,
    name,
    seed,
    level=0.8,
    *,
    label=None,
    method="ifca",
    status="done",
    varies=None,
    own=None,
    newcomers=None,
    step_s=0,
    changing=None,
    **shape,
):
    """Write one unit; with `step_s` each of its rounds lasts that many simulated seconds.
    `changing`: true groups i[E, C]."""
    prefixed = {f"{method}/{k}": v for k, v in (own or {}).items()}
    arrays = {} if status == "failed" else arrays_of(seed, level, own=prefixed, **shape)
    if step_s:
        arrays |= {
            f"history/{name}": step_s * arrays["history/round"].astype(np.float32)
            for name in ("clock_s", "device_s")
        }
    arrays |= {} if changing is None else {"groups": changing.astype(np.int16)}
    record = record_of(name, seed, arrays, label, method, status)
    record["summary"] |= newcomers or {}
    for dotted, value in (varies or {}).items():
        section, _, key = dotted.partition(".")
        record["config"].setdefault(section, {})[key] = value
    store.write(name, record, arrays)


def sweep(folder, methods=(("fedavg", 0.5), ("ifca", 0.8), ("oracle", 0.82)), seeds=3, **shape):
    """A folder with a plan: every method with every seed."""
    store = Store(folder)
    names = []
    for method, level in methods:
        for seed in range(seeds):
            names.append(f"{method}-{seed}")
            add(store, names[-1], seed, level, method=method, **shape)
    store.write_plan({"name": "a small sweep", "units": names})
    return store


def mixed(rng, evaluations=6, clients=12, groups=3, models=3):
    """The weights of clients in models, as a record has them."""
    each = rng.dirichlet(np.ones(models), (evaluations, clients)).astype(np.float32)
    group = np.arange(clients) % groups
    means = np.stack([each[:, group == g].mean(axis=1) for g in range(groups)], axis=1)
    return {"mixture_of_clients": each, "mixture_of_groups": means, "mixture": each[-1]}


def everything(folder):
    """A folder in which there is something for every figure, and something went wrong, too."""
    store = sweep(folder)
    rng = np.random.default_rng(0)
    own = {"epsilon": np.linspace(1, 0.5, 6, dtype=np.float32), "p": np.ones((6, 4), np.float32)}
    for seed in range(3):
        add(
            store,
            f"ccs-{seed}",
            seed,
            0.7,
            method="ccs",
            label="<script>alert(1)</script> & CCS",
            own=own,
        )
        newcomers = {f"accuracy_new_{steps}": 0.5 + 0.03 * steps for steps in (0, 1, 5)}
        waited = {"waited_s": np.outer(np.arange(6), [1.0, 2.0, 0.5]).astype(np.float32)}
        changing = (np.arange(12) + np.arange(6)[:, None] // 3) % 3
        add(
            store,
            f"new-{seed}",
            seed,
            0.6,
            method="new",
            newcomers=newcomers,
            step_s=12.5,
            own=mixed(rng) | waited,
            changing=changing,
        )
    add(store, "bad-0", 0, method="bad", status="failed")
    add(store, "wild-0", 0, method="wild", status="diverged")
    store.write_plan({"name": "all <b>figures</b>", "units": store.ids()})
    return store
