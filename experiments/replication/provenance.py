"""Enters: a Section. Leaves: sentences on how its runs were made: command, size, rounds that count,
time, device and versions."""

from __future__ import annotations

import math
import shlex
import tomllib

from cfljax.registry.options import show
from cfljax.report.comparison import seconds_in_all
from cfljax.results.result import Results
from experiments.replication.measured import Section
from experiments.replication.size import flags_of

SHOWN = 3
"""The most commits that are named; of more, only their number is."""


def provenance(each: Section, brief: bool = False) -> str:
    """How the runs of a section were made, in Markdown. `brief`: only the first command, and how
    long they took."""
    spec = each.published.spec
    if not each.units:
        return f"Not run: {_write_command(spec, ['size=small'])}" if spec else "Not run."
    lines: list[str] = []
    for results in each.folders:
        if (
            spec
            and (command := _write_command(spec, flags_of(results), shorter=bool(lines)))
            not in lines
        ):
            lines.append(command)
        lines += [said for said in _describe_sizes(results) if said not in lines]
    if covered := _format_last_ten(each):
        lines.append(f"Last ten: {covered}.")
    spent = sum(s for unit in each.units if math.isfinite(s := seconds_in_all(unit)))
    devices = ", ".join(
        sorted({str(unit.record.get("device", "unknown")).split(",")[0] for unit in each.units})
    )
    runs = f"{len(each.units)} run{'s' if len(each.units) > 1 else ''}"
    said = f"{runs}, {_format_time(spent)} on {devices}"
    if brief:
        return (
            f"{lines[0]}{' and further sweeps' if len(each.folders) > 1 else ''}: {said}."
            if spec
            else f"{said}."
        )
    return "  \n".join(
        [*lines, f"{said}, {_format_time(spent / len(each.units))} a run; {_list_makers(each)}."]
    )


def _write_command(spec: str, sets: list[str], shorter: bool = False) -> str:
    """Return the command of a folder of runs. `shorter`: of a further folder of the same spec, only
    how it differs."""
    if spec.endswith(".py"):
        return f"`python experiments/{spec} --out DIR`"
    flags = " ".join(f"--set {shlex.quote(flag)}" for flag in sets)
    if shorter and flags:
        return f"The same spec with `{flags}`"
    return f"`cfljax sweep {' '.join(filter(None, (f'experiments/{spec}', flags)))}`"


def _describe_sizes(results: Results) -> list[str]:
    """Write a sentence on what the sizes that flags chose change in the spec; none if they chose no
    size."""
    try:
        sizes = tomllib.loads(results.store.read_spec() or "").get("size", {})
    except tomllib.TOMLDecodeError:
        return []
    chosen = [
        name
        for flag in flags_of(results)
        if flag.startswith("size=") and (name := flag.removeprefix("size=")) in sizes
    ]
    changes = [
        f"Size {name}: " + "; ".join(f"`{k} = {show(v)}`" for k, v in sizes[name].items())
        for name in chosen
    ]
    return ["; ".join(changes) + "."] if changes else []


def _format_last_ten(each: Section) -> str:
    """Return the rounds of the last ten evaluations: `rounds 55 to 100`; "" if no cell is a mean
    over them."""
    if not each.last_ten and not any(
        cell.take.summary == "accuracy_last10" for cell in each.published.cells
    ):
        return ""
    spans = set()
    for unit in each.units:
        train = unit.record["config"]["train"]
        last, every = int(train["rounds"]), int(train.get("eval_every", 1))
        seen = sorted({*range(every, last + 1, every), last})[-10:]
        spans.add((seen[0], seen[-1]))
    return " or ".join(f"rounds {first} to {last}" for first, last in sorted(spans))


def _list_makers(each: Section) -> str:
    """List the versions and commits of the runs; the commit is the one of the folder in which the
    sweep was started."""
    known = [unit.record.get("versions", {}) for unit in each.units]
    jax, cfljax = (
        sorted({str(versions[name]) for versions in known if name in versions})
        for name in ("jax", "cfljax")
    )
    commits = list(dict.fromkeys(_format_commit(unit.record.get("git")) for unit in each.units))
    named = ", ".join(commits[:SHOWN]) if len(commits) <= SHOWN else f"{len(commits)} commits"
    return (
        f"JAX {' and '.join(jax) or 'unknown'}, cfljax {' and '.join(cfljax) or 'unknown'}, "
        f"started in a folder at {named}"
    )


def _format_commit(git: dict[str, object] | None) -> str:
    return (
        "no commit"
        if not git
        else str(git["commit"])[:7] + (" with changes" if git.get("dirty") else "")
    )


def _format_time(spent: float) -> str:
    if spent < 60:
        return f"{spent:.0f} s"
    return f"{spent / 60:.0f} min" if spent < 2 * 3600 else f"{spent / 3600:.1f} h"
