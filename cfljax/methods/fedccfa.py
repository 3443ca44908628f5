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
from typing import NamedTuple

from cfljax import keys
from cfljax.kernels.cosine import cosine_matrix, madc
from cfljax.kernels.mix import PLAIN, sum_by, weights_by
from cfljax.kernels.unite import unite
from cfljax.lazy import jax, jnp
from cfljax.local.backends import make_rule
from cfljax.local.train import Gradient, Position, Samples, make_stepper, start_at
from cfljax.methods.fedproto import Prototypes, head_rows, sum_features
from cfljax.models.features import with_features
from cfljax.models.flat import cross_entropy, mask_head
from cfljax.round.about import About, Reading
from cfljax.round.recipes import (
    Ask,
    GradientAt,
    OwnModels,
    OwnSteps,
    Peers,
    StepRule,
    jobs_from,
    option,
)
from cfljax.types import Array, Federation, Hyper, LocalStep, Model, Tree

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
    counts_labels = "has clusters for each label, so samples need one class each"

    eps: float = option(
        0.1,
        "distance up to which clients are in one cluster",
        low=0.0,
        traced=True,
        search=(0.05, 0.4, "log"),
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
        None,
        "learning rate of the heads (10 · `train.lr`)",
        low=0.0,
        traced=True,
        search=(0.01, 1.0, "log"),
    )
    head_epochs: int = option(1, "epochs of the own head, before the body's", low=1)
    balanced_steps: int = option(5, "steps of the balanced head", low=1)
    balanced_samples: int = option(5, "most samples of each class in the balanced batch", low=1)

    def first_shared(self, model: Model, federation: Federation) -> Array:
        """Return the first `Memory` of the clients, as vectors: no prototypes, round 0."""
        return jnp.zeros((federation.clients, head_rows(model, federation.classes).size + 1))

    def receive(self, ask: Ask, state: OwnModels, begin: Array) -> tuple[Array, Array]:
        """Give the participants the body of the last round, and let them train both heads. At home
        they then have what `Home` lists."""
        assert state.shared is not None
        model = ask.solver.model
        ids = ask.cohort.ids
        memory = Memory.read(state.shared, ask.federation.classes)
        # All participants of a round get the same mean body, so any of the last participants has it
        begin = jnp.where(mask_head(model), begin, state.rows[jnp.argmax(memory.last_round)])
        count, balanced = self.train_balanced(ask, begin, state.first)
        pull = self.weigh_alignment(ask, count, memory.last_round.max())
        # One that has no own head yet begins at the balanced one
        with_balanced = begin.at[:, head_rows(model).ravel()].set(balanced)
        start = jnp.where(state.drawn[ids][:, None], begin, with_balanced)
        prototypes = jax.tree.map(lambda each: each[ids], memory.prototypes)
        home = Home(start, prototypes, pull, balanced)
        # Training goes on at home from the new head, but the update counts from `begin`, which the
        # server knows: so it holds the moves of the head, too
        return begin, home._replace(model=start + self.train_heads(ask, home)).write()

    def train_balanced(self, ask: Ask, models: Array, first: Array) -> tuple[Array, Array]:
        """Train the balanced heads of the participants, and return (f32[S, M] the samples of each
        class that they have, f32[S, M · (width + 1)] the heads).

        Args:
          ask: The participants.
          models: f32[S, d] the models whose bodies give the features.
          first: f32[d] the first model, at whose head all balanced heads begin.
        """
        solver, model = ask.solver, ask.solver.model
        uid = ask.federation.uid[ask.cohort.ids]
        # A number for each sample, by which the balanced batch is drawn
        sample_keys = keys.fold_each(ask.key, "balanced", uid)
        order = jax.vmap(lambda key: keys.uniform(key, ask.federation.train.longest))(sample_keys)
        mine = jnp.arange(len(models), dtype=jnp.int32)
        jobs = jobs_from(ask.cohort, models, mine, weights=order)
        of_head = solver.with_step(head_step)
        rule = make_rule(of_head, of_head.step_of(ask.hyper))
        move = make_stepper(rule, LocalStep.of(ask.hyper), ())
        begin = start_at(rule, first[head_rows(model)], None)
        train = functools.partial(self.train_balanced_head, model, move, begin)
        return solver.of_samples(train, ask.federation, jobs)

    def train_balanced_head(
        self,
        model: Model,
        move: Callable[..., Position],
        begin: Position,
        batch: Samples,
        w: Array,
    ) -> tuple[Array, Array]:
        """Train the balanced head of one client, and return (f32[M] its samples of each class,
        f32[M · (width + 1)] the head).

        Args:
          model: The network.
          move: A step of the optimiser.
          begin: The head f32[M, width + 1] before the first step.
          batch: All samples of the client, with random numbers as weights.
          w: f32[d] the model whose body gives the features.
        """
        assert batch.weight is not None
        both, width = with_features(model)
        of_class = jax.nn.one_hot(batch.y, len(begin.params)) * batch.mask[:, None]
        count = of_class.sum(axis=0)
        # As many samples of each class as the rarest has: the first ones in a random order
        rarest = jnp.where(count > 0, count, jnp.inf).min()
        most = jnp.minimum(rarest, self.balanced_samples)
        order = jnp.argsort(jnp.where(batch.mask, batch.weight, jnp.inf))
        in_order = of_class[order]
        is_chosen = jnp.sum(in_order * (jnp.cumsum(in_order, axis=0) <= most), axis=1)
        # The batch has room for all that can be chosen; what is left over has no weight
        chosen = jnp.argsort(-is_chosen)[: count.size * self.balanced_samples]
        z = both(model.unravel(w), batch.x[order[chosen]])[:, :width]
        y = batch.y[order[chosen]]
        share = is_chosen[chosen] / jnp.maximum(is_chosen.sum(), 1.0)

        def compute_loss(head: Array) -> Array:
            weights, bias = head[:, :-1], head[:, -1]
            return share @ model.loss(z @ weights.T + bias, y)

        def step(_: int, at: Position) -> Position:
            value, grads = jax.value_and_grad(compute_loss)(at.params)
            return move(at, Gradient(value, jnp.float32(1), grads))

        return count, jax.lax.fori_loop(0, self.balanced_steps, step, begin).params.ravel()

    def weigh_alignment(self, ask: Ask, count: Array, rounds: Array) -> Array:
        """Return f32[S, 1]: λ of each participant, the entropy of its labels over `gamma`.

        Args:
          ask: The participants.
          count: f32[S, M] their samples of each class.
          rounds: f32[] the number of rounds so far that have had participants.
        """
        share = count / jnp.maximum(count.sum(axis=1, keepdims=True), 1)
        entropy = jax.scipy.special.entr(share).sum(axis=1, keepdims=True)
        return jnp.where(rounds < self.align_after, 0.0, entropy / ask.hyper["gamma"])

    def train_heads(self, ask: Ask, home: Home) -> Array:
        """Train the participants' own heads, and return how far they have moved, f32[S, d]."""
        model = ask.solver.model
        of_head = ask.solver.with_step(head_step)
        of_head = of_head.with_work(of_head.work._replace(epochs=self.head_epochs, steps=None))
        of_head = of_head.with_own_steps(
            lambda hyper, rule: self.steps(model, hyper, rule, head=True)
        )
        mine = jnp.arange(len(home.model), dtype=jnp.int32)
        jobs = jobs_from(ask.cohort, home.model, mine, home=home.write())
        # A key of its own, so that body and head are trained on other batches
        return ask.train(of_head, keys.fold(ask.key, "head"), jobs).delta

    def steps(self, model: Model, hyper: Hyper, rule: StepRule, head: bool = False) -> OwnSteps:
        """Return steps on the body, or with `head` on the head, which the alignment does not depend
        on."""
        move = make_stepper(rule, LocalStep.of(hyper), ())
        both, width = with_features(model)
        classes = len(head_rows(model))
        trains = jax.tree.map(
            lambda leaf: leaf > 0, model.unravel(jnp.where(mask_head(model) == head, 1.0, 0.0))
        )

        def begin(_: Tree, home: Array) -> tuple[Position, Array]:
            start = Home.read(home, model.size, classes).model
            return start_at(rule, model.unravel(start), None), home

        def step(
            gradient: GradientAt, at: tuple[Position, Array]
        ) -> tuple[tuple[Position, Array], Array]:
            position, home = at
            _, prototypes, pull, _ = Home.read(home, model.size, classes)

            def compute_loss(made: Array, y: Array) -> Array:
                features, logits = made[:, :width], made[:, width:]
                cosines = _to_unit(features) @ _to_unit(prototypes.means).T
                # softmax(cos(z, c_k) / tau) over the prototypes that the client knows; a sample of
                # a class without one is not aligned
                cosines = jnp.where(prototypes.known, cosines, -1e9)
                far = cross_entropy(cosines / hyper["tau"], y)
                far = jnp.where(prototypes.known[y], far, 0.0)
                return model.loss(logits, y) + pull[0] * far

            aligned = model._replace(forward=both, loss=compute_loss)
            found = gradient(position.params, of=aligned)
            return (move(position, found, trains), home), found.loss

        def end(at: tuple[Position, Array]) -> tuple[Tree, Array]:
            position, home = at
            return position.params, home

        return OwnSteps(begin, step, end)

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> OwnModels:
        """Average bodies, and in the clusters of each class rows of the heads and prototypes."""
        assert before.shared is not None and home is not None
        model = ask.solver.model
        ids = ask.cohort.ids
        positions = head_rows(model)
        classes, width = positions.shape[0], positions.shape[1] - 1
        own = after.rows[ids]
        memory = Memory.read(before.shared, classes)
        known = jax.tree.map(lambda each: each[ids], memory.prototypes)
        sums, count, _ = sum_features(ask, own)
        # bool[S, M]: whose message about the class has arrived
        there = arrived[:, None] & (count > 0) & jnp.isfinite(sums).all(axis=2)
        means = sums / jnp.maximum(count, 1.0)[:, :, None]

        # Rows of heads and prototypes are averaged in the same clusters: side by side
        balanced = Home.read(home, model.size, classes).balanced.reshape(-1, *positions.shape)
        sent = jnp.concatenate([own[:, positions], means], axis=2)
        merge = functools.partial(_average_clusters, ask)
        merged = jax.vmap(merge, in_axes=1, out_axes=1)(balanced, sent, there)
        # A participant that lacks a class keeps what it has
        kept = jnp.concatenate([own[:, positions], known.means], axis=2)
        merged = jnp.where(there[:, :, None], merged, kept)
        heads, means = jnp.split(merged, [width + 1], axis=2)

        bodies = sum_by(PLAIN, weights_by(jnp.zeros_like(ids), arrived, ask.sizes, 1), own)[0]
        new = jnp.where(mask_head(model), own, bodies).at[:, positions].set(heads)
        is_known = (there | known.known).astype(means.dtype)
        # Rounds are counted from 1; those without participants do not count
        this_round = jnp.full(len(ids), memory.last_round.max() + 1)
        shared = Memory(Prototypes(means, is_known), this_round).write()
        ask.download(width, each=jnp.sum(known.known, axis=1))
        ask.upload(positions.size)
        ask.upload(width, each=jnp.sum(there, axis=1))
        return after._replace(
            rows=ask.cohort.write(after.rows, new, arrived),
            shared=ask.cohort.write(before.shared, shared, arrived),
        )


