"""Users' own things: loaded from files, modules and installed packages, told apart by their source, wrong in one line."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

import cfljax
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.registry import Entry
from tests.packaging.own import forgotten

METHOD = """
import cfljax
from cfljax.methods.fedavg import Config
from cfljax.methods.fedavg import make as fedavg

@cfljax.register_method("mine", Config)
def make(config, model, solver):
    '''Mine: FedAvg under another name.'''
    return fedavg(config, model, solver)
"""
SMALL = {"data": {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3}, "model": "mclr", "train": {"rounds": 1}}


@pytest.fixture(autouse=True)
def own():
    with forgotten():
        yield


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    return file


def ids(plugin, method="mine"):
    return [run.id for run in read_spec(SMALL | {"method": method, "plugins": [str(plugin)]}).runs()]


def test_a_method_in_one_file_runs_as_the_one_it_copies(plugin, tmp_path):
    (tmp_path / "spec.toml").write_text(
        'plugins = ["mine.py"]\nmethod = ["mine", "fedavg"]\nmodel = "mclr"\ntrain = { rounds = 2 }\n'
        'data = { name = "blobs", samples = 60, partition = "iid", clients = 3 }'
    )
    results = cfljax.sweep(tmp_path / "spec.toml", tmp_path / "r", quiet=True)
    frame = results.to_pandas()
    assert list(frame["method"]) == ["mine", "fedavg"] and frame["accuracy_last"].nunique() == 1
    assert next(iter(results)).config["plugins"] == [str(plugin)]


def test_the_id_follows_the_source_and_what_it_imports(plugin, tmp_path):
    first = ids(plugin)
    fedavg = ids(plugin, "fedavg")
    plugin.write_text(METHOD + "# changed\n")
    second = ids(plugin)
    (tmp_path / "helper.py").write_text("x = 1")
    plugin.write_text(METHOD + "import helper\n")
    third = ids(plugin)
    (tmp_path / "helper.py").write_text("x = 2")
    fourth = ids(plugin)
    assert len({*first, *second, *third, *fourth}) == 4
    assert fedavg == ids(plugin, "fedavg") == [run.id for run in read_spec(SMALL | {"method": "fedavg"}).runs()]
    sys.modules.pop("helper", None)


def test_a_resolved_run_brings_its_plugin(plugin):
    (run,) = read_spec(SMALL | {"method": "mine"}, plugins=[str(plugin)]).runs()
    assert read_spec(run.resolved()).runs()[0].id == run.id


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 +", "SyntaxError"),
        ("import nowhere_to_be_found", "line 1: ModuleNotFoundError"),
        ("x = 1\n\nraise ValueError('no')", "line 3: ValueError: no"),
        ("import sys\nsys.exit(0)", "line 2: SystemExit: 0"),
        (METHOD.replace('"mine"', '"fedavg"'), 'method "fedavg" exists already'),
        (METHOD.replace('"mine"', '"m i"'), "a name begins with a letter"),
        (METHOD.replace("Config)", "Config())"), "the class itself"),
    ],
)
def test_a_plugin_that_is_wrong_says_so_in_one_line(plugin, text, words):
    plugin.write_text(text)
    with pytest.raises(SpecError) as raised:
        ids(plugin)
    assert words in str(raised.value) and "mine.py" in str(raised.value) and "\n" not in str(raised.value)


def test_a_plugin_that_is_not_there_suggests_its_neighbour(plugin):
    with pytest.raises(SpecError, match=r'cannot be read .*did you mean "mine.py"'):
        ids(plugin.with_name("mime.py"))
    with pytest.raises(SpecError, match="no such module"):
        ids("nowhere.at_all")


class Point(importlib.metadata.EntryPoint):
    def load(self):
        from cfljax.methods.fedavg import fedavg

        return Entry(fedavg.options, fedavg.make) if self.name == "offered" else 7


def test_an_installed_package_offers_methods(monkeypatch):
    METHODS._offered = {name: Point(name, "somewhere:x", "cfljax.methods") for name in ("offered", "broken")}
    assert "offered" in METHODS and "offered" in list(METHODS)
    (run,) = read_spec(SMALL | {"method": "offered"}).runs()
    assert len(run.foreign) == 1 and run.resolved()["plugins"] == ["somewhere"]
    assert "offered" in METHODS._own
    with pytest.raises(SpecError, match="neither an Entry"):
        read_spec(SMALL | {"method": "broken"})


def test_ones_own_may_be_registered_again_and_the_new_one_counts():
    for value in (1.0, 2.0):

        @cfljax.register_metric("constant")
        def constant(seen, value=value):
            return jnp.float32(value)

        result = cfljax.run("fedavg", SMALL["data"], "mclr", rounds=1, train={"metrics": ["constant"]})
        assert result.summary["constant_last"] == value


@pytest.mark.parametrize(
    ("metric", "words"),
    [(lambda seen: seen.correct, "must be one number"), (lambda seen: 1.0, "exists")],
)
def test_a_metric_is_one_number_under_a_free_name(metric, words):
    name = "accuracy" if words == "exists" else "wide"
    cfljax.register_metric(name)(metric)
    with pytest.raises(SpecError, match="of that name already" if words == "exists" else words):
        cfljax.run("fedavg", SMALL["data"], "mclr", rounds=1, train={"metrics": [name]})


def test_own_data_are_checked():
    cfljax.register_data("holes")(lambda options, rng: {"x_train": [[1.0]], "y_train": [0], "x_test": [[1.0]]})
    with pytest.raises(cfljax.DataError, match="it has no y_test"):
        cfljax.run("fedavg", {"name": "holes", "clients": 1}, rounds=1)


def test_a_package_on_the_path_offers_its_method_to_the_commands(tmp_path):
    (tmp_path / "my_methods.py").write_text(METHOD)
    info = tmp_path / "my_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 1.0\n")
    (info / "RECORD").write_text("my_methods.py,,\n")
    (info / "entry_points.txt").write_text("[cfljax.methods]\nmine = my_methods:make\n")
    code = "from cfljax.config import read_spec; from cfljax.methods import METHODS, listing; print(listing.details('mine'));"
    code += f"run, = read_spec({SMALL | {'method': 'mine'}!r}).runs(); print(run.id, run.resolved()['plugins'], 'mine' in METHODS)"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])}

    def said():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = said()
    assert first.startswith("mine: Mine: FedAvg under another name.") and "['my_methods'] True" in first
    (tmp_path / "my_methods.py").write_text(METHOD + "# changed\n")
    assert said().split()[-3] != first.split()[-3]  # another id
