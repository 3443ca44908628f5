"""The numbers of all methods on record: labels, bytes, history and models of four rounds, each
method in its default setting, from the runs that `test_contract.py` makes.

    python -m tests.methods.golden                     # what differs from the record
    python -m tests.methods.golden --write [NAME …]    # write what differs, of these methods
    python -m tests.methods.golden --release           # at a release: keep it

Of three runs the first is on record in which no decision is a close one: changes of the data
that are far larger than what compilers and processors differ by change no label, no byte and no
number of right answers."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import pathlib
import tomllib

import numpy as np

from cfljax.config import read_spec
from cfljax.methods import METHODS
from tests.play import ROUNDS, nine_clients, on_nine
from tests.play import options as options_of

RECORD = pathlib.Path(__file__).with_name("golden.npz")
RELEASED = pathlib.Path(__file__).with_name("golden.json")
HISTORY = (
    "accuracy",
    "accuracy_client_std",
    "accuracy_worst10",
    "loss",
    "train_loss",
    "discrepancy",
    "clusters",
    "ari",
)
EXACT = ("labels", "bytes")
BLOBS = {
    "name": "blobs",
    "samples": 300,
    "features": 6,
    "classes": 4,
    "partition": "label_permutation",
    "groups": 2,
    "clients": 9,
}
RTOL, ATOL = 1e-4, 1e-5
MARGIN = 1e-3
"""A change of all features by this part of them moves no client to another cluster."""
CLOSE = 1e-4
"""And one by this part changes no answer of a model."""


def numbers(output):
    """What is on record of a run: name -> array."""
    history = output.history
    return {
        "labels": output.labels.astype(np.int8),
        "bytes": np.stack([history["bytes_up"], history["bytes_down"]]).astype(np.int64),
        "history": np.stack([history[name] for name in HISTORY]).astype(np.float32),
        "models": output.models.astype(np.float32),
    }


def unlike(wanted, found):
    """Say in a line each what differs from the record."""
    lines = []
    for name, array in wanted.items():
        if array.shape != found[name].shape:
            lines.append(f"{name}: {found[name].shape} is not {array.shape}")
        elif name in EXACT:
            if not np.array_equal(array, found[name]):
                lines.append(f"{name}: {np.sum(array != found[name])} of {array.size} differ")
        elif not np.allclose(found[name], array, RTOL, ATOL, equal_nan=True):
            apart = np.abs(found[name] - array)
            apart = apart[np.isfinite(apart)].max(initial=0)
            lines.append(f"{name}: they differ by up to {apart:.2g}")
    return lines


@functools.cache
def read_record():
    """Method -> (which of the three runs, its numbers)."""
    with np.load(RECORD, allow_pickle=False) as file:
        arrays = dict(file)
    record = {}
    for path, array in arrays.items():
        name, _, what = path.partition("/")
        record.setdefault(name, {})[what] = array
    return {name: (int(each.pop("run")), each) for name, each in sorted(record.items())}


def write_record(record):
    arrays = {}
    for name, (run, each) in sorted(record.items()):
        arrays[f"{name}/run"] = np.int8(run)
        arrays |= {f"{name}/{what}": array for what, array in each.items()}
    np.savez_compressed(RECORD, allow_pickle=False, **arrays)


def digests(record):
    """Method -> 16 hexadecimal digits of its numbers."""
    made = {}
    for name, (run, each) in record.items():
        whole = hashlib.sha256(str(run).encode())
        for what, array in sorted(each.items()):
            whole.update(f"{what} {array.dtype} {array.shape}".encode() + array.tobytes())
        made[name] = whole.hexdigest()[:16]
    return made


def ids():
    """Method -> the id of a run like the one on record."""
    return {name: _run(name).id for name in METHODS}


def _run(name):
    options = {key: value for key, value in options_of(name).items() if key != "model"}
    model = {"name": "mlp", "hidden": [7]}
    train = {"rounds": ROUNDS, "lr": 0.1, "batch": 5}
    (run,) = read_spec(
        {"data": BLOBS, "model": model, "train": train, "method": [{"name": name} | options]}
    ).runs()
    return run


def unannounced(released, record, now):
    """The methods whose numbers are others than those of the release, while the ids of their runs
    (`now`: `ids()`) are the same. New methods have no numbers that anybody knows, and those that
    are gone need none."""
    numbers = digests(record)
    return [
        name
        for name, then in released["methods"].items()
        if name in numbers and numbers[name] != then["numbers"] and now[name] == then["id"]
    ]


def version():
    """The version of the package in `pyproject.toml`."""
    file = pathlib.Path(__file__).parents[2] / "pyproject.toml"
    return tomllib.loads(file.read_text())["project"]["version"]


def decided(output, answers):
    """What a run has decided: where its clients are, what they send, and with `answers` how many
    are right."""
    found = numbers(output)
    more = [output.client_accuracy, output.history["accuracy"]] if answers else []
    return [*(found[name] for name in EXACT), *more]


def changed(federation, part, sign, rng):
    """The federation with all features longer or shorter by this part, and as much noise."""
    x = np.asarray(federation.pool.x)
    x = (x * (1 + part * (sign + rng.standard_normal(x.shape)))).astype(x.dtype)
    return dataclasses.replace(federation, pool=federation.pool._replace(x=x))


def runs_of(name):
    """The outputs of the contract's runs."""
    from tests.methods.three_runs import three

    return three(name)


def settled(name, tries=6):
    """bool[R]: in which of the runs no decision is a close one."""
    rng, runs = np.random.default_rng(0), runs_of(name)
    fine = np.ones(len(runs), bool)
    for part, answers in ((MARGIN, False), (CLOSE, True)):
        for sign in np.resize([1, -1], tries):
            others = on_nine(
                name, [{}] * len(runs), federation=changed(nine_clients(), part, sign, rng)
            )
            for r, pair in enumerate(zip(runs, others, strict=True)):
                before, after = (decided(each, answers) for each in pair)
                fine[r] &= all(map(same, before, after))
    return fine


def same(a, b):
    return np.array_equal(a, b, equal_nan=True)


def measured(name):
    """(The first run without a close decision, its numbers)."""
    fine = settled(name)
    if not fine.any():
        raise SystemExit(f"{name}: in each run a decision is a close one: play it on other data")
    run = int(np.argmax(fine))
    return run, numbers(runs_of(name)[run])


def differences(name, record, outputs):
    """Say in a line each in what a method's outputs differ from the numbers on record."""
    if name not in record:
        return [f"not on record: python -m tests.methods.golden --write {name}"]
    run, wanted = record[name]
    return unlike(wanted, numbers(outputs[run]))


def main(args=None):
    parser = argparse.ArgumentParser(prog="python -m tests.methods.golden", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write what differs")
    parser.add_argument(
        "--release", action="store_true", help="keep the ids and digests of this release"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="methods; without: all")
    asked = parser.parse_args(args)
    import conftest  # noqa: F401  programs are compiled as in the tests

    record = dict(read_record()) if RECORD.exists() else {}
    for name in asked.names or list(METHODS):
        if lines := differences(name, record, runs_of(name)):
            print(f"{name}: {'; '.join(lines)}", flush=True)
            if asked.write:
                record[name] = measured(name)
    if asked.write:
        write_record({name: record[name] for name in record if name in METHODS})
    if asked.release:
        of, kept = ids(), digests(record)
        made = {
            "release": version(),
            "methods": {name: {"id": of[name], "numbers": kept[name]} for name in record},
        }
        RELEASED.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
