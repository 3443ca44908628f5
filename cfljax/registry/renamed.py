"""Names of `cfljax.extend` that changed after version 0.2.0, for the message to a plug-in that has
an old one. An old name does not work; without this table an old function of a recipe would be
ignored in silence."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from cfljax.errors import SpecError

RENAMED: Mapping[str, str] = {
    "Begun": "InitialClusters",
    "Done": "RoundResult",
    "Kept": "AtHomeState",
    "Mixed": "Aggregate",
    "Mixtures": "MixtureState",
    "Before.here": "clients_to_cluster",
    "Before.present": "present_clients",
    "Before.late": "late_clients",
    "Before.drawn": "draw_clients",
    "Before.ordered": "sort_by_uid",
    "Before.of_all": "labels_from_pairs",
    "Before.asked_now": "count_pretrained",
    "Before.asked": "has_pretrained",
    "Before.own": "client_params",
    "Ask.send": "download",
    "Ask.report": "upload",
    "Ask.models_of_all": "download_all",
    "Ask.broadcast": "missed_last_round",
    "Ask.diag": "show",
    "State.there": "active_mask",
    "State.guess": "labels_if_joining",
    "State.asked": "pretrained_count",
    "State.whole": "global_model",
    "State.own": "client_params",
    "ClientState.own": "client_params",
    "AtHomeState.home": "rows",
    "OwnModels.own": "rows",
    "InitialClusters.guess": "labels_if_joining",
    "RoundResult.sane": "finite",
    "Clustered.settle": "remember_after_server_step",
    "Clustered.shows": "compute_diagnostics",
    "AtHome.shows": "compute_diagnostics",
    "Clustered.kept": "extras",
    "Soft.kept": "extras",
    "MethodConfig.repeats": "shared_copies_downloaded",
    "Clustered.single": "has_fixed_labels",
    "MethodConfig.waits": "asynchronous_unsupported",
    "MethodConfig.one_sum": "publishes_one_sum_per_round",
    "MethodConfig.own_server": "server_step_is_own",
    "MethodConfig.served": "server_models",
    "MethodConfig.serves": "moved_by_server",
    "Method.settle": "after_server_step",
    "Solver.losses.own": "client_params",
}
"""Old name -> new name. The name of a member, or of an argument, stands after its owner's."""

POLICIES: Mapping[str, str] = {
    "Clustered.everybody": "draw = Everybody()",
    "Clustered.warmup_rounds": "draw = WarmUp(rounds)",
    "Clustered.clients_per_cluster": "draw = PerCluster(most)",
    "Clustered.chooses": "choice = ByScore()",
    "Clustered.scores_on_server": "choice = ByServer()",
    "Clustered.reseed": 'choice = ByScore(reseed="when_empty")',
    "Clustered.estimate": "choice = ByScore(first_batch=True)",
    "Clustered.makes_models": "choice = Prepared()",
    "Clustered.choose": "choice = Mine(), where Mine is a Choice with this function",
    "Clustered.splits": "first_clusters = OneCluster()",
    "Clustered.true_groups": "first_clusters = TrueGroups()",
    "Clustered.reassign": "merging = Mine(), where Mine is a Reassigned with this function",
    "Clustered.memory_of_clusters": 'averaged = (*super().averaged, "memory"), as a property',
    "Clustered.joins_on_arrival": "joining = OnArrival()",
    "Clustered.newcomers_train": "joining = Joining(trains=False)",
    "Clustered.pull": 'local = BesideGlobal("lam")',
    "Clustered.aggregate": "local = OneGradient()",
    "Clustered.buffers": 'local = FromBuffer("beta")',
    "Clustered.notes": "local = Noting(7)",
}
"""A member that went -> the line of a method that says the same by a policy."""


def need_new_names(cls: type) -> None:
    """Raise SpecError if a recipe's subclass overrides what has another name now, or went. An
    option may have any name."""
    for name, value in vars(cls).items():
        now = _tell_new(cls, name)
        if now and not isinstance(value, dataclasses.Field):
            raise SpecError(f"class {cls.__name__}: {now}")


def explain_old_name(error: BaseException) -> str:
    """Return "; " and what to write now if an old name has caused this error, else ""."""
    if isinstance(error, AttributeError):
        now = _tell_new(type(error.obj), error.name or "")
        return now and f"; {now}"
    new = ""
    if found := re.search(r"(\S+)\(\) got an unexpected keyword argument '(\w+)'", str(error)):
        old = found[2]
        new = RENAMED.get(f"{found[1].removesuffix('.__new__')}.{old}", "")
    elif found := re.search(r"unexpected field names: \['(\w+)'", str(error)):
        # `_replace` of a NamedTuple does not say of which: perhaps of one of these
        old = found[1]
        keys = (f"{state}.{old}" for state in ("State", "AtHomeState", "OwnModels"))
        new = " or ".join(RENAMED[key] for key in keys if key in RENAMED)
    return new and f"; {old} is called {new} now"


def _tell_new(cls: type, old: str) -> str:
    """Return what to write for a member that this class or its bases had; "" if it had none of this
    name."""
    for base in cls.__mro__:
        key = f"{base.__name__}.{old}"
        if not base.__module__.startswith("cfljax."):
            continue
        if key in RENAMED:
            return f"{old} is called {RENAMED[key]} now"
        if key in POLICIES:
            return f"{old} went; write {POLICIES[key]}"
    return ""