class Memory(NamedTuple):
    """What the server keeps of each client besides its model."""

    # The prototypes that the client knows, f32[C, M, width]; the number of each is 1
    prototypes: Prototypes
    # f32[C]: the last round in which it took part, counted from 1; 0: none
    last_round: Array

    @classmethod
    def read(cls, vectors: Array, classes: int) -> Memory:
        """Read the clients' vectors f32[C, M · (width + 1) + 1]."""
        return cls(Prototypes.read(vectors[:, :-1], classes), vectors[:, -1])

    def write(self) -> Array:
        """Return the vectors f32[C, M · (width + 1) + 1]: the prototypes, then the round."""
        return jnp.column_stack([self.prototypes.write(), self.last_round])


class Home(NamedTuple):
    """What a participant has at home in a round. Leading axes, as of participants, come before
    those here."""

    # f32[d]: the model with its own head
    model: Array
    # f32[M, width], f32[M]: the prototypes that it knows
    prototypes: Prototypes
    # f32[1]: λ
    pull: Array
    # f32[M · (width + 1)]: the balanced head
    balanced: Array

    @classmethod
    def read(cls, vector: Array, size: int, classes: int) -> Home:
        """Read it from a vector, for a model of `size` numbers with this number of classes."""
        # The head and the prototypes have the same number of values
        length = (vector.shape[-1] - size - 1) // 2
        ends = (size, size + length, size + length + 1)
        model, prototypes, pull, balanced = jnp.split(vector, ends, axis=-1)
        return cls(model, Prototypes.read(prototypes, classes), pull, balanced)

    def write(self) -> Array:
        """Return it as a vector, its fields one after the other."""
        return jnp.concatenate(
            [self.model, self.prototypes.write(), self.pull, self.balanced], axis=-1
        )


