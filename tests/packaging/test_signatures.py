"""What plug-ins register must have the signature of its kind: mypy says so before anything runs."""

import subprocess
import sys

import pytest

pytest.importorskip("mypy")

HEAD = """
from collections.abc import Callable

import jax
import numpy as np

import cfljax
from flax import linen, nnx
from cfljax.engine.metrics import Seen
from cfljax.extend import Method, MethodConfig, Model, Solver
from cfljax.types import Parts, Source


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
    ('register_method("a", Config)', "def f(model: Model, config: Config, solver: Solver) -> Method:"),
    ('register_method("a", Config)', "def f(config: Config, model: Model, solver: Solver) -> Model:"),
    ('register_model("n")', "def f(options: Options, classes: int) -> tuple:"),
    ('register_partition("p")', "def f(options: Options, source: Source) -> Parts:"),
    ('register_partition("p")', "def f(options: Options, rng: np.random.Generator, source: Source) -> Parts:"),
    ('register_partition("p")', "def f(options: Options, source: Source, rng: np.random.Generator) -> list[np.ndarray]:"),
    ('register_data("d")', "def f(options: Options) -> Source:"),
    ('register_data("d")', "def f(options: Options, rng: np.random.Generator) -> np.ndarray:"),
    ('register_metric("m")', "def f(seen: Seen, more: int) -> jax.Array:"),
    ('register_metric("m")', "def f(seen: Seen) -> str:"),
    ('register_model("m")', "def f(options: Options, sample_shape: tuple[int, ...]) -> linen.Module:"),
    ('register_model("m")', "def f(options: Options, sample_shape: int, classes: int) -> linen.Module:"),
    ('register_model("m")', "def f(options: Options, sample_shape: tuple[int, ...], classes: int) -> jax.Array:"),
]


def complaints(folder, functions):
    """The numbers of the functions that mypy refuses to register."""
    text = HEAD.lstrip()
    places = {}
    for number, (register, line) in enumerate(functions):
        places[text.count("\n") + 1] = number
        text += f"@cfljax.{register}\n{line.replace('def f', f'def f{number}')}\n    raise NotImplementedError\n\n\n"
    (folder / "plugin.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", "", "--ignore-missing-imports", "plugin.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode in (0, 1), done.stderr
    return sorted(places[int(line.split(":")[1])] for line in done.stdout.splitlines() if ": error: " in line)


def test_wrong_signatures_are_type_errors_and_right_ones_are_not(tmp_path):
    assert complaints(tmp_path, [*RIGHT.items(), *WRONG]) == list(range(len(RIGHT), len(RIGHT) + len(WRONG)))
