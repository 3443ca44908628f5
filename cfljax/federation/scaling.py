"""HOST. `data.normalise`: what is subtracted from the values of a sample, and what the rest is
multiplied by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.types import Parts

PER_PIXEL = ("pixel", "pixel_all")
# The deviation of a pixel is at least this share of the range of its values. A pixel that hardly
# varies over the samples that train may take any value elsewhere; inputs are 255 at most.
LEAST_DEVIATION = 1 / 255
# What FedProx's program adds to the deviations of all samples
ADDED_DEVIATION = 0.001
# Samples whose squares are computed at a time
SQUARED_SAMPLES_AT_A_TIME = 4096


class Moments(NamedTuple):
    """What is known of F pixels over some samples."""

    # How many samples there are
    number: int
    # f64[F]
    mean: np.ndarray
    # f64[F]: the sum of the squared distances from the mean
    squares: np.ndarray

    @property
    def deviation(self) -> np.ndarray:
        """Return f64[F]: the standard deviation."""
        return np.sqrt(self.squares / max(self.number, 1))

    def through(self, source: np.ndarray) -> Moments:
        """Return the moments of the same samples in a view: `source` i32[F] is the index of the
        pixel that each pixel of the view shows, −1 for a pixel that is always 0."""
        return Moments(
            self.number,
            np.where(source < 0, 0.0, self.mean[source]),
            np.where(source < 0, 0.0, self.squares[source]),
        )

    def times(self, often: int) -> Moments:
        """Return the moments of samples of which each occurs `often` times."""
        return Moments(self.number * often, self.mean, self.squares * often)


def find_scaling(
    x: np.ndarray,
    how: str,
    parts: Parts,
    trains: np.ndarray,
    valid: list[np.ndarray],
    y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return (mean, scale), f32[] or f32[...] of a sample's shape: the model sees (x − mean) ·
    scale.

    Args:
        x: all samples of the source, [n, ...].
        how: `data.normalise`.
        parts: who holds which of them.
        trains: bool[C], which clients train in some round.
        valid: the rows of each client that are set aside for validation.
        y: the labels of all samples.
    """
    if how in PER_PIXEL:
        mean, scale = _scale_pixels(_Samples(x.reshape(len(x), -1), y), how, parts, trains, valid)
        shape = x.shape[1:]
        return mean.astype(np.float32).reshape(shape), scale.astype(np.float32).reshape(shape)
    if how not in ("unit", "none"):
        raise ValueError(f'normalise = "{how}": must be "unit", "pixel", "pixel_all" or "none"')
    factor = 1 / 255 if how == "unit" and x.dtype == np.uint8 else 1.0
    if parts.offset is not None and x.dtype.kind == "f" and (x.min() < 0 or x.max() > 1):
        raise SpecError(
            f'data.normalise = "{how}": keeps the values of these samples, which are from '
            f"{x.min():g} to {x.max():g}, and feature_shift inverts or shifts values from 0 to 1; "
            'give data.normalise = "pixel", or kind = "gain"'
        )
    return np.asarray(0.0, np.float32), np.asarray(factor, np.float32)


class _Samples(NamedTuple):
    """All samples of the source."""

    # [n, F]
    lines: np.ndarray
    # i[n], or i[n, classes]
    y: np.ndarray


