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
# The bits of a word of `Carry.traffic`
WORD_BITS = 20
# Sums of traffic are kept in two words: a million clients send 2³¹ models in some hundred rounds
WORD = 1 << WORD_BITS


class Stop(NamedTuple):
    """A run ends at the first evaluation at which its metric has not become better for `patience`
    rounds."""

    patience: int
    # A quantity of the history
    metric: str
    # Whether higher values are better; None: only of an accuracy
    higher: bool | None = None

    @property
    def sign(self) -> int:
        """1: the higher the better; −1: the lower."""
        higher = self.metric.endswith("accuracy") if self.higher is None else self.higher
        return 1 if higher else -1


class Asynchronous(NamedTuple):
    """The server continues when some updates have arrived, without waiting for all
    (`train.asynchronous`)."""

    # The number of updates that it waits for
    buffer: int
    # The number of client-side parameters
    home: int = 0


class Settings(NamedTuple):
    """The static settings of a program, besides shapes."""

    rounds: int
    participants: int
    # How many of them are drawn, a number that programs do not depend on; None: all
    drawn: int | None = None
    eval_every: int = 1
    # The most evaluations of a chunk, whose results wait on the device
    evaluations: int = 10
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
    # Names of metrics of the user's own
    metrics: tuple[str, ...] = ()
    # Those of them that are computed on validation samples, too
    val_metrics: tuple[str, ...] = ()
    sending: Sending = Sending()
    # When a run ends early; None: never
    stop: Stop | None = None
    # Bytes of an update on its way up; None: four for each number
    vector_up: int | None = None
    # Bytes of a model on its way down; None: four for each number that travels
    vector_down: int | None = None
    clock: tuple[float, float] | None = None
    """Bytes of a vector on its way (down, up), where there is a simulated clock; None: there is
    none."""
    # Asynchronous aggregation; None: the server waits for all updates
    asynchronous: Asynchronous | None = None

    def without(self, *names: str) -> Settings:
        """Reset these settings to their defaults."""
        plain = Settings(rounds=0, participants=0)
        return self._replace(**{name: getattr(plain, name) for name in names})

    @property
    def of_programs(self) -> Settings:
        """Return the settings that programs are compiled for, without what only the host reads:
        equal for runs that share programs."""
        return self.without("rounds", "eval_every", "evaluations", "label_history", "stop", "drawn")


class FineTuning(NamedTuple):
    """Clients that are scored after some steps of local training, when all rounds are over."""

    # Their positions among the clients that `afterwards.PlaceClients` gives
    ids: tuple[int, ...]
    # After how many local steps each is scored
    steps: tuple[int, ...]
    # Trains them
    solver: Solver
    # Whether they have no labels
    unlabelled: bool = False
    # Whether each takes the model with the least mean entropy of its predictions
    by_entropy: bool = False


class Assembled(NamedTuple):
    """All that `simulate` needs besides seeds and numbers."""

    method: Method
    model: Model
    # On the device; of numpy arrays where its samples are dealt to devices (`sharded`)
    federation: Federation
    settings: Settings
    # How the method's solver trains clients
    plan: Plan = Plan()
    # The devices that a round's participants are dealt to; None: one device
    mesh: jax.sharding.Mesh | None = None
    # Whether the pool of samples is dealt to the devices, too
    sharded: bool = False
    # Names everything static that the method and the model were made from, so that a later batch
    # with the same key, plan and settings reuses the compiled programs, whatever its number of
    # rounds; None: nothing is reused
    program_key: Hashable = None
    # Names everything that the model was made from, so that all methods share the program that
    # evaluates it; None: nothing is reused
    model_key: Hashable = None
    # Clients that have taken part in no round; None: there are none
    newcomers: FineTuning | None = None
    # The clients of an evaluation, which fine-tune their models (`train.finetune_steps`); None:
    # they do not
    finetuned: FineTuning | None = None


class Sum(NamedTuple):
    """A sum of many small numbers, as two numbers that are added up in the end."""

    high: Array
    low: Array


class Wall(NamedTuple):
    """The simulated clock after some rounds."""

    # f32[] each: seconds since the start of the run
    elapsed: Sum
    # f32[] each: seconds that clients have computed and communicated, summed over the clients
    busy: Sum
    # i32[]: number of client-rounds dropped because the client would have missed the deadline;
    # None: there is no deadline
    late: Array | None
    # f32[K]: seconds that the members of each cluster have waited for the slowest participants of
    # their rounds
    waited: Array


class Carry(NamedTuple):
    """A run between two chunks of rounds: the content of a checkpoint, besides the history and the
    number of rounds done."""

    state: Tree
    # i32[4, 2]: each number of Traffic since the start, as multiples of WORD and the rest
    traffic: Array
    # i32[] broken updates since the start
    nonfinite: Array
    # i32[] the first round after which none of its updates was finite, or −1
    lost_at: Array
    # The simulated clock; None: there is none
    wall: Wall | None = None
    # The updates in flight; None: the updates of a round arrive in it
    flight: Flight | None = None


class StateView(NamedTuple):
    """An evaluation's view of a method's state."""

    # f32[K, d]
    models: Array
    # i32[C]: the model that each client belongs to; −1: none yet
    labels: Array
    # i32[C]: the model that each client is scored by (`Method.score`); None: the model of its label
    guess: Array | None
    # f32[C, K]: the weights with which each client mixes the models; None: each is scored by one
    # model
    mixture: Array | None
    # Further models of the clients by name, as `Method.also` gives them
    also: dict[str, tuple[Array, Array]]
    # f32[C, K]: the weights of each client in models, for the record alone; None: the weights of
    # `mixture`, if any
    shares: Array | None = None
