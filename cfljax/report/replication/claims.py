"""Enters: a claim and the measured cells. Leaves: a verdict on the claim. The kinds of claims are decided in these ways:

- `within`: every cell is within `tolerance` of its published number; in direction where at least half of them are and their order
  is much the same (Spearman's rank correlation of at least 0.8 over three cells or more).
- `difference = [a, b]`: a − b is within `tolerance` of `published`, and within half of it; in direction where it is at least half
  of it; "less than half of the effect" from a tenth of it on. Each needs a 95 % interval of the mean (Student's t, over the
  differences of paired seeds) on that side of 0. An interval with 0 in it decides nothing unless all of it is below a tenth of
  the effect; one seed has none. A published 0 says that the two are equal: the whole interval is within `tolerance`. Without a
  published number only the sign is claimed.
- `reduction = [a, b]`: a needs less than b by this fraction (1 − a/b, the median over seeds), and less for every seed; in
  direction where the median is at least half of it, "less than half of the effect" from a tenth of it on. Where b never gets there
  it counts with the rounds that were run: the reduction is then a lower bound. Where neither gets there nothing was reduced.
- `order`: the cells from best to worst, what never gets there with the rounds that were run: the 95 % interval of each difference
  of neighbours is above 0; in direction where that of the first and the last is. An interval of these two that has 0 in it decides
  nothing.
- `at_least`: every cell is `published` or more, less `tolerance`; in direction where at least half of them are.

Of `within` and `at_least` half of the cells must have been run. A difference of rounds decides nothing where one is never reached.

Runs of a small size decide what they confirm; what else they would say is "not run at size".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cfljax.report.replication.published import Claim, Published

REPRODUCES, DIRECTION, PART = "reproduces", "reproduces in direction", "less than half of the effect"
UNDECIDED, FAILS, AT_SIZE, NOT_RUN = "not decided", "does not reproduce", "not run at size", "not run"
WORDS = (REPRODUCES, DIRECTION, PART, UNDECIDED, FAILS, AT_SIZE, NOT_RUN)
ALIKE = 0.8
"""The rank correlation from which on two orders count as much the same."""
LEVEL = 0.95
"""The level of the confidence intervals."""
LEAST = 0.1
"""Below this share of the published effect there is no effect."""


class Verdict(NamedTuple):
    """One of WORDS, and the numbers that it rests on."""

    word: str
    numbers: str


class Measured(NamedTuple):
    """The numbers of a cell."""

    values: dict[int, float]
    """Seed → number, in the published unit; inf: never reached."""
    rounds: dict[int, int] = {}
    """Seed → the number of rounds that were run, if the quantity is a round."""

    @property
    def mean(self) -> float:
        """The mean over seeds; NaN without any."""
        return float(np.mean(list(self.values.values()))) if self.values else math.nan

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample; NaN for fewer than two seeds."""
        known = list(self.values.values())
        return float(np.std(known, ddof=1)) if len(known) > 1 and np.isfinite(known).all() else math.nan


def verdict(claim: Claim, of: Published, measured: Mapping[str, Measured], small: bool = False) -> Verdict:
    """What the measured cells say about the claim. `small`: the runs are smaller than the paper's."""
    if claim.kind in ("difference", "reduction", "order"):
        missing = [name for name in claim.cells if not measured[name].values]
        if missing:
            return Verdict(NOT_RUN, f"not run: {', '.join(missing)}")
    elif not any(measured[name].values for name in claim.cells):
        return Verdict(NOT_RUN, "")
    decided = DECIDERS[claim.kind](claim, of, measured)
    seeds = min(len(measured[name].values) for name in claim.cells if measured[name].values)
    word = AT_SIZE if small and decided.word in (PART, UNDECIDED, FAILS) else decided.word
    return Verdict(word, decided.numbers + (" (one seed)" if seeds == 1 else ""))


