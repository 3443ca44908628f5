"""Statistics over seeds and over settings: means, deviations, intervals, paired differences,
p values, mean ranks, interquartile means, and what is to be expected on a new setting."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

# The significance level of the tests; intervals hold 1 − LEVEL
LEVEL = 0.05
# The fewest seeds for an interval
FEWEST = 3
# The fewest seeds, or settings, for a test: fewer differ by chance too often in too few ways
FEWEST_TESTED = 5
BOOTSTRAP = 5
"""The fewest seeds for a bootstrap. Of fewer, resamples hardly go beyond the numbers themselves (of
three, they cover the mean in 75 % of cases), and the interval is Student's."""
RESAMPLES = 10_000
# Two methods whose accuracies differ by a point at most are equivalent in practice
EQUIVALENT = 0.01


class Difference(NamedTuple):
    """How far one method is from another on the seeds that both have."""

    mean: float
    # Student's interval of the mean
    low: float
    high: float
    effect: float
    """The mean in standard deviations of the differences, corrected for few seeds (Hedges' g of
    paired values); ±∞ where all differences are the same, 0 where all are zero."""
    # The number of seeds that both have
    n: int
    # What the interval holds: 1 − α of the test beside it
    confidence: float = 1 - LEVEL


def mean_and_deviation(values: Iterable[float]) -> tuple[float, float | None]:
    """Return (mean, standard deviation of a sample): NaN for no values, None for fewer than two."""
    values = list(values)
    if not values:
        return math.nan, None
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Compute the 95 % interval of the mean of f64[n]; None for fewer than FEWEST values.

    From BOOTSTRAP values on it is the interval of a percentile bootstrap, widened as Hesterberg
    (2015) does: plain percentiles are too narrow, because the normal distribution is narrower than
    Student's, and a deviation over n smaller than one over n − 1."""
    # scipy.stats takes half a second to import
    from scipy.special import stdtrit

    n = len(values)
    if n < FEWEST:
        return None
    sample = np.asarray(values, np.float64)
    if n < BOOTSTRAP:
        t = float(stdtrit(n - 1, 1 - LEVEL / 2))
        half = t * float(sample.std(ddof=1)) / math.sqrt(n)
        return float(sample.mean()) - half, float(sample.mean()) + half
    tail = _expand_tail(n, n - 1)
    low, high = np.quantile(_resamples(n) @ sample, [tail, 1 - tail])
    return float(low), float(high)


def _expand_tail(n: int, freedom: int) -> float:
    """Return the share of the resamples of n values that an interval leaves out on either side.
    `freedom`: the degrees of freedom of the deviation."""
    from scipy.special import ndtr, stdtrit

    return float(ndtr(-math.sqrt(n / (n - 1)) * stdtrit(freedom, 1 - LEVEL / 2)))


