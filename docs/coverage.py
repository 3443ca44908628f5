"""How often the statistics of tables are right: intervals that contain what they are for, and
methods that are called better though they are not: python docs/coverage.py"""

import numpy as np
from scipy.stats import trim_mean

from cfljax.results.statistics import (
    LEVEL,
    _resamples,
    difference,
    expect_on_new_setting,
    holm,
    holm_levels,
    interquartile_mean,
    interval,
    paired_t,
)

REPETITIONS = 2000
# Of what takes longer
FEWER = 500


def main() -> None:
    """Print all shares."""
    print_means()
    print_differences()
    print_settings()


def print_means() -> None:
    """Print the share of intervals that contain the mean, of normal and of skewed numbers."""
    print("seeds  numbers      interval  plain percentiles")
    for n in (3, 4, 5, 6, 8, 10, 20):
        for name, mean in (("normal", 0.0), ("exponential", 1.0)):
            rng, hits = np.random.default_rng(1), np.zeros(2)
            for _ in range(REPETITIONS):
                numbers = rng.standard_normal(n) if name == "normal" else rng.exponential(size=n)
                plain = np.quantile(_resamples(n) @ numbers, [0.025, 0.975])
                hits += [
                    low <= mean <= high for low, high in (interval(list(numbers)) or (0, 0), plain)
                ]
            print(f"{n:5}  {name:11}  {hits[0] / REPETITIONS:8.3f}  {hits[1] / REPETITIONS:17.3f}")


def print_differences() -> None:
    """Print for 16 methods that are as good as the best one: the share of comparisons in which the
    intervals of all contain 0, and in which no p is below LEVEL, with and without correction."""
    print("\nseeds  numbers      all intervals hold  no p by Holm below  no raw p below")
    for n in (5, 10):
        for name in ("normal", "exponential"):
            rng, hits = np.random.default_rng(2), np.zeros(3)
            for _ in range(FEWER):
                draw = rng.standard_normal if name == "normal" else rng.standard_exponential
                best, others = draw(n), draw((16, n))
                raw = [paired_t(other, best) for other in others]
                found = [
                    difference(other, best, level)
                    for other, level in zip(others, holm_levels(raw), strict=True)
                ]
                hits += [
                    all(each.low <= 0 <= each.high for each in found),
                    min(holm(raw)) >= LEVEL,
                    min(raw) >= LEVEL,
                ]
            shares = hits / FEWER
            print(f"{n:5}  {name:11}  {shares[0]:18.3f}  {shares[1]:18.3f}  {shares[2]:14.3f}")


def print_settings() -> None:
    """Print over N settings: the share of intervals that contain the interquartile mean, and of
    pairs in which a method is called better on a new setting: if both are equal in the middle of
    all settings, with differences of five points, and if one is two points better."""
    print("\nsettings  interquartile mean  called better: equal  two points better")
    for n in (5, 8, 16):
        rng, hits = np.random.default_rng(3), np.zeros(3)
        levels = np.linspace(0.3, 0.9, n)
        truth = trim_mean(np.concatenate([rng.normal(each, 0.02, 20_000) for each in levels]), 0.25)
        for _ in range(FEWER):
            typical = interquartile_mean([rng.normal(each, 0.02, 5) for each in levels])
            equal = expect_on_new_setting(rng.normal(0, 0.05, n))
            apart = expect_on_new_setting(rng.normal(0.02, 0.01, n))
            hits += [
                typical.interval[0] <= truth <= typical.interval[1],
                max(equal.better, equal.worse) >= 1 - LEVEL,
                apart.better >= 1 - LEVEL,
            ]
        shares = hits / FEWER
        print(f"{n:8}  {shares[0]:18.3f}  {shares[1]:20.3f}  {shares[2]:17.3f}")


if __name__ == "__main__":
    main()
