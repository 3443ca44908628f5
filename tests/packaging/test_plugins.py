"""Users' own things: loaded from files, modules and installed packages, told apart by their source,
wrong in one line."""

import importlib
import importlib.machinery
import importlib.metadata
import inspect
import operator
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import jax.numpy as jnp
import pytest

import cfljax
from cfljax import extend
from cfljax.api import one_run
from cfljax.config import read_spec
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.registry import Entry, sources
from cfljax.registry.renamed import POLICIES, RENAMED
from cfljax.types import ClientState
from tests.often import rarely

METHOD = """
import cfljax
from cfljax.methods.fedavg import FedAvg
from cfljax.round.entry import method_of

@cfljax.register_method("mine", FedAvg)
def make(config, model, solver):
    '''Mine: FedAvg under another name.'''
    return method_of("mine", config, model, solver)
"""
SMALL = {
    "data": {"name": "blobs", "samples": 60, "partition": "iid", "clients": 3},
    "model": "mclr",
    "train": {"rounds": 1},
}


@pytest.fixture
def plugin(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(METHOD)
    return file


def ids(plugin, method="mine"):
    return [
        run.id for run in read_spec(SMALL | {"method": method, "plugins": [str(plugin)]}).runs()
    ]


def test_a_method_in_one_file_runs_as_the_one_it_copies(plugin, tmp_path):
    (tmp_path / "spec.toml").write_text(
        'plugins = ["mine.py"]\nmethod = ["mine", "fedavg"]\nmodel = "mclr"\ntrain = { '
        "rounds = 2 }\n"
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
    plugin.write_text(METHOD + "from . import helper\n")
    third = ids(plugin)
    (tmp_path / "helper.py").write_text("x = 2")
    fourth = ids(plugin)
    assert len({*first, *second, *third, *fourth}) == 4
    assert (
        fedavg
        == ids(plugin, "fedavg")
        == [run.id for run in read_spec(SMALL | {"method": "fedavg"}).runs()]
    )


def test_a_resolved_run_brings_its_plugin(plugin):
    (run,) = read_spec(SMALL | {"method": "mine"}, plugins=[str(plugin)]).runs()
    assert read_spec(run.resolved()).runs()[0].id == run.id


@pytest.mark.parametrize(("text", "words"), [
    ("1 +", "SyntaxError"), ("import nowhere_to_be_found", "line 1: ModuleNotFoundError"),
    *[(f"from cfljax.extend import {name}", f"line 1: ImportError: cfljax.extend has no {name} any more: {use}")
      for name, use in (("Clusters", "write"), ("by_loss", "use least_loss"), ("chosen", "use a class"), ("train_clusters", "use averages"))],
    ("from cfljax.extend import Begun", "line 1: ImportError: cfljax.extend.Begun is called InitialClusters now"),
    ("from cfljax.extend import Clustered\nclass Old(Clustered):\n    def shows(self):\n        pass",
     "class Old: shows is called compute_diagnostics now"),
    ("from cfljax.extend import Clustered\nclass Old(Clustered):\n    chooses, clusters = True, 2",
     "class Old: chooses went; write choice = ByScore()"),
    ("from cfljax.extend import State\nState(1, 2, guess=3)", "guess is called labels_if_joining now"),
    ("x = 1\n\nraise ValueError('no')", "line 3: ValueError: no"), ("import sys\nsys.exit(0)", "line 2: SystemExit: 0"),
    (METHOD.replace('"mine"', '"fedavg"'), 'method "fedavg" exists already'),
    (METHOD.replace('"mine"', '"m i"'), "a name begins with a letter"),
    ("import cfljax\nfrom flax import linen\n@cfljax.register_model('net')\nclass Net(linen.Module):\n    classes: int",
     'model "net": Net is called with other arguments than it takes; register a function of (options, sample_shape, classes)'),
    ("import cfljax\n@cfljax.register_data('mine')\ndef mine(options):\n    pass", "a function of (options, rng)"),
    (METHOD.replace("FedAvg)", "FedAvg())"), "the class itself"),
])  # fmt: skip
def test_a_plugin_that_is_wrong_says_so_in_one_line(plugin, text, words):
    plugin.write_text(text)
    with pytest.raises(SpecError) as raised:
        ids(plugin)
    assert (
        words in str(raised.value)
        and "mine.py" in str(raised.value)
        and "\n" not in str(raised.value)
    )


def test_a_run_that_fails_in_a_plugin_says_in_which_line(plugin, tmp_path):
    (tmp_path / "helper.py").write_text("def centre():\n    raise KeyError('no centre')\n")
    plugin.write_text(
        METHOD.replace("    return", "    from . import helper\n    helper.centre()\n    return")
    )
    for method, words in (("mine", "helper.py, line 2: KeyError: 'no centre'"), ("fedavg", "")):
        results = cfljax.sweep(
            SMALL | {"method": method, "plugins": [str(plugin)]}, tmp_path / method, quiet=True
        )
        assert [result.record["error"] or "" for result in results] == [words]


OLD = """
import cfljax
from cfljax.extend import ByScore, Clustered

@cfljax.register_method("mine")
class Mine(Clustered):
    choice, clusters = ByScore(), 2

    def prepare(self, ask, state):
        LINE
"""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("return state._replace(guess=None)", "guess is called labels_if_joining now"),
        ("return state._replace(active=state.there)", "there is called active_mask now"),
        ("return state._replace(own=None)", "own is called client_params or rows now"),
        ("return state if self.chooses else None", "chooses went; write choice = ByScore()"),
    ],
)
def test_a_run_that_uses_an_old_name_says_the_new_one(plugin, line, words):
    plugin.write_text(OLD.replace("LINE", line))
    with pytest.raises(SpecError) as raised:
        one_run(SMALL | {"method": "mine", "plugins": [str(plugin)]})
    said = str(raised.value)
    assert said.startswith("mine.py, line 10: ") and said.endswith(words) and "\n" not in said


