"""What docs/theory.md says of the papers' theorems, in small numbers."""

from pathlib import Path

import numpy as np
import pytest

from cfljax.results.result import Result, Results

RECORDS = Path(__file__).parents[2] / "experiments" / "records"


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("w", [0.0, 0.1, 1.0, 3.0])
def test_eq_15_of_ccs_needs_its_negative_term_dropped(rate, w):
    """Two classes with losses (w - 1)^2 / 2 and (w + 1)^2 / 2, balanced: L1 = 1, w* = 0, R(b*) = |w - rate w|."""
    bound_of_gradients = w**2 + 1  # G^2, of the mean over the two classes
    excess = ((1 - rate) * w) ** 2 / 2
    without = w**2 / 2 + rate * np.sqrt(bound_of_gradients) * abs(w - rate * w)
    assert excess <= without
    printed = without - rate**2 * bound_of_gradients / 2
    if w == 0:
        assert printed < 0 == excess


def test_eq_22_of_fedgroup_needs_the_factor_m():
    """The loss M |w| is M-Lipschitz; two groups at 1 with delta = 0. Eq. 20 moves each by eta_g times a unit vector."""
    m, eta_g, w = 5.0, 0.05, 1.0
    moved = w + eta_g * (w / abs(w))
    change = abs(m * moved - m * w)
    assert change > eta_g * (2 - 1) and change == pytest.approx(m * eta_g * (2 - 1))


def floor(m, n, beta, d=10, rounds=400, tail=200):
    """The distance to the optimum at which linear regression stays: m clients of n fresh samples in each round, a step of 1 / L."""
    rng = np.random.default_rng(0)
    w, u, left = np.ones(d), np.zeros(d), []
    for t in range(rounds):
        x = rng.standard_normal((m * n, d))
        u = beta * u + x.T @ (x @ w - rng.standard_normal(m * n)) / (m * n)
        w = w - u
        if t >= rounds - tail:
            left.append(np.linalg.norm(w))
    return np.mean(left)


@pytest.mark.parametrize(("beta", "constant"), [(0.0, 3.2), (0.9, 8.3)])
def test_the_floor_of_cfl_mgd_goes_with_the_root_of_all_samples_and_momentum_raises_it(beta, constant):
    for m, n in ((20, 20), (20, 80), (80, 20)):
        assert floor(m, n, beta) * np.sqrt(m * n) == pytest.approx(constant, rel=0.25)


def test_weights_that_balance_the_classes_are_those_with_the_higher_accuracy():
    for folder in ("rfedavg_fig2", "rfedavg_fig2_1"):
        results, found = Results(RECORDS / folder), {}
        for row in results.rows:
            if row["config"]["data"]["classes_per_client"] == 1:
                run = Result(*results.store.read(row["id"]))
                found[row["label"]] = np.mean(run.diag["ccs_rfedavg/balance_error"]), run.summary["accuracy_last"]
        error = {name: values[0] for name, values in found.items()}
        assert error["optimal"] < error["rfedavg"] < error["fedavg"] / 3
        assert found["rfedavg"][1] > found["fedavg"][1] + 0.05 and abs(found["optimal"][1] - found["rfedavg"][1]) < 0.005
