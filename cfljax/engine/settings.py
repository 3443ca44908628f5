"""The settings of a batch of runs, and the state that a run carries from chunk to chunk."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from cfljax.lazy import jax
from cfljax.local.send import Sending
from cfljax.local.solver import Solver
from cfljax.types import Array, Federation, Flight, Method, Model, Plan, Tree

# Where clients × models are at most this, the weights of the clients in the models are kept of each
# evaluation
MAX_SHARES = 10_000
WORD_BITS = 20  # The bits of a word of `Carry.traffic`
WORD = (
    1 << WORD_BITS
)  # Sums of traffic are kept in two words: a million clients send 2³¹ models in some hundred rounds


class Stop(NamedTuple):
    """A run ends at the first evaluation at which its metric has not become better for `patience`
    rounds."""

    patience: int
    metric: str  # A quantity of the history

    @property
    def sign(self) -> int:
        """1: the higher the better; −1: the lower."""
        return 1 if self.metric.endswith("accuracy") else -1


class Asynchronous(NamedTuple):
    """The server continues when some updates have arrived, without waiting for all
    (`train.asynchronous`)."""

    buffer: int  # The number of updates that it waits for
    home: int = 0  # The number of client-side parameters


class Settings(NamedTuple):
    """The static settings of a program, besides shapes."""

    rounds: int
    participants: int
    eval_every: int = 1
    evaluations: int = 10  # The most evaluations of a chunk, whose results wait on the device
    sequential: bool = True
    """Runs one after another, each in a program for one run, and evaluations in blocks that fit
    into a CPU's cache: the fast way on a CPU. False: runs side by side, and the larger blocks of an
    accelerator."""
    score: str = "all"
    discrepancy: str = "after"
    test_choice: str = "holdout"
    eval_clients: int | None = None
    precision: str = "highest"
    label_history: bool = True
    metrics: tuple[str, ...] = ()  # Names of metrics of the user's own
    sending: Sending = Sending()
    stop: Stop | None = None  # When a run ends early; None: never
    vector_up: int | None = None  # Bytes of an update on its way up; None: four for each number
    clock: tuple[float, float] | None = None
    """Bytes of a vector on its way (down, up), where there is a simulated clock; None: there is
    none."""
    asynchronous: Asynchronous | None = (
        None  # Asynchronous aggregation; None: the server waits for all updates
    )

    def without(self, *names: str) -> Settings:
        """Reset these settings to their defaults."""
        plain = Settings(rounds=0, participants=0)
        return self._replace(**{name: getattr(plain, name) for name in names})

    @property
    def of_programs(self) -> Settings:
        """Those that programs are compiled for, without what only the host reads: equal for runs
        that share programs."""
        return self.without("rounds", "eval_every", "evaluations", "label_history", "stop")


class Tuned(NamedTuple):
    """Clients that are scored after some steps of local training, when all rounds are over."""

    ids: tuple[int, ...]  # Their positions among the clients that `afterwards.Place` gives
    steps: tuple[int, ...]  # After how many local steps each is scored
    solver: Solver  # Trains them
    unlabelled: bool = False  # Whether they have no labels
    by_entropy: bool = (
        False  # Whether each takes the model with the least mean entropy of its predictions
    )


class Assembled(NamedTuple):
    """All that `simulate` needs besides seeds and numbers."""

    method: Method
    model: Model
    # On the device; of numpy arrays where its samples are dealt to devices (`sharded`)
    federation: Federation
    settings: Settings
    plan: Plan = Plan()  # How the method's solver trains clients
    mesh: jax.sharding.Mesh | None = (
        None  # The devices that a round's participants are dealt to; None: one device
    )
    sharded: bool = False  # Whether the pool of samples is dealt to the devices, too
    program_key: Hashable = None
    """Names everything static that the method and the model were made from, so that a later batch
    with the same key, plan and settings reuses the compiled programs, whatever its number of
    rounds; None: nothing is reused."""
    model_key: Hashable = None
    """Names everything that the model was made from, so that all methods share the program that
    evaluates it; None: as above."""
    newcomers: Tuned | None = None  # Clients that have taken part in no round; None: there are none
    finetuned: Tuned | None = None
    """The clients of an evaluation, which fine-tune their models (`train.finetune_steps`); None:
    they do not."""


class Sum(NamedTuple):
    """A sum of many small numbers, as two numbers that are added up in the end."""

    high: Array
    low: Array


class Wall(NamedTuple):
    """The simulated clock after some rounds."""

    elapsed: Sum  # f32[] each: seconds since the start of the run
    # f32[] each: seconds that clients have computed and communicated, summed over the clients
    busy: Sum
    late: Array | None
    """i32[]: number of client-rounds dropped because the client would have missed the deadline;
    None: there is no deadline."""
    # f32[K]: seconds that the members of each cluster have waited for the slowest participants of
    # their rounds
    waited: Array


class Carry(NamedTuple):
    """A run between two chunks of rounds: the content of a checkpoint, besides the history and the
    number of rounds done."""

    state: Tree
    # i32[4, 2]: each number of Traffic since the start, as multiples of WORD and the rest
    traffic: Array
    nonfinite: Array  # i32[] broken updates since the start
    lost_at: Array  # i32[] the first round after which none of its updates was finite, or −1
    wall: Wall | None = None  # The simulated clock; None: there is none
    flight: Flight | None = None  # The updates in flight; None: the updates of a round arrive in it


class View(NamedTuple):
    """An evaluation's view of a method's state."""

    models: Array  # f32[K, d]
    labels: Array  # i32[C]: the model that each client belongs to; −1: none yet
    guess: (
        Array | None
        # i32[C]: the model that each client is scored by (`Method.score`); None: the model of its
        # label
    )
    mixture: (
        Array | None
        # f32[C, K]: the weights with which each client mixes the models; None: each is scored by
        # one
        # model
    )
    also: dict[
        str, tuple[Array, Array]
    ]  # Further models of the clients by name, as `Method.also` gives them
    shares: Array | None = None
    """f32[C, K]: the weights of each client in models, for the record alone; None: the weights of
    `mixture`, if any."""