def _average_clusters(ask: Ask, balanced: Array, sent: Array, there: Array) -> Array:
    """Cluster the participants by their balanced heads' rows for one class, and return the mean of
    each one's cluster, f32[S, n].

    Args:
      ask: The participants.
      balanced: f32[S, width + 1] the rows.
      sent: f32[S, n] what is averaged.
      there: bool[S] who has sent it; others are in no cluster.
    """
    number = len(balanced)
    apart = madc(cosine_matrix(balanced, mask=there), there)
    # DBSCAN without noise: all that are linked, directly or in a chain. A cluster is named by the
    # first participant in it. Sizes and owners of `unite` decide whose model stays: nobody's here
    root = unite(-apart, -ask.hyper["eps"], size=jnp.zeros(number), present=there, owners=0)[0]
    mix = weights_by(root, there, ask.sizes, number, "uniform")
    return sum_by(PLAIN, mix, sent)[0][root]


def _to_unit(z: Array) -> Array:
    """Scale the rows f32[n, width] to length 1."""
    return z * jax.lax.rsqrt(jnp.maximum(jnp.sum(z * z, axis=1, keepdims=True), 1e-16))


def head_step(hyper: Hyper) -> LocalStep:
    """Return the numbers of a local step of a head."""
    step = LocalStep.of(hyper)
    return step._replace(lr=hyper["head_lr"] if "head_lr" in hyper else 10 * step.lr)
