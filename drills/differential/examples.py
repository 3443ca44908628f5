"""An example: what is drawn from its seed, how it is compared, and a smaller one that fails, too.

Example n of `--seed S` is the first of `--seed S+n`, so `--seed N --count 1` repeats the one of that seed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from drills.common import CACHE, Figure, Tally
from drills.differential import specs
from drills.differential.specs import Table
from drills.differential.unfit import Unfit

FIGURE = Figure(
    "differential",
    "differential",
    "random federations, methods and options: folders grown in steps with interruptions against made at once, plan against plan, "
    "compiled against plain numpy",
    "folders bit-identical, frames and tables equal; plans within 1e-5, numpy within 1e-4, unless rounding decides who joins whom",
    300,
)
TRIES = 8
"""Smaller examples that are tried where one fails."""


class Kind(NamedTuple):
    """A comparison."""

    draw: Callable[[Random], Any]
    problems: Callable[[Any, Random, Tally], list[str]]
    """(the example, the generator for further draws, the tally of measured differences) -> what differs, a line each."""
    simpler: Callable[[Any], Any]
    """Smaller ones, with what was left out of each."""


def kinds() -> dict[str, Kind]:
    """By name. (Importing JAX waits until XLA's flags are set.)"""
    from drills.differential import folders, plans, reference

    return {
        "folders": Kind(_fitting(specs.sweep_steps), folders.problems, simpler_steps),
        "plans": Kind(_fitting(specs.planned_table), plans.problems, specs.simpler),
        "reference": Kind(_fitting(specs.plain_table), reference.problems, specs.simpler),
    }


def _fitting(draw_one: Callable[[Random], Any]) -> Callable[[Random], Any]:
    """Draws until no options exclude each other."""
    from cfljax.config import read_spec
    from cfljax.errors import SpecError

    def draw(rng: Random) -> Any:
        while True:
            found = draw_one(rng)
            try:
                for table in found if isinstance(found, list) else [found]:
                    read_spec(table)
                return found
            except SpecError:
                continue

    return draw


def simpler_steps(steps: list[Table]) -> Any:
    """Fewer steps, then each option left out of all of them."""
    for at in range(len(steps) - 1):
        yield f"step {at}", steps[:at] + steps[at + 1 :]
    for left_out, whole in specs.simpler(steps[-1]):
        part, _, key = left_out.partition(".")
        if part in ("data", "train") and left_out not in ("train.lr", "data.seed"):
            yield left_out, [{**step, part: {k: v for k, v in step[part].items() if k != key}} for step in steps[:-1]] + [whole]


def drill(tally: Tally, count: int, seed: int) -> None:
    """Examples until the time is over."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(CACHE / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    names = list(kinds())
    for number in tally.trials(count):
        one(tally, seed + number, names[(seed + number) % len(names)])


def one(tally: Tally, seed: int, name: str) -> None:
    """One example: told in a line, and where it fails with a smaller one."""
    kind, begin = kinds()[name], time.monotonic()
    drawn = kind.draw(Random(f"{name} {seed}"))
    found = compared(kind, drawn, seed, tally)
    tally.count("nothing to compare" if found is None else name)
    print(f"seed {seed}: {name}, {time.monotonic() - begin:.1f} s, {_brief(drawn)}: {_verdict(found)}", flush=True)
    if found:
        smaller = shrunk(kind, drawn, seed)
        tally.check(f"--seed {seed} --count 1: {name}: {'; '.join(found)[:1500]} of {json.dumps(smaller)}")
    elif found is not None:
        tally.check(None)


def compared(kind: Kind, drawn: Any, seed: int, tally: Tally) -> list[str] | None:
    """What differs; None where there is nothing to compare. Whatever is raised differs, too."""
    from cfljax.errors import SpecError

    try:
        return kind.problems(drawn, Random(f"compare {seed}"), tally)
    except (Unfit, SpecError):
        return None
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def shrunk(kind: Kind, drawn: Any, seed: int) -> Any:
    """The example with fewer options, as far as it still fails."""
    tries, passed = 0, set()
    while tries < TRIES:
        for what, smaller in kind.simpler(drawn):
            if what in passed or tries >= TRIES:
                continue
            tries, found = tries + 1, compared(kind, smaller, seed, Tally())
            if found:
                drawn = smaller
                break
            passed.add(what)
        else:
            break
    return drawn


def _brief(drawn: Any) -> str:
    table = drawn[-1] if isinstance(drawn, list) else drawn
    methods = "+".join(method["name"] for method in table["method"])
    options = [key for part in ("data", "train") for key in table[part]]
    return f"{methods}, {table['data']['partition']}, {' '.join(options)}"


def _verdict(found: list[str] | None) -> str:
    return "nothing to compare" if found is None else "as it should be" if not found else f"{len(found)} differ"
