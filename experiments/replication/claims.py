"""Enters: a claim and the measured cells. Leaves: a verdict on the claim. The kinds of claims are
decided in these ways:

- `within`: every cell is within `tolerance` of its published number, and at least half of them with
  their whole interval; in direction where at least half of them are and their order is much the
  same (Spearman's rank correlation of at least 0.8 over three cells or more). Otherwise it does not
  reproduce where the whole interval of a cell is outside. A single cell must be within with its
  whole interval.
- `difference = [a, b]`: a − b, with the 95 % interval of its mean (Student's t, over pairs of runs
  of one seed), which must be on the claimed side of 0. It reproduces where a − b is within
  `tolerance` of `published`, and within half of it; in direction where it is at least half of it.
  It is "larger than published" where the whole interval is above twice of it.
  It is "less than half of the effect" where it is less, or where the whole interval is, and does
  not reproduce where the whole interval is below a tenth, or below half and the mean below a tenth.
  Any other interval with 0 in it decides nothing. A published 0 says that the two are equal: the
  whole interval is within `tolerance`. Without a published number only the sign is claimed.
- `reduction = [a, b]`: a needs less than b by this fraction, 1 − a/b, decided as a difference is,
  by the mean of log(a/b) and its interval. What is never reached counts with the rounds that were
  run: where that is b, the reduction may be larger, and is never too small. Where neither gets
  there in any run nothing was reduced if all curves had stopped rising; else it decides nothing.
- `order`: the cells from best to worst, what never gets there with the rounds that were run: the 95
  % interval of each difference of neighbours is above 0; in direction where the first and the
  last's is. An interval of these two that has 0 in it decides nothing.
- `at_least`: the whole interval of every cell is `published` or more, less `tolerance`; in
  direction where at least half of the means are. Otherwise it does not reproduce where a whole
  interval is below.

- `steadier = [a, b]`: a's deviation over seeds is smaller than b's: the 95 % interval of the ratio
  of their variances (Fisher's F) is below 1. An interval with 1 in it decides nothing.

Of `within` and `at_least` more than half of the cells must have been run. A difference of rounds decides
nothing where one is never reached. Whatever the kind, these come first: a claim that no run could
contradict is no test of it; runs in another setting than the paper's are to be run again; runs of a
small size are not run at size; and fewer than three seeds decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np

from cfljax.results.statistics import FEWEST
from experiments.replication.intervals import interval, ratio_of_variances
from experiments.replication.numbers import between, fewer, plain, signed
from experiments.replication.published import Claim, Published
from experiments.replication.verdicts import (
    AGAIN,
    AT_SIZE,
    DIRECTION,
    FAILS,
    LARGER,
    NO_TEST,
    NOT_RUN,
    PART,
    REPRODUCES,
    UNDECIDED,
    Measured,
    Verdict,
)

PAIRED = ("difference", "reduction", "order")
"""Kinds of claims that compare runs of the same seeds."""
ALIKE = 0.8
"""The rank correlation from which on two orders count as much the same."""
LEAST = 0.1
"""Below this share of the published effect there is no effect."""
MORE = "more than published"
"""What is said of an effect whose whole interval is beyond the published one."""
TINY = 1e-12
"""Replaces 0 in a quotient."""


class Effect(NamedTuple):
    """How large an effect is, turned so that it is claimed to be above 0."""

    mean: float
    low: float
    high: float
    """The interval of the mean."""
    at_least: bool = False
    """True for a lower bound: the effect may be larger."""


def verdict(
    claim: Claim, of: Published, measured: Mapping[str, Measured], small: bool = False
) -> Verdict:
    """Decide what the measured cells say about the claim. `small`: the runs are smaller than the
    paper's."""
    if claim.kind in PAIRED:
        missing = [name for name in claim.cells if not measured[name].values]
        if missing:
            return Verdict(NOT_RUN, "", why=f"not run: {', '.join(missing)}")
    elif not any(measured[name].values for name in claim.cells):
        return Verdict(NOT_RUN, "")
    found = DECIDERS[claim.kind](claim, of, measured)
    draws = [set(measured[name].values) for name in claim.cells if measured[name].values]
    seeds = len(set.intersection(*draws)) if claim.kind in PAIRED else min(map(len, draws))
    if found.word == NOT_RUN:
        return found
    if seeds < FEWEST:
        found = found._replace(word=UNDECIDED, why="one seed" if seeds == 1 else "two seeds")
    if claim.void:
        return found._replace(word=NO_TEST, why=claim.void)
    if claim.again:
        return found._replace(word=AGAIN, why=claim.again)
    return found._replace(word=AT_SIZE, why=f"small: {_soften(found)}") if small else found


def _soften(found: Verdict) -> str:
    """Return a word that does not count, with what is said beside it."""
    return f"{found.word}, {found.why}" if found.why == MORE else found.word


