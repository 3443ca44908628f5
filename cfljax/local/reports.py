"""The report on a round: means over its participants, and how far their updates are from their
clusters' moves."""

from __future__ import annotations

from cfljax.kernels.cosine import sketch
from cfljax.kernels.mix import Aggregate, usable
from cfljax.lazy import jax, jnp
from cfljax.local.flight import find_flight
from cfljax.local.rounds import PerUpdate, Trained, sizes
from cfljax.types import Array, ClientState, Cohort, Federation, Info, Traffic, Updates


def report(
    federation: Federation,
    cohort: Cohort,
    updates: Updates,
    start: Array,
    end: Array,
    mixed: Aggregate,
    traffic: Traffic,
    **diag: Array,
) -> Info:
    """Report on a round whose updates are held at once, for the columns of the history.

    Args:
        federation: The clients' data.
        cohort: The participants.
        updates: Their updates, as `Solver.fit` returns them. If participants train more than once,
            `updates.steps` are the sum over all trainings.
        start: f32[S, d] each participant's model before the round.
        end: f32[S, d] its model after aggregation.
        mixed: The models after aggregation, for the number of updates that were left out.
        traffic: What was sent.
        diag: Further numbers of the method, by name.

    Example:
        ```python
        start, end = state.models[which], mixed.new[which]
        info = report(federation, cohort, updates, start, end, mixed, traffic(cohort))
        ```
    """
    delta = updates.delta
    norm = jnp.linalg.norm(updates.delta, axis=1)
    kept = PerUpdate(updates.loss, usable(delta), norm, delta, updates.home, updates.rows)
    return _make_info(
        federation,
        cohort,
        kept,
        updates.steps,
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

    Args:
        federation: The clients' data.
        cohort: The participants.
        trained: What `train_and_mix` has returned. If participants train more than once,
            `trained.steps` are the sum over all trainings.
        which: i32[S] the cluster of each participant.
        moved: f32[K, d] the clusters' models at the end of the round minus those at its start.
        traffic: What was sent.
        diag: Further numbers of the method, by name.
    """
    kept = trained.kept
    size = trained.kept.moves.shape[1]
    which = which if trained.flight is None else trained.flight.which
    # Updates that are kept as sketches are compared with sketches of the clusters' moves
    distance = _distances(trained, which, moved if size == moved.shape[1] else sketch(moved, size))
    nonfinite = trained.mixed.nonfinite
    info = _make_info(federation, cohort, kept, trained.steps, distance, nonfinite, traffic, diag)
    if trained.flight is None:
        return info
    return info._replace(kept=info.kept._replace(flight=trained.flight))


def _make_info(
    federation: Federation,
    cohort: Cohort,
    kept: PerUpdate,
    steps: Array,
    distance: Array,
    nonfinite: Array,
    traffic: Traffic,
    diag: dict[str, Array],
) -> Info:
    """Report on a round. `steps` i32[S]: the local steps of the participants. `distance` f32[S]: of
    each trained model from its cluster's model after the round."""
    present = cohort.mask
    rows = {name: cohort.write(cohort.kept.rows[name], new) for name, new in kept.rows.items()}
    by_client = None
    if cohort.kept.devices is not None:
        # A client of several jobs does the steps of all of them. Padding has an index past the last
        # client, which `mode="drop"` leaves out
        into = jnp.where(cohort.mask, cohort.ids, federation.clients)
        by_client = jnp.zeros(federation.clients).at[into].add(steps, mode="drop")
    if (flight := find_flight(cohort.kept)) is not None and flight.arrives is not None:
        # Means are over the updates that arrive
        present = present | flight.busy
        cohort = cohort._replace(mask=flight.arrives)
    lost = jnp.any(present) & ~jnp.any(present & kept.finite)
    counted = cohort.mask & kept.finite
    discrepancy = mean_over(cohort, counted, distance)
    drift = mean_over(cohort, counted, kept.norm)
    loss = mean_loss(federation, cohort, kept.loss)
    rows_after = ClientState(rows=rows)
    return Info(traffic, loss, discrepancy, drift, nonfinite, lost, diag, rows_after, by_client)


def mean_over(cohort: Cohort, who: Array, each: Array) -> Array:
    """Average the values of some participants, f32[]; 0 without any of them; NaN if nobody takes
    part.

    Args:
        cohort: The participants.
        who: bool[S] whose values are averaged.
        each: f32[S] the values.
    """
    mean = jnp.sum(jnp.where(who, each, 0.0)) / jnp.maximum(jnp.sum(who), 1)
    return jnp.where(jnp.any(cohort.mask), mean, jnp.nan)


def mean_loss(federation: Federation, cohort: Cohort, loss: Array) -> Array:
    """Average the participants' losses, weighted by their numbers of samples, f32[]; NaN in a round
    without participants.

    Args:
        federation: The clients' data.
        cohort: The participants.
        loss: f32[S] their losses.
    """
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
    updates = trained.kept.moves

    def distance(pair: tuple[Array, Array]) -> Array:
        update, index = pair
        return jnp.linalg.norm(update - moved[index])

    # One after another on a CPU: gathering the rows of `moved` would take as much memory as all
    # updates
    if not trained.plan.sequential:
        found = jax.vmap(distance)((updates, cluster))
    elif dealt is None or dealt.number is None:
        found = jax.lax.map(distance, (updates, cluster))
    else:
        # Only the participants of this device, which are the first `dealt.number` rows
        def write(i: Array, out: Array) -> Array:
            return out.at[i].set(distance((updates[i], cluster[i])))

        found = jax.lax.fori_loop(0, dealt.number, write, jnp.zeros(cluster.shape))
    return found if dealt is None else dealt.collect(found)
