"""The two ways of training clients on an accelerator, one kernel per client and XLA's kernels: which of them a workload goes, and
whether both compute the same."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.inside import carry_out, machine
from benchmarks.measure import row
from benchmarks.workloads import Workload

Row = dict[str, Any]


def _blobs(features: int) -> dict[str, Any]:
    data = {"name": "blobs", "samples": 400, "features": features, "classes": 4}
    return data | {"partition": "quantity", "clients": 8, "normalise": "none"}


_BY_BATCHES = {"participation": 4, "epochs": 1, "batch": 10, "lr": 0.01}
_ALL_SAMPLES = {"participation": 4, "steps": 3, "batch": "full", "lr": 0.01}
_FEDAVG = {"name": "fedavg"}
AGREEMENTS = {
    "agreement-steps": (Workload("step by step", _blobs(6), {"name": "mclr"}, _FEDAVG, _BY_BATCHES, 0), {"gram": 0}),
    "agreement-gram": (Workload("in Gram form", _blobs(96), {"name": "mclr"}, _FEDAVG, _BY_BATCHES, 0), {"gram": 512}),
    "agreement-tiles": (
        Workload("a wide first layer, of which a GPU reads some rows at a time",
                 _blobs(784), {"name": "mlp", "hidden": [128]}, _FEDAVG, _BY_BATCHES, 0), {"gram": 0},
    ),
    "agreement-choice": (
        Workload("a start chosen among four models, then steps on all samples",
                 _blobs(16), {"name": "mlp", "hidden": [16]}, {"name": "ifca", "clusters": 4}, _ALL_SAMPLES, 0), {"gram": 0},
    ),
}  # fmt: skip
"""Small runs that look at one form of the kernel each, and what of their plan is forced."""
BAR = 1e-4


class Ways(NamedTuple):
    """How `train.plan.kernel = "auto"` trains a workload on this machine."""

    auto: str
    """"pallas": by one kernel per client; "xla": by XLA's kernels."""
    other: str | None
    """The way not taken; None: there is no such kernel."""
    form: Row | None
    """What the kernel is compiled for."""
    why: str | None
    """Why there is no kernel."""
    steps_s: Row | None
    """Predicted seconds of a round's local steps each way; None where nothing is predicted, as on a CPU."""


def ways(table: dict[str, Any]) -> Ways:
    """Of a spec of one run."""
    from cfljax.config import read_spec
    from cfljax.experiment import assemble
    from cfljax.experiment.execution import choose

    found = []
    for kernel in ("auto", "pallas"):
        run = read_spec(with_plan(table, kernel=kernel)).runs()[0]
        federation = assemble.host_federation(run)
        found.append(choose(run, assemble.model_of(run, federation), federation, machine()))
    auto, forced = found
    steps = None if forced.times is None else dict(zip(("pallas", "xla"), forced.times, strict=True))
    if forced.plan.kernel is None or isinstance(forced.form, str):
        return Ways("xla", None, None, str(forced.form), steps)
    taken, other = ("pallas", "xla") if auto.plan.kernel is not None else ("xla", "pallas")
    return Ways(taken, other, forced.form._asdict(), None, steps)


def with_plan(table: dict[str, Any], **forced: Any) -> dict[str, Any]:
    """The spec with these keys in its `train.plan`."""
    return table | {"train": table["train"] | {"plan": table["train"].get("plan", {}) | forced}}


def agreement(name: str, peak: Row) -> Row:
    """How far apart models are after two rounds by one kernel per client and by XLA's kernels, as a share of the largest number;
    `holds` is null where there is no such kernel. On a CPU the kernel is interpreted."""
    from cfljax.config import read_spec

    workload, plan = AGREEMENTS[name]
    table, outputs = with_plan(workload.spec(2), **plan), []
    there = ways(table)
    about: Row = {"machine": peak, "what": workload.about, "one_kernel": there.form is not None, "form": there.form}
    if there.form is None:
        return row(name, "cfljax", about | {"why": there.why, "holds": None})
    for kernel in ("xla", "pallas"):
        _, (output,) = carry_out(read_spec(with_plan(table, kernel=kernel)).runs())
        outputs.append(output.models)
    error = float(np.abs(outputs[0] - outputs[1]).max() / np.abs(outputs[0]).max())
    return row(name, "cfljax", about | {"error": error, "bar": BAR, "holds": error < BAR})
