"""Clustered federated learning by recursive bipartition (Sattler et al. 2020): FedAvg inside each cluster, with all
members taking part. A cluster near a stationary point of its mean loss, whose members' updates are still large, is split in two by
the directions of these updates.

A cluster is split when ‖mean Δ‖ < `eps1` and max ‖Δ_i‖ > `eps2`, after `min_rounds` rounds and with more than `min_size` members,
on the host, between rounds; both parts go on from the model of the whole. With `similarity = "sketch"` the cosines are those of
sketches, and no more updates are held than a block's. Each look at the clusters is a call of the compiled program of its own, which
costs milliseconds; with a larger `split_every` there are fewer. A split beyond `max_clusters` ends the run with an error. Kept with
the results: for each cluster the one that it was `parent` of and the round it was `born` in. A client that arrives late joins the
cluster with the least loss.

Readings:
- Split. Paper: the bipartition whose largest cosine across is smallest (Algorithm 1), which is single linkage. Here: complete
  linkage of 1 − cosine, as in the authors' program: in the settings of `docs/which.toml` both find the true groups, and where
  there are none complete linkage makes fewer clusters (11 for 13). Option: none.
- Guard of a split. Paper: only if γ_max < √((1 − α)/2), α being the largest cosine across and γ_max a number in [0, 1]. Here:
  no guard, as in the program. Option: `gamma_max`.
- When. Paper: at a stationary point. Here: from `min_rounds` on, each round, with the program's numbers. Option: `eps1`,
  `eps2`, `min_rounds`, `min_size`, `split_every`.
- Optimiser. Paper: SGD. In its program each client's momentum of 0.9 lives on between rounds, and eps1 and eps2 are norms of such
  updates. Here: `train.momentum` begins anew in each round. Option: `train.keep_state`.
- Order. Paper: not said; its program splits before it averages, so it decides by updates that are one round newer. Here: it
  averages, then splits. Option: none.
- Mean update. Paper: weighted by samples. Here: by the weights of the aggregation, so it is the step that the cluster's model
  took; the program's is uniform. Option: `average`.

Communication per participant and round: one model down, one update up. A client that comes late gets all models once.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.errors import SpecError
from cfljax.kernels import host
from cfljax.kernels.cosine import cosine_matrix
from cfljax.kernels.mix import members
from cfljax.lazy import jax, jnp
from cfljax.local.averages import averages, with_lengths
from cfljax.local.reports import report_trained
from cfljax.local.rounds import Mixing, jobs_from
from cfljax.local.solver import Solver
from cfljax.methods import fedavg
from cfljax.methods.shared.common import first_model, traffic
from cfljax.methods.shared.config import TrainOptions
from cfljax.methods.shared.host_clusters import HostClusters, join_by_loss, ready_labels, settle, with_joining
from cfljax.methods.shared.similarity import compared_size, similarity, train_and_compare
from cfljax.registry import Entry
from cfljax.registry.options import Value, option
from cfljax.types import Array, Cohort, Federation, Hyper, Info, Method, Model

PAPER = "Sattler et al. 2020"


@dataclasses.dataclass(frozen=True)
class Config(fedavg.Config):
    """Options of Sattler's CFL."""

    eps1: float = option(0.4, "split only below this norm of the mean update", low=0.0, traced=True)
    eps2: float = option(1.6, "and above this largest norm of a member's update", low=0.0, traced=True)
    min_rounds: int = option(20, "rounds before the first split", low=1)
    min_size: int = option(2, "a cluster with this many members or fewer is not split", low=1)
    gamma_max: float = option(
        0.0, "split only if it is below √((1 − largest cosine across) / 2); 0: always", low=0.0, high=1.0, traced=True
    )
    split_every: int = option(1, "rounds between two looks at the clusters", low=1)
    max_clusters: int = option(16, "most clusters there is room for; one more is an error", low=1)
    similarity: str = similarity(again=False)

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Raises SpecError unless every client takes part in each round."""
        clients, wanted = getattr(getattr(data, "parts", None), "clients", None), train.participation
        everyone = isinstance(clients, int) and wanted >= clients if isinstance(wanted, int) else wanted == 1.0
        why = "all members of a cluster take part in each round"
        if not everyone or train.dropout > 0:
            raise SpecError(f"{where}: {why}; give it train.participation = 1.0 and no train.dropout")
        if train.clocked is not None and (train.clocked.deadline_s or train.clocked.trace):
            raise SpecError(f"{where}: {why}; give it a train.clock without deadline_s and trace")

    def per_client(self, clients: int, d: int) -> int:
        """Its update, which is compared with those of all others."""
        return compared_size(d, self.similarity) + clients


class State(NamedTuple):
    """The clusters, what the next look at them needs, and where they came from."""

    found: HostClusters
    similarity: Array
    """f32[C, C] cosines of the updates of the last round."""
    norms: Array
    """f32[C] ‖Δ_i‖ of the last round; −1: took no part."""
    steps: Array
    """f32[K] ‖mean Δ‖ of the last round."""
    parent: Array
    """i32[K]; −1: the first cluster, or not in use."""
    born: Array
    """i32[K] rounds done at the split; −1: not in use."""


def make(config: Config, model: Model, solver: Solver) -> Method:
    """Sattler's CFL: clusters split in two while their members' updates disagree."""

    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> State:
        k, c = config.max_clusters, federation.clients
        first = jnp.arange(k) == 0
        found = HostClusters(jnp.tile(first_model(key, model), (k, 1)), ready_labels(federation), first)
        nobody = jnp.full(k, -1, jnp.int32)
        return State(found, jnp.zeros((c, c)), jnp.full(c, -1.0), jnp.zeros(k), nobody, jnp.where(first, 0, nobody))

    def round(key: Array, state: State, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[State, Info]:
        old = state.found.models
        labels, which = settle(solver, federation, cohort, state.found)
        mix = averages(solver, federation, cohort, which, old.shape[0], config.average, hyper)
        jobs = jobs_from(cohort, old, which)
        trained, moves = train_and_compare(config.similarity, solver, key, federation, jobs, hyper, Mixing(mix, old))
        new = trained.mixed.new
        steps = jnp.linalg.norm(new - old, axis=1)
        norms = _norms(trained.kept.norm, cohort, federation.clients)
        cosines = cosine_matrix(moves, mask=cohort.mask)
        similarity = jnp.zeros_like(state.similarity).at[cohort.ids[:, None], cohort.ids[None, :]].set(cosines)
        member = members(labels, old.shape[0], norms >= 0)
        largest = jnp.where(member, norms, 0.0).max(axis=1)
        diag = {"mean_norm": steps, "largest_norm": largest}
        sent = with_lengths(with_joining(traffic(cohort), cohort, state.found), cohort, config.average)
        info = report_trained(federation, cohort, trained, which, new - old, sent, **diag)
        found = state.found._replace(models=new, labels=labels)
        return state._replace(found=found, similarity=similarity, norms=norms, steps=steps), info

    def regroup(key: Array, state: State, federation: Federation, hyper: Hyper, round: int) -> State:
        eps1, eps2, gamma_max = (float(hyper[name]) for name in ("eps1", "eps2", "gamma_max"))
        return split(state, np.asarray(federation.uid), eps1, eps2, config.min_size, round, gamma_max)

    def score(state: State, federation: Federation, hyper: Hyper) -> Array:
        return join_by_loss(solver, federation, state.found, jnp.ones(federation.clients, bool))

    return Method(
        init,
        round,
        models=lambda state: (state.found.models, state.found.labels),
        regroup=regroup,
        regroup_after=lambda rounds: tuple(range(config.min_rounds, rounds, config.split_every)),
        score=score,
        extras=lambda state: {"parent": state.parent, "born": state.born},
    )


def split(
    state: State,
    uid: np.ndarray,
    eps1: float,
    eps2: float,
    min_size: int,
    round: int,
    gamma_max: float = 0.0,
) -> State:
    """HOST. The state after every cluster that meets the conditions was split once."""
    host_state = jax.tree.map(np.array, state)
    (models, labels, active), norms = host_state.found, host_state.norms
    for k in np.flatnonzero(active):
        members = np.flatnonzero((labels == k) & (norms >= 0))
        members = members[np.argsort(uid[members], kind="stable")]  # so that the order of clients changes nothing
        if len(members) <= min_size or not (host_state.steps[k] < eps1 and norms[members].max() > eps2):
            continue
        apart = 1.0 - host_state.similarity[np.ix_(members, members)].astype(np.float64)
        part = host.agglomerative(apart, clusters=2)
        across = apart[np.ix_(part == 1, part != 1)].min(initial=2.0)
        if gamma_max > 0 and gamma_max >= np.sqrt(max(across, 0.0) / 2):
            continue
        if active.all():
            why = f"cluster {k} splits after round {round}, and there is no room for another; raise it"
            raise SpecError(f"method.cfl_sattler.max_clusters = {len(active)}: {why}")
        new = int(np.argmin(active))
        labels[members[part == 1]] = new
        models[new], active[new] = models[k], True
        host_state.parent[new], host_state.born[new] = k, round
    return host_state


def _norms(each: Array, cohort: Cohort, clients: int) -> Array:
    """f32[C] from f32[S]; a broken update counts as none, 0."""
    each = jnp.where(jnp.isfinite(each), each, 0.0)
    return jnp.full(clients, -1.0).at[jnp.where(cohort.mask, cohort.ids, clients)].set(each, mode="drop")


cfl_sattler = Entry(Config, make)