@functools.lru_cache(maxsize=8)
def _resamples(n: int) -> np.ndarray:
    """Draw the weight of each value in the mean of each resample, f64[B, n], the same in every
    process."""
    often = min(RESAMPLES, max(1000, 10**7 // n))
    drawn = np.random.default_rng([0, n]).integers(0, n, (often, n))
    return np.stack([np.bincount(each, minlength=n) for each in drawn]) / n


def difference(one: Sequence[float], other: Sequence[float], level: float = LEVEL) -> Difference:
    """Compare `one` with `other`, which have a value for each shared seed, of which there must be
    two. The interval is Student's: it is without 0 if and only if the p of `paired_t` is below
    `level`."""
    from scipy.special import stdtrit

    each = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    mean = float(each.mean())
    n = len(each)
    deviation = _deviation(each)
    if deviation:
        effect = mean / deviation
    else:
        # All differences are equal: the effect is infinite, unless they are zero
        effect = math.copysign(math.inf, mean) if mean else 0.0
    half = float(stdtrit(n - 1, 1 - level / 2)) * deviation / math.sqrt(n)
    # Hedges' correction of the bias of small samples
    effect *= 1 - 3 / (4 * (n - 1) - 1)
    return Difference(mean, mean - half, mean + half, effect, n, 1 - level)


def _deviation(each: np.ndarray) -> float:
    """Return the standard deviation of a sample; 0 if all values are the same but for rounding."""
    spread = float(each.std(ddof=1))
    return 0.0 if spread <= 1e-12 * max(abs(float(each.mean())), 1e-12) else spread


def paired_t(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the two-sided p of a paired t-test. If all differences are equal, p is 1 if they are
    zero, else 0."""
    from scipy.special import stdtr

    each = np.asarray(one, np.float64) - np.asarray(other, np.float64)
    mean = float(each.mean())
    spread = _deviation(each)
    if not spread:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(len(each) - 1, -abs(mean) / (spread / math.sqrt(len(each)))))


def holm(values: Sequence[float]) -> list[float]:
    """Correct p values by Holm's step-down procedure."""
    corrected = [1.0] * len(values)
    highest = 0.0
    for rank, i in enumerate(sorted(range(len(values)), key=lambda i: values[i])):
        highest = max(highest, min(1.0, (len(values) - rank) * values[i]))
        corrected[i] = highest
    return corrected


def holm_levels(values: Sequence[float]) -> list[float]:
    """Return the level of each p value's step in Holm's procedure; those that are not significant
    have the level of the step at which it stopped. A p is below its level if and only if the
    corrected p is below LEVEL, so that an interval of this level agrees with the corrected p."""
    levels = [LEVEL] * len(values)
    left = len(values)
    for i in sorted(range(len(values)), key=lambda i: values[i]):
        levels[i] = LEVEL / max(left, 1)
        # From the first p that is not significant on, the step does not advance
        left -= values[i] < levels[i]
    return levels


class NewSetting(NamedTuple):
    """What to expect of two methods on a setting like those that were tried (probabilities)."""

    # That the first is better by more than EQUIVALENT, that neither is, that the second is
    better: float
    equal: float
    worse: float


def expect_on_new_setting(differences: Sequence[float], within: float = EQUIVALENT) -> NewSetting:
    """Compute the posterior of the Bayesian signed-rank test (Benavoli et al. 2014) with a region
    of practical equivalence, of the differences f64[N] of two methods on N settings. Its prior is
    one more setting of half a weight, on which both are equal."""
    each = np.append(np.asarray(differences, np.float64), 0.0)
    prior = np.append(np.ones(len(each) - 1), 0.5)
    drawn = np.random.default_rng([1, len(each)]).dirichlet(prior, size=2000)
    # Walsh averages of all pairs, as in Wilcoxon's test
    averages = (each[:, None] + each) / 2
    shares = [
        ((drawn @ chosen.astype(np.float64)) * drawn).sum(axis=1)
        for chosen in (averages > within, abs(averages) <= within, averages < -within)
    ]
    wins = np.bincount(np.argmax(shares, axis=0), minlength=3) / len(drawn)
    return NewSetting(*map(float, wins))


class Typical(NamedTuple):
    """The interquartile mean of runs on several settings (Agarwal et al. 2021)."""

    # The mean of the middle half of all runs
    mean: float
    # Its 95 % interval; None for settings of fewer than BOOTSTRAP seeds
    interval: tuple[float, float] | None


def interquartile_mean(settings: Sequence[Sequence[float]]) -> Typical:
    """Compute the interquartile mean of the runs of all settings, with the interval of a bootstrap
    that draws seeds again within each setting, widened as in `interval`."""
    return _interquartile_mean(tuple(tuple(map(float, each)) for each in settings))


# A report asks for the same several times, and a bootstrap over many settings takes a while
@functools.lru_cache(maxsize=1024)
def _interquartile_mean(settings: tuple[tuple[float, ...], ...]) -> Typical:
    from scipy.stats import trim_mean

    mean = float(trim_mean(np.concatenate([np.asarray(each) for each in settings]), 0.25))
    if min(map(len, settings)) < BOOTSTRAP:
        return Typical(mean, None)
    random = np.random.default_rng([2, len(settings)])
    drawn = [random.choice(np.asarray(each), (2000, len(each))) for each in settings]
    means = trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    fewest = min(map(len, settings))
    tail = _expand_tail(fewest, len(settings) * (fewest - 1))
    low, high = np.quantile(means, [tail, 1 - tail])
    return Typical(mean, (float(low), float(high)))


def performance_profile(scores: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Return f64[T, k]: the share of the settings on which each method is at most `behind` f64[T]
    behind the best one (Dolan and Moré 2002, with differences for ratios). `scores`: f64[N, k]."""
    gaps = scores.max(axis=1, keepdims=True) - scores
    # Rounding makes no gap of a point larger than a point
    return (gaps[None] <= behind[:, None, None] + 1e-12).mean(axis=1)


class Ranks(NamedTuple):
    """The comparison of k methods over N data sets (Demšar 2006)."""

    # Of the methods, from the best to the worst
    names: list[str]
    # The mean rank of each, 1 being the best
    means: list[float]
    data_sets: int
    # Of Friedman's test in the form of Iman and Davenport: whether any of the methods differ
    p: float
    # Its F with (k − 1, (k − 1)(N − 1)) degrees of freedom
    statistic: float
    # Nemenyi's critical difference at LEVEL: methods whose mean ranks are closer do not differ
    # significantly
    distance: float

    @property
    def level_groups(self) -> list[tuple[int, int]]:
        """(first, last) of each longest stretch of methods that lie within the critical difference;
        none where the test finds that no methods differ is one stretch of all."""
        if self.p >= LEVEL:
            return [(0, len(self.means) - 1)]
        found: list[tuple[int, int]] = []
        for first, rank in enumerate(self.means):
            last = max(i for i, other in enumerate(self.means) if other - rank < self.distance)
            if last > first and (not found or last > found[-1][1]):
                found.append((first, last))
        return found


def ranks(names: Sequence[str], scores: np.ndarray) -> Ranks:
    """Rank methods whose scores f64[N, k] are higher for the better; ties share their ranks. It
    needs N, k ≥ 2."""
    from scipy.special import fdtrc
    from scipy.stats import rankdata, studentized_range

    count, k = scores.shape
    placed = rankdata(-scores, axis=1)
    means = placed.mean(axis=0)
    between = count * float(((means - (k + 1) / 2) ** 2).sum())
    # Without ties it is k (k + 1) / 12, with ties less
    within = float(((placed - placed.mean(axis=1, keepdims=True)) ** 2).sum()) / (count * (k - 1))
    square = between / within if within else 0.0
    left = count * (k - 1) - square
    f = math.inf if left <= 1e-9 else (count - 1) * square / left
    p = 0.0 if math.isinf(f) else float(fdtrc(k - 1, (k - 1) * (count - 1), f))
    distance = (
        float(studentized_range.ppf(1 - LEVEL, k, math.inf))
        / math.sqrt(2)
        * math.sqrt(k * (k + 1) / (6 * count))
    )
    order = sorted(range(k), key=lambda i: float(means[i]))
    return Ranks([names[i] for i in order], [float(means[i]) for i in order], count, p, f, distance)
