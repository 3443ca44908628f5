"""Gossip, or decentralised SGD (D-PSGD, Lian et al. 2017): clients average their models with those
of their neighbours in a graph. There is no server.

In a round each participant trains its own model, sends the trained model x_i to its neighbours that
take part, too, and moves to Σ_j W_ij x_j over itself and these. W has Metropolis weights (Xiao,
Boyd and Lall 2005): W_ij = 1 / (1 + max(degree i, degree j)) for neighbours, and W_ii is what is
left. They are symmetric, so averaging keeps the mean of the participants' models. In a ring or
torus in which everybody takes part, a client and each of its neighbours weigh 1 / (degree + 1).

The nodes of a ring or torus are the clients that train in some round, in the order of their
identities; a client that is away is not skipped. A random graph is drawn among the participants.

A newcomer, or a client that has not been drawn yet, is scored with the mean by samples of the
models of all that have trained.
"""

from __future__ import annotations

import dataclasses
from itertools import chain

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels import graph
from cfljax.kernels.blocks import HIGHEST
from cfljax.lazy import jnp
from cfljax.quantity import Quantity
from cfljax.registry.options import Value
from cfljax.round.about import About, Reading
from cfljax.round.config import TrainOptions
from cfljax.round.recipes import Ask, OwnModels, Peers, option
from cfljax.types import Array, Federation

ABOUT = About(
    title="Gossip",
    family="personal",
    authors="Lian et al.",
    year=2017,
    paper="Can decentralized algorithms outperform centralized algorithms? A case study for "
    "decentralized parallel stochastic gradient descent",
    venue="NeurIPS",
    link="https://arxiv.org/abs/1705.09056",
    models="1 from and 1 to each neighbour",
    communication="its model to each neighbour that takes part, and the neighbour's model back",
)
READINGS = (
    Reading(
        "Order of training and averaging",
        paper="both at once: the gradient at x_i moves the average of the neighbours' models",
        here="trained models are averaged, as by Sun, Li and Wang (2022, DFedAvg)",
    ),
    Reading(
        "Local work",
        paper="one stochastic gradient between two averages",
        here="epochs or steps, as for all methods",
        option=("train.epochs", "train.steps"),
    ),
    Reading(
        "Weights W",
        paper="any that are symmetric and sum to 1; 1/3 on its ring",
        here="Metropolis weights (Xiao, Boyd and Lall 2005), which are 1/3 on a full ring",
    ),
    Reading(
        "Graph",
        paper="any that is connected; a ring in its experiments",
        here="a ring",
        option="topology",
    ),
    Reading(
        "Random graph",
        paper="none; De Vos et al. (2023, Epidemic Learning) draw a regular one in each round",
        here="drawn in each round among its participants: the union of random rings, and of "
        "random pairs if `neighbours` is odd. An edge that is drawn twice counts once",
        option="neighbours",
    ),
    Reading(
        "Absent neighbours",
        paper="none, because all take part",
        here="left out, and degrees count those that take part",
    ),
    Reading(
        "Scored model",
        paper="the mean of all models in the end",
        here="each client's own, after averaging; `consensus` says how far they are apart",
    ),
)


