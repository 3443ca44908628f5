"""Figure 8: malformed specs and flags, made from what the registries say an option accepts."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import tomllib
import traceback
from pathlib import Path
from typing import Any

from drills import common
from drills.common import Figure, Tally

FIGURE = Figure(
    "malformed",
    "8",
    "malformed specs and flags",
    "exit code 2, one line with file, key and suggestion, before any data is loaded",
    300,
)
EVERY = 10
"""Of this number of calls, one is a process of its own from the start; the others are forks of this one, which has imported all."""
ABSENT = "a_data_set_that_is_nowhere"
"""Were it looked for, the exit code would be 4."""
OTHER_TYPES: tuple[Any, ...] = ("a word", 3.25, True, {"x": 1}, ["a", "b"], -7)


class Case:
    """A spec or a command line, and what its error has to name."""

    def __init__(self, what: str, spec: str | bytes, flags: tuple[str, ...] = (), names: tuple[str, ...] = ()):
        self.what, self.spec, self.flags, self.names = what, spec, flags, names


def drill(tally: Tally, count: int, seed: int) -> None:
    """Cases drawn at random."""
    import cfljax.launch.sweep
    import cfljax.report.tables  # noqa: F401 (before the forks)
    from cfljax.commands import sweep  # noqa: F401
    from cfljax.models import MODELS  # noqa: F401

    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="cfljax-drill-") as name:
        for number in tally.trials(count):
            case = draw.choice(MAKERS)(draw)
            tally.count(case.what)
            own = number % EVERY == 0
            tally.count("in a process of its own" if own else "forked")
            tally.check(_problems(case, Path(name), own))


# --- what can be wrong -----------------------------------------------------------------------------------------------------


def _toml(table: dict[str, Any]) -> str:
    from cfljax.registry.options import show

    return "".join(f"{key} = {show(value)}\n" for key, value in table.items())


def _good(draw: random.Random) -> dict[str, Any]:
    """A spec that is right but for its data set."""
    from cfljax.methods import METHODS

    names = draw.sample(sorted(METHODS), 2)
    partition = draw.choice(["iid", "dirichlet", "rotated", "shards"])
    return {
        "name": "drill",
        "data": {"name": ABSENT, "partition": partition, "clients": draw.randint(2, 50)},
        "model": {"name": draw.choice(["mclr", "mlp"])},
        "train": {"rounds": draw.randint(11, 40), "lr": 0.1, "batch": 5},
        "seeds": [0, 1],
        "method": [{"name": names[0]}, {"name": names[1]}],
    }


def _places(spec: dict[str, Any], draw: random.Random) -> tuple[str, dict[str, Any], type]:
    """(name of a table in errors, the table, the Options class that it is checked with)."""
    from cfljax.config import Train
    from cfljax.config.data import DataOptions
    from cfljax.federation import PARTITIONS
    from cfljax.methods import METHODS

    where = draw.choice(("train", "data", "partition", "method", "method"))
    if where == "train":
        return "train", spec["train"], Train
    if where == "data":
        return "data", spec["data"], DataOptions
    if where == "partition":
        return "data", spec["data"], PARTITIONS.entry(spec["data"]["partition"]).options
    table = draw.choice([t for t in spec["method"] if METHODS.entry(t["name"]).options.__dataclass_fields__] or spec["method"][:1])
    return f"method.{table['name']}", table, METHODS.entry(table["name"]).options


def typo(word: str, draw: random.Random) -> str:
    """One letter left out, doubled, changed or exchanged with its neighbour."""
    at = draw.randrange(len(word) - 1)
    return draw.choice(
        (
            word[:at] + word[at + 1 :],
            word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + "q" + word[at + 1 :],
        )
    )


def misspelt(draw: random.Random) -> Case:
    """A key with a typing error; the right one is to be suggested."""
    spec = _good(draw)
    where, table, options = _places(spec, draw)
    known = set(options.__dataclass_fields__)
    key = draw.choice(sorted(k for k in known if len(k) > 4) or ["rounds"])
    wrong = typo(key, draw)
    if wrong in known | {"name", "label", "train", "partition"} or key not in known:
        return misspelt(draw)
    table[wrong] = 1
    return Case("a key misspelt", _toml(spec), names=("spec.toml", f"{where}.{wrong}", "did you mean"))


def wrong_type(draw: random.Random) -> Case:
    """A value of another type than the option takes."""
    from cfljax.config.values import fields_of
    from cfljax.errors import SpecError
    from cfljax.registry.options import check_value

    spec = _good(draw)
    where, table, options = _places(spec, draw)
    fields = fields_of(options)
    if not fields:
        return wrong_type(draw)
    name = draw.choice(sorted(fields))
    value = draw.choice(OTHER_TYPES)
    entries = value if isinstance(value, list) else [value]
    try:
        for entry in entries:  # a list is an axis of its entries
            check_value(entry, fields[name].hint, fields[name].meta, "x")
        return wrong_type(draw)
    except SpecError:
        table[name] = value
    if name == "steps":
        table.pop("epochs", None)
    return Case("a value of another type", _toml(spec), names=("spec.toml", f"{where}.{name}"))


def out_of_range(draw: random.Random) -> Case:
    """A number below, above or at the end of its range."""
    from cfljax.config.values import fields_of

    spec = _good(draw)
    where, table, options = _places(spec, draw)
    wrong = []
    for name, field in fields_of(options).items():
        low, high, above = (field.meta.get(k) for k in ("low", "high", "above"))
        number = float if float in field.kinds and int not in field.kinds else int
        if {int, float} & set(field.kinds):
            wrong += [(name, number(low - 1))] if low is not None else []
            wrong += [(name, number(high + 1))] if high is not None else []
            wrong += [(name, number(above))] if above is not None else []
    if not wrong:
        return out_of_range(draw)
    name, value = draw.choice(wrong)
    table[name] = value
    return Case("a number out of its range", _toml(spec), names=("spec.toml", f"{where}.{name}", str(value).split(".")[0]))


def unknown_name(draw: random.Random) -> Case:
    """A method, model, partition or choice that there is not."""
    spec = _good(draw)
    place = draw.choice(("method", "model", "partition", "optimizer", "normalise"))
    if place == "method":
        word = spec["method"][0]["name"] = typo(spec["method"][0]["name"], draw)
        if word in {"local"}:
            return unknown_name(draw)
        names: tuple[str, ...] = (word,)
    elif place == "model":
        names = (spec["model"].setdefault("name", ""),)
        spec["model"]["name"] = names[0] + "x"
    elif place == "partition":
        spec["data"]["partition"] += "z"
        names = ("data.partition", spec["data"]["partition"], "did you mean")
    elif place == "optimizer":
        spec["train"]["optimizer"] = "adamwx"
        names = ("train.optimizer", "adamwx", "did you mean")
    else:
        spec["data"]["normalise"] = "pixels"
        names = ("data.normalise", "pixels", "did you mean")
    return Case("an unknown name", _toml(spec), names=("spec.toml", *names))


def broken_toml(draw: random.Random) -> Case:
    """A character left out or put in, so that the file is no TOML."""
    text = _toml(_good(draw))
    for _ in range(1000):
        at = draw.randrange(len(text))
        broken = draw.choice((text[:at] + text[at + 1 :], text[:at] + draw.choice('"[]{}=\n\0') + text[at:], text[:at]))
        try:
            tomllib.loads(broken)
        except tomllib.TOMLDecodeError:
            return Case("no TOML", broken, names=("spec.toml",))
    raise AssertionError("nothing breaks it")


def wrong_table(draw: random.Random) -> Case:
    """Tables that are missing, empty, of another kind or unknown."""
    spec = _good(draw)
    key = draw.choice(("method", "data", "train", "model", "seeds"))
    how = draw.choice(("missing", "empty", "number", "unknown", "twice"))
    if how == "missing":
        key = draw.choice(("method", "data"))
        del spec[key]
    elif how == "empty":
        spec[key] = []
    elif how == "number":
        spec[key] = 12 if key != "seeds" else 1.5
    elif how == "unknown":
        spec[typo(key, draw) + "y"] = {"x": 1}
        key = ""
    else:
        return Case("a key twice", _toml(spec) + f"{key} = 1\n", names=("spec.toml",))
    return Case(f"a table {how}", _toml(spec), names=("spec.toml", key))


def wrong_set(draw: random.Random) -> Case:
    """--set with a mistake."""
    flag, name = draw.choice(
        (
            ("train.lrr=0.1", "train.lrr"),
            ("train.lr", "train.lr"),
            ("train.lr=", "train.lr"),
            ("=0.1", "=0.1"),
            ("train..lr=1", "train..lr"),
            ("trian.lr=1", "trian"),
            (f"train.lr={typo('fast', draw)}", "train.lr"),
            (f"train.lr=-{draw.random()}", "train.lr"),
            (f"train.rounds={-draw.randint(0, 9)}", "train.rounds"),
            ("train.lr=0.1,,0.2", "train.lr"),
            ("train.lr=[0.1", "train.lr"),
            ("seeds=three", "seeds"),
            ("seeds=0:0", "seeds"),
            ("method=" + typo("fedgroup", draw) + "x", "method"),
            ("method.nobody.mu=1", "method.nobody"),
            ("size=small", "size"),
            ("data.clients=none", "data.clients"),
            ("train.lr=0." + ".".join("1" * 50), "train.lr"),
        )
    )
    return Case("--set", _toml(_good(draw)), ("--set", flag), (name,))


def wrong_flag(draw: random.Random) -> Case:
    """Flags that there are not, or with values that they do not take."""
    flags, names = draw.choice(
        (
            (("--" + typo("workers", draw) + "z", "2"), ()),
            (("--workers", "two"), ("--workers", "two")),
            (("--workers", "0"), ("--workers", "0")),
            (("--workers", "-3"), ("--workers",)),
            (("--keep", "everything"), ("--keep", "everything")),
            (("--launcher", "rya"), ("--launcher", "rya")),
            (("--target", "high"), ("--target", "high")),
            (("--target", draw.choice(("nan", "-1", "0", "90"))), ("--target", "fraction")),
            (("--shard", draw.choice(("4/4", "1", "0/0", "1/-2", "9" * 5000 + "/1"))), ("--shard", "I/N")),
            (("--log", "jsonll"), ("--log", "jsonl")),
            (("--mesh", draw.choice(("clients=0", "clients=1e9", "runs=-1", "devices=2"))), ("--mesh", "auto")),
            (("--mesh", "runs=100,clients=100"), ("--mesh", "10,000")),
            (("--out",), ("--out",)),
            (("--set",), ("--set",)),
            (("another.toml",), ("another.toml",)),
        )
    )
    return Case("a flag", _toml(_good(draw)), flags, names)


def wrong_file(draw: random.Random) -> Case:
    """A spec that is not there, a folder, bytes."""
    how = draw.choice(("missing", "folder", "bytes", "empty"))
    if how == "bytes":
        return Case("bytes for a spec", draw.randbytes(200) + b"\xff\xfe", names=("spec.toml",))
    if how == "empty":
        return Case("an empty spec", "", names=("spec.toml", "method"))
    return Case(f"a {how} for a spec", f"<{how}>", names=("nowhere.toml" if how == "missing" else "folder",))


TWICE = (misspelt, wrong_type)
MAKERS = (*TWICE, *TWICE, out_of_range, unknown_name, broken_toml, wrong_table, wrong_set, wrong_flag, wrong_file)


# --- what must come of it --------------------------------------------------------------------------------------------------


def _problems(case: Case, place: Path, own: bool) -> list[str]:
    file = place / "spec.toml"
    if case.spec == "<missing>":
        file = place / "nowhere.toml"
    elif case.spec == "<folder>":
        file = place / "folder"
        file.mkdir(exist_ok=True)
    else:
        file.write_bytes(case.spec if isinstance(case.spec, bytes) else case.spec.encode())
    arguments = [str(file), *case.flags]
    if "--out" not in case.flags:
        arguments += ["--out", str(place / "out")]
    code, out, errors = (_process if own else _forked)(arguments)
    problems = [] if code == 2 else [f"code {code}"]
    problems += common.complaint(errors)
    problems += [f"does not name {name}" for name in case.names if name not in errors]
    problems += ["wrote to standard output"] if out.strip() else []
    problems += ["made the results folder"] if (place / "out").exists() else []
    return [f"{case.what} {case.flags} {case.spec!r:.400}: {p}: {errors.strip()[:300]}" for p in problems]


def _process(arguments: list[str]) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "cfljax.sweep", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=common.environment(), cwd=common.ROOT)
    return done.returncode, done.stdout, done.stderr


def _forked(arguments: list[str]) -> tuple[int, str, str]:
    from cfljax.commands import process
    from cfljax.commands.sweep import parser, run

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if pid == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            try:
                code = process.main(run, parser(), arguments)
            except SystemExit as end:
                code = end.code
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        _, status = os.waitpid(pid, 0)
        out.seek(0), errors.seek(0)
        return os.waitstatus_to_exitcode(status), out.read(), errors.read()


if __name__ == "__main__":
    sys.exit(common.main(FIGURE, drill))
