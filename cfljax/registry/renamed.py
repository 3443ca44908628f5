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
    "Clustered.everybody": "draw",
    "Clustered.warmup_rounds": "draw",
    "Clustered.clients_per_cluster": "draw",
    "Clustered.pull": "local",
    "Clustered.aggregate": "local",
    "Clustered.buffers": "local",
    "Clustered.notes": "local",
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


def need_new_names(cls: type) -> None:
    """Raise SpecError if a recipe's subclass overrides what has another name now. An option may
    have any name."""
    for name, value in vars(cls).items():
        new = _find_new(cls, name)
        if new and not isinstance(value, dataclasses.Field):
            raise SpecError(f"class {cls.__name__}: {name} is called {new} now")


def explain_old_name(error: BaseException) -> str:
    """Return "; OLD is called NEW now" if an old name has caused this error, else ""."""
    new = ""
    if isinstance(error, AttributeError):
        old = error.name or ""
        new = _find_new(type(error.obj), old)
    elif found := re.search(r"(\S+)\(\) got an unexpected keyword argument '(\w+)'", str(error)):
        old = found[2]
        new = RENAMED.get(f"{found[1].removesuffix('.__new__')}.{old}", "")
    elif found := re.search(r"unexpected field names: \['(\w+)'", str(error)):
        # `_replace` of a NamedTuple does not say of which: perhaps of one of these
        old = found[1]
        keys = (f"{state}.{old}" for state in ("State", "AtHomeState", "OwnModels"))
        new = " or ".join(RENAMED[key] for key in keys if key in RENAMED)
    return new and f"; {old} is called {new} now"


def _find_new(cls: type, old: str) -> str:
    """Return the new name of a member of this class or its bases; "" if it has not got another."""
    ours = (base for base in cls.__mro__ if base.__module__.startswith("cfljax."))
    keys = (f"{base.__name__}.{old}" for base in ours)
    return next((RENAMED[key] for key in keys if key in RENAMED), "")
