"""What is registered without a plugin file means what its code and all that it refers to mean."""

import dataclasses
import functools
import os
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.errors import SpecWarning
from cfljax.registry.meaning import meaning
from tests.packaging.test_plugins import SMALL

ROOT = Path(__file__).parents[2]

NOTEBOOK = """
import dataclasses, functools
import cfljax
import jax
import numpy as np
from cfljax.methods.fedavg import Config, make as fedavg

RATE = 1.0
TABLE = {"a": [1, 2], "b": {3, 4}}
weights = np.zeros(3)

@dataclasses.dataclass(frozen=True)
class Options(Config):
    scale: float = cfljax.option(1.0)

class Helper:
    bias = 0
    def __init__(self, slope):
        self.slope = slope
    def twice(self, x):
        return 2 * x

helper = Helper(1)

def inner(x, power=2):
    return x ** power

def outer(x):
    return inner(x) * RATE + TABLE["a"][0] + weights[0] + helper.twice(x)

fast = jax.jit(lambda x: x + 1)
part = functools.partial(inner, power=3)

@cfljax.register_method("mine", Options)
def make(config, model, solver):
    '"Mine."'
    outer(1), fast, part
    return fedavg(config, model, solver)
"""
EDITS = [
    ("return inner(x)", "return 3 * inner(x)"),
    ("x ** power", "x * power"),
    ("power=2", "power=4"),
    ("power=3", "power=5"),
    ("RATE = 1.0", "RATE = 1.5"),
    ("[1, 2]", "[1, 3]"),
    ("{3, 4}", "{3, 5}"),
    ("np.zeros(3)", "np.ones(3)"),
    ("bias = 0", "bias = 1"),
    ("Helper(1)", "Helper(2)"),
    ("2 * x", "3 * x"),
    ("scale: float = cfljax.option(1.0)", "scale: float = cfljax.option(2.0)"),
    ("x + 1", "x + 2"),
]
"""Of what the registered function refers to, directly or not."""


def notebook(text):
    """The names after a notebook with this text has run in this process."""
    names = {"__name__": "__main__"}
    exec(compile(text, "<cell>", "exec"), names)
    return names


def id_now(method="mine", **more):
    (run,) = read_spec(SMALL | {"method": method} | more).runs()
    return run.id


def test_each_edit_of_what_a_function_refers_to_changes_the_id():
    notebook(NOTEBOOK)
    seen = {id_now()}
    for old, new in EDITS:
        assert old in NOTEBOOK
        notebook(NOTEBOOK.replace(old, new, 1))
        assert id_now() not in seen, (old, new)
        seen.add(id_now())
    notebook("import sys\n# a comment\n" + NOTEBOOK.replace("Mine.", "Mine.") + "\nunrelated = 3\n")
    assert id_now() in seen


def test_the_id_is_the_same_in_another_process(tmp_path):
    notebook(NOTEBOOK)
    code = f"exec(compile({NOTEBOOK!r}, '<cell>', 'exec'));from cfljax.config import read_spec;"
    code += f"print(read_spec({SMALL | {'method': 'mine'}!r}).runs()[0].id)"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert found.stdout.split() == [id_now()], found.stderr


def test_a_helper_that_is_changed_alone_counts_and_what_was_made_with_the_old_one_is_forgotten():
    names = notebook(
        """
import cfljax
import jax.numpy as jnp
start = 1.0
def zeros(shape):
    return jnp.full(shape, start)
@cfljax.register_model("flat")
def flat(options, sample_shape, classes):
    size = sample_shape[0]
    return lambda key: zeros((size, classes)).at[:, 0].mul(-1), lambda params, x: x @ params
"""
    )

    def result():
        return cfljax.run("fedavg", SMALL["data"], "flat", rounds=1)

    first, again = result(), result()
    names["start"] = 2.0
    second = result()
    exec("def zeros(shape):\n    return 3 * jnp.full(shape, start)", names)
    third = result()
    assert first.run == again.run and len({first.run, second.run, third.run}) == 3
    assert len({r.summary["loss_last"] for r in (first, second, third)}) == 3


def test_what_a_closure_holds_counts():
    def register(scale):
        @cfljax.register_metric("scaled")
        def scaled(seen):
            return scale * seen.correct.sum()

    found = []
    for scale in (1.0, 2.0, 1.0):
        register(scale)
        found.append(id_now("fedavg", train={"rounds": 1, "metrics": ["scaled"]}))
    assert found[0] == found[2] != found[1]


