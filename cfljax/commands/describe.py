"""Describe a data set and a partition of it: a table about both, and a picture of who holds which
classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cfljax.commands.samples import draw_samples, names_of
from cfljax.config.views import write_drift
from cfljax.data import SOURCES, load
from cfljax.errors import SpecError, StoreError
from cfljax.federation.common import class_counts
from cfljax.federation.quantiles import to_quantiles
from cfljax.files import write_whole
from cfljax.registry.options import Table, show
from cfljax.types import Parts, Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfljax.config.data import Data

# The most clients that are drawn; of more, evenly spaced ones are drawn
_MAX_DRAWN_CLIENTS = 150


def describe(
    name: str, sets: list[str] | None = None, png: str | None = None, samples: str | None = None
) -> str:
    """Describe the data set and its partition in a table, with `--set` flags as in a sweep; `png`:
    a file to draw it into; `samples`: a file to draw samples into."""
    config, source, parts = _divide(name, sets)
    counts = seen_counts(parts, source)
    title = _name_partition(config)
    lines = [*_describe_source(source), *_describe_parts(title, parts, counts)]
    if config.drift is not None:
        lines.append(("drift", show(write_drift(config.drift))))
    if png:
        draw(Path(png), f"{name}, {title}", counts, parts.group)
        lines.append(("picture", png))
    if samples:
        draw_samples(Path(samples), f"{name}, {title}", source, parts, names_of(name, config.path))
        lines.append(("samples in", samples))
    return "\n".join(f"{what:<20} {value}" for what, value in lines)


def to_table(name: str, sets: list[str] | None = None) -> Table:
    """Return the same as a table, for `--json`: the data set, and what each client holds."""
    config, source, parts = _divide(name, sets)
    counts = seen_counts(parts, source)
    own_tests = not isinstance(parts.test, np.ndarray)
    clients = [
        {
            "training": len(train),
            "test": len(parts.test[client]) if own_tests else len(parts.test),
            "group": int(parts.group[client]) if parts.group[client] >= 0 else None,
            "classes": counts[client].tolist(),
        }
        for client, train in enumerate(parts.train)
    ]
    return {
        "data": source.name,
        "training": len(source.y_train),
        "test": len(source.y_test),
        "shape": list(source.x_train.shape[1:]),
        "dtype": str(source.x_train.dtype),
        "classes": source.classes,
        "users": None if source.user_train is None else len(np.unique(source.user_train)),
        "partition": _name_partition(config),
        "same_test": not own_tests,
        "clients": clients,
    }


def _divide(name: str, sets: list[str] | None) -> tuple[Data, Source, Parts]:
    """Load the data set and divide it; return the options of its data, too."""
    config = _read_data(name, sets or []).with_seed(0)
    source = load(name, config.source, config.path, seed=int(config.seed) if name in SOURCES else 0)
    parts = config.divide_unchecked(source)
    return config, parts.source or source, parts


def _name_partition(config: Data) -> str:
    """Name the partition with its views."""
    views = (f"{each.name} in {each.options.groups}" for each in config.views)
    return " x ".join([config.partition, *views])


def _read_data(name: str, sets: list[str]) -> Data:
    """Read the `data` table that the flags make, as a sweep would."""
    from cfljax.config import read_spec

    wrong = [s for s in sets if not s.startswith("data.") or s.startswith("data.name")]
    if wrong:
        raise SpecError(
            f"--set {wrong[0]}: only options of the data table, as in data.partition=iid"
        )
    runs = read_spec(
        {"data": {"name": name}, "method": ["fedavg"], "train": {"rounds": 10**9}}, sets
    ).runs()
    if len(runs) != 1:
        raise SpecError("--set: one value per option; a list makes several partitions")
    return runs[0].data


def seen_counts(parts: Parts, source: Source) -> np.ndarray:
    """Count the training samples per client and label, i64[C, classes], as the client sees the
    label (test samples if it never trains)."""
    tests = parts.train if isinstance(parts.test, np.ndarray) else parts.test
    rows = [train if len(train) else test for train, test in zip(parts.train, tests, strict=True)]
    return class_counts(
        rows,
        to_quantiles(source),
        None if parts.labels is None or parts.view is None else parts.labels[parts.view],
    )


def describe_target(source: Source) -> str:
    """Say what is predicted."""
    if source.y_train.dtype.kind == "f":
        return f"a number from {source.y_train.min():.4g} to {source.y_train.max():.4g}"
    return f"{source.classes} classes"


def _describe_source(source: Source) -> list[tuple[str, str]]:
    """Return the lines (what, value) on the data set."""
    lines = [
        ("data", source.name),
        ("samples", f"{len(source.y_train)} training, {len(source.y_test)} test"),
        (
            "a sample",
            f"{source.x_train.dtype}{list(source.x_train.shape[1:])}, {describe_target(source)}",
        ),
    ]
    if source.user_train is not None:
        lines.append(("users", str(len(np.unique(source.user_train)))))
    if source.table is not None:
        lines.append(("word vectors", f"{len(source.table)} of {source.table.shape[1]} numbers"))
    return lines


def _describe_parts(name: str, parts: Parts, counts: np.ndarray) -> list[tuple[str, str]]:
    """Return the lines (what, value) on the partition. `counts`: i64[C, classes]."""
    train = np.array([len(rows) for rows in parts.train])
    lines = [
        ("partition", name),
        ("clients", f"{len(train)}, of which {int((train > 0).sum())} train"),
    ]
    lines.append(("training samples", _format_spread(train[train > 0])))
    same = isinstance(parts.test, np.ndarray)
    tests = (
        f"{len(parts.test)}, the same for all clients"
        if same
        else _format_spread(np.array([len(rows) for rows in parts.test]))
    )
    lines.append(("test samples", tests))
    lines.append(("classes of a client", _format_spread((counts > 0).sum(axis=1))))
    used = np.concatenate([np.zeros(0, int), *map(np.unique, parts.train)])
    shared = np.unique(used, return_counts=True)[1] > 1
    lines.append(("shared samples", f"{int(shared.sum())} held by several clients"))
    groups, sizes = np.unique(parts.group[parts.group >= 0], return_counts=True)
    shown = " ".join(f"{g}:{n}" for g, n in zip(groups[:20], sizes[:20], strict=True)) + (
        " …" if len(groups) > 20 else ""
    )
    lines.append(
        ("true groups", f"{len(groups)} (group:clients {shown})" if len(groups) else "none known")
    )
    return lines


def _format_spread(values: np.ndarray) -> str:
    """Format the range, the median and the sum of numbers of clients."""
    if not len(values):
        return "none"
    return f"{values.min()} to {values.max()}, median {np.median(values):g}, {values.sum()} in all"


def draw(file: Path, title: str, counts: np.ndarray, group: np.ndarray) -> None:
    """Draw who holds which classes: a bubble per client and class, its area the number of samples,
    clients ordered by group, in the look of the report's figures."""
    import matplotlib
    from matplotlib.figure import Figure

    from cfljax.report.figures import STYLE

    order = np.argsort(group, kind="stable")
    if len(order) > _MAX_DRAWN_CLIENTS:
        title += f": {_MAX_DRAWN_CLIENTS} of {len(order)} clients"
        order = order[np.linspace(0, len(order) - 1, _MAX_DRAWN_CLIENTS).astype(int)]
    title += f"; the largest bubble: {counts[order].max(initial=0)} samples"
    try:
        with matplotlib.rc_context(STYLE), write_whole(file) as part:
            figure = Figure(layout="constrained")
            _draw_bubbles(figure, counts[order], group[order]).set_title(title)
            figure.savefig(part, format="png", dpi=120, metadata={"Software": None})
    except OSError as e:
        raise StoreError(f"--png {file}: cannot be written ({e.strerror or e})") from e


