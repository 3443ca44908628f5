"""HOST. What a method may ask of clients before the first round (and between rounds): training from
one model, whose updates it compares. What is asked is counted: the round that follows bills it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.lazy import jax, jnp
from cfljax.local.solver import Solver
from cfljax.round.common import first_on_host
from cfljax.round.config import MethodConfig
from cfljax.round.pretrain import (
    CHUNK,
    Part,
    Pretrainer,
    means,
    pretrainer,
    scorer,
    solver_before,
)
from cfljax.round.similarity import sketch_on_host_if
from cfljax.round.state import State
from cfljax.types import Array, Federation, Hyper, Model, Tree
from cfljax.types.federation import NEVER

WHOLE = slice(None)
"""The part of a vector that is all of it."""
Trainers = Callable[[int | None, int | None], Pretrainer]
"""(epochs, steps) -> what trains clients for so long; (None, None): as long as in a round."""


def trainers(solver: Solver) -> Trainers:
    """Return the functions that train clients before a round, each of which is compiled once."""

    @functools.cache
    def trainer(epochs: int | None, steps: int | None) -> Pretrainer:
        return pretrainer(
            solver if epochs is None and steps is None else solver_before(solver, epochs, steps)
        )

    return trainer


class Before:
    """HOST. What a method may ask before the first round, and between rounds: arrays are numpy's,
    and scikit-learn may be used. What is asked is billed to the round that follows.

    Shapes: C clients, n clients that are asked, K models, d parameters. `ask.model`,
    `ask.solver`, `ask.federation` and `ask.hyper` belong to the run. `ask.uid` i[C] are the
    clients' identities.

    Example:
        ```python
        def begin(self, ask):
            w, ids = ask.first_model(), ask.clients_to_cluster()
            found = KMeans(self.clusters).fit_predict(ask.updates(w, ids, epochs=1))
            models = np.tile(w, (self.clusters, 1))
            return InitialClusters(models, ask.labels_from_pairs((ids, found)))
        ```
    """

    def __init__(
        self,
        name: str,
        config: MethodConfig,
        model: Model,
        solver: Solver,
        train: Trainers,
        key: Array,
        federation: Federation,
        hyper: Hyper,
        client_params: Array | None = None,
    ):
        self.name = name
        self.config = config
        self.model = model
        self.solver = solver
        self._train = train
        self.key = key
        self.federation = federation
        self.hyper = hyper
        self.client_params = client_params
        self.uid = np.asarray(federation.uid)
        self.has_pretrained = np.zeros(federation.clients, bool)
        """bool[C]: who has trained."""
        self.numbers_sent: int | None = None
        """How many numbers of its update each of them sends; None: all."""
        self.compared: int | None = None
        """How many models clients have been sent for `losses`; they send as many numbers. None:
        nobody was asked for any."""

    def first_model(self) -> np.ndarray:
        """Return f32[d]: w_0, the model that all methods with one model begin with."""
        return np.asarray(first_on_host(self.model)(self.key))

    def present_clients(self) -> np.ndarray:
        """Return i32[n]: the clients that can train by now, ordered by identity."""
        here = np.asarray(self.federation.trains) & (np.asarray(self.federation.arrive) == 0)
        return self.sort_by_uid(np.flatnonzero(here)).astype(np.int32)

    def clients_to_cluster(self) -> np.ndarray:
        """Return i32[n]: the clients that can train by now, as `present_clients` does. Raises
        SpecError if they are fewer than the clusters."""
        ids, clusters = self.present_clients(), self.config.clusters
        if len(ids) < clusters:
            only = (
                f"clusters = {clusters}, but only {len(ids)} clients with training data take "
                "part from the start"
            )
            raise SpecError(f'method "{self.name}": {only}; give fewer clusters or more clients')
        return ids

    def late_clients(self) -> np.ndarray:
        """Return i32[n]: the clients that come later, newcomers included."""
        return np.flatnonzero(
            np.asarray(self.federation.holds) & (np.asarray(self.federation.arrive) > 0)
        ).astype(np.int32)

    def newcomers(self) -> np.ndarray:
        """Return i32[n]: the clients that take part in no round."""
        return np.flatnonzero(
            np.asarray(self.federation.holds) & (np.asarray(self.federation.arrive) == NEVER)
        ).astype(np.int32)

    def sort_by_uid(self, ids: np.ndarray) -> np.ndarray:
        """Return the clients ordered by identity, so that the order of the client axis changes
        nothing.

        Args:
            ids: i[n] positions on the client axis.
        """
        return ids[np.argsort(self.uid[ids], kind="stable")]

    def draw_clients(self, number: int, purpose: str) -> np.ndarray:
        """Return i32[n]: random ones of the `clients_to_cluster`.

        Args:
            number: How many, at most.
            purpose: What they are drawn for. Another purpose draws others.
        """
        ids = self.clients_to_cluster()
        luck = np.asarray(keys.scores(self.key, purpose, self.federation.uid))[ids]
        return ids[np.argsort(luck, kind="stable")[:number]]

    def updates_in_parts(
        self,
        start: np.ndarray,
        ids: np.ndarray,
        epochs: int | None = None,
        steps: int | None = None,
    ) -> Iterator[Part]:
        """Yield the updates of clients, a few clients at a time, as pairs (clients i32[m], updates
        f32[m, d]).

        Args:
            start: f32[d] the model that they train from.
            ids: i32[n] the clients.
            epochs: How many epochs they train.
            steps: How many steps, if not epochs. None and None: as much as in a round.
        """
        self.has_pretrained[ids] = True
        yield from self._train(epochs, steps)(
            self.key, self.federation, self.hyper, start, ids, self.client_params
        )

    def updates(
        self,
        start: np.ndarray,
        ids: np.ndarray,
        epochs: int | None = None,
        steps: int | None = None,
        similarity: str = "exact",
        part: np.ndarray | slice = WHOLE,
    ) -> np.ndarray:
        """Return f32[n, d]: the updates of clients. One that is not finite comes from a client
        whose training diverged.

        Args:
            start: f32[d] the model that they train from.
            ids: i32[n] the clients.
            epochs: How many epochs they train.
            steps: How many steps, if not epochs. None and None: as much as in a round.
            similarity: "sketch" for sketches of the updates, f32[n, m].
            part: Which numbers of their updates they send, bool[d] as `part_of` finds them, or
                their positions i64[m]. Then the result is f32[n, m], and m numbers are billed for
                each client instead of an update.
        """
        size = len(np.arange(self.model.size)[part])
        if size < self.model.size:
            self.numbers_sent = size
        parts = [
            sketch_on_host_if(moves[:, part], similarity)
            for _, moves in self.updates_in_parts(start, ids, epochs, steps)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, size), np.float32)

    def losses(self, models: np.ndarray, ids: np.ndarray, had: int = 0) -> np.ndarray:
        """Return f32[K, n]: the mean loss of each model on the training samples of each of these
        clients, to which the models are sent.

        Args:
            models: f32[K, d] the models.
            ids: i32[n] the clients.
            had: How often a client has a model already, and need not say its loss.
        """
        self.compared = (self.compared or 0) + len(models) * len(ids) - had
        clients = np.arange(self.federation.clients, dtype=np.int32)
        find = scorer(self.solver)
        size, mask = min(CHUNK, len(clients)), np.isin(clients, ids)
        found = []
        for at in range(0, len(models), size):
            part = models[at : at + size]
            filled = jnp.asarray(np.resize(part, (size, part.shape[1])))
            with jax.default_matmul_precision("highest"):  # as in the rounds
                losses = find(self.key, self.federation, filled, clients, mask, self.client_params)
            found.append(np.asarray(losses)[: len(part), ids])
        return np.concatenate(found)

    def joining(
        self,
        start: np.ndarray,
        ids: np.ndarray,
        of: Callable[[np.ndarray], Array],
        **length: int | None,
    ) -> np.ndarray:
        """Return i32[n]: what a function says of clients that join later, and are billed then.

        Args:
            start: f32[d] the model that they train from.
            ids: i32[n] the clients.
            of: (updates f32[m, d]) -> i32[m].
            length: `epochs` or `steps` of the training.
        """
        parts = self._train(length.get("epochs"), length.get("steps"))(
            self.key, self.federation, self.hyper, start, ids, self.client_params
        )
        return np.concatenate(
            [np.zeros(0, np.int32), *(np.asarray(of(moves)) for _, moves in parts)]
        )

    def setup(self) -> dict[str, Tree]:
        """Return how many clients have trained, and how many models they were sent to compare."""
        trained = {"pretrained_count": np.array(self.count_pretrained(), np.int32)}
        if self.numbers_sent is not None:
            trained["pretrained_numbers"] = np.array(self.numbers_sent, np.int32)
        if self.compared is None:
            return trained
        return trained | {"compared": np.array(self.compared, np.int32)}

    def means(self, parts: Iterable[Part], labels: np.ndarray, clusters: int) -> np.ndarray:
        """Return f32[K, d]: the mean update of each cluster, or what the server has instead
        (`train.robust`).

        Args:
            parts: Pairs (clients, updates), as `updates_in_parts` yields them.
            labels: i32[n] the cluster of each client, in the order of the parts.
            clusters: K.
        """
        return means(parts, labels, clusters, self.solver.rule(self.key, self.hyper))

    def labels_from_pairs(self, *pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """Return i32[C]: the labels of all clients; −1 for those in none of the pairs.

        Args:
            pairs: Pairs (clients i32[n], their labels i32[n]).
        """
        found = np.full(self.federation.clients, -1, np.int32)
        for ids, labels in pairs:
            found[ids] = labels
        return found

    def divide(
        self, state: State, ids: np.ndarray, own: np.ndarray, advice: str = "raise it"
    ) -> State:
        """Return the state with other clusters, each of which goes on from the first model. Clients
        that are not named are in none. Raises SpecError if there is no room.

        Args:
            state: The state before.
            ids: i32[n] clients.
            own: i32[n] their clusters, from 0 on.
            advice: What the error advises.
        """
        room = state.clusters
        number = int(own.max(initial=0)) + 1
        if number > room:
            raise SpecError(
                f"method.{self.name}.max_clusters = {room}: there are {number} clusters; {advice}"
            )
        models = jnp.tile(jnp.asarray(state.models[0]), (room, 1))
        labels = jnp.asarray(self.labels_from_pairs((ids, own)))
        return state._replace(models=models, labels=labels, active=jnp.arange(room) < number)

    def count_pretrained(self) -> int:
        """Return how many of those that have trained are there by now; those who come later are
        billed when they join."""
        return int(np.sum(self.has_pretrained & (np.asarray(self.federation.arrive) == 0)))

    def fold(self, purpose: str) -> Array:
        """Return a random key.

        Args:
            purpose: What it is for. Another purpose has another key.
        """
        return keys.fold(self.key, purpose)