def test_what_has_no_known_identity_is_named_in_one_line():
    names = notebook("import cfljax, threading\n@cfljax.register_metric('odd')\ndef odd(seen):\n    return lock\n")
    names["lock"] = types.SimpleNamespace(inner=iter([1]))
    table = {"train": {"rounds": 1, "metrics": ["odd"]}}
    with pytest.warns(SpecWarning) as told:
        first = id_now("fedavg", **table)
    assert [str(w.message) for w in told] == [
        "metric \"odd\": depends on lock['inner'] (builtins.list_iterator), whose contents cannot be made part of the id of its "
        "runs; when they change, use another results folder"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert id_now("fedavg", **table) == first


def test_networks_that_are_handed_over_are_told_apart():
    from flax import linen

    data = {"name": "blobs", "samples": 60, "clients": 3}
    nets = [linen.Sequential([linen.Dense(width), linen.relu, linen.Dense(4)]) for width in (3, 5, 3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpecWarning)
        found = [cfljax.run("fedavg", data, net, rounds=1).run for net in nets]
    assert found[0] == found[2] != found[1]


def with_width(width):
    """A function that numbers are written to."""

    def it():
        return it.width

    it.width = width
    return it


VALUES = [
    (lambda: np.arange(3), lambda: np.arange(3.0)),
    (lambda: np.zeros((2, 3)), lambda: np.zeros((3, 2))),
    (lambda: jax.numpy.arange(3), lambda: jax.numpy.arange(4)),
    (lambda: jax.random.key(0), lambda: jax.random.key(1)),
    (lambda: {1: 2}, lambda: {2: 1}),
    (lambda: {"b", "a"}, lambda: {"b", "c"}),
    (lambda: 1, lambda: 1.0),
    (lambda: 1, lambda: True),
    (lambda: [1, [2]], lambda: [[1], 2]),
    (lambda: "a", lambda: b"a"),
    (lambda: np.float32(1), lambda: np.float64(1)),
    (lambda: types.SimpleNamespace(a=1), lambda: types.SimpleNamespace(a=2)),
    (lambda: functools.partial(max, 1), lambda: functools.partial(max, 2)),
    (lambda: dataclasses.make_dataclass("A", [("a", int, 1)])(), lambda: dataclasses.make_dataclass("A", [("a", int, 1)])(2)),
    (lambda: property(lambda self: 1), lambda: property(lambda self: 2)),
    (lambda: staticmethod(lambda: 1), lambda: staticmethod(lambda: 2)),
    (lambda: [].append, lambda: [].remove),
    (lambda: {1: 2}.get, lambda: {1: 3}.get),
    (lambda: (5).__add__, lambda: (6).__add__),
    (lambda: re.compile("a" * 300 + "b"), lambda: re.compile("a" * 300 + "c")),
    (lambda: with_width(1), lambda: with_width(2)),
    (lambda: np.add, lambda: np.subtract),
    (lambda: jax.numpy.add, lambda: jax.numpy.subtract),
]


@pytest.mark.parametrize("one, other", VALUES)
def test_values_have_one_meaning_each(one, other):
    assert meaning(one()) == meaning(one())
    assert meaning(one())[0] != meaning(other())[0] and meaning(one())[1] == []


def test_what_refers_to_itself_has_a_meaning():
    ring = [1]
    ring.append(ring)
    other = [2]
    other.append(other)
    assert meaning(ring)[0] == meaning(ring)[0] != meaning(other)[0]


def test_a_script_of_which_a_number_comes_from_outside(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, cfljax\nfrom cfljax.config import read_spec\nscale = float(sys.argv[1])\n"
        "@cfljax.register_metric('scaled')\ndef scaled(seen):\n    return scale * seen.correct.sum()\n"
        f"print(read_spec({SMALL | {'method': 'fedavg', 'train': {'rounds': 1, 'metrics': ['scaled']}}!r}).runs()[0].id)\n"
    )

    def said(word):
        return subprocess.run([sys.executable, script, word], capture_output=True, text=True, check=True).stdout

    assert said("1") == said("1.0") != said("2")


def test_an_installed_package_that_registers_when_it_is_imported_counts_with_its_files(tmp_path):
    """Also where nothing names it as a plugin."""
    site = tmp_path / "site-packages"
    (site / "lab").mkdir(parents=True)
    (site / "lab" / "__init__.py").write_text("from lab import metrics\n")
    (site / "lab" / "metrics.py").write_text("import cfljax\n@cfljax.register_metric('odd')\ndef odd(seen):\n    return 1.0\n")
    code = "import os, sys\nfrom cfljax.registry import sources\nfrom cfljax.config import read_spec\n"
    code += "sources._installed = lambda: (os.path.realpath(sys.argv[1]),)\nimport lab\nassert not sources.is_users(lab.__file__)\n"
    code += f"print(read_spec({SMALL | {'method': 'fedavg', 'train': {'rounds': 1, 'metrics': ['odd']}}!r}).runs()[0].id)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", ""), str(ROOT)])}

    def said():
        command = [sys.executable, "-c", code, str(site)]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    first = said()
    assert said() == first
    (site / "lab" / "more.py").write_text("x = 1\n")
    assert said() != first
