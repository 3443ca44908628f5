"""What a method's file needs: the recipes, their options, and what their functions get and
return."""

from cfljax.local.averages import AVERAGES
from cfljax.local.optimiser import StepRule
from cfljax.local.own_steps import GradientAt, OwnSteps
from cfljax.local.reports import report
from cfljax.local.rounds import jobs_from
from cfljax.local.schedule import Work
from cfljax.local.solver import Solver
from cfljax.registry.options import option
from cfljax.round.ask import Ask
from cfljax.round.at_home import AtHome, AtHomeState
from cfljax.round.before import Before
from cfljax.round.choice import ByScore, ByServer, Choice, ChoosingMethod, Prepared
from cfljax.round.clustered import Clustered
from cfljax.round.common import first_model, first_models, join, keep_own, need_clients
from cfljax.round.config import MethodConfig, PersonalConfig
from cfljax.round.control import Controlled
from cfljax.round.draw import Draw, Everybody, PerCluster, WarmUp
from cfljax.round.entry import entry
from cfljax.round.first_clusters import FirstClusters, OneCluster, TrueGroups
from cfljax.round.joining import Joining, OnArrival
from cfljax.round.local import (
    BesideGlobal,
    FromBuffer,
    LocalTraining,
    Noting,
    OneGradient,
    head_rate,
)
from cfljax.round.merging import Merging, Reassigned
from cfljax.round.peers import OwnModels, Peers
from cfljax.round.recluster import every
from cfljax.round.rows import RowUpdates, round_of_rows
from cfljax.round.similarity import (
    compared_columns,
    compared_size,
    similarity,
    sketch_if,
    sketch_on_host_if,
    train_and_compare,
)
from cfljax.round.soft import (
    MixtureState,
    Soft,
    count_labels,
    in_lists,
    mean_over_samples,
    sample_labels,
)
from cfljax.round.state import InitialClusters, RoundResult, State, mark_slots

__all__ = [
    "Ask",
    "AtHome",
    "AVERAGES",
    "Before",
    "BesideGlobal",
    "ByScore",
    "ByServer",
    "Choice",
    "ChoosingMethod",
    "InitialClusters",
    "Clustered",
    "Controlled",
    "Draw",
    "Everybody",
    "FirstClusters",
    "FromBuffer",
    "Joining",
    "LocalTraining",
    "Merging",
    "OnArrival",
    "OneCluster",
    "Noting",
    "OneGradient",
    "RoundResult",
    "GradientAt",
    "AtHomeState",
    "MethodConfig",
    "MixtureState",
    "OwnModels",
    "OwnSteps",
    "PerCluster",
    "Peers",
    "PersonalConfig",
    "Prepared",
    "Reassigned",
    "RowUpdates",
    "Soft",
    "Solver",
    "State",
    "StepRule",
    "TrueGroups",
    "WarmUp",
    "Work",
    "sketch_if",
    "compared_columns",
    "compared_size",
    "count_labels",
    "entry",
    "every",
    "first_model",
    "first_models",
    "head_rate",
    "in_lists",
    "jobs_from",
    "join",
    "keep_own",
    "mark_slots",
    "mean_over_samples",
    "need_clients",
    "option",
    "report",
    "round_of_rows",
    "sample_labels",
    "sketch_on_host_if",
    "similarity",
    "train_and_compare",
]
