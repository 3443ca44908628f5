"""How often the intervals of tables contain the mean that they are for: python docs/coverage.py"""

import numpy as np

from cfljax.results.statistics import _resamples, interval

REPETITIONS = 2000


def main() -> None:
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


if __name__ == "__main__":
    main()
