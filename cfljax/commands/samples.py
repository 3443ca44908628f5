"""A picture of samples as clients see them: a line for each true group (or client), in it some
samples with their labels. Images are drawn as images, texts as texts, other numbers as curves."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from cfljax.data.files import folders
from cfljax.data.mapped import read_names, read_tokens
from cfljax.data.tokens import decode_tokens
from cfljax.errors import StoreError
from cfljax.files import write_whole
from cfljax.types import Parts, Source

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cfljax.registry.options import Table

# The most groups, or clients, of which samples are drawn: one row for each
MAX_ROWS = 8
# The most samples of each
MAX_SAMPLES = 8
# The most of a text that is shown
_MAX_CHARACTERS = 160


class Names(NamedTuple):
    """What an import has kept beside the arrays."""

    classes: list[str] | None
    tokens: Table | None
    # The names of the domains, if the data have domains
    owners: list[str] | None


def names_of(name: str, path: str | None) -> Names:
    """Read the names of classes and tokens, if the data set was imported."""
    for folder in folders(path):
        for where in (folder / name, folder):
            if where.is_dir() and (classes := read_names(where)) is not None:
                return Names(classes, read_tokens(where), read_names(where, "owners"))
    return Names(None, None, None)


def as_seen(
    source: Source, parts: Parts, client: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (x [n, ...], y i[n]): samples as a client sees them. Bytes are divided by 255, as for
    models."""
    edge = len(source.y_train)
    train = rows < edge
    x = np.empty((len(rows), *source.x_train.shape[1:]), source.x_train.dtype)
    x[train] = source.x_train[rows[train]]
    x[~train] = source.x_test[rows[~train] - edge]
    y = np.concatenate([source.y_train, source.y_test])[rows]
    seen = np.asarray(x)
    view = None if parts.view is None else int(parts.view[client])
    # The view that shows each sample
    shown = np.full(len(rows), view or 0)
    if view is not None and parts.by_label is not None:
        shown = parts.by_label[view][y]
    axes = (-1, *(1 for _ in x.shape[1:]))
    if view is not None and parts.pixels is not None:
        line, pixels = seen.reshape(len(seen), -1), parts.pixels[shown]
        moved = np.take_along_axis(line, np.maximum(pixels, 0), axis=1)
        seen = np.where(pixels < 0, 0, moved).reshape(seen.shape)
    if source.table is None and x.dtype == np.uint8:
        seen = seen / 255.0
    if view is not None and parts.gain is not None:
        seen = seen * parts.gain[shown].reshape(axes)
    if view is not None and parts.offset is not None:
        seen = seen + parts.offset[shown].reshape(axes)
    if view is not None and parts.labels is not None:
        y = parts.labels[view][y]
    return seen, y


def choose_samples(source: Source, parts: Parts) -> list[tuple[str, int, np.ndarray]]:
    """Choose (the name of a line, its client, rows) for each true group, or without groups for some
    clients: rows of as many labels as possible."""
    tests = parts.train if isinstance(parts.test, np.ndarray) else parts.test
    held = [train if len(train) else test for train, test in zip(parts.train, tests, strict=True)]
    groups = np.unique(parts.group[parts.group >= 0])
    having = [c for c, rows in enumerate(held) if len(rows)]
    if len(groups):
        firsts = [
            (f"group {g}", next((c for c in having if parts.group[c] == g), None))
            for g in groups[:MAX_ROWS]
        ]
    else:
        firsts = [(f"client {c}", c) for c in having[:MAX_ROWS]]
    labels = np.concatenate([source.y_train, source.y_test])
    lines = []
    for name, client in firsts:
        if client is not None:
            rows = held[client]
            by_label = rows if labels.ndim == 2 else rows[np.argsort(labels[rows], kind="stable")]
            lines.append(
                (
                    name,
                    client,
                    by_label[np.unique(np.linspace(0, len(rows) - 1, MAX_SAMPLES).astype(int))],
                )
            )
    return lines


def draw_samples(file: Path, title: str, source: Source, parts: Parts, names: Names) -> None:
    """Write the picture atomically."""
    from matplotlib.figure import Figure

    lines = choose_samples(source, parts)
    texts = names.tokens is not None or source.table is not None
    wide = 2.4 if texts else 1.1
    figure = Figure(figsize=(1 + wide * MAX_SAMPLES, 0.5 + 1.35 * len(lines)), layout="constrained")
    grid = figure.subplots(len(lines), MAX_SAMPLES, squeeze=False)
    for (name, client, rows), axes in zip(lines, grid, strict=True):
        x, y = as_seen(source, parts, client, rows)
        for at, axis in enumerate(axes):
            axis.set(xticks=[], yticks=[])
            axis.set_frame_on(False)
            if at < len(rows):
                _draw_sample(axis, x[at], names.tokens, texts)
                axis.set_title(_format_label(y[at], names), fontsize=7)
        axes[0].set_ylabel(_find_domain(source, parts, client, rows, names) or name, fontsize=8)
    figure.suptitle(title, fontsize=9)
    try:
        with write_whole(file) as part:
            figure.savefig(part, format="png", dpi=120, metadata={"Software": None})
    except OSError as e:
        raise StoreError(f"--draw {file}: cannot be written ({e.strerror or e})") from e


def _find_domain(
    source: Source, parts: Parts, client: int, rows: np.ndarray, names: Names
) -> str | None:
    """Return the domain of a client's samples, if the data have domains and these are the
    groups."""
    if (
        names.owners is None
        or source.user_train is None
        or parts.source is not None
        or parts.group[client] < 0
    ):
        return None
    of = (
        source.user_train
        if source.user_test is None
        else np.concatenate([source.user_train, source.user_test])
    )
    owners = np.unique(of[rows])
    return names.owners[owners[0]] if len(owners) == 1 and owners[0] < len(names.owners) else None


def _format_label(y: np.ndarray, names: Names) -> str:
    """Return the name of a label; of several labels the indices."""
    if np.ndim(y):
        return " ".join(map(str, np.flatnonzero(y)))[:16]
    number = int(y)
    name = (
        str(number)
        if names.classes is None or number >= len(names.classes)
        else names.classes[number]
    )
    shown = repr(name) if names.tokens is not None and len(name) == 1 else name
    return shown[:16].replace("$", r"\$")


def _draw_sample(axis: Axes, x: np.ndarray, tokens: Table | None, texts: bool) -> None:
    """Draw a sample as a text, as an image, or else as a curve."""
    if texts:
        numbers = x.astype(int).tolist()
        said = " ".join(map(str, numbers)) if tokens is None else decode_tokens(tokens, numbers)
        lines = textwrap.wrap(said[:_MAX_CHARACTERS].replace("$", r"\$"), 26)
        axis.text(
            0,
            1,
            "\n".join(lines),
            fontsize=6,
            va="top",
            family="monospace",
            transform=axis.transAxes,
        )
        return
    # A row of a square number of values is most often a flattened image
    if x.ndim == 1 and int(len(x) ** 0.5) ** 2 == len(x) and len(x) >= 16:
        x = x.reshape(int(len(x) ** 0.5), -1)
    if x.ndim == 3 and x.shape[-1] in (1, 3):
        x = x[..., 0] if x.shape[-1] == 1 else x
    if x.ndim == 2 or (x.ndim == 3 and x.shape[-1] == 3):
        low = min(0.0, float(x.min()))
        high = max(1.0, float(x.max()))
        axis.imshow(
            np.clip((x - low) / (high - low), 0, 1),
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        return
    axis.plot(x.reshape(-1), linewidth=0.8)
