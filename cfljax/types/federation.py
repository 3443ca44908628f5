"""Data, clients, the participants of a round, and their updates in flight."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from cfljax.lazy import jit, jnp, tree
from cfljax.types.arrays import Array


class Source(NamedTuple):
    """HOST. A named data set as numpy arrays. The readers of `cfljax.data` return it."""

    name: str
    x_train: np.ndarray
    """u8, f32 or i32 (token ids) [n_train, ...]."""
    y_train: np.ndarray
    """i32[n_train], 0 … classes − 1; of samples with several labels i32[n_train, classes], 0 or
    1; f32[n_train] of a continuous target."""
    x_test: np.ndarray
    """[n_test, ...], of the type of `x_train`."""
    y_test: np.ndarray
    """i32[n_test], or i32[n_test, classes]."""
    classes: int
    """The number of classes; 1 for a continuous target."""
    user_train: np.ndarray | None = None
    """i32[n_train]: the user who made each sample; None: the data set does not say."""
    user_test: np.ndarray | None = None
    """i32[n_test]: the same for the test samples."""
    population: np.ndarray | None = None
    """i32[users]: the true population of each user; None: the data set does not say."""
    table: np.ndarray | None = None
    """f32[vocabulary, width]: a fixed vector for each token; None: x holds no token ids."""
    coarse: np.ndarray | None = None
    """i32[classes]: the coarse label of each class, −1 for a class without samples; None: the data
    set does not say."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """HOST. What a partition returns: the samples of each client. A row r is training sample r of
    the source if r is below n = `len(source.y_train)`, else its test sample r − n."""

    train: list[np.ndarray]
    """i64[n_i]: the training rows of each client. A client with an empty array never trains and is
    only tested."""
    test: list[np.ndarray] | np.ndarray
    """i64[n_i]: the test rows of each client, or one array of rows that all clients are tested
    on."""
    group: np.ndarray
    """i32[C]: the true group of each client; −1: unknown."""
    view: np.ndarray | None = None
    """i32[C]: through which of the V views below each client sees its samples; None: all clients
    see the data unchanged."""
    pixels: np.ndarray | None = None
    """i32[V, F]: the index, in the original flattened sample, of each value that the view shows
    (−1: the value is zero)."""
    labels: np.ndarray | None = None
    """i32[V, classes]: the label that replaces each label in the view."""
    gain: np.ndarray | None = None
    """f32[V]: the factor of the view: a sample x becomes gain · x + offset, after the scaling of
    `Pool`."""
    offset: np.ndarray | None = None
    """f32[V]: the number that the view adds, see `gain`."""
    source: Source | None = None
    """The data set of the rows, if the partition has made a new one (by copying or drawing
    samples); None: the given one."""
    origin: np.ndarray | None = None
    """i64[n]: of which original sample each training sample of `source` is a copy; None: of
    none."""
    by_group: np.ndarray | None = None
    """i32[G, C]: through which view each client would see its samples in each true group, where
    views are combined (none, i32[0, C], where that is not a matter of a view alone); None: as the
    other clients of the group do."""
    by_label: np.ndarray | None = None
    """i32[V, classes]: through which view clients of each view see samples of each label of the
    source: its pixels, gain and offset, but not its labels; None: through their own."""


class Flight(NamedTuple):
    """M slots for updates in flight. Each holds an update that is computed and has not arrived yet,
    or is free. The cohort of a server step has the same M slots: it trains the clients that take
    free ones, and masks the others."""

    # i32[M]: positions of the clients on the client axis
    ids: Array
    # bool[M]: whether the slot is taken, by a client that began in an earlier step
    busy: Array
    # f32[M]: simulated seconds until the update arrives
    left: Array
    # i32[M]: the server step at whose start the last client of this slot got its models; −1: none
    # yet
    begun: Array
    # f32[M]: the share of its local steps that the client does (`Jobs.work`)
    work: Array
    # i32[M, 2]: the vectors and floats that arrive with the update
    up: Array
    # i32[M]: the cluster of the update: the one that the client trained for
    which: Array
    # f32[M, d]: the updates, as they will arrive
    delta: Array
    # f32[M]: their training losses
    loss: Array
    # f32[M, n]: the updates of client-side parameters (`Updates.home`); None: there are none
    home: Array | None
    # i32[]: the staleness of all updates that have arrived since the start of the run, added up
    staleness: Array
    # i32[]: how many these are
    arrived: Array
    # i32[K]: how many updates of each cluster's members have arrived since the start of the run
    applied: Array
    arrives: Array | None = None
    """bool[M]: whether the update arrives in this step; None: it is not known yet, as before a step
    and while it is timed. Then methods train and mix as if there were no flight."""
    # f32[M]: what an update's part of the mean of its cluster is multiplied by; None as `arrives`
    discount: Array | None = None


# The round in which newcomers arrive: they are placed and scored when all rounds are over
NEVER = 2**31 - 1


class Pool(NamedTuple):
    """All samples of a federation, each stored once. Models see `(x − mean) · scale` as float32, or
    `table[x]` for token ids."""

    # u8, f32 or i32 [P, ...]
    x: Array
    # i32[P]; i32[P, classes] of 0 and 1, where a sample may have several labels
    y: Array
    # f32[], or f32[...] with the shape of one sample: what is subtracted from a sample
    mean: Array
    # The factor after the subtraction; its shape is `mean`'s
    scale: Array
    # f32[vocabulary, width] the vector of each token; None: x holds no token ids
    table: Array | None = None


class View(NamedTuple):
    """How clients see the samples of the pool (rotation, other labels, shifted features). It is
    applied when samples are gathered, so the pool is never copied. A field is None if no view needs
    it; `of` is `Parts.view`, and the others have their names and shapes from `Parts`."""

    of: Array
    pixels: Array | None = None
    labels: Array | None = None
    gain: Array | None = None
    offset: Array | None = None
    by_label: Array | None = None


class Grams(NamedTuple):
    """The Gram matrices (inner products of all pairs of a client's samples) of the clients that are
    trained on them."""

    # i32[C]: the first row of each client in the array for its size
    start: Array
    rows: tuple[Array, ...]
    """One array f32[rows, n] for each size n, the smallest size first. It holds one row per sample,
    one client after another."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes n, ascending. A client is in the array for the smallest size that is not below
        its number of samples."""
        return tuple(each.shape[1] for each in self.rows)


@tree
@dataclasses.dataclass(frozen=True)
class Split:
    """The pool rows of each client: client c has `rows[start[c] : start[c] + count[c]]`. Clients
    are not padded to the size of the largest; entries outside of these ranges are never read."""

    rows: Array
    """i32[T]: indices into the pool."""
    start: Array
    """i32[C]: where the rows of each client begin."""
    count: Array
    """i32[C]: the number of rows of each client."""
    longest: int = dataclasses.field(metadata={"static": True})
    """An upper bound of `count`. It decides the shapes of arrays, so it is static."""
    shared: bool = dataclasses.field(default=False, metadata={"static": True})
    """Whether all clients have the same rows (one global test set)."""
    grams: Grams | None = None
    """The Gram matrices that `local.products` has computed before the first round; None: they are
    computed during training."""

    def take(self, clients: Array) -> Split:
        """Select clients. The array of rows stays whole.

        Args:
            clients: i32[n] positions on the client axis, in the wanted order.
        """
        grams = None if self.grams is None else self.grams._replace(start=self.grams.start[clients])
        return dataclasses.replace(
            self, start=self.start[clients], count=self.count[clients], grams=grams
        )


class Drift(NamedTuple):
    """Each client's true group and view as a function of the round: P phases, each of which lasts
    until the next begins."""

    # i32[P] the first round of each phase, ascending; the first is 0
    begin: Array
    # i32[P, C]: `Federation.group` in each phase
    group: Array
    # i32[P, C]: `View.of` in each phase
    view: Array

    def take(self, clients: Array) -> Drift:
        """Select these clients."""
        return Drift(self.begin, self.group[:, clients], self.view[:, clients])


@tree
@dataclasses.dataclass(frozen=True)
class Devices:
    """The clients' devices, for the simulated clock (`train.clock`)."""

    # f32[C]: a normal draw of each client; its speed is exp(spread · pace)
    pace: Array
    times: Array | None = None
    """f32[T]: the rounds, or the seconds, from which on each row of a trace holds; the first is 0.
    None: there is no trace."""
    # bool[T, C]: whether clients can be drawn
    available: Array | None = None
    # f32[T, C]: what the trace multiplies their speeds by
    factor: Array | None = None
    by_seconds: bool = dataclasses.field(default=False, metadata={"static": True})
    """Whether `times` are seconds of the simulated clock; False: rounds."""


@tree
@dataclasses.dataclass(frozen=True)
class Federation:
    """The clients and their data, on the device. C clients, dummies that pad the client axis
    included.

    Example:
        ```python
        samples_of_each = federation.train.count  # i32[C]
        who = federation.trains  # bool[C]
        ```
    """

    pool: Pool
    train: Split
    test: Split
    uid: Array
    """i32[C]: the identity of each client, from which its random keys are derived; −1: a dummy that
    pads the client axis."""
    group: Array
    """i32[C]: the true group of each client; −1: unknown."""
    arrive: Array
    """i32[C]: the first round in which each client can take part; NEVER: a newcomer."""
    view: View | None = None
    valid: Split | None = None
    """Training samples of each client that are set aside for validation; None: none are."""
    owner: Array | None = None
    """i32[C]: the index of the device that holds each client's samples; None: every device holds
    all samples."""
    drift: Drift | None = None
    """How `group` and `view.of` change after round 0; None: they do not. Methods get the federation
    `at` a round, without drift."""
    devices: Devices | None = None
    """The clients' devices; None: there is no simulated clock."""
    classes: int = dataclasses.field(default=0, metadata={"static": True})
    """The number of classes."""
    groups: int = dataclasses.field(default=0, metadata={"static": True})
    """The number of true groups; 0: unknown."""
    form: tuple[int, ...] | None = dataclasses.field(default=None, metadata={"static": True})
    """The shape of a sample where the pool has it as a line, as on an accelerator; None: the shape
    of `pool.x`."""

    @property
    def several(self) -> bool:
        """Whether a sample may have several labels."""
        return self.pool.y.ndim == 2

    @property
    def continuous(self) -> bool:
        """Whether the target is a number instead of a class."""
        return self.pool.y.dtype.kind == "f"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of a sample of the pool."""
        return self.pool.x.shape[1:] if self.form is None else self.form

    @property
    def splits(self) -> dict[str, Split]:
        """Its splits by the names of the fields: `train`, `test`, and `valid` where there is
        one."""
        return {"train": self.train, "test": self.test} | (
            {} if self.valid is None else {"valid": self.valid}
        )

    def with_splits(self, splits: dict[str, Split]) -> Federation:
        """Return the federation with other splits.

        Args:
            splits: {"train", "test" and, if there are any, "valid": the split}.
        """
        return dataclasses.replace(
            self, train=splits["train"], test=splits["test"], valid=splits.get("valid")
        )

    @property
    def clients(self) -> int:
        """The number C of clients, dummies included."""
        return self.uid.shape[0]

    @property
    def real(self) -> Array:
        """bool[C]: clients that are not dummies."""
        return self.uid >= 0

    @property
    def holds(self) -> Array:
        """bool[C]: real clients that hold training data, late ones and newcomers included."""
        return _clients(self.uid, self.train.count, self.arrive)[0]

    @property
    def trains(self) -> Array:
        """bool[C]: real clients that train in some round, late ones included."""
        return _clients(self.uid, self.train.count, self.arrive)[1]

    def at(self, round: Array | int) -> Federation:
        """Return the federation as it is in a round: the groups and views of its phase.

        Args:
            round: i32[] the index of the round, or an int.
        """
        if self.drift is None or self.view is None:
            return self
        phase = (self.drift.begin <= round).sum() - 1
        view = self.view._replace(of=self.drift.view[phase])
        return dataclasses.replace(self, group=self.drift.group[phase], view=view, drift=None)

    def take(self, clients: Array) -> Federation:
        """Select clients. They keep identities, rows and groups, and have no devices.

        Args:
            clients: i32[n] positions on the client axis, in the wanted order.
        """
        view, owner = self.view, self.owner
        return dataclasses.replace(
            self,
            train=self.train.take(clients),
            test=self.test.take(clients),
            valid=None if self.valid is None else self.valid.take(clients),
            uid=self.uid[clients],
            group=self.group[clients],
            arrive=self.arrive[clients],
            view=None if view is None else view._replace(of=view.of[clients]),
            owner=None if owner is None else owner[clients],
            drift=None if self.drift is None else self.drift.take(clients),
            devices=None,
        )


class DevicesNow(NamedTuple):
    """The clients' devices in one round."""

    # f32[C]: the speed of each client
    speed: Array
    # bool[C]: clients that can be drawn; None: all
    there: Array | None = None
    # bool[C]: clients that would miss the deadline; None: none
    late: Array | None = None


class ClientState(NamedTuple):
    """What belongs to clients during a round besides data: rows of all clients, of which each
    participant finds its own. A field is None if nothing of the kind is kept."""

    client_params: Array | None = None
    """f32[C, n]: the parameters that stay with each client (`train.parts`)."""
    rows: dict[str, Array] = {}
    """f32[C, n] by name: what stages keep for clients from round to round. "residual" is what
    compression has dropped of a client's updates (`train.compress.feedback`); "optimiser" the state
    of its optimiser (`train.optimizer_state`), which starts fresh where its row is not finite."""
    flight: Flight | None = None
    """The updates in flight (`train.asynchronous`); None: every update arrives in its round."""
    devices: DevicesNow | None = None
    """The clients' devices in this round (`train.clock`)."""

    def take(self, client: Array) -> dict[str, Array]:
        """Return the `rows` of a client i32[], or of some clients i32[n], by name."""
        return {name: table[client] for name, table in self.rows.items()}


class Cohort(NamedTuple):
    """The participants of one round, padded to S entries.

    Example:
        ```python
        own = state.labels[cohort.ids]  # the cluster of each participant
        number = jnp.sum(cohort.mask)  # how many take part
        ```
    """

    ids: Array
    """i32[S]: positions of the participants on the client axis."""
    mask: Array
    """bool[S]: False for padding, dropped-out clients and clients that have not arrived."""
    work: Array
    """f32[S] in (0, 1]: the share of its local steps that each participant does; below 1 for
    stragglers."""
    round: Array
    """i32[]: the index of the round."""
    kept: ClientState = ClientState()
    """What belongs to the clients in this round."""

    def repeat(self, times: int) -> Cohort:
        """Return a cohort of S · times entries, each participant `times` times in a row, for
        methods in which it trains several models.

        Args:
            times: How many models each trains.
        """
        ids, mask, work = (jnp.repeat(each, times) for each in (self.ids, self.mask, self.work))
        return self._replace(ids=ids, mask=mask, work=work)

    def write(self, table: Array, rows: Array | bool, who: Array | bool = True) -> Array:
        """Return a table with new rows of participants. All other clients keep theirs.

        Args:
            table: [C, …] a row of each client.
            rows: [S, …] the new rows of the participants, or one for all of them.
            who: bool[S] whose rows are written; True: those of all participants.

        Example:
            ```python
            rows = cohort.write(state.rows, trained, usable(trained))
            ```
        """
        # An index past the last client is left out: padding, and who takes no part
        into = jnp.where(self.mask & who, self.ids, table.shape[0])
        return table.at[into].set(rows, mode="drop")


def _clients(uid: Array, count: Array, arrive: Array) -> tuple[Array, Array]:
    """Return which clients hold training data, and which train in some round, bool[C] each."""
    # A preview reads data without starting a device
    on_host = isinstance(uid, np.ndarray)
    return _holds_and_trains(uid, count, arrive) if on_host else _compiled(uid, count, arrive)


def _holds_and_trains(uid: Array, count: Array, arrive: Array) -> tuple[Array, Array]:
    holds = (uid >= 0) & (count > 0)
    return holds, holds & (arrive < NEVER)


# Outside of jit, one program instead of one per comparison
_compiled = jit(inline=True)(_holds_and_trains)
