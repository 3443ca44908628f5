"""HOST. The ε that a run with `train.privacy` spends, by the accountant of dp-accounting.

Two federations are neighbours that differ in one client. Its update, no longer than the clip C, moves a sum by 2 · C · its weight
at most, so noise of `noise` · C · the largest weight in the sum is a Gaussian mechanism with multiplier noise / 2. The members of
different clusters are different clients, so a round is one such mechanism, whatever the number of clusters; participants are
drawn without replacement. Who is in which cluster, and with which weight, counts as known.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from cfljax.config import Run
from cfljax.config.touches import INSTALL
from cfljax.errors import SpecError
from cfljax.types import Federation


def present(federation: Federation) -> int:
    """How many clients with data are there from the start: of fewer ones a draw hides less."""
    real = (np.asarray(federation.uid) >= 0) & (np.asarray(federation.train.count) > 0)
    return int(np.sum(real & (np.asarray(federation.arrive) <= 0)))


def epsilon(run: Run, clients: int) -> float:
    """ε for the run's δ with so many clients `present`; infinity where it adds no noise."""
    privacy = run.train.touches.privacy
    if privacy is None:
        return math.inf
    drawn, everybody = releases(run)
    return spent(privacy.noise, privacy.delta, clients, min(run.train.participants(clients), clients), drawn, everybody)


def releases(run: Run) -> tuple[int, int]:
    """How many noised sums over a round's draw, and over clients that were not drawn at random, the run makes public. A method's
    options say it (`releases(rounds)`) where that is not one each round."""
    says = getattr(run.options, "releases", None)
    return says(run.train.rounds) if says else (run.train.rounds, 0)


@functools.lru_cache(maxsize=256)
def spent(noise: float, delta: float, clients: int, participants: int, drawn: int, everybody: int) -> float:
    """ε of so many sums over `participants` of the clients, drawn at random, and over everybody."""
    if drawn + everybody == 0:
        return 0.0
    if noise == 0:
        return math.inf
    try:
        import dp_accounting as dp
        from dp_accounting import rdp
    except ImportError:
        raise SpecError(f"train.privacy.noise = {noise}: the ε it gives is computed by dp-accounting: {INSTALL}") from None
    once = dp.GaussianDpEvent(noise / 2)
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    if participants >= clients:
        drawn, everybody = 0, drawn + everybody
    if drawn:
        accountant.compose(dp.SampledWithoutReplacementDpEvent(clients, participants, once), drawn)
    if everybody:
        accountant.compose(once, everybody)
    sampled = float(accountant.get_epsilon(delta))
    if not drawn:
        return sampled
    plain = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)  # no draw is credited: also an upper bound
    return min(sampled, float(plain.compose(once, drawn + everybody).get_epsilon(delta)))