def test_an_option_may_have_a_name_that_something_else_had(plugin):
    plugin.write_text(
        "import dataclasses\n"
        + OLD.replace("class Mine", "@dataclasses.dataclass(frozen=True)\nclass Mine")
        .replace("choice,", "kept: int = cfljax.option(1, 'how many')\n    choice,")
        .replace("LINE", "return state")
    )
    assert len(ids(plugin)) == 1


def members(owner):
    """What a class of the facade has, fields that it sets included; or a function's arguments."""
    thing = operator.attrgetter(owner)(extend) if owner != "ClientState" else ClientState
    if inspect.isclass(thing):
        return {*dir(thing), *re.findall(r"self\.(\w+) = ", inspect.getsource(thing))}
    return set(inspect.signature(thing).parameters)


@pytest.mark.parametrize("old", RENAMED)
def test_a_name_that_was_renamed_is_there_under_the_new_one_alone(old):
    owner, _, name = old.rpartition(".")
    there = members(owner) if owner else set(extend.__all__)
    assert RENAMED[old] in there and name not in there


@pytest.mark.parametrize("old", POLICIES)
def test_a_member_that_a_policy_replaces_is_gone_and_the_policy_is_there(old):
    owner, _, name = old.rpartition(".")
    policy, _, line = POLICIES[old].partition(" = ")
    there = members(owner)
    assert policy in there and name not in there
    # The names in the line are those of the facade, but for one of the author's own
    assert set(re.findall(r"\b[A-Z]\w+", line)) <= {*extend.__all__, "Mine", "True", "False"}


def test_a_plugin_that_is_not_there_suggests_its_neighbour(plugin):
    with pytest.raises(SpecError, match=r'cannot be read .*did you mean "mine.py"'):
        ids(plugin.with_name("mime.py"))
    with pytest.raises(SpecError, match="no such module"):
        ids("nowhere.at_all")


class Point(importlib.metadata.EntryPoint):
    def load(self):
        fedavg = METHODS.entry("fedavg")
        return Entry(fedavg.options, fedavg.make) if self.name == "offered" else 7