@dataclasses.dataclass(frozen=True)
class Gossip(Peers):
    """Gossip: clients average their models with their neighbours' in a graph, without a server.

    A participant trains its own model, a row of f32[C, d], and moves to Σ_j W_ij x_j, where x_j are
    the trained models of itself and of its neighbours that take part, and W are Metropolis weights.
    `topology` is the graph.
    """

    diagnostics = {"consensus": Quantity("distance of the clients' models to their mean")}

    topology: str = option(
        "ring",
        "graph of the clients; random: drawn in each round among its participants",
        choices=("ring", "torus", "random"),
    )
    neighbours: int = option(
        4, 'number of neighbours of each participant with `topology = "random"`', low=1
    )

    def check(self, where: str) -> None:
        """Raise SpecError for a number of neighbours of a graph that is not random."""
        if self.topology != "random" and self.neighbours != Gossip.neighbours:
            raise SpecError(
                f'{where}.neighbours = {self.neighbours}: needs topology = "random"; leave it out, '
                f"as a {self.topology} has {'two' if self.topology == 'ring' else 'four'}"
            )

    def check_run(self, where: str, train: TrainOptions, data: Value, model: Value) -> None:
        """Raise SpecError if the graph cannot have this number of clients."""
        if data.clients_that_train is not None:
            self._check_nodes(where, data.clients_that_train)

    def check_federation(self, where: str, federation: Federation) -> None:
        """Raise SpecError if the graph cannot have this number of clients, which only the data
        tell of some partitions."""
        self._check_nodes(where, int(federation.trains.sum()))

    def _check_nodes(self, where: str, clients: int) -> None:
        """Raise SpecError if the graph cannot have this number of clients that train."""
        if self.topology == "random" and self.neighbours >= clients:
            raise SpecError(
                f"{where}.neighbours = {self.neighbours}: only {clients} clients train; give at "
                f"most {clients - 1}"
            )
        if self.topology == "torus" and not is_product(clients):
            less = next(filter(is_product, range(clients, 3, -1)), None)
            more = next(filter(is_product, range(max(clients, 4), clients + 5)))
            numbers = f"{more} clients" if less is None else f"{less} or {more} clients"
            raise SpecError(
                f'{where}.topology = "torus": {clients} clients train, which is no product of two '
                f'numbers of at least 2; take {numbers}, or topology = "ring" or "random"'
            )

    @property
    def without(self) -> dict[str, str]:
        """Refuse compression of updates."""
        why = "neighbours do not have the model from which an update counts"
        return super().without | {"compress": why}

    def messages(self, ask: Ask) -> Array:
        """Return i32[S]: the number of each participant's neighbours that take part."""
        return self.graph(ask).degree

    def graph(self, ask: Ask) -> graph.Graph:
        """Return the graph among the participants, by their numbers alone.

        Args:
            ask: What participants can be asked.
        """
        federation, ids, mask = ask.federation, ask.cohort.ids, ask.cohort.mask
        uid = jnp.asarray(federation.uid)
        if self.topology != "random":
            nodes = jnp.sum(federation.trains, dtype=jnp.int32)
            position = graph.rank([uid], federation.trains)[ids]
            room = federation.clients
            if self.topology == "ring":
                wanted = graph.ring(position, nodes)
            else:
                wanted = graph.torus(position, nodes, room)
            return graph.join_slots([graph.find_slots(wanted, position, mask, room)])

        nodes = jnp.sum(mask, dtype=jnp.int32)
        rings, has_pairs = divmod(self.neighbours, 2)
        shapes = chain([graph.ring] * rings, [graph.pairs] * has_pairs)
        lists = []
        for at, shape in enumerate(shapes):
            scores = keys.scores(keys.fold(ask.key, "gossip", at), "client", uid[ids])
            position = graph.rank([scores, uid[ids]], mask)
            wanted = shape(position, nodes)
            lists.append(graph.find_slots(wanted, position, mask, ids.shape[0] + 1))
        return graph.join_slots(lists)

    def exchange(
        self, ask: Ask, before: OwnModels, after: OwnModels, arrived: Array, home: Array | None
    ) -> OwnModels:
        """Average the trained models of neighbours. A model that is not finite stays out, and its
        client keeps the one before."""
        among = self.graph(ask).among(arrived)
        mixed = among.average(after.rows[ask.cohort.ids])
        after = after._replace(rows=ask.cohort.write(after.rows, mixed, arrived))
        ask.show(consensus=consensus(after))
        return after


def is_product(clients: int) -> bool:
    """Return whether a number is a product of two numbers of at least 2."""
    numbers = np.arange(2, int(np.sqrt(clients)) + 1)
    return bool(np.any(clients % numbers == 0))


def consensus(state: OwnModels) -> Array:
    """Return f32[]: the root of the mean squared distance between the models of the clients that
    have trained and the mean of these models."""
    weights = state.drawn / jnp.maximum(jnp.sum(state.drawn), 1)
    mean = jnp.matmul(weights, state.rows, precision=HIGHEST)
    return jnp.sqrt(jnp.sum(weights * jnp.sum((state.rows - mean) ** 2, axis=1)))
