"""The report on a round: means over its participants, and how far their updates are from their
clusters' moves."""

from __future__ import annotations

from cfljax.kernels.cosine import sketch
from cfljax.kernels.mix import Mixed, usable
from cfljax.lazy import jax, jnp
from cfljax.local.flight import known_flight
from cfljax.local.rounds import Kept, Trained, sizes
from cfljax.types import Array, ClientState, Cohort, Federation, Info, Traffic, Updates


def report(
    federation: Federation,
    cohort: Cohort,
    updates: Updates,
    start: Array,
    end: Array,
    mixed: Mixed,
    traffic: Traffic,
    **diag: Array,
) -> Info:
    """Report on a round. `start`, `end` f32[S, d]: each participant's model before the round and
    after aggregation."""
    delta, norm = updates.delta, jnp.linalg.norm(updates.delta, axis=1)
    kept = Kept(
        updates.loss, usable(delta), norm, delta, updates.home, updates.residual, updates.optimiser
    )
    return _make_info(
        federation,
        cohort,
        kept,
        jnp.linalg.norm(start + delta - end, axis=1),
        mixed.nonfinite,
        traffic,
        diag,
    )


def report_trained(
    federation: Federation,
    cohort: Cohort,
    trained: Trained,
    which: Array,
    moved: Array,
    traffic: Traffic,
    **diag: Array,
) -> Info:
    """Report as `report` does, from the result of `train_and_mix`, on the updates that were mixed.
    `which` i32[S]: the cluster of each participant. `moved` f32[K, d]: the clusters' models at the
    end of the round minus those at its start."""
    kept, size = trained.kept, trained.kept.moves.shape[1]
    which = which if trained.flight is None else trained.flight.which
    distance = _distances(trained, which, moved if size == moved.shape[1] else sketch(moved, size))
    info = _make_info(federation, cohort, kept, distance, trained.mixed.nonfinite, traffic, diag)
    return (
        info
        if trained.flight is None
        else info._replace(kept=info.kept._replace(flight=trained.flight))
    )


def _make_info(
    federation: Federation,
    cohort: Cohort,
    kept: Kept,
    distance: Array,
    nonfinite: Array,
    traffic: Traffic,
    diag: dict[str, Array],
) -> Info:
    """Report on a round. `distance` f32[S]: of each trained model from its cluster's model after
    the round."""
    into, there = jnp.where(cohort.mask, cohort.ids, federation.clients), cohort.mask
    new = {"residual": kept.residual, "optimiser": kept.optimiser}
    rows = {
        name: getattr(cohort.kept, name).at[into].set(each, mode="drop")
        for name, each in new.items()
        if each is not None
    }
    if (flight := known_flight(cohort.kept)) is not None and flight.arrives is not None:
        # Means are over the updates that arrive
        there, cohort = (
            there | flight.busy,
            cohort._replace(mask=flight.arrives),
        )
    lost = jnp.any(there) & ~jnp.any(there & kept.finite)
    counted = cohort.mask & kept.finite
    discrepancy, drift = mean_over(cohort, counted, distance), mean_over(cohort, counted, kept.norm)
    loss = mean_loss(federation, cohort, kept.loss)
    return Info(traffic, loss, discrepancy, drift, nonfinite, lost, diag, ClientState(**rows))


def mean_over(cohort: Cohort, who: Array, each: Array) -> Array:
    """Average the values f32[S] of the participants in `who` bool[S], f32[]; 0 without any; NaN if
    nobody takes part."""
    mean = jnp.sum(jnp.where(who, each, 0.0)) / jnp.maximum(jnp.sum(who), 1)
    return jnp.where(jnp.any(cohort.mask), mean, jnp.nan)


def mean_loss(federation: Federation, cohort: Cohort, loss: Array) -> Array:
    """Average the participants' losses f32[S], weighted by their samples, f32[]; NaN in a round
    without participants."""
    weight = jnp.where(cohort.mask, sizes(federation, cohort), 0.0)
    total = jnp.sum(jnp.where(weight > 0, weight * loss, 0.0))
    return jnp.where(jnp.any(cohort.mask), total / jnp.maximum(jnp.sum(weight), 1.0), jnp.nan)


def _distances(trained: Trained, which: Array, moved: Array) -> Array:
    """Compute how far each participant's update (or sketch) is from its cluster's move, f32[S]; the
    moves are `moved` f32[K, d]."""
    dealt = trained.dealt
    if len(moved) == 1 and (dealt is None or dealt.number is None):
        found = jnp.linalg.norm(trained.kept.moves - moved, axis=1)
        return found if dealt is None else dealt.collect(found)
    cluster = which if dealt is None else which[dealt.jobs]
    pairs = (trained.kept.moves, cluster)
    distance = lambda pair: jnp.linalg.norm(pair[0] - moved[pair[1]])  # noqa: E731
    # one after another on a CPU: gathering the rows of `moved` would take as much memory as all
    # updates
    if not trained.plan.sequential:
        found = jax.vmap(distance)(pairs)
    elif dealt is None or dealt.number is None:
        found = jax.lax.map(distance, pairs)
    else:
        # Only the participants of this device
        one = lambda i, out: out.at[i].set(distance((pairs[0][i], cluster[i])))  # noqa: E731
        found = jax.lax.fori_loop(0, dealt.number, one, jnp.zeros(cluster.shape))
    return found if dealt is None else dealt.collect(found)
