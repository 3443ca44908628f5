"""FedCCFA (Chen et al. 2024): a global body, and a head for each client. The rows for a class are
averaged among clients that seem to have the same concept of this class. Clients pull the features
of their samples to the prototypes of these clusters.

A participant gets the body and its head. On a batch with equally many samples of each of its
classes it trains a balanced head, always from the first one. Then it trains its own head for some
epochs (the first time from the balanced one), and the body with that head by ℓ + λ · ℓ_c. Here ℓ_c
is the cross-entropy of softmax(cos(z, c_k) / tau) over the prototypes c_k that it knows, z being
the features of a sample, and λ the entropy of its labels over `gamma`. It sends body, both heads
and the mean features of each of its classes.

The server averages the bodies. For each class it computes the MADC of the cosines between the
balanced heads' rows, the mean |cos_iz − cos_jz| over third participants z. DBSCAN, here without
noise, joins those whose distance is at most `eps`, directly or in a chain. A cluster's rows of the
own heads are averaged, and so are its mean features, to its prototype.

A newcomer, or a client that has not been drawn yet, is scored with the mean by samples of the
models of all that have trained.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from cfljax import keys
from cfljax.kernels.cosine import cosine_matrix, madc
from cfljax.kernels.mix import PLAIN, sum_by, weights_by
from cfljax.kernels.unite import unite
from cfljax.lazy import jax, jnp
from cfljax.local.backends import make_rule
from cfljax.local.train import Gradient, Position, Samples, make_stepper, start_at
from cfljax.methods.fedproto import head_rows, sum_features
from cfljax.models.features import with_features
from cfljax.models.flat import cross_entropy, mask_head
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    Exchanged,
    GradientAt,
    OwnModels,
    OwnSteps,
    Peers,
    StepRule,
    jobs_from,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model

ABOUT = About(
    title="FedCCFA",
    family="personal",
    authors="Chen et al.",
    year=2024,
    paper="Classifier clustering and feature alignment for federated learning under distributed "
    "concept drift",
    venue="NeurIPS",
    link="https://arxiv.org/abs/2410.18478",
    models="1 and prototypes down, 1, a head and prototypes up",
    communication="one model and the known prototypes down; one update, the balanced head and "
    "the mean features of its classes up. `train.compress` with top-k takes the "
    "largest moves of body and head together; as heads move further, a small "
    "`keep` never sends the body",
)
READINGS = (
    Reading(
        "Balanced batch",
        paper="its program has as many samples as the rarest class has, at most five",
        option="balanced_samples",
    ),
    Reading(
        "First balanced head",
        paper="its program takes the head that the server drew and never averages",
    ),
    Reading(
        "First own head",
        paper="in its program the balanced head that the client has just trained",
    ),
    Reading(
        "Learning rates",
        paper="0.01 for the body, 0.1 for both heads, with a momentum of 0.9",
        here="`train.lr` for the body, and ten times as much for the heads, with the run's "
        "optimiser",
        option="head_lr",
    ),
    Reading(
        "Beginning of alignment",
        paper="its program after 20 rounds",
        option="align_after",
    ),
    Reading(
        "Weights inside a cluster",
        paper="uniform",
    ),
    Reading(
        "Weights of the bodies",
        paper="by samples",
    ),
    Reading(
        "Prototypes of a round's first participant",
        paper="mean features of its samples; its program adds in place, and so makes them the "
        "sums over all participants, which then count in the means of its clusters",
        here="as in the paper",
    ),
    Reading(
        "Class that a participant lacks",
        paper="all have some samples of each class",
        here="it is in no cluster of this class, and keeps its row of the head and its prototype",
    ),
    Reading(
        "Fewer than three participants with a class",
        paper="open",
        here="they are in one cluster",
    ),
    Reading(
        "Scored model",
        paper="in its program the clustered head, and the body of the last round in which the "
        "client took part",
    ),
)


@dataclasses.dataclass(frozen=True)
class FedCCFA(Peers):
    """FedCCFA: a global body, and for each client a head whose rows are means over clients with the
    same concept of a class.

    A participant keeps its model f32[d] and gets the averaged body. It trains a balanced head
    (`balanced_steps` steps on at most `balanced_samples` samples of each class), then its own head
    for `head_epochs` epochs, both at the rate `head_lr`, and the body by ℓ + λ ℓ_c, where `gamma`
    and `tau` shape λ and ℓ_c and `align_after` is the number of rounds without ℓ_c. The server
    compares the balanced heads class by class: those at most `eps` apart form a cluster, and get
    the mean of their own heads' rows, f32[M, width + 1], and of their prototypes, f32[M, width].
    """

    own_steps, vectors_kept = True, 2
    counts_labels = "has clusters for each label, and here samples have several"

    eps: float = option(
        0.1, "distance up to which clients are in one cluster", low=0.0, traced=True
    )
    gamma: float = option(
        20.0,
        "the entropy of labels over this number is the weight of the alignment",
        above=0.0,
        traced=True,
    )
    tau: float = option(0.1, "temperature of the alignment", above=0.0, traced=True)
    align_after: int = option(20, "rounds before features are aligned", low=0)
    head_lr: float | None = option(
        None, "learning rate of the heads (10 · `train.lr`)", low=0.0, traced=True
    )
    head_epochs: int = option(1, "epochs of the own head, before the body's", low=1)
    balanced_steps: int = option(5, "steps of the balanced head", low=1)
    balanced_samples: int = option(5, "most samples of each class in the balanced batch", low=1)

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """f32[C, M (width + 1) + 1]: no prototypes, each with 0 in its end where a known one has 1;
        the client's last round."""
        return jnp.zeros((federation.clients, head_rows(model, federation.classes).size + 1))

    def receive(self, ask: Ask, state: OwnModels, begin: Array) -> tuple[Array, Array]:
        """Take the body of the last round, and train both heads. At home: the model with its own
        head, the prototypes, λ, the balanced head."""
        assert state.shared is not None
        solver, model, cohort, rounds = (
            ask.solver,
            ask.solver.model,
            ask.cohort,
            state.shared[:, -1],
        )
        begin = jnp.where(mask_head(model), begin, state.own[jnp.argmax(rounds)])
        each = keys.fold_each(ask.key, "balanced", ask.federation.uid[cohort.ids])
        luck = jax.vmap(lambda key: keys.uniform(key, ask.federation.train.longest))(each)
        jobs = jobs_from(cohort, begin, jnp.arange(len(begin), dtype=jnp.int32), weights=luck)
        of_head = solver.with_step(head_step)
        rule = make_rule(of_head, of_head.step_of(ask.hyper))
        move, rows = make_stepper(rule, LocalStep.of(ask.hyper), ()), head_rows(model)
        first = start_at(rule, state.first[rows], None)
        count, balanced = solver.of_samples(
            functools.partial(self.balance, model, move, first), ask.federation, jobs
        )
        entropy = jax.scipy.special.entr(
            count / jnp.maximum(count.sum(axis=1, keepdims=True), 1)
        ).sum(axis=1, keepdims=True)
        pull = jnp.where(rounds.max() < self.align_after, 0.0, entropy / ask.hyper["gamma"])
        # who has no own head yet begins at the balanced one
        with_balanced = begin.at[:, rows.ravel()].set(balanced)
        start = jnp.where(state.drawn[cohort.ids][:, None], begin, with_balanced)
        home = jnp.concatenate([start, state.shared[cohort.ids, :-1], pull, balanced], axis=1)
        of_head = of_head.with_work(solver.work._replace(epochs=self.head_epochs, steps=None))
        of_head = of_head.with_own_steps(
            lambda hyper, rule: self.steps(model, hyper, rule, head=True)
        )
        key, jobs = keys.fold(ask.key, "head"), jobs._replace(start=start, weights=None, home=home)
        moved = of_head.train(key, ask.federation, jobs, ask.hyper).delta
        return begin, home.at[:, : model.size].add(moved)

    def balance(
        self, model: Model, move: Callable[..., Position], at: Position, batch: Samples, w: Array
    ) -> tuple[Array, Array]:
        """Return how many samples of each class a client has, and its balanced head. Samples have
        random numbers as weights."""
        assert batch.weight is not None
        (both, width), of_class = (
            with_features(model),
            jax.nn.one_hot(batch.y, len(at.params)) * batch.mask[:, None],
        )
        count, order = (
            of_class.sum(axis=0),
            jnp.argsort(jnp.where(batch.mask, batch.weight, jnp.inf)),
        )
        most = jnp.minimum(jnp.where(count > 0, count, jnp.inf).min(), self.balanced_samples)
        chosen = jnp.sum(of_class[order] * (jnp.cumsum(of_class[order], axis=0) <= most), axis=1)
        first = jnp.argsort(-chosen)[: count.size * self.balanced_samples]
        z, y = both(model.unravel(w), batch.x[order[first]])[:, :width], batch.y[order[first]]
        share = chosen[first] / jnp.maximum(chosen.sum(), 1.0)

        def step(_: int, at: Position) -> Position:
            loss = lambda head: share @ model.loss(z @ head[:, :-1].T + head[:, -1], y)  # noqa: E731
            value, grads = jax.value_and_grad(loss)(at.params)
            return move(at, Gradient(value, jnp.float32(1), grads))

        return count, jax.lax.fori_loop(0, self.balanced_steps, step, at).params.ravel()

    def steps(self, model: Model, hyper: Hyper, rule: StepRule, head: bool = False) -> OwnSteps:
        """On the body, or on the head, which the alignment does not depend on."""
        move, (both, width), rows = (
            make_stepper(rule, LocalStep.of(hyper), ()),
            with_features(model),
            head_rows(model),
        )
        trains = jax.tree.map(
            lambda leaf: leaf > 0, model.unravel(jnp.where(mask_head(model) == head, 1.0, 0.0))
        )

        def unit(z: Array) -> Array:
            return z * jax.lax.rsqrt(jnp.maximum(jnp.sum(z * z, axis=1, keepdims=True), 1e-16))

        def step(
            gradient: GradientAt, at: tuple[Position, Array]
        ) -> tuple[tuple[Position, Array], Array]:
            protos, pull = (
                at[1][model.size :][: rows.size].reshape(rows.shape),
                at[1][model.size + rows.size],
            )

            def loss(made: Array, y: Array) -> Array:
                cosines = jnp.where(
                    protos[:, -1] > 0, unit(made[:, :width]) @ unit(protos[:, :-1]).T, -1e9
                )
                far = jnp.where(protos[y, -1] > 0, cross_entropy(cosines / hyper["tau"], y), 0.0)
                return model.loss(made[:, width:], y) + pull * far

            found = gradient(at[0].params, of=model._replace(forward=both, loss=loss))
            return (move(at[0], found, trains), at[1]), found.loss

        begin = lambda _, home: (start_at(rule, model.unravel(home[: model.size]), None), home)  # noqa: E731
        return OwnSteps(begin, step, lambda at: (at[0].params, at[1]))

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> Exchanged:
        """Average bodies, and in the clusters of each class rows of the heads and prototypes."""
        assert before.shared is not None and home is not None
        model, ids, rows = ask.solver.model, ask.cohort.ids, head_rows(ask.solver.model)
        own, last = after.own[ids], before.shared[:, -1]
        known, balanced = (
            each.reshape(-1, *rows.shape)
            for each in (before.shared[ids, :-1], home[:, -rows.size :])
        )
        sums, count, _ = sum_features(ask, own)
        there = arrived[:, None] & (count > 0) & jnp.isfinite(sums).all(axis=2)
        protos, is_known = sums / jnp.maximum(count, 1.0)[:, :, None], known[:, :, -1] > 0

        def merge(balanced: Array, sent: Array, there: Array) -> Array:
            apart = madc(cosine_matrix(balanced, mask=there), there)
            root = unite(-apart, -ask.hyper["eps"], jnp.zeros(len(ids)), there, 0)[0]
            return sum_by(PLAIN, weights_by(root, there, ask.sizes, len(ids), "uniform"), sent)[0][
                root
            ]

        merged = jax.vmap(merge, 1, 1)(balanced, jnp.concatenate([own[:, rows], protos], 2), there)
        merged = jnp.where(
            there[:, :, None], merged, jnp.concatenate([own[:, rows], known[:, :, :-1]], 2)
        )
        heads, protos = jnp.split(merged, [rows.shape[1]], axis=2)
        protos = jnp.append(protos, (there | is_known)[:, :, None], axis=2)
        bodies = sum_by(PLAIN, weights_by(jnp.zeros_like(ids), arrived, ask.sizes, 1), own)[0]
        told = jnp.pad(
            protos.reshape(len(ids), -1), ((0, 0), (0, 1)), constant_values=last.max() + 1
        )
        into = jnp.where(arrived, ids, ask.federation.clients)
        asked, width = jnp.sum(ask.cohort.mask), rows.shape[1] - 1
        down = width * jnp.sum(is_known & ask.cohort.mask[:, None])
        new = jnp.where(mask_head(model), own, bodies).at[:, rows].set(heads)
        made = after._replace(
            own=after.own.at[into].set(new, mode="drop"),
            shared=before.shared.at[into].set(told, mode="drop"),
        )
        return made, down, rows.size * asked + width * jnp.sum(there)


def head_step(hyper: Hyper) -> LocalStep:
    """Return the numbers of a local step of a head."""
    step = LocalStep.of(hyper)
    return step._replace(lr=hyper["head_lr"] if "head_lr" in hyper else 10 * step.lr)