def test_an_installed_package_offers_methods(monkeypatch):
    METHODS._installed = {
        name: Point(name, "somewhere:x", "cfljax.methods") for name in ("offered", "broken")
    }
    assert "offered" in METHODS and "offered" in list(METHODS)
    (run,) = read_spec(SMALL | {"method": "offered"}).runs()
    assert len(run.plugin_hashes) == 1 and run.resolved()["plugins"] == ["somewhere"]
    assert "offered" in METHODS._origins
    with pytest.raises(SpecError, match="neither an Entry"):
        read_spec(SMALL | {"method": "broken"})


def test_ones_own_may_be_registered_again_and_the_new_one_counts():
    for value in (1.0, 2.0):

        @cfljax.register_metric("constant")
        def constant(seen, value=value):
            return jnp.float32(value)

        result = cfljax.run(
            "fedavg", SMALL["data"], "mclr", rounds=1, train={"metrics": ["constant"]}
        )
        assert result.summary["constant_last"] == value


@pytest.mark.parametrize(
    ("metric", "words"),
    [(lambda seen: seen.correct, "must be one number"), (lambda seen: 1.0, "exists")],
)
def test_a_metric_is_one_number_under_a_free_name(metric, words):
    name = "accuracy" if words == "exists" else "wide"
    cfljax.register_metric(name)(metric)
    with pytest.raises(SpecError, match="of this name already" if words == "exists" else words):
        cfljax.run("fedavg", SMALL["data"], "mclr", rounds=1, train={"metrics": [name]})


def test_own_data_are_checked():
    cfljax.register_data("holes")(
        lambda options, rng: {"x_train": [[1.0]], "y_train": [0], "x_test": [[1.0]]}
    )
    with pytest.raises(cfljax.DataError, match="it has no y_test"):
        cfljax.run("fedavg", {"name": "holes", "clients": 1}, rounds=1)


def test_a_package_on_the_path_offers_its_method_to_the_commands(tmp_path):
    (tmp_path / "my_methods.py").write_text(METHOD)
    info = tmp_path / "my_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-methods\nVersion: 1.0\n")
    (info / "RECORD").write_text("my_methods.py,,\n")
    (info / "entry_points.txt").write_text("[cfljax.methods]\nmine = my_methods:make\n")
    code = (
        "from cfljax.commands import methods; from cfljax.config import read_spec; from "
        "cfljax.methods import METHODS;"
    )
    code += "print(methods.details('mine'));"
    code += (
        f"run, = read_spec({SMALL | {'method': 'mine'}!r}).runs(); print(run.id, "
        "run.resolved()['plugins'], 'mine' in METHODS)"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    }

    def said():
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = said()
    assert (
        first.startswith("mine: Mine: FedAvg under another name.")
        and "['my_methods'] True" in first
    )
    (tmp_path / "my_methods.py").write_text(METHOD + "# changed\n")
    assert said().split()[-3] != first.split()[-3]  # another id


# --- what a plugin consists of
# -----------------------------------------------------------------------------------------------


def package(folder, name="lab"):
    """A package with a method in one of its modules."""
    (folder / name / "deep").mkdir(parents=True)
    (folder / name / "__init__.py").write_text(f"from {name}.methods import make\n")
    (folder / name / "methods.py").write_text("from .deep.tools import SCALE\n" + METHOD)
    (folder / name / "deep" / "__init__.py").write_text("")
    (folder / name / "deep" / "tools.py").write_text("SCALE = 1\n")
    return folder / name