def decide(effect: Effect, wanted: float, close: bool) -> str:
    """Return the word for an effect. `wanted`: the published one, 0 where only the sign is claimed;
    `close`: it is near that."""
    if not effect.at_least and effect.high <= LEAST * wanted:
        return FAILS
    if not effect.at_least and effect.high < wanted / 2:
        return PART if effect.mean >= LEAST * wanted else FAILS
    if effect.low <= 0:
        return UNDECIDED
    if wanted and effect.low > 2 * wanted:
        return LARGER
    if close or 2 * effect.mean >= wanted:
        return REPRODUCES if close else DIRECTION
    return UNDECIDED if effect.at_least else PART


def _within(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:
    known = [name for name in claim.cells if of.cell(name).published is not None]
    run = [name for name in known if measured[name].values]
    if 2 * len(run) <= len(known):
        return Verdict(NOT_RUN, f"{len(run)} of {len(known)} cells were run")
    ours = np.array([measured[name].mean for name in run])
    theirs = np.array([of.cell(name).published for name in run], np.float64)
    off, most = ours - theirs, claim.tolerance + 1e-9
    low, high = np.array([interval(measured[name].values) for name in run]).T - theirs
    good, surely, away = (
        np.abs(off) <= most,
        (low >= -most) & (high <= most),
        (low > most) | (high < -most),
    )
    if len(known) == 1:
        found = f"{plain(ours[0])}{between(interval(measured[run[0]].values), plain)}"
        return Verdict(
            REPRODUCES if surely[0] else FAILS if away[0] else UNDECIDED, found, plain(theirs[0])
        )
    worst = int(np.argmax(np.abs(off)))
    numbers = (
        f"{good.sum()} of {len(run)} within {plain(claim.tolerance)}, {surely.sum()} with the "
        "whole interval"
    )
    if off[worst]:
        numbers += (
            f"; farthest: {run[worst]} "
            f"{signed(off[worst])}{between((low[worst], high[worst]), signed)}"
        )
    alike = _correlate_ranks(ours, theirs) if len(run) >= 3 else math.nan
    numbers += f"; rank correlation {alike:.2f}".replace("-", "−") if math.isfinite(alike) else ""
    numbers += f"; {len(known) - len(run)} not run" if len(run) < len(known) else ""
    if good.all() and 2 * surely.sum() >= len(run):
        return Verdict(REPRODUCES, numbers)
    if alike >= ALIKE and 2 * good.sum() >= len(run):
        return Verdict(DIRECTION, numbers)
    return Verdict(FAILS if away.any() else UNDECIDED, numbers)


def _difference(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:  # noqa: ARG001
    apart = _list_differences(claim, measured)
    if not apart:
        return Verdict(NOT_RUN, "no seed in common")
    published = claim.published
    said = "" if published is None else signed(published) if published else "level"
    if never := sum(not math.isfinite(value) for value in apart.values()):
        return Verdict(UNDECIDED, f"not reached in {never} of {len(apart)} seeds", said)
    mean, (low, high) = float(np.mean(list(apart.values()))), interval(apart)
    numbers = signed(mean) + between((low, high), signed)
    if published == 0:
        near = -claim.tolerance <= low and high <= claim.tolerance
        away = low > claim.tolerance or high < -claim.tolerance
        said += f", within {plain(claim.tolerance)}"
        return Verdict(REPRODUCES if near else FAILS if away else UNDECIDED, numbers, said)
    turned = (
        Effect(-mean, -high, -low)
        if published is not None and published < 0
        else Effect(mean, low, high)
    )
    most = claim.tolerance if published is None else min(claim.tolerance, abs(published) / 2)
    close = published is None or abs(mean - published) <= most
    said += "" if published is None else f", within {plain(most)}"
    word = decide(turned, abs(published or 0.0), close)
    more = published is not None and turned.low > abs(published) and word != LARGER
    return Verdict(word, numbers, said, MORE if more else "")


def signed_difference(claim: Claim, measured: Mapping[str, Measured]) -> str:
    """Format the mean over seeds of a − b, with its sign."""
    apart = _list_differences(claim, measured)
    return signed(float(np.mean(list(apart.values())))) if apart else "unknown"


def _reduction(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:
    fast, slow = (measured[name] for name in claim.cells)
    common = [draw for draw in fast.values if draw in slow.values]
    if not common:
        return Verdict(NOT_RUN, "no seed in common")
    word = "fewer" if of.cell(claim.cells[0]).take.lower_is_better else "less"
    published = "" if claim.published is None else fewer(claim.published, word)
    a_never, b_never = ([math.isinf(cell.values[draw]) for draw in common] for cell in (fast, slow))
    if all(a_never) and all(b_never):
        flat = all(cell.flat.get(draw, False) for cell in (fast, slow) for draw in common)
        return Verdict(FAILS if flat else UNDECIDED, "neither gets there", published)
    logs = {draw: math.log(counted(fast, draw) / counted(slow, draw)) for draw in common}
    mean, low, high = (
        -math.expm1(log) for log in (float(np.mean(list(logs.values()))), *reversed(interval(logs)))
    )
    bound = (
        "at least "
        if any(b_never) and not any(a_never)
        else "at most "
        if any(a_never) and not any(b_never)
        else ""
    )
    better = sum(log < 0 for log in logs.values())
    numbers = f"{bound if mean > 0 else ''}{fewer(mean, word)}{between((low, high), lambda share: fewer(share, word))}"
    numbers += f" ({better} of {len(logs)} seeds {word})"
    if not any(logs.values()):
        numbers = _count_equal(
            word, len(logs), sum(a and b for a, b in zip(a_never, b_never, strict=True))
        )
    more = any(b_never)
    close = (
        claim.published is None
        or abs(mean - claim.published) <= claim.tolerance
        or (more and mean > claim.published)
    )
    published += "" if claim.published is None else f", within {100 * claim.tolerance:.0f} points"
    word = decide(Effect(mean, low, high, more), claim.published or 0.0, close)
    beyond = claim.published is not None and low > claim.published and word != LARGER
    return Verdict(word, numbers, published, MORE if beyond else "")


def _count_equal(word: str, seeds: int, never: int) -> str:
    """Where a needs just what b needs. `never`: the seeds in which neither gets there."""
    same = f"as {'many' if word == 'fewer' else 'much'} in {seeds - never} of {seeds} seeds"
    return (
        f"{same}, neither gets there in {'the other' if never == 1 else never}" if never else same
    )


def counted(cell: Measured, draw: Hashable) -> float:
    """Return the number of a draw; if it is never reached, the number of rounds that were run."""
    return max(min(cell.values[draw], cell.rounds.get(draw, math.inf)), TINY)


def _order(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:
    sign = -1 if of.cell(claim.cells[0]).take.lower_is_better else 1
    cells = [measured[name] for name in claim.cells]
    numbers = ", ".join(plain(cell.mean) for cell in cells)
    common = [draw for draw in cells[0].values if all(draw in cell.values for cell in cells)]
    if not common:
        return Verdict(NOT_RUN, "no seed in common")
    lines = {
        draw: [sign * min(cell.values[draw], cell.rounds.get(draw, math.inf)) for cell in cells]
        for draw in common
    }
    kept = sum(all(a > b for a, b in zip(line, line[1:], strict=False)) for line in lines.values())
    apart = {draw: line[0] - line[-1] for draw, line in lines.items()}
    low, high = interval(apart)
    gap, ends = float(np.mean(list(apart.values()))), (low, high) if sign > 0 else (-high, -low)
    numbers += (
        f", so ordered in {kept} of {len(lines)} seeds; first − last "
        f"{signed(sign * gap)}{between(ends, signed)}"
    )
    steps = [
        interval({draw: line[i] - line[i + 1] for draw, line in lines.items()})
        for i in range(len(cells) - 1)
    ]
    if all(least > 0 for least, _ in steps):
        return Verdict(REPRODUCES, numbers)
    return Verdict(DIRECTION if low > 0 else FAILS if high <= 0 else UNDECIDED, numbers)


def _at_least(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:  # noqa: ARG001
    means = {name: measured[name].mean for name in claim.cells if measured[name].values}
    if 2 * len(means) <= len(claim.cells):
        return Verdict(NOT_RUN, f"{len(means)} of {len(claim.cells)} cells were run")
    level = float(claim.published or 0.0) - claim.tolerance
    ends = [interval(measured[name].values) for name in means]
    least = min(means, key=lambda name: means[name])
    enough = sum(mean >= level for mean in means.values())
    left = f"; {len(claim.cells) - len(means)} not run" if len(means) < len(claim.cells) else ""
    lowest = f"{plain(means[least])}{between(interval(measured[least].values), plain)}"
    found = f"{enough} of {len(means)}; least: {least} {lowest}{left}"
    if all(low >= level for low, _ in ends):
        word = REPRODUCES
    elif 2 * enough >= len(means):
        word = DIRECTION
    else:
        word = FAILS if any(high < level for _, high in ends) else UNDECIDED
    return Verdict(word, found, f"{plain(claim.published or 0.0)} or more")


def _steadier(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:  # noqa: ARG001
    one, other = (measured[name] for name in claim.cells)
    numbers = f"± {plain(one.deviation)} against ± {plain(other.deviation)}"
    low, high = ratio_of_variances(list(one.values.values()), list(other.values.values()))
    if math.isinf(high):
        return Verdict(UNDECIDED, numbers)
    numbers += f"; ratio [{plain(math.sqrt(low))}, {plain(math.sqrt(high))}]"
    return Verdict(REPRODUCES if high < 1 else FAILS if low >= 1 else UNDECIDED, numbers)


DECIDERS = {
    "within": _within,
    "difference": _difference,
    "reduction": _reduction,
    "order": _order,
    "at_least": _at_least,
    "steadier": _steadier,
}


def _list_differences(claim: Claim, measured: Mapping[str, Measured]) -> dict[Hashable, float]:
    """Draw → a − b of the two cells, for every draw that both have."""
    one, other = (measured[name].values for name in claim.cells)
    return {draw: one[draw] - other[draw] for draw in one if draw in other}


def _correlate_ranks(one: np.ndarray, other: np.ndarray) -> float:
    from scipy.stats import spearmanr

    if len(set(one)) == 1 or len(set(other)) == 1:
        return math.nan
    return float(spearmanr(one, other).statistic)
