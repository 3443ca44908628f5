"""What a careful colleague would say of results: the rules, each a function that returns sentences.
A sentence is about what the numbers hide, never about which method is the best."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from cfljax.errors import SpecError
from cfljax.methods import METHODS, find_about
from cfljax.registry.options import Table, Value, show
from cfljax.store.quantities import number, score_of

# At least this share of the runs of clustered methods must agree on another number of clusters
MOST = 0.5


# Seed -> loss and accuracies
Scores = dict[Value, tuple[float, ...]]


class Entrant(NamedTuple):
    """A method with its options on one data set and partition."""

    # As tables call it, with the data where there are several
    title: str
    # Equal for entrants that were trained on the same data
    data: str
    # Of its runs that ended well
    records: list[Table]

    @property
    def method(self) -> str:
        """The name of the method."""
        return str(self.records[0]["method"])

    @property
    def clustered(self) -> bool:
        """Whether each client has one of several models."""
        known = find_about(self.method)
        return known is not None and known.family == "clustered" and self.method != "oracle"

    @property
    def asked_clusters(self) -> int | None:
        """The number of clusters that the method was given; None if it finds the number."""
        given = self.records[0]["config"].get("method", {}).get("clusters")
        return given if isinstance(given, int) else None

    @property
    def found_clusters(self) -> list[int]:
        """The number of clusters with clients at the end of each run."""
        each = (record["summary"].get("clusters_last") for record in self.records)
        return [int(found) for found in each if math.isfinite(number(found))]


def advise_on_runs(entrants: Iterable[Entrant]) -> list[str]:
    """Return what is worth a look in finished runs."""
    blocks: dict[str, list[Entrant]] = {}
    for each in entrants:
        if each.records:
            blocks.setdefault(each.data, []).append(each)
    said = [line for block in blocks.values() for rule in RUN_RULES for line in rule(block)]
    return list(dict.fromkeys(said))


def find_unsplit(block: Sequence[Entrant]) -> list[str]:
    """Find methods that look for clusters and ended with one in all runs."""
    return [
        f"{each.title} never split: it ended with one cluster in {_count_runs(each)}"
        for each in block
        if each.clustered and each.asked_clusters is None and set(each.found_clusters) == {1}
    ]


def find_equal_to_fedavg(block: Sequence[Entrant]) -> list[str]:
    """Find methods whose loss and accuracies are FedAvg's in every digit, with all their seeds."""
    plain = [_map_scores(each) for each in block if each.method == "fedavg"]
    return [
        f"{each.title} equals FedAvg to the last digit in {_count_runs(each)}: nothing of the "
        "method has had an effect"
        for each in block
        if each.method != "fedavg" and _is_among(_map_scores(each), plain)
    ]


def _is_among(scores: Scores, others: Sequence[Scores]) -> bool:
    """Return whether one of the others has the same scores with all these seeds."""
    return bool(scores) and any(scores.items() <= other.items() for other in others)


def _map_scores(each: Entrant) -> Scores:
    """Map the seed of each run to its loss and accuracies. Runs without a loss are left out, as
    accuracies are often equal by chance; and runs that are fine-tuned, which differ in that."""
    names = ("loss_last", "{}_last", "{}_worst10")
    scores = {
        record["seed"]: tuple(
            number(record["summary"].get(name.format(score_of(record)))) for name in names
        )
        for record in each.records
        if f"{score_of(record)}_finetuned" not in record["summary"]
    }
    return {seed: found for seed, found in scores.items() if all(map(math.isfinite, found))}


def find_unused_models(block: Sequence[Entrant]) -> list[str]:
    """Find methods that were given a number of clusters, and ended with fewer in some runs."""
    said = []
    for each in block:
        asked, found = each.asked_clusters, each.found_clusters
        if not each.clustered or asked is None or not found:
            continue
        fewer = [count for count in found if count < asked]
        if fewer:
            used = f"{min(fewer)}" if min(fewer) == max(fewer) else f"{min(fewer)} to {max(fewer)}"
            seeds = f"{len(fewer)} of {len(found)} runs"
            said.append(f"{each.title} used {used} of {asked} models in {seeds}")
    return said