def told(*words, **environment):
    """Ids of the runs with `mine`, as a new process finds them."""
    code = (
        "import sys; from cfljax.config import read_spec; table = "
        f"{SMALL | {'method': 'mine'}!r} | {{'plugins': sys.argv[1:]}};"
    )
    code += "print(*[run.id for run in read_spec(table).runs()])"
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "edited", [rarely("__init__.py"), rarely("methods.py"), rarely("deep/tools.py"), "deep/new.py"]
)
def test_every_module_of_a_package_counts(tmp_path, edited):
    lab = package(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    first = told("lab", PYTHONPATH=path)
    assert told("lab", PYTHONPATH=path) == first
    with (lab / edited).open("a") as file:
        file.write("# changed\n")
    assert told("lab", PYTHONPATH=path) != first


def test_a_package_that_has_changed_is_imported_anew(tmp_path, monkeypatch):
    lab = package(tmp_path, "lab_anew")
    monkeypatch.syspath_prepend(tmp_path)
    first = ids("lab_anew")
    (lab / "deep" / "tools.py").write_text("SCALE = 12345\n")
    assert ids("lab_anew") != first
    assert sys.modules["lab_anew.methods"].SCALE == 12345


def test_a_package_that_was_imported_before_it_is_named_comes_from_there(tmp_path, monkeypatch):
    package(tmp_path, "lab_before")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("lab_before")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    assert " ".join(ids("lab_before")) == told("lab_before", PYTHONPATH=path).strip()
    (run,) = read_spec(SMALL | {"method": "mine", "plugins": ["lab_before"]}).runs()
    assert run.resolved()["plugins"] == ["lab_before"]


USES = {
    "beside": "from . import helper", "a part of one beside": "from .helper import x", "in a package beside": "from .tools import inner",
    "of a package without __init__": "from .loose.part import x",
    "inside a function": "def later():\n    from . import helper",
    "elsewhere on the path": "import library", "in a package elsewhere": "from laboratory.deep import tools",
    "of a module that it imports": "from . import second",
}  # fmt: skip
FILES = {
    "beside": ("helper.py", "tools/inner.py", "loose/part.py"),
    "elsewhere": ("library.py", "laboratory/deep/tools.py"),
}
EDITED = {"in a package beside": "tools/inner.py", "of a package without __init__": "loose/part.py",
          "elsewhere on the path": "library.py",
          "in a package elsewhere": "laboratory/deep/tools.py"}  # fmt: skip


@pytest.mark.parametrize("how", USES)
def test_what_a_plugin_imports_counts(plugin, tmp_path, monkeypatch, how):
    elsewhere = tmp_path / "elsewhere"
    for place, names in ((tmp_path, FILES["beside"]), (elsewhere, FILES["elsewhere"])):
        for name in names:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("x = 1\n")
    for folder in (tmp_path / "tools", elsewhere / "laboratory", elsewhere / "laboratory" / "deep"):
        (folder / "__init__.py").write_text("")
    (tmp_path / "second.py").write_text("def later():\n    from . import helper\n")
    monkeypatch.syspath_prepend(elsewhere)
    plugin.write_text(METHOD + USES[how] + "\n")
    first = ids(plugin)
    edited = EDITED.get(how, "helper.py")
    place = elsewhere if edited in FILES["elsewhere"] else tmp_path
    (place / edited).write_text("x = 234\n")
    assert ids(plugin) != first
    (place / edited).write_text("x = 1\n")
    assert ids(plugin) == first
    (tmp_path / "unused.py").write_text("x = 1\n")
    assert ids(plugin) == first


METRIC = """
import cfljax
from . import helper
from .tools import numbers, scale

@cfljax.register_metric("NAME")
def metric(seen):
    from . import late
    return 0.0 * seen.correct.sum() + helper.VALUE + 10 * late.VALUE + 100 * scale.VALUE + 1000 * numbers.VALUE
"""


def test_plugins_in_two_folders_have_helpers_of_their_own(tmp_path, monkeypatch):
    """Also where the current folder, or Python's path, has modules of the same names."""
    for value, folder in enumerate(("here", "one", "two")):
        place = tmp_path / folder
        (place / "tools").mkdir(parents=True)
        for name in ("helper", "late", "tools/scale", "tools/numbers"):
            (place / f"{name}.py").write_text(f"VALUE = {value}\n")
        (place / "tools" / "__init__.py").write_text("")
        (place / "metric.py").write_text(METRIC.replace("NAME", folder))
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(tmp_path / "here")
    before = list(sys.path)
    plugins = [str(tmp_path / folder / "metric.py") for folder in ("one", "two")]
    table = SMALL | {
        "method": "fedavg",
        "train": {"rounds": 1, "metrics": ["one", "two"]},
        "plugins": plugins,
    }
    summary = next(iter(cfljax.sweep(table, tmp_path / "r", quiet=True))).summary
    assert (summary["one_last"], summary["two_last"]) == (1111, 2222)
    assert sys.path == before and "helper" not in sys.modules


def test_a_helper_of_the_same_length_that_changes_within_a_moment_is_the_new_one(plugin, tmp_path):
    plugin.write_text(METHOD + "from . import helper\ncfljax.seen_by_test = helper.x\n")
    for value in ("1", "2"):
        (tmp_path / "helper.py").write_text(f"x = {value}")
        ids(plugin)
        assert cfljax.seen_by_test == int(value)


@pytest.mark.parametrize("within", ["mine.py", "tools/inner.py"])
@pytest.mark.parametrize("there", [False, True])
def test_a_module_beside_is_imported_relatively_or_as_python_finds_it(
    plugin, tmp_path, monkeypatch, within, there
):
    (tmp_path / "tools").mkdir()
    for name in ("helper.py", "tools/inner.py"):
        (tmp_path / name).write_text("x = 1\n")
    plugin.write_text(METHOD + "from .tools import inner\n")
    with (tmp_path / within).open("a") as file:
        file.write("import helper\n")
    if there:
        monkeypatch.syspath_prepend(tmp_path)
        assert ids(plugin) and sys.modules.pop("helper").x == 1
        return
    words = f'{Path(within).name} imports helper of .* "from . import helper"'
    with pytest.raises(SpecError, match=words):
        ids(plugin)


def test_a_folder_named_as_an_installed_package_is_no_helper(plugin, tmp_path):
    for name in ("numpy", "cfljax", "json"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.py").write_text("raise RuntimeError")
    (tmp_path / "cfljax" / "__init__.py").write_text("raise RuntimeError")
    plugin.write_text("import json\nimport numpy\nnumpy.zeros, json.dumps\n" + METHOD)
    assert ids(plugin)


def test_a_package_that_is_installed_to_be_edited_counts_with_its_sources(tmp_path, monkeypatch):
    lab = package(tmp_path / "source", "lab_editable")
    info = tmp_path / "site" / "lab_editable-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lab-editable\nVersion: 1.0\n")
    (info / "RECORD").write_text("__editable__.lab_editable-1.0.pth,,\n")
    (info / "entry_points.txt").write_text("[cfljax.methods]\nmine = lab_editable.methods:make\n")
    path = os.pathsep.join(
        map(str, [tmp_path / "site", tmp_path / "source", Path(__file__).parents[2]])
    )
    first = told(PYTHONPATH=path)
    (lab / "deep" / "tools.py").write_text("SCALE = 2\n")
    assert told(PYTHONPATH=path) != first


def test_a_plugin_of_a_spec_that_was_copied_is_found_in_the_current_folder(
    plugin, tmp_path, monkeypatch
):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "spec.toml").write_text(
        'plugins = ["mine.py"]\nmethod = "mine"\ndata = "digits"\n'
    )
    monkeypatch.chdir(tmp_path)
    assert read_spec("r/spec.toml").runs()[0].resolved()["plugins"] == [str(plugin)]
    monkeypatch.chdir(tmp_path / "r")
    with pytest.raises(SpecError, match=r'plugins = "mine\.py": cannot be read'):
        read_spec("spec.toml")


def test_a_module_that_says_no_file_has_none(tmp_path, monkeypatch):
    """It was made by a program: the files of the folder that this process happens to work in are
    not its own."""
    made = types.ModuleType("made_up")
    made.__spec__ = importlib.machinery.ModuleSpec("made_up", None)
    monkeypatch.setitem(sys.modules, "made_up", made)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_text("x = 1")
    (tmp_path / "main.py").write_text("import made_up")
    assert sources.find_program([tmp_path / "main.py"]) == [(tmp_path / "main.py").resolve()]
