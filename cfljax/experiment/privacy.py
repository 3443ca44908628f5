"""HOST. The ε that a run with `train.privacy` spends.

Two federations are neighbours that differ in one client. Its update, no longer than the clip C,
moves a sum by 2 · C · its weight at most, so noise of `noise` · C · the largest weight in the sum
is a Gaussian mechanism with multiplier noise / 2. The members of different clusters are different
clients, so a round is one such mechanism, whatever the number of clusters. Who is in which cluster,
and with which weight, counts as known.

Participants are drawn without replacement. Where the sums tell who was drawn (a cluster without
participants does not move; the noise follows the largest weight in the draw), the draw counts as
known: ε is computed for as many Gaussian mechanisms as a client has rounds, and only their number
is left to chance. One sum a round with equal weights hides who is in it: there the smaller ε of a
hidden draw counts, by the accountant of dp-accounting. That takes each round's draw to be all that
is hidden: what a client would send must follow from its data and what is public. Where it depends
on when the client was drawn before (by error feedback, `train.optimizer_state`, a part that stays
with it, the x_i of FedBCD, the h_i of FedDyn), the draw counts as known. So it does with
`train.clock.deadline_s`: who is in time follows from public speeds, and hides among few.

With `train.privacy.choice` a participant's choice of its cluster is ε_c-private (the exponential
mechanism). A client that is drawn x times is in x choices and x rounds of sums, one after another.
Their δ at ε is the smaller one of two bounds:
- basic composition: the δ of the sums alone at ε − x · ε_c;
- concentrated privacy (Bun and Steinke 2016): the exponential mechanism has ρ = ε_c² / 8 (Cesar and
  Rogers 2021), a Gaussian one with distance μ has ρ = μ² / 2, these add up, and δ follows (Canonne,
  Kamath and Steinke 2020).
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cfljax.config import Run
from cfljax.config.rules import has_client_side_parts
from cfljax.config.transit import uses_error_feedback
from cfljax.errors import SpecError
from cfljax.local.privacy import INSTALL_COMMAND
from cfljax.types import Federation

# The most draws that are distinguished if who was drawn is known; of more, neighbours are joined
_MAX_KNOWN_DRAWS = 100
# The same if it is hidden: such a draw takes a fifth of a second to compute
_MAX_HIDDEN_DRAWS = 10
Floats = npt.NDArray[np.float64]


class Crowd(NamedTuple):
    """The clients that participants are drawn from."""

    # The number of clients that train, late ones included
    clients: int
    arrived: tuple[tuple[int, int], ...]
    """(round, clients that have arrived by then): each time that the number changes, in the order
    of rounds."""
    # Whether all have equally many samples, so that weights by samples are equal, too
    alike: bool


class Draw(NamedTuple):
    """A number of rounds, each of which draws the same number of participants from the same number
    of clients."""

    clients: int
    participants: int
    rounds: int


def find_crowd(federation: Federation) -> Crowd:
    """Return the clients that train, and when they arrive."""
    able = np.asarray(federation.trains)
    rounds, new = np.unique(np.maximum(np.asarray(federation.arrive)[able], 0), return_counts=True)
    arrived = tuple(zip(rounds.tolist(), np.cumsum(new).tolist(), strict=True))
    return Crowd(
        int(able.sum()), arrived, len(np.unique(np.asarray(federation.train.count)[able])) <= 1
    )


def list_draws(run: Run, crowd: Crowd, rounds: int) -> tuple[Draw, ...]:
    """Return the draws of the first `rounds` rounds; none for rounds in which no client has arrived
    yet."""
    wanted = run.train.participants(crowd.clients)
    ends = [start for start, _ in crowd.arrived[1:]] + [rounds]
    spans = [
        (clients, min(end, rounds) - start)
        for (start, clients), end in zip(crowd.arrived, ends, strict=False)
    ]
    return tuple(
        Draw(clients, min(wanted, clients), lasts) for clients, lasts in spans if lasts > 0
    )


def epsilon(run: Run, crowd: Crowd) -> float:
    """Return ε for the run's δ; infinity if it adds no noise."""
    privacy = run.train.transit.privacy
    if privacy is None:
        return math.inf
    total = run.train.rounds
    drawn, everybody = run.options.releases(total)
    # All rounds may share their sums evenly, or the last ones have them all
    sums = max(-(-drawn // total), run.options.releases(total + 1)[0] - drawn)
    choice = 0.0 if run.train.transit.choice is None else run.train.transit.choice.epsilon
    lasts = -(-drawn // sums) if sums else 0
    # Of the rounds in which somebody is there, the first hide least
    begin = next((start for start, _ in crowd.arrived), 0)
    rounds = list_draws(run, crowd, total if choice else min(begin + lasts, total))
    return compute_epsilon(
        privacy.noise, privacy.delta, rounds, sums, everybody, hides_draw(run, crowd.alike), choice
    )


def epsilon_of_choices(run: Run, crowd: Crowd) -> float | None:
    """Return ε for the run's δ of the choices of clusters alone, as if nothing else became public;
    None: they are not private."""
    privacy = run.train.transit.privacy
    choice = run.train.transit.choice
    if privacy is None or choice is None:
        return None
    draws = list_draws(run, crowd, run.train.rounds)
    if not draws:
        return 0.0
    few = _join_draws(draws, _MAX_KNOWN_DRAWS)
    return _compute_known(math.inf, privacy.delta, few, 0, 0, choice.epsilon)


def hides_draw(run: Run, alike: bool) -> bool:
    """Return whether what becomes public does not tell who was drawn: one sum, with equal weights,
    of updates that do not depend on earlier draws. With a deadline, the clients that send are few,
    and fixed by public speeds, so the draw counts as known."""
    if run.train.clock is not None and run.train.clock.deadline_s:
        return False
    average = getattr(run.options, "average", "uniform")
    kept = (
        run.train.keeps_state
        or uses_error_feedback(run.options, run.train.transit)
        or has_client_side_parts(run.options, run.train)
    )
    return (
        run.options.publishes_one_sum_per_round
        and not kept
        and (average == "uniform" or alike and average == "samples")
    )


@functools.lru_cache(maxsize=256)
def compute_epsilon(
    noise: float,
    delta: float,
    draws: tuple[Draw, ...],
    sums: int = 1,
    everybody: int = 0,
    hidden: bool = False,
    choice: float = 0.0,
) -> float:
    """Return the ε of noised sums.

    Args:
        noise: the deviation of the noise over clip · the largest weight.
        delta: the δ that ε is computed for.
        draws: the rounds, and whom they draw from.
        sums: how many sums over its participants a round releases.
        everybody: how many sums over all clients the run releases.
        hidden: the sums do not tell who was drawn.
        choice: the ε of a participant's choice of its cluster, one a round; 0: there are none."""
    if not everybody and not (draws and (sums or choice)):
        return 0.0
    if noise == 0 and (sums or everybody):
        return math.inf
    known = _compute_known(
        noise, delta, _join_draws(draws, _MAX_KNOWN_DRAWS), sums, everybody, choice
    )
    if not hidden or choice or all(draw.participants >= draw.clients for draw in draws):
        return known
    return min(
        known, _compute_hidden(noise, delta, _join_draws(draws, _MAX_HIDDEN_DRAWS), sums, everybody)
    )


def _join_draws(draws: tuple[Draw, ...], most: int) -> tuple[Draw, ...]:
    """Join neighbouring draws to at most `most`, none of which hides more: each is from the
    smallest of their crowds."""
    size = -(-len(draws) // most)
    parts = [draws[at : at + size] for at in range(0, len(draws), max(size, 1))]
    return tuple(part[0]._replace(rounds=sum(draw.rounds for draw in part)) for part in parts)


def _compute_known(
    noise: float,
    delta: float,
    draws: tuple[Draw, ...],
    sums: int,
    everybody: int,
    choice: float = 0.0,
) -> float:
    """Return ε if the draw becomes public with the sums. A client that is in x of them has been in
    a Gaussian mechanism with multiplier noise / 2 / √x, and has made a choice in each of its
    rounds; the δ of the run is the mean over its draws."""
    from scipy.stats import binom

    always = sum(draw.rounds for draw in draws if draw.participants >= draw.clients)
    chance = [draw for draw in draws if draw.participants < draw.clients]
    odds = np.ones(1)
    left_out = 0.0
    least = delta * 1e-6 / max(len(chance), 1)
    # odds[i]: the probability that a client has been in `always` + i rounds. What a binomial
    # distribution has beyond its tails of `least` is left out, and counts as failure in full.
    for clients, participants, rounds in chance:
        share = participants / clients
        low = int(binom.ppf(least, rounds, share))
        high = int(binom.isf(least, rounds, share))
        left_out += float(binom.cdf(low - 1, rounds, share) + binom.sf(high, rounds, share))
        odds = np.convolve(odds, binom.pmf(np.arange(low, high + 1), rounds, share))
        always += low
    taken = always + np.arange(len(odds), dtype=np.float64)
    apart = 2 * np.sqrt(sums * taken + everybody) / (noise or math.inf)

    def delta_of(epsilon: float) -> float:
        beyond = _delta_of_gaussian(apart, epsilon - choice * taken)
        if choice:
            beyond = np.minimum(
                beyond, _delta_of_concentrated(apart**2 / 2 + taken * choice**2 / 8, epsilon)
            )
        return left_out + float(odds @ beyond)

    if delta_of(0.0) <= delta:
        return 0.0
    # δ falls with ε: the upper end of the bisection is on the safe side
    low_end = 0.0
    high_end = 1.0
    while delta_of(high_end) > delta:
        low_end = high_end
        high_end *= 2
    for _ in range(60):
        middle = (low_end + high_end) / 2
        if delta_of(middle) > delta:
            low_end = middle
        else:
            high_end = middle
    return high_end


def _delta_of_gaussian(apart: Floats, epsilon: Floats | float) -> Floats:
    """f64[n]: δ at ε f64[n] of Gaussian mechanisms whose means are `apart` f64[n] standard
    deviations from each other (Balle and Wang 2018, theorem 8); where these are 0, of a mechanism
    that tells nothing."""
    from scipy.special import log_ndtr, ndtr

    some = np.where(apart > 0, apart, 1.0)
    beyond = ndtr(some / 2 - epsilon / some) - np.exp(
        epsilon + log_ndtr(-some / 2 - epsilon / some)
    )
    return np.maximum(np.where(apart > 0, beyond, -np.expm1(np.minimum(epsilon, 0.0))), 0.0)


def _delta_of_concentrated(rho: Floats, epsilon: float) -> Floats:
    """f64[n]: a bound on δ at ε of mechanisms that are ρ-concentrated f64[n]: the least one over
    the orders of Rényi privacy."""
    order = 1 + np.geomspace(1e-3, 1e6, 400)
    exponent = (
        (order - 1) * (order * rho[:, None] - epsilon)
        + order * np.log1p(-1 / order)
        - np.log(order - 1)
    )
    return np.exp(np.minimum(exponent.min(axis=1), 0.0))


def _compute_hidden(
    noise: float, delta: float, draws: tuple[Draw, ...], sums: int, everybody: int
) -> float:
    """Return ε of sampling without replacement, if nothing tells who was drawn."""
    try:
        import dp_accounting as dp
        from dp_accounting import rdp
    except ImportError:
        raise SpecError(
            f"train.privacy.noise = {noise}: the ε it gives is computed by dp-accounting: "
            f"{INSTALL_COMMAND}"
        ) from None
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    # The sums of a round are over the same draw: together they are one mechanism with less noise
    once = dp.GaussianDpEvent(noise / 2 / math.sqrt(max(sums, 1)))
    for clients, participants, rounds in draws:
        drawn = (
            dp.SampledWithoutReplacementDpEvent(clients, participants, once)
            if participants < clients
            else once
        )
        accountant.compose(drawn, rounds)
    if everybody:
        accountant.compose(dp.GaussianDpEvent(noise / 2), everybody)
    return float(accountant.get_epsilon(delta))