def _scale_pixels(
    samples: _Samples, how: str, parts: Parts, trains: np.ndarray, valid: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and scale, f64[F] each. The scale of a pixel that never varies is 0."""
    lines = samples.lines
    if how == "pixel_all" and parts.pixels is None:
        whole = _measure(lines, np.arange(len(lines)))
        return whole.mean, _invert(whole.deviation, whole.deviation + ADDED_DEVIATION)
    if how == "pixel_all":
        seen = _list_seen(samples, parts, np.ones_like(trains), everything=True, valid=valid)
    else:
        seen = _list_seen(samples, parts, trains)
    moments = _combine(seen) if seen else _measure(lines, np.arange(len(lines)))
    least = LEAST_DEVIATION * _range(lines, parts.pixels)
    return moments.mean, _invert(moments.deviation, np.maximum(moments.deviation, least))


def _list_seen(
    samples: _Samples,
    parts: Parts,
    who: np.ndarray,
    everything: bool = False,
    valid: list[np.ndarray] | None = None,
) -> list[Moments]:
    """Return the moments of what clients `who` bool[C] see before any drift, one view after
    another: of their training samples or of all that they hold. A sample counts as often as it is
    held."""
    views = np.zeros(len(who), np.int32) if parts.view is None else np.asarray(parts.view)
    splits = [parts.train]
    shared = None
    if everything:
        splits += [valid] if valid else []
        if isinstance(parts.test, np.ndarray):
            shared = parts.test
        else:
            splits.append(parts.test)
    found = []
    for view in np.unique(views[who]):
        clients = np.flatnonzero(who & (views == view))
        rows = np.concatenate([split[client] for split in splits for client in clients])
        for shown, of_view in _list_shown(samples, parts, view, rows.astype(np.int64)):
            found.append(_measure_through(samples.lines, of_view, parts.pixels, shown))
        if shared is None:
            continue
        for shown, of_view in _list_shown(samples, parts, view, shared):
            moments = _measure_through(samples.lines, of_view, parts.pixels, shown)
            found.append(moments.times(len(clients)))
    return [each for each in found if each.number]


def _list_shown(
    samples: _Samples, parts: Parts, view: int, rows: np.ndarray
) -> list[tuple[int, np.ndarray]]:
    """Return (a view, the rows that clients of `view` see through it): all rows through their own
    view, unless that depends on the label."""
    if parts.by_label is None:
        return [(view, rows)]
    shown = parts.by_label[view][samples.y[rows]]
    return [(int(each), rows[shown == each]) for each in np.unique(shown)]


def _measure_through(
    lines: np.ndarray, rows: np.ndarray, pixels: np.ndarray | None, view: int
) -> Moments:
    """Compute the moments of these rows as a view shows them."""
    moments = _measure(lines, rows)
    return moments if pixels is None else moments.through(pixels[view])


def _measure(lines: np.ndarray, rows: np.ndarray) -> Moments:
    """Compute the moments of these rows in float64, a chunk at a time."""
    total = np.zeros(lines.shape[1])
    squares = np.zeros(lines.shape[1])
    for at in range(0, len(rows), SQUARED_SAMPLES_AT_A_TIME):
        total += lines[rows[at : at + SQUARED_SAMPLES_AT_A_TIME]].sum(0, dtype=np.float64)
    mean = total / max(len(rows), 1)
    # Around the mean: the difference of two large sums would lose the digits of a small deviation
    for at in range(0, len(rows), SQUARED_SAMPLES_AT_A_TIME):
        squares += ((lines[rows[at : at + SQUARED_SAMPLES_AT_A_TIME]] - mean) ** 2).sum(0)
    return Moments(len(rows), mean, squares)


def _combine(parts: list[Moments]) -> Moments:
    """Return the moments of all samples from the moments of parts of them."""
    number = sum(each.number for each in parts)
    mean = np.sum([each.number * each.mean for each in parts], axis=0) / number
    squares = [each.squares + each.number * (each.mean - mean) ** 2 for each in parts]
    return Moments(number, mean, np.sum(squares, axis=0))


def _range(lines: np.ndarray, pixels: np.ndarray | None) -> np.ndarray:
    """Return the range of values that each pixel can show, f64[F] or, where views move pixels,
    f64[]. It is over all samples of the source, so that it bounds what is tested, too."""
    least = lines.min(0).astype(np.float64)
    most = lines.max(0).astype(np.float64)
    if pixels is None:
        return most - least
    outside = 0.0 if np.any(pixels < 0) else most.max()
    return np.asarray(max(most.max(), outside) - min(least.min(), outside))


def _invert(deviation: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    return np.divide(1.0, divisor, out=np.zeros_like(deviation), where=deviation > 0)
