"""What plug-ins register must have the signature of its kind: mypy says so before anything runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cfljax

pytest.importorskip("mypy")
pytestmark = pytest.mark.long  # with mypy there, which the README's test command does not install

HEAD = """
from collections.abc import Callable

import jax
import numpy as np
from flax import linen, nnx

import cfljax
from cfljax.extend import Method, MethodConfig, Model, Parts, Seen, Solver, Source


class Options: ...


class Config(MethodConfig): ...


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None: ...


Draw = Callable[[jax.Array], dict[str, jax.Array]]
Apply = Callable[[dict[str, jax.Array], jax.Array], jax.Array]


"""
RIGHT = {
    'register_method("a", Config)': "def f(config: Config, model: Model, solver: Solver) -> Method:",
    'register_model("n")': "def f(options: Options, shape: tuple[int, ...], classes: int) -> tuple:",
    'register_partition("p")': "def f(options: Options, source: Source, generator: np.random.Generator) -> Parts:",
    'register_data("arrays")': "def f(options: Options, rng: np.random.Generator) -> dict[str, np.ndarray]:",
    'register_data("source")': "def f(options: Options, rng: np.random.Generator) -> Source:",
    'register_metric("m")': "def f(seen: Seen) -> jax.Array:",
    'register_model("linen")': "def f(options: Options, sample_shape: tuple[int, ...], classes: int) -> linen.Module:",
    'register_model("nnx")': "def f(options: Options, shape: tuple[int, ...], k: int) -> type[Network]:",
    'register_model("pair")': "def f(options: Options, shape: tuple[int, ...], k: int) -> tuple[Draw, Apply]:",
}
WRONG = [
    ('register_method("a", Config)', "def f(config: Config, model: Model) -> Method:"),
    (
        'register_method("a", Config)',
        "def f(model: Model, config: Config, solver: Solver) -> Method:",
    ),
    (
        'register_method("a", Config)',
        "def f(config: Config, model: Model, solver: Solver) -> Model:",
    ),
    ('register_model("n")', "def f(options: Options, classes: int) -> tuple:"),
    ('register_partition("p")', "def f(options: Options, source: Source) -> Parts:"),
    (
        'register_partition("p")',
        "def f(options: Options, rng: np.random.Generator, source: Source) -> Parts:",
    ),
    (
        'register_partition("p")',
        "def f(options: Options, source: Source, rng: np.random.Generator) -> list[np.ndarray]:",
    ),
    ('register_data("d")', "def f(options: Options) -> Source:"),
    ('register_data("d")', "def f(options: Options, rng: np.random.Generator) -> np.ndarray:"),
    ('register_metric("m")', "def f(seen: Seen, more: int) -> jax.Array:"),
    ('register_metric("m")', "def f(seen: Seen) -> str:"),
    (
        'register_model("m")',
        "def f(options: Options, sample_shape: tuple[int, ...]) -> linen.Module:",
    ),
    (
        'register_model("m")',
        "def f(options: Options, sample_shape: int, classes: int) -> linen.Module:",
    ),
    (
        'register_model("m")',
        "def f(options: Options, sample_shape: tuple[int, ...], classes: int) -> jax.Array:",
    ),
]


METHOD = """
from typing import NamedTuple

import jax.numpy as jnp

import cfljax
from cfljax.extend import Array, Cohort, Federation, Hyper, Info, Method, MethodConfig, Model, Solver, first_model


class Pair(NamedTuple):
    models: Array
    labels: Array


@cfljax.register_method("mine")
def make(config: MethodConfig, model: Model, solver: Solver) -> Method[Pair]:
    def init(key: Array, federation: Federation, hyper: Hyper, setup: dict[str, Array]) -> Pair:
        return Pair(first_model(key, model)[None], jnp.zeros(federation.clients, jnp.int32))

    def round(key: Array, state: Pair, federation: Federation, cohort: Cohort, hyper: Hyper) -> tuple[Pair, Info]:
        raise NotImplementedError

    def models(state: Pair) -> tuple[Array, Array]:
        return state.models, state.labels

    def score(state: Pair, federation: Federation, hyper: Hyper) -> Array:
        return state.labels

    return Method(init, round, models, score=score)
"""
MISTAKES = [
    (
        "cohort: Cohort, hyper: Hyper) ->",
        "hyper: Hyper) ->",
        "Federation, Cohort, dict[str, Array]], tuple[Pair, Info]]",
    ),
    (
        "hyper: Hyper) -> tuple[Pair, Info]",
        "hyper: Hyper) -> Pair",
        "dict[str, Array]], tuple[Pair, Info]]",
    ),
    (
        "hyper: Hyper, setup: dict[str, Array]",
        "hyper: Hyper",
        "dict[str, Array], dict[str, Any]], Pair]",
    ),
    ("return state.models, state.labels", "return state.models", 'expected "tuple[Array, Array]"'),
    (
        "score(state: Pair, federation: Federation, hyper: Hyper)",
        "score(state: Pair, hyper: Hyper)",
        'Argument "score"',
    ),
    ("return Pair(first_model", "return (first_model", 'expected "Pair"'),
]
"""What the author of a method may write in place of what is right, and what the message then
has."""


def mypy(folder, texts):
    """Its messages on these files. The path is there since mypy does not follow the hook of an
    editable installation."""
    for name, text in texts.items():
        (folder / name).write_text(text.lstrip(), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        "",
        "--ignore-missing-imports",
        *texts,
    ]
    place = {"PYTHONPATH": str(Path(cfljax.__file__).parents[1])}
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | place,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout.splitlines()


def complaints(folder, functions):
    """The numbers of the functions that mypy refuses to register."""
    text = HEAD.lstrip()
    places = {}
    for number, (register, line) in enumerate(functions):
        places[text.count("\n") + 1] = number
        text += (
            f"@cfljax.{register}\n{line.replace('def f', f'def f{number}')}\n    raise "
            "NotImplementedError\n\n\n"
        )
    return sorted(
        places[int(line.split(":")[1])]
        for line in mypy(folder, {"plugin.py": text})
        if ": error: " in line
    )


def test_wrong_signatures_are_type_errors_and_right_ones_are_not(tmp_path):
    assert complaints(tmp_path, [*RIGHT.items(), *WRONG]) == list(
        range(len(RIGHT), len(RIGHT) + len(WRONG))
    )


def test_what_is_wrong_with_a_function_of_a_method_is_named(tmp_path):
    assert all(METHOD.count(right) == 1 for right, *_ in MISTAKES)
    wrong = {
        f"wrong{number}.py": METHOD.replace(right, mistake)
        for number, (right, mistake, _) in enumerate(MISTAKES)
    }
    lines = mypy(tmp_path, {"right.py": METHOD, **wrong})
    assert not [line for line in lines if line.startswith("right.py")]
    for name, (_, mistake, word) in zip(wrong, MISTAKES, strict=True):
        assert any(line.startswith(name) and word in line for line in lines), (mistake, lines)
