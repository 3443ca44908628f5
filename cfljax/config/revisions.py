"""Results that were wrong in some runs and are mended. The ids of these runs say so, so that old
results are not taken for new ones. All other runs keep their ids, as they keep their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from cfljax.config.data import Data
from cfljax.config.train import Train, read_frozen
from cfljax.federation import PARTITIONS
from cfljax.registry.options import Options
from cfljax.round.config import MethodConfig


class RunConfig(NamedTuple):
    """What decides whether a run is one of them."""

    method: str
    options: MethodConfig
    data: Data
    model: str
    model_options: Options
    train: Train


def _scales_pixels(run: RunConfig) -> bool:
    """`normalise`: statistics of samples as clients see them, 0 for a pixel that never varies, and
    a least deviation. "pixel_all" changes only where views move pixels, which a user's partition
    is taken not to do."""
    data = run.data
    if data.normalise != "pixel_all":
        return data.normalise == "pixel"
    turned = data.partition == "rotated" or any(view.name == "rotated" for view in data.views)
    return turned or (data.drift is not None and data.drift.what == "rotation")


def _may_have_statistics(run: RunConfig) -> bool:
    """Return whether the model has running statistics of BatchNorm, or is a user's and may have
    them."""
    from cfljax.models import MODELS

    return getattr(run.model_options, "norm", "") == "batch" or not MODELS.is_built_in(run.model)


def _freezes_statistics(run: RunConfig) -> bool:
    """`train.freeze`: frozen layers of BatchNorm train with their running statistics. Heads have
    none."""
    return bool(set(run.train.freeze or ()) - {"head"}) and _may_have_statistics(run)


def _bills_arrivals(run: RunConfig) -> bool:
    """`pacfl`: late clients are billed the models that they choose from, also with newcomers."""
    both = run.data.arrive is not None and run.data.new_clients is not None
    return run.method == "pacfl" and both


def _counts_labels_again(run: RunConfig) -> bool:
    """`fedrod` and `ccs_rfedavg`: labels are counted in each round, as clients see them after a
    drift."""
    data = run.data
    drift = run.data.drift
    if run.method not in ("fedrod", "ccs_rfedavg") or drift is None or drift.what == "rotation":
        return False
    if drift.what == "labels" or not PARTITIONS.is_built_in(data.partition):
        return True
    seen = {data.partition, *(view.name for view in data.views)}
    return not seen.isdisjoint(("label_swap", "label_permutation"))


def _moves_statistics(run: RunConfig) -> bool:
    """`fedgroup`: inter-group aggregation leaves running statistics as they are averaged."""
    moves = run.method == "fedgroup" and getattr(run.options, "eta_g", 0.0) > 0
    return moves and _may_have_statistics(run)


def _knows_ties(run: RunConfig) -> bool:
    """`flux`: clusters do not hang on the last bit where distances are equal, and late clients are
    billed."""
    return run.method == "flux"


def _begins_balanced(run: RunConfig) -> bool:
    """`fedccfa`: a client's first own head begins at the balanced one, and prototypes are counted
    whole."""
    return run.method == "fedccfa"


def _compresses_statistics(run: RunConfig) -> bool:
    """`train.compress`: running statistics that are sent are not compressed."""
    if run.train.transit.compress is None or not run.options.sends:
        return False
    frozen = dict.fromkeys(read_frozen(run.train.freeze) or (), "frozen")
    kinds = dict(run.options.parts) or (run.train.parts or {}) | frozen
    at_home = kinds.get("norm", kinds.get("body")) in ("client", "frozen")
    return not at_home and _may_have_statistics(run)


REVISIONS: dict[str, Callable[[RunConfig], bool]] = {
    "normalise 2": _scales_pixels,
    "freeze 2": _freezes_statistics,
    "pacfl.arrive 2": _bills_arrivals,
    "drift.labels 2": _counts_labels_again,
    "fedgroup.statistics 2": _moves_statistics,
    "flux 2": _knows_ties,
    "fedccfa 2": _begins_balanced,
    "compress.statistics 2": _compresses_statistics,
}
"""What stands in the ids of the runs for which the function is true."""


def list_revisions(run: RunConfig) -> tuple[str, ...]:
    """Return what the id of a run says about results that are mended; () for most runs."""
    return tuple(name for name, concerns in REVISIONS.items() if concerns(run))
