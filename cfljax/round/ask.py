"""What participants can be asked for. All of it passes here, so that it is counted, bounded and
timed, whatever the method is."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from cfljax import keys
from cfljax.errors import SpecError
from cfljax.kernels.choose import clip_losses, least_loss, private_choice
from cfljax.kernels.mix import usable
from cfljax.lazy import core, jax, jnp
from cfljax.local.data import first_batches
from cfljax.local.rounds import Mixing, sizes
from cfljax.local.solver import Solver
from cfljax.round.pretrain import in_chunks, pretrain, solver_before
from cfljax.round.similarity import train_and_compare
from cfljax.types import Array, ClientState, Cohort, Federation, Hyper, Jobs, Traffic, Updates

Message = TypeVar("Message", Array, int)


class Charge(NamedTuple):
    """What participants have received, sent or done once, when they were asked for something."""

    kind: str
    """A field of `Traffic`; "steps" for local steps beside the training of the round; "pretrained"
    for clients that have trained before the first round, which that bills."""
    # i32[S]: how many vectors, numbers, steps or trainings of each participant
    each: Array


class Charges:
    """What an ask, and all asks that come from it by `of`, however deep, have asked for.

    A function of a method returns what its paper defines, such as losses, and not also what they
    have cost; so the ask has to remember that. A charge does not change, and a recipe sums all of
    them once, at the end of the round. None can be added inside a branch, a loop or a `vmap` of
    JAX, which is traced once, but may run never or often, and what is traced there cannot leave it.
    """

    def __init__(self) -> None:
        self.made: list[Charge] = []
        self.shown: dict[str, Array] = {}
        self._traced_in = core.get_opaque_trace_state()

    def add(self, charge: Charge) -> None:
        """Add a charge. Raises SpecError inside a transformation of JAX."""
        if core.get_opaque_trace_state() != self._traced_in:
            raise SpecError(
                "a method asks participants inside a branch, loop or vmap of JAX, where what they "
                "send cannot be counted: call `ask` outside, and use its answer inside"
            )
        self.made.append(charge)

    def show(self, quantities: dict[str, Array]) -> None:
        """Add quantities of the round, by name. Raises SpecError inside a transformation of JAX, or
        for a name that has one."""
        if core.get_opaque_trace_state() != self._traced_in:
            raise SpecError(
                "a method calls `ask.show` inside a branch, loop or vmap of JAX, which a quantity "
                "of the round cannot leave: return it from there, and show it outside"
            )
        twice = sorted(self.shown.keys() & quantities)
        if twice:
            raise SpecError(f"a method shows {twice[0]!r} twice in a round: give two names")
        self.shown |= quantities


class Ask:
    """What a round may ask of its participants, or an evaluation of clients. All that is asked is
    counted, and billed to the round.

    The models of `losses` and `gradients` are sent to each participant, which computes on its own
    training data. A participant that is not in `cohort.mask` costs nothing, and what it would
    answer means nothing.

    Shapes: S participants, K models, d parameters. `ask.cohort`, `ask.federation`, `ask.hyper` and
    `ask.key` belong to the round.

    Example:
        ```python
        def score(self, ask, state):
            return ask.losses(state.models)
        ```
    """

    def __init__(
        self,
        solver: Solver,
        key: Array,
        federation: Federation,
        cohort: Cohort,
        hyper: Hyper,
        active: Array | None = None,
        in_round: bool = True,
    ):
        self.solver = solver
        self.key = key
        self.federation = federation
        self.cohort = cohort
        self.hyper = hyper
        self.in_round = in_round
        """Whether participants of a round are asked; False: clients are scored, and nothing is
        sent."""
        self.active = active
        """bool[K]: which models are in use; None: all."""
        self.charges = Charges()

    @property
    def sizes(self) -> Array:
        """f32[S]: the number of training samples of each participant."""
        return sizes(self.federation, self.cohort)

    @property
    def private(self) -> bool:
        """Whether what participants choose by must be bounded (`train.privacy.choice`)."""
        return self.in_round and "privacy.choice.epsilon" in self.hyper

    def _jobs(self, clients: Array, mask: Array, models: Array) -> Jobs:
        """Return the jobs of clients that start from the first model, in which nothing that they
        keep counts but their own part."""
        shares, first = jnp.ones(clients.shape), jnp.zeros_like(clients)
        kept = ClientState(client_params=self.cohort.kept.client_params)
        return Jobs(clients, mask, shares, models, first, kept=kept)

    def download(
        self, message: Message, *, each: int | Array = 1, who: Array | bool = True
    ) -> Message:
        """Send messages of one kind to participants. Returns one as it arrives.

        Args:
            message: f32[n, d] models of the server, some of which each participant receives, and
                which `train.compress` may change on the way; or how many single numbers a message
                has, which arrive as they are.
            each: How many models or messages of numbers each receives: i32[], i32[S] or an int.
            who: bool[S] who receives them; True: all.

        Example:
            ```python
            w = ask.download(state.global_model)
            # a class has a prototype of `width` numbers
            ask.download(width, each=jnp.sum(state.known))
            ```
        """
        if isinstance(message, int):
            self._charge("floats_down", message * each, who)
            return message
        self._charge("vectors_down", each, who)
        return self.solver.download(self.key, message) if self.in_round else message

    def download_all(self, models: Array) -> Array:
        """Send all models in use to each participant. The one that it trains is among them, and is
        not sent twice. Returns them as they arrive, f32[K, d].

        Args:
            models: f32[K, d] the server's models.
        """
        in_use = models.shape[0] if self.active is None else jnp.sum(self.active, dtype=jnp.int32)
        return self.download(models, each=in_use - 1)

    def upload(
        self, numbers: int | None = None, *, each: int | Array = 1, who: Array | bool = True
    ) -> None:
        """Bill what participants send to the server.

        Args:
            numbers: How many single numbers a message has; None: it is a vector of a model's size,
                which `Solver.fit` or `Solver.send` sends.
            each: How many messages each sends: i32[], i32[S] or an int.
            who: bool[S] who sends them; True: all.

        Example:
            ```python
            # a loss of each model
            ask.upload(1, each=len(state.models))
            ```
        """
        if numbers is None:
            self._charge("vectors_up", each, who)
        else:
            self._charge("floats_up", numbers * each, who)

    def show(self, **quantities: Array) -> None:
        """Put further quantities of the round into the history, where `compute_diagnostics` cannot
        see them.

        Args:
            quantities: Arrays by name, each of which the method declares in its `diagnostics`.
        """
        self.charges.show(quantities)

    @property
    def shown(self) -> dict[str, Array]:
        """The quantities that were given to `show` so far, by name."""
        return self.charges.shown

    def bound(self, losses: Array) -> Array:
        """Return the losses, within the bounds that a private choice needs, if it is private.

        Args:
            losses: f32[K, S] losses.
        """
        return clip_losses(losses, self.hyper["privacy.choice.clip"]) if self.private else losses

    def of(self, who: Array, active: Array | None = None) -> Ask:
        """Return the same of some participants alone. What is sent to them and by them is counted
        here.

        Args:
            who: bool[S] which participants.
            active: bool[K] which models are in use; None: as here.
        """
        cohort = self.cohort._replace(mask=self.cohort.mask & who)
        active = self.active if active is None else active
        some = Ask(
            self.solver, self.key, self.federation, cohort, self.hyper, active, self.in_round
        )
        some.charges = self.charges
        return some

    def least(self, costs: Array, width: Callable[[Hyper], Array | float] | None = None) -> Array:
        """Return i32[S]: the cluster in use with the least of the costs; with
        `train.privacy.choice` one that the exponential mechanism draws by them.

        Args:
            costs: f32[K, S] the cost of each cluster for each participant.
            width: (numbers of the run) -> how far apart two costs can be, for the private choice;
                None: choose the least.
        """
        if self.active is not None:
            # A cost of NaN is never chosen
            costs = jnp.where(self.active[:, None], costs, jnp.nan)
        if width is None or not self.private:
            return least_loss(costs)
        uid = jnp.asarray(self.federation.uid)[self.cohort.ids]
        return private_choice(
            self.key, costs, uid, self.hyper["privacy.choice.epsilon"], width(self.hyper)
        )

    def losses(self, models: Array, batch: int | None = None) -> Array:
        """Return f32[K, S]: the mean loss of each model on each participant's samples.

        Args:
            models: f32[K, d] the models, which are sent.
            batch: On the first mini-batch of this size with which local training begins; None: on
                all samples.
        """
        arrived = self.download_all(models)
        seen = first_batches(self.key, self.federation, self.cohort, batch, self.solver.sequential)
        return self.bound(
            self.solver.losses(
                seen,
                arrived,
                self.cohort.ids,
                self.cohort.mask,
                self.cohort.kept.client_params,
            )
        )

    def sample_losses(self, models: Array) -> Array:
        """Return f32[S, K, N]: the loss of each model on each training sample of each participant,
        in the order of its samples.

        Args:
            models: f32[K, d] the models, which are sent.
        """
        cohort = self.cohort
        return self.solver.sample_losses(
            self.federation, self.download_all(models), cohort.ids, cohort.mask
        )

    def gradients(self, models: Array) -> Array:
        """Return f32[S, d]: the gradient of the loss on all training samples of each participant,
        at the first model. In a round it is sent as an update is.

        Args:
            models: f32[K, d] the models, all of which are sent.
        """
        jobs = self._jobs(self.cohort.ids, self.cohort.mask, self.download_all(models))
        found = self.solver.gradient(self.federation, jobs)[0]
        self.upload()
        key = keys.fold(self.key, "gradients")
        lr = self.hyper["lr"]
        return (
            self.solver.send(key, self.federation, jobs, found, self.hyper, lr)
            if self.in_round
            else found
        )

    def updates(self, start: Array, epochs: int | None = None, steps: int | None = None) -> Array:
        """Return f32[C, d]: the updates of all clients that train from one model before the first
        round.

        Args:
            start: f32[d] the model.
            epochs: How many epochs they train.
            steps: How many steps, if not epochs.
        """
        solver = solver_before(self.solver, epochs, steps)
        everyone = self.cohort
        self.charges.add(Charge("pretrained", everyone.mask.astype(jnp.int32)))
        return pretrain(
            solver,
            self.key,
            self.federation,
            self.hyper,
            start,
            everyone.ids,
            everyone.mask,
            self.cohort.kept.client_params,
        ).delta

    def train(self, solver: Solver, key: Array, jobs: Jobs) -> Updates:
        """Train participants beside the training of the round, for what does not leave them. Their
        steps count in the round's time. Returns the updates as they are before sending.

        Args:
            solver: How they train.
            key: The random key.
            jobs: What each of the S participants trains.
        """
        updates = solver.train(key, self.federation, jobs, self.hyper)
        self._charge("steps", updates.steps)
        return updates

    def pretrained(
        self,
        start: Array,
        then: Callable[[Array], Array],
        epochs: int | None = None,
        steps: int | None = None,
    ) -> Array:
        """Return i32[S]: what a function says of the participants that train from one model before
        the round. They are billed as all who join late are (`Joining.trains`).

        Args:
            start: f32[d] the model.
            then: (updates f32[n, d]) -> i32[n].
            epochs: How many epochs they train.
            steps: How many steps, if not epochs.
        """
        solver = solver_before(self.solver, epochs, steps)

        def some(ids: Array, mask: Array) -> Updates:
            return pretrain(
                solver,
                self.key,
                self.federation,
                self.hyper,
                start,
                ids,
                mask,
                self.cohort.kept.client_params,
            )

        cohort = self.cohort
        if not self.in_round:
            return in_chunks(lambda ids, mask: then(some(ids, mask).delta), cohort.mask)
        updates = some(cohort.ids, cohort.mask)
        self._charge("steps", updates.steps)
        return then(updates.delta)

    def moves(self, start: Array, similarity: str, epochs: int) -> Array:
        """Return f32[S, m]: the updates of participants that train from one model before the round;
        zero for all others, and where they are not finite.

        Args:
            start: f32[d] the model.
            similarity: "exact" for the updates, "sketch" for sketches of them.
            epochs: How many epochs they train.
        """
        ids, who = self.cohort.ids, self.cohort.mask
        jobs = self._jobs(ids, who, self.download(start[None]))
        nothing = Mixing(jnp.zeros((1, ids.shape[0])), start[None])
        key = keys.fold(self.key, "pretrain")
        solver = solver_before(self.solver, epochs)
        trained, moves = train_and_compare(
            similarity, solver, key, self.federation, jobs, self.hyper, nothing
        )
        self._charge("steps", trained.steps)
        self.upload()
        return jnp.where((who & usable(moves))[:, None], moves, 0.0)

    def batch_gradient(
        self, model: Array, batch: int, summed: bool, clients: Array, mask: Array
    ) -> tuple[Array, Array]:
        """Return (f32[n, d], f32[n]): the gradient at a model, and the loss, on the first
        mini-batch of some of the participants.

        Args:
            model: f32[d] the model, as it has arrived (`download_all`).
            batch: The number of samples.
            summed: Whether both are of the sum over the mini-batch; False: of the mean.
            clients: i32[n] positions on the client axis.
            mask: bool[n] which of them are computed.
        """
        jobs = self._jobs(clients, mask, model[None])
        gradient, loss = self.solver.batch_gradient(self.key, self.federation, jobs, batch, summed)
        if summed:
            loss *= jnp.minimum(jnp.asarray(self.federation.train.count)[clients], batch).astype(
                jnp.float32
            )
        return gradient, loss

    def bill(self) -> Traffic:
        """Return the traffic of the round: all that was sent until now."""
        return Traffic(*(jnp.sum(self.total(kind), dtype=jnp.int32) for kind in Traffic._fields))

    @property
    def pretrained_count(self) -> Array | None:
        """i32[]: how many clients have trained before the first round, which that bills; None:
        nobody was asked to."""
        if not any(charge.kind == "pretrained" for charge in self.charges.made):
            return None
        return jnp.sum(self.total("pretrained"), dtype=jnp.int32)

    def total(self, kind: str) -> Array:
        """Return i32[S]: the sum of what each participant was asked for so far.

        Args:
            kind: A kind of `Charge`.
        """
        each = [charge.each for charge in self.charges.made if charge.kind == kind]
        return sum(each, jnp.zeros_like(self.cohort.ids))

    def _charge(self, kind: str, each: int | Array, who: Array | bool = True) -> None:
        """Add a charge on the participants `who`. Outside of a round nothing is sent."""
        if self.in_round:
            self.charges.add(Charge(kind, jnp.where(self.cohort.mask & who, each, 0)))

    @property
    def missed_last_round(self) -> Array:
        """bool[S]: which participants may have missed what everybody was sent after the last round,
        so that it has to be sent to them now."""
        cohort, devices = self.cohort, self.cohort.kept.devices
        participants = self.hyper.get("participants", cohort.ids.shape[0])
        drawn = participants < jnp.sum(self.federation.real)
        comes = (self.federation.arrive[cohort.ids] == cohort.round) & (cohort.round > 0)
        away = devices is not None and devices.there is not None
        return comes | drawn | ("dropout" in self.hyper) | ("clock.deadline_s" in self.hyper) | away

    def by_blocks(self, one: Callable[[Array, Array], Array], most: int) -> Array:
        """Return f32[K, S]: what a function says of the participants, a block of them at a time, so
        that memory holds one block. A block in which nobody takes part costs nothing.

        Args:
            one: (clients i32[n], mask bool[n]) -> f32[K, n].
            most: The most participants of a block.
        """
        clients, mask = self.cohort.ids, self.cohort.mask
        size = -(-clients.shape[0] // -(-clients.shape[0] // most))
        padding = -clients.shape[0] % size
        parts = (
            jnp.pad(clients, (0, padding)).reshape(-1, size),
            jnp.pad(mask, (0, padding)).reshape(-1, size),
        )
        form = jax.eval_shape(one, *jax.tree.map(lambda a: a[0], parts))

        def some(part: tuple[Array, Array]) -> Array:
            return jax.lax.cond(
                jnp.any(part[1]), one, lambda *_: jnp.zeros(form.shape, form.dtype), *part
            )

        found = jax.lax.map(some, parts)
        return jnp.moveaxis(found, 0, 1).reshape(form.shape[0], -1)[:, : clients.shape[0]]


def ask_all(
    solver: Solver,
    key: Array,
    federation: Federation,
    who: Array,
    hyper: Hyper,
    active: Array | None,
    client_params: Array | None = None,
) -> Ask:
    """Return the ask of all clients where `who` bool[C], outside of a round.
    `client_params` as in `ClientState`."""
    clients = jnp.arange(federation.clients, dtype=jnp.int32)
    kept = ClientState(client_params=client_params)
    cohort = Cohort(clients, who, jnp.ones(clients.shape), jnp.int32(0), kept)
    return Ask(solver, key, federation, cohort, hyper, active, in_round=False)
