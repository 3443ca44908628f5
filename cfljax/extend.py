"""The names that plug-ins may import: plug-ins are methods, models, partitions, data sets, metrics
and compressors that you add.

These names stay the same from version to version; all other modules of cfljax may change.
`docs/own.md` shows how to use them. Plug-ins are registered by the decorators
`cfljax.register_method`, `register_model`, `register_partition`, `register_data`,
`register_metric` and `register_compressor`; `cfljax.option` makes a field of their options. A
compressor of updates is a `Compressor`.

A method is a class: `Clustered` (each client in one of K clusters), `Soft` (each with a mixture of
K models), `AtHome` (a global model, and something that stays with each client) or `Peers` (a model
for each client, near a mixture of all of them). A `Draw` says who takes part in a round of
`Clustered` (`Everybody`, `PerCluster`, `WarmUp`; `draw_highest` and `uniform_numbers` for one of
your own), a `Choice` how participants get their cluster (`ByScore`, `ByServer`, `Prepared`), a
`Joining` when late clients get theirs (`OnArrival`), `FirstClusters` what there is before the first
round (`OneCluster`, `TrueGroups`), a `LocalTraining` what participants do (`OneGradient`,
`FromBuffer`, `BesideGlobal`, `Noting`; one of your own returns `AfterTraining`), a `Merging` how
models are made of that (`Reassigned`).
Their functions get `Ask`, in `begin` and `regroup` `Before`; they return `InitialClusters` and
`State`, and see a `RoundResult`. What has another round is a function that returns a `Method`. What
that needs, in the order of a round:

- The state: a NamedTuple of the plug-in, with `first_model`, `first_models`, `part_of` (the
  parameters of a layer), `head_of` (the path of the last one).
- A choice of clusters: `Solver.losses`, `Solver.sample_losses`, `least_loss`, `nearest`, `join`.
- Local training: `jobs_from`, then `Solver.fit`; `Cohort.repeat` where a participant trains several
  models. `Work`, `LocalStep`.
- Steps of its own: `Solver.with_own_steps`, `OwnSteps`, `GradientAt`.
- Aggregation of updates: `weights_by` and `averages` (mixing matrices), `mix_updates`, `usable`;
  `keep_own` for personal models. Then `report`.
- A row for each client: `round_of_rows` takes the rows, checks and writes them, bills and reports;
  the training is a function that returns `RowUpdates`.
- Both in one, in blocks of participants if memory is short: `train_and_mix`, then `report_trained`.
  `traffic`, `sizes` and `mean_over` count and average.
- Data: `log_mel`, features of sounds for the models of sequences.
"""

from cfljax.data.importing_sounds import log_mel
from cfljax.engine.metrics import Seen
from cfljax.engine.scoring import Scores, score, score_mixtures
from cfljax.federation.cohort import draw_highest, uniform_numbers
from cfljax.federation.gather import client_rows, samples
from cfljax.kernels.choose import least_loss, nearest
from cfljax.kernels.mix import Aggregate, Rule, mix_updates, usable, weights_by
from cfljax.local.averages import averages
from cfljax.local.compressors import Compressor
from cfljax.local.own_steps import GradientAt, OwnSteps
from cfljax.local.reports import mean_loss, mean_over, report, report_trained
from cfljax.local.rounds import Mixing, Trained, jobs_from, sizes, train_and_mix
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.models.flat import head_of, part_of
from cfljax.registry import Entry, option
from cfljax.registry.renamed import RENAMED as _RENAMED
from cfljax.round.ask import Ask
from cfljax.round.at_home import AtHome, AtHomeState
from cfljax.round.before import Before
from cfljax.round.choice import ByScore, ByServer, Choice, Prepared
from cfljax.round.clustered import Clustered
from cfljax.round.common import first_model, first_models, join, keep_own, traffic
from cfljax.round.config import MethodConfig
from cfljax.round.draw import Draw, Everybody, PerCluster, WarmUp
from cfljax.round.first_clusters import FirstClusters, OneCluster, TrueGroups
from cfljax.round.joining import Joining, OnArrival
from cfljax.round.local import (
    AfterTraining,
    BesideGlobal,
    FromBuffer,
    LocalTraining,
    Noting,
    OneGradient,
)
from cfljax.round.merging import Merging, Reassigned
from cfljax.round.peers import OwnModels, Peers
from cfljax.round.rows import RowUpdates, round_of_rows
from cfljax.round.soft import MixtureState, Soft
from cfljax.round.state import InitialClusters, RoundResult, State, mark_slots
from cfljax.types import (
    Array,
    Cohort,
    Federation,
    Hyper,
    Info,
    Jobs,
    LocalStep,
    Method,
    Model,
    Parts,
    Quantity,
    Source,
    Split,
    Traffic,
    Tree,
    Updates,
)

__all__ = [
    "AfterTraining",
    "Aggregate",
    "Array",
    "Ask",
    "AtHome",
    "AtHomeState",
    "Before",
    "BesideGlobal",
    "ByScore",
    "ByServer",
    "Choice",
    "Clustered",
    "Cohort",
    "Compressor",
    "Draw",
    "Entry",
    "Everybody",
    "Federation",
    "FirstClusters",
    "FromBuffer",
    "GradientAt",
    "Hyper",
    "Info",
    "InitialClusters",
    "Jobs",
    "Joining",
    "LocalStep",
    "LocalTraining",
    "Merging",
    "Method",
    "MethodConfig",
    "Mixing",
    "MixtureState",
    "Model",
    "Noting",
    "OnArrival",
    "OneCluster",
    "OneGradient",
    "OwnModels",
    "OwnSteps",
    "Parts",
    "Peers",
    "PerCluster",
    "Prepared",
    "Quantity",
    "Reassigned",
    "RoundResult",
    "RowUpdates",
    "Rule",
    "Scores",
    "Seen",
    "Soft",
    "Solver",
    "Source",
    "Split",
    "State",
    "Traffic",
    "Trained",
    "Tree",
    "TrueGroups",
    "Updates",
    "WarmUp",
    "Work",
    "averages",
    "client_rows",
    "draw_highest",
    "first_model",
    "first_models",
    "head_of",
    "jobs_from",
    "join",
    "keep_own",
    "least_loss",
    "log_mel",
    "mark_slots",
    "mean_loss",
    "mean_over",
    "mix_updates",
    "nearest",
    "option",
    "part_of",
    "report",
    "report_trained",
    "round_of_rows",
    "samples",
    "score",
    "score_mixtures",
    "sizes",
    "traffic",
    "train_and_mix",
    "uniform_numbers",
    "usable",
    "weights_by",
]

_REMOVED = {
    "Clusters": "write your own NamedTuple(models, labels)",
    "by_loss": "use least_loss(solver.losses(federation, models, clients, mask))",
    "chosen": "use a class on Clustered with choice = ByScore()",
    "train_clusters": "use averages, train_and_mix and report_trained",
}
"""A name that plug-ins could import until 0.2.0 -> what to do now."""


def __getattr__(name: str) -> object:
    if name in _RENAMED:
        raise ImportError(f"cfljax.extend.{name} is called {_RENAMED[name]} now")
    if name in _REMOVED:
        raise ImportError(f"cfljax.extend has no {name} any more: {_REMOVED[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
