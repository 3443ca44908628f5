"""What a notebook or script registers is known by its source, and by the version that the user
gives."""

import itertools
import linecache
import subprocess
import sys

import numpy as np
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.experiment.batching import make_batches
from tests.packaging.test_plugins import SMALL

CELL = """
import dataclasses
import cfljax
from cfljax.methods.fedavg import FedAvg
from cfljax.round.entry import method_of

@dataclasses.dataclass(frozen=True)
class Options(FedAvg):
    scale: float = cfljax.option(1.0)

@cfljax.register_method("mine", Options)
def make(config, model, solver):
    '"Mine."'
    return method_of("mine", config, model, solver)
"""
number = itertools.count()


def cell(text):
    """Run a notebook's cell. Its text is in no file; Python has it from `linecache`, as in
    IPython."""
    name = f"<cell-{next(number)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), {"__name__": "__main__"})


def id_now(method="mine", **more):
    (run,) = read_spec(SMALL | {"method": method} | more).runs()
    return run.id


def test_the_text_of_a_function_and_its_options_are_its_identity():
    cell(CELL)
    first = id_now()
    cell("# a comment\n" + CELL + "\nunrelated = 3\n")
    assert id_now() == first
    seen = {first}
    edits = [
        ("return method_of", "return  method_of"),
        ("option(1.0)", "option(2.0)"),
        ('"mine", Options', '"mine", Options, version=2'),
    ]
    for old, new in edits:
        cell(CELL.replace(old, new))
        assert id_now() not in seen, new
        seen.add(id_now())


CLASS = """
import cfljax
from cfljax.extend import ByScore, Clustered

@cfljax.register_method("mine")
class Mine(Clustered):
    "Mine."
    choice, clusters = ByScore(), 2

    def after(self, models, hyper, state):
        return 2 * models
"""


def test_a_class_of_a_cell_is_known_by_its_functions_and_attributes():
    """The main module of a notebook is no file, so Python does not find the source of a class."""
    ids = []
    for old, new in (
        ("", ""),
        ("", ""),
        ("2 * models", "3 * models"),
        ("ByScore(), 2", "ByScore(), 3"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(sys.modules["__main__"], "__file__", raising=False)
            cell(CLASS.replace(old, new) if old else CLASS)
        ids.append(id_now())
    assert ids[0] == ids[1] and len(set(ids)) == 3


def test_a_program_is_that_of_one_text():
    """An edited cell's programs are compiled again, those of the end of a run, too."""

    def keys():
        cell_run = read_spec(SMALL | {"method": "mine"}).runs()
        (batch,) = make_batches(cell_run, 1)
        return {batch.program_key, batch.shape_key}, batch.model_key

    cell(CELL)
    first, of_model = keys()
    assert keys() == (first, of_model)
    cell(CELL.replace("return method_of", "return  method_of"))
    second, of_second = keys()
    assert not first & second and of_model != of_second


def test_a_function_without_a_text_needs_a_version():
    code = (
        "import cfljax\n@cfljax.register_metric('odd'{})\ndef odd(seen):\n    return 0.0 * "
        "seen.correct.sum()\n"
    )
    table = {"train": {"rounds": 1, "metrics": ["odd"]}}
    exec(code.format(""), {"__name__": "__main__"})
    with pytest.raises(
        SpecError,
        match=r'the source of metric "odd" cannot be read.*give its register function a version',
    ) as raised:
        id_now("fedavg", **table)
    assert "\n" not in str(raised.value)
    ids = []
    for version in (", version=1", ", version=1", ", version='b'"):
        exec(code.format(version), {"__name__": "__main__"})
        ids.append(id_now("fedavg", **table))
    assert ids[0] == ids[1] != ids[2]


def test_networks_that_are_handed_over_are_told_apart():
    from flax import linen

    data = {"name": "blobs", "samples": 60, "clients": 3}
    nets = [
        linen.Sequential([linen.Dense(width), linen.relu, linen.Dense(4)]) for width in (3, 5, 3)
    ]
    found = [cfljax.run("fedavg", data, net, rounds=1).run for net in nets]
    assert found[0] == found[2] != found[1]


def test_a_script_counts_with_its_file_and_a_number_from_outside_is_its_version(tmp_path):
    script = tmp_path / "script.py"
    text = (
        "import sys, cfljax\nfrom cfljax.config import read_spec\nscale = float(sys.argv[1])\n"
        "@cfljax.register_metric('scaled', version=scale)\ndef scaled(seen):\n    return "
        "scale * seen.correct.sum()\n"
        f"print(read_spec({SMALL | {'method': 'fedavg', 'train': {'rounds': 1, 'metrics': ['scaled']}}!r}).runs()[0].id)\n"
    )

    def said(word, text=text):
        script.write_text(text)
        return subprocess.run(
            [sys.executable, script, word], capture_output=True, text=True, check=True
        ).stdout

    assert len({said("1"), said("1.0"), said("2"), said("1", text + "# changed\n")}) == 3


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"data": [np.zeros((4, 2)), np.arange(4)]},
            r"data: must be .* arrays \(x, y\).*, not list",
        ),
        ({"seeds": 3}, "seeds = 3: run makes one run, with seed=3; for several take cfljax.sweep"),
        ({"seed": [0, 1]}, r"seed = \[0, 1\]: run makes one run"),
        ({"callbacks": [print]}, "callbacks: .* callback= is called at each evaluation"),
        ({"roundz": 3}, 'roundz = 3: there is no such option; did you mean "rounds"'),
    ],
    ids=["arrays", "seeds", "seed", "callbacks", "slip"],
)
def test_what_other_programs_take_is_refused_with_what_to_write(given, says):
    with pytest.raises(SpecError, match=says):
        cfljax.run(**given)
