"""Figure 7: a spec edited after a part of it has run."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "edits",
    "7",
    "spec edited after a part has run",
    "changes that matter give new ids, cosmetic ones none; results never mix",
    30,
)
TABLES = {
    "data": '{ name = "blobs", samples = 400, features = 6, partition = "label_permutation", groups '
    "= 2, clients = 8 }",
    "train": "{ rounds = 2, participation = 4, lr = 0.1, batch = 5 }",
    "method": '["fedavg", { name = "fedprox", mu = 0.5 }]',
}
FILE = 'name = "edits"\nmodel = { name = "mclr" }\nseeds = [0]\n' + "".join(
    f"{k} = {v}\n" for k, v in TABLES.items()
)
COSMETIC = {
    "comments and empty lines": FILE.replace("\n", "  # why\n\n"),
    "another name": FILE.replace('"edits"', '"something else"'),
    "another order of tables": "\n".join(reversed(FILE.splitlines())) + "\n",
    "another order of options": FILE.replace(
        "rounds = 2, participation = 4", "participation = 4, rounds = 2"
    ),
    "0.10 for 0.1": FILE.replace("lr = 0.1", "lr = 0.10"),
    "1e-1 for 0.1": FILE.replace("lr = 0.1", "lr = 1e-1"),
    "a range for a list of seeds": FILE.replace("[0]", '"0:1"'),
    "a default written out": FILE.replace("lr = 0.1", "lr = 0.1, momentum = 0.0"),
    "the data seed's default written out": FILE.replace("clients = 8", "clients = 8, seed = 0"),
    "a default of the model written out": FILE.replace('{ name = "mclr" }', '"mclr"'),
    "another order of methods": FILE.replace(
        TABLES["method"], '[{ name = "fedprox", mu = 0.5 }, "fedavg"]'
    ),
    "a list of one": FILE.replace("lr = 0.1", "lr = [0.1]"),
    "a label": FILE.replace("mu = 0.5", 'mu = 0.5, label = "Prox"'),
    "single quotes": FILE.replace('"', "'"),
    "dotted keys": FILE.replace('model = { name = "mclr" }', 'model.name = "mclr"'),
}
MATTER = {
    "lr": FILE.replace("lr = 0.1", "lr = 0.11"),
    "rounds": FILE.replace("rounds = 2", "rounds = 3"),
    "batch": FILE.replace("batch = 5", "batch = 6"),
    "full batches": FILE.replace("batch = 5", 'batch = "full"'),
    "epochs": FILE.replace("batch = 5", "batch = 5, epochs = 2"),
    "steps": FILE.replace("batch = 5", "batch = 5, steps = 2"),
    "participation": FILE.replace("participation = 4", "participation = 5"),
    "momentum": FILE.replace("lr = 0.1", "lr = 0.1, momentum = 0.5"),
    "lr decay": FILE.replace("lr = 0.1", "lr = 0.1, lr_decay = 0.9"),
    "clients": FILE.replace("clients = 8", "clients = 9"),
    "the data's seed": FILE.replace("clients = 8", "clients = 8, seed = 1"),
    "samples": FILE.replace("samples = 400", "samples = 401"),
    "groups": FILE.replace("groups = 2", "groups = 4"),
    "partition": FILE.replace('"label_permutation", groups = 2', '"iid"'),
    "model": FILE.replace('"mclr"', '"mlp", hidden = [5]'),
}


def drill(tally: Tally, count: int, seed: int) -> None:
    """Cosmetic edits and edits that matter in turn, all of them run on one results folder."""
    draw = random.Random(seed)
    names = draw.sample([*COSMETIC, *MATTER], len(COSMETIC) + len(MATTER))
    with common.workplace() as place:
        folder = place / "r"
        first = _run(place, folder, FILE)
        known = {first: common.contents(folder)}
        for number in tally.trials(count):
            name = names[number % len(names)]
            tally.check([f"{name}: {p}" for p in _edit(tally, place, folder, name, known, first)])
        for ids, wanted in known.items():
            tally.check(
                common.differences(
                    wanted,
                    {name: unit for name, unit in common.contents(folder).items() if name in ids},
                )
            )


def _run(place: Path, folder: Path, text: str) -> frozenset[str]:
    """The ids that the plan names after a run of this spec."""
    from cfljax.store import Store

    (place / "spec.toml").write_text(text)
    code, _, errors = common.sweep(place, folder, "--workers", "1")
    assert code == 0, errors
    return frozenset((Store(folder, read_only=True).read_plan() or {})["units"])


def _edit(
    tally: Tally, place: Path, folder: Path, name: str, known: dict, first: frozenset[str]
) -> list[str]:
    import cfljax

    before = common.stamps(folder)
    ids = _run(place, folder, COSMETIC.get(name) or MATTER[name])
    after = common.stamps(folder)
    changed = [file for file in before if before[file] != after.get(file)]
    problems = [f"{file} was touched" for file in changed]
    if name in COSMETIC:
        tally.count("cosmetic")
        problems += [] if ids == first else ["other ids"]
        problems += [] if len(after) == len(before) else ["something was computed"]
    else:
        tally.count("changes that matter")
        problems += [f"{len(ids & first)} runs kept their id"] if ids & first else []
    shown = set(cfljax.load(folder).to_pandas()["run"])
    problems += (
        []
        if shown == ids
        else [f"the table shows {len(shown - ids)} runs of other specs, lacks {len(ids - shown)}"]
    )
    known[ids] = {unit: arrays for unit, arrays in common.contents(folder).items() if unit in ids}
    return problems


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