def find_other_number(block: Sequence[Entrant]) -> list[str]:
    """Find that most runs of several clustered methods agree on fewer clusters than were asked
    for."""
    given = [each for each in block if each.clustered and each.asked_clusters is not None]
    asked = {each.asked_clusters for each in given}
    runs = [count for each in block if each.clustered for count in each.found_clusters]
    if len(given) < 2 or len(asked) != 1 or not runs:
        return []
    (number_asked,) = asked
    found, often = Counter(runs).most_common(1)[0]
    if number_asked is None or not 1 < found < number_asked or often < MOST * len(runs):
        return []
    return [
        f"{number_asked} clusters were asked for, and {often} of {len(runs)} runs of clustered "
        f"methods ended with {found}: try clusters = {found}"
    ]


RUN_RULES: tuple[Callable[[Sequence[Entrant]], list[str]], ...] = (
    find_unsplit,
    find_equal_to_fedavg,
    find_unused_models,
    find_other_number,
)
"""Each gets the entrants on one data set and partition."""


def _count_runs(each: Entrant) -> str:
    runs = len(each.records)
    return f"all {runs} runs" if runs > 1 else "its run"


class Edge(NamedTuple):
    """A value that was chosen and is the least or the largest that was tried."""

    option: str
    value: float
    # "least" or "largest"
    end: str
    # The least and the largest value that were tried
    tried: tuple[float, float]


def advise_on_search(table: Table) -> list[str]:
    """Return what is worth a look in the record of a search (`tune.json`)."""
    said = []
    for group in table["groups"]:
        name = " ".join(filter(None, (str(group["label"]), str(group.get("data", "")))))
        for edge in find_edges(group, table):
            low, high = map(show, edge.tried)
            side = "smaller" if edge.end == "least" else "larger"
            said.append(
                f"{name}: the best {edge.option} = {show(edge.value)} is the {edge.end} that was "
                f"tried ({low} to {high}): try {side} ones"
            )
    return said


def find_edges(group: Table, table: Table) -> list[Edge]:
    """Find the options of a group's best setting that are at an edge of what was tried, and could
    go beyond it."""
    best = find_best(group, table)
    if best is None:
        return []
    found = []
    for option, value in best["varies"].items():
        tried = {
            each["varies"][option]
            for each in group["settings"]
            if _is_number(each["varies"].get(option))
        }
        if not _is_number(value) or len(tried) < 2 or value not in (min(tried), max(tried)):
            continue
        end = "least" if value == min(tried) else "largest"
        if value != _find_bound(str(group.get("method", "")), option, end):
            found.append(Edge(option, value, end, (min(tried), max(tried))))
    return found


def find_best(group: Table, table: Table) -> Table | None:
    """Return the best setting; None if none has come to the last rung with a finite score."""
    best = sort_settings(group, table["metric"])[0]
    came_to_the_end = len(best["scores"]) == len(table["rungs"])
    return best if came_to_the_end and best["scores"][-1] is not None else None


def sort_settings(group: Table, metric: str) -> list[Table]:
    """Sort the settings of a group, the best first: by how far they came, then by the score at
    their last rung."""
    sign = -1 if metric.endswith("loss") else 1

    def rank(setting: Table) -> tuple[int, float]:
        last = setting["scores"][-1] if setting["scores"] else None
        return -len(setting["scores"]), math.inf if last is None else -sign * last

    return sorted(group["settings"], key=rank)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _find_bound(method: str, option: str, end: str) -> float | None:
    """Return the bound that an option declares at this end; None without one, or for the option of
    a method that is not there any more."""
    from cfljax.config.train import Train
    from cfljax.config.values import list_fields

    section, _, name = option.partition(".")
    if section == "train":
        fields = list_fields(Train)
    elif section == "method" and method:
        try:
            fields = list_fields(METHODS.entry(method).options)
        except SpecError:
            return None
    else:
        return None
    bound = fields[name].meta.get("low" if end == "least" else "high") if name in fields else None
    return None if bound is None else float(bound)