def _draw_bubbles(figure: Figure, counts: np.ndarray, group: np.ndarray) -> Axes:
    """Draw the bubbles of clients that are ordered by group. Ticks are clients and classes that
    there are."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    from cfljax.report.styles import CLUSTER_COLOURS

    clients, classes = counts.shape
    figure.set_size_inches(2 + 0.11 * max(clients, 40), 1.5 + 0.22 * min(max(classes, 8), 62))
    axes = figure.add_subplot()
    x, y = np.nonzero(counts)
    colours = np.array(CLUSTER_COLOURS)[np.maximum(group, 0) % len(CLUSTER_COLOURS)]
    sizes = 120 * counts[x, y] / max(1, counts.max(initial=0))
    axes.scatter(x, y, s=sizes, c=colours[x], linewidths=0)
    for edge in np.flatnonzero(np.diff(group)):
        axes.axvline(edge + 0.5, color="0.6", linewidth=0.8)
    for axis, number in ((axes.xaxis, clients), (axes.yaxis, classes)):
        ticks = MaxNLocator(nbins=20, integer=True).tick_values(0, max(number - 1, 1))
        axis.set_major_locator(FixedLocator([tick for tick in ticks if 0 <= tick < number]))
    ordered = "client, ordered by true group" if len(np.unique(group)) > 1 else "client"
    axes.set(xlim=(-1, clients), ylim=(-1, classes), xlabel=ordered, ylabel="class")
    return axes