def _within(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:
    known = [name for name in claim.cells if of.cell(name).published is not None]
    run = [name for name in known if measured[name].values]
    if 2 * len(run) < len(known):
        return Verdict(NOT_RUN, f"{len(run)} of {len(known)} cells were run")
    ours = np.array([measured[name].mean for name in run])
    theirs = np.array([of.cell(name).published for name in run], np.float64)
    off = ours - theirs
    good = np.abs(off) <= claim.tolerance + 1e-9
    worst = int(np.argmax(np.abs(off)))
    if len(known) == 1:
        return Verdict(REPRODUCES if good.all() else FAILS, f"{_plain(ours[0])}; published {_plain(theirs[0])}")
    numbers = f"{good.sum()} of {len(run)} within {_plain(claim.tolerance)}; farthest: {run[worst]} {_signed(off[worst])}"
    alike = _rank_correlation(ours, theirs) if len(run) >= 3 else math.nan
    numbers += f"; rank correlation {alike:.2f}" if math.isfinite(alike) else ""
    numbers += f"; {len(known) - len(run)} not run" if len(run) < len(known) else ""
    word = REPRODUCES if good.all() else DIRECTION if alike >= ALIKE and 2 * good.sum() >= len(run) else FAILS
    return Verdict(word, numbers)


def _difference(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:  # noqa: ARG001
    apart = _differences(claim, measured)
    if not apart:
        return Verdict(NOT_RUN, "no seed in common")
    if never := sum(not math.isfinite(value) for value in apart):
        return Verdict(UNDECIDED, f"not reached in {never} of {len(apart)} seeds")
    mean, (low, high), published = float(np.mean(apart)), interval(apart), claim.published
    numbers = _signed(mean) + (f" ({100 * LEVEL:.0f} % interval {_signed(low)} to {_signed(high)})" if len(apart) > 1 else "")
    if published is not None:
        numbers += f"; published {_signed(published) if published else '0'}"
    if published == 0:
        near = -claim.tolerance <= low and high <= claim.tolerance
        away = low > claim.tolerance or high < -claim.tolerance
        return Verdict(REPRODUCES if near else FAILS if away else UNDECIDED, numbers)
    if published is not None and published < 0:
        low, high = -high, -low
    effect, wanted = (mean, 0.0) if published is None else (math.copysign(mean, mean * published), abs(published))
    if high <= LEAST * wanted or (low > 0 and effect < LEAST * wanted):
        return Verdict(FAILS, numbers)
    if low <= 0:
        return Verdict(UNDECIDED, numbers)
    close = published is None or abs(mean - published) <= min(claim.tolerance, abs(published) / 2)
    return Verdict(REPRODUCES if close else DIRECTION if 2 * effect >= wanted else PART, numbers)


def interval(values: list[float]) -> tuple[float, float]:
    """(low, high) of Student's t interval of the mean; infinite for fewer than two values."""
    from scipy.special import stdtrit  # scipy.stats takes half a second to import

    if len(values) < 2:
        return -math.inf, math.inf
    half = stdtrit(len(values) - 1, (1 + LEVEL) / 2) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def signed_difference(claim: Claim, measured: Mapping[str, Measured]) -> str:
    """The mean over seeds of a − b as text, with its sign."""
    apart = _differences(claim, measured)
    return _signed(float(np.mean(apart))) if apart else "unknown"


def _reduction(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:
    fast, slow = (measured[name] for name in claim.cells)
    pairs = [(a, slow.values[seed], slow.rounds.get(seed, math.inf)) for seed, a in fast.values.items() if seed in slow.values]
    if not pairs:
        return Verdict(NOT_RUN, "no seed in common")
    less = [_share_less(a, b, ran) for a, b, ran in pairs]
    word = "fewer" if of.cell(claim.cells[0]).take.lower_is_better else "less"
    published = "" if claim.published is None else f"; published {_fewer(claim.published, word)}"
    if all(math.isinf(a) and math.isinf(b) for a, b, _ in pairs):
        return Verdict(FAILS, f"neither gets there{published}")
    middle = float(np.median(less))
    better = sum(value > 0 for value in less)
    bound = 0 < middle < math.inf and any(math.isinf(b) for _, b, _ in pairs)
    numbers = (
        f"{'at least ' if bound else ''}{_fewer(middle, word)} in the median ({better} of {len(less)} seeds {word}){published}"
    )
    whole = better == len(less)
    if claim.published is not None:
        whole &= abs(middle - claim.published) <= claim.tolerance or (bound and middle > claim.published)
    wanted = claim.published or 0.0
    if middle <= LEAST * wanted:
        return Verdict(FAILS, numbers)
    return Verdict(REPRODUCES if whole else DIRECTION if 2 * middle >= wanted else PART, numbers)


def _share_less(a: float, b: float, ran: float) -> float:
    """1 − a/b; if b is never reached, b is the number of rounds that were run."""
    if not math.isfinite(a) or b == 0:
        return 0.0 if a == b else -math.inf
    return 1 - a / min(b, ran)


def _fewer(share: float, word: str) -> str:
    return "not reached" if math.isinf(share) else f"{abs(100 * share):.0f} % {word if share >= 0 else 'more'}"


def _order(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:
    sign = -1 if of.cell(claim.cells[0]).take.lower_is_better else 1
    cells = [measured[name] for name in claim.cells]
    numbers = (" < " if sign < 0 else " > ").join(claim.cells) + ": " + ", ".join(_plain(cell.mean) for cell in cells)
    common = [seed for seed in cells[0].values if all(seed in cell.values for cell in cells)]
    if not common:
        return Verdict(NOT_RUN, "no seed in common")
    lines = [[sign * min(cell.values[seed], cell.rounds.get(seed, math.inf)) for cell in cells] for seed in common]
    kept = sum(all(a > b for a, b in zip(line, line[1:], strict=False)) for line in lines)
    numbers += f" ({kept} of {len(lines)} seeds)"
    steps = [interval([line[i] - line[i + 1] for line in lines]) for i in range(len(cells) - 1)]
    low, high = interval([line[0] - line[-1] for line in lines])
    if all(least > 0 for least, _ in steps):
        return Verdict(REPRODUCES, numbers)
    return Verdict(DIRECTION if low > 0 else FAILS if high <= 0 else UNDECIDED, numbers)


def _at_least(claim: Claim, of: Published, measured: Mapping[str, Measured]) -> Verdict:  # noqa: ARG001
    means = {name: measured[name].mean for name in claim.cells if measured[name].values}
    if 2 * len(means) < len(claim.cells):
        return Verdict(NOT_RUN, f"{len(means)} of {len(claim.cells)} cells were run")
    least = min(means, key=lambda name: means[name])
    enough = sum(mean >= float(claim.published or 0.0) - claim.tolerance for mean in means.values())
    word = REPRODUCES if enough == len(means) else DIRECTION if 2 * enough >= len(means) else FAILS
    left = f"; {len(claim.cells) - len(means)} not run" if len(means) < len(claim.cells) else ""
    return Verdict(word, f"{enough} of {len(means)}; least: {least} {_plain(means[least])}{left}")


DECIDERS = {"within": _within, "difference": _difference, "reduction": _reduction, "order": _order, "at_least": _at_least}


def _differences(claim: Claim, measured: Mapping[str, Measured]) -> list[float]:
    """a − b of the two cells, for every seed that both have."""
    one, other = (measured[name].values for name in claim.cells)
    return [one[seed] - other[seed] for seed in one if seed in other]


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    from scipy.stats import spearmanr

    if len(set(one)) == 1 or len(set(other)) == 1:
        return math.nan
    return float(spearmanr(one, other).statistic)


def _plain(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def _signed(value: float) -> str:
    return ("+" if value >= 0 else "−") + _plain(abs(value))
