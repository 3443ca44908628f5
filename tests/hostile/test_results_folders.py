"""A results folder that somebody sent names programs; none of them is executed unless the user names
it, too."""

import os
import shutil
import subprocess
import sys

import pytest

import cfljax
from cfljax.commands import cli
from cfljax.errors import SpecError
from cfljax.store import Store
from experiments import check

SPEC = {
    "name": "Sent",
    "data": {
        "name": "blobs",
        "samples": 120,
        "partition": "label_permutation",
        "groups": 2,
        "clients": 6,
    },
    "model": "mclr",
    "train": {"rounds": 1},
    "method": {"name": "ifca", "clusters": 2},
}
HOSTILE = "import pathlib\npathlib.Path(__file__ + '.ran').touch()\n"


def rewrite(folder, plugins):
    """Name plug-ins in the records of a folder, with right checksums."""
    store = Store(folder)
    for run in store.ids():
        record, arrays = store.read(run)
        record["config"]["plugins"] = plugins
        store.write(run, record, arrays)


@pytest.fixture(scope="module")
def computed(tmp_path_factory):
    return cfljax.sweep(SPEC, tmp_path_factory.mktemp("r") / "sent", keep="models", quiet=True)


@pytest.fixture(params=["sent/reader.py", "absolute", "sent.reader"])
def sent(request, computed, tmp_path, monkeypatch):
    """A folder whose records name a program inside of it: as a file, or as a module."""
    folder = tmp_path / "sent"
    shutil.copytree(computed.store.folder, folder)
    (folder / "reader.py").write_text(HOSTILE)
    named = str(folder / "reader.py") if request.param == "absolute" else request.param
    rewrite(folder, [named])
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    assert not list(folder.glob("*.ran"))


@pytest.mark.parametrize("column", ["was", "generalisation"])
def test_reports_run_no_program_of_a_folder(sent, column):
    assert cli.main(["report", str(sent), "--no-figures", "--columns", column]) == 0


def test_predictions_and_exports_run_no_program_of_a_folder(sent):
    (run,) = cfljax.load(sent)
    x, _ = run.samples(0)
    assert len(run.predict(0, x, prepared=True)) == len(x)
    assert run.confusion(0).sum() == len(x)
    run.export(sent / "one.safetensors")
    assert cli.main(["load", str(sent), "--clusters", str(sent / "clusters")]) == 0


def test_a_published_number_is_run_again_with_programs_of_the_repository_alone(sent):
    with pytest.raises(SpecError, match="no file of experiments/"):
        check.again(cfljax.load(sent)[0], 1)


PLUGIN = """
import pathlib
import cfljax
from cfljax.methods.fedavg import FedAvg
from cfljax.round.entry import method_of

pathlib.Path(__file__ + ".ran").touch()


@cfljax.register_method("NAME", FedAvg)
def make(config, model, solver):
    return method_of("NAME", config, model, solver)
"""


def made_elsewhere(folder, name):
    """A folder of a run that needs a plug-in, computed in another process."""
    plugin = folder / f"{name}.py"
    plugin.write_text(PLUGIN.replace("NAME", name))
    sets = {
        "method": name,
        "data.name": "blobs",
        "data.samples": 60,
        "data.clients": 3,
        "data.partition": "iid",
        "model": "mclr",
        "train.rounds": 1,
        "seeds": [0],
    }
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    out = ["--out", str(folder / "out"), "--keep", "models", "--workers", "1", "--no-report"]
    (folder / "spec.toml").write_text('data = "digits"\nmethod = "fedavg"\n')
    subprocess.run(
        [sys.executable, "-m", "cfljax.sweep", "spec.toml", *words, *out, "--plugin", str(plugin)],
        check=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
    )
    (folder / f"{name}.py.ran").unlink()
    return plugin, folder / "out"


def test_a_line_says_what_was_not_executed_and_how_to_allow_it(tmp_path, capsys):
    plugin, folder = made_elsewhere(tmp_path, "named_by_the_user")
    with pytest.raises(SpecError, match=rf"{plugin}.* was not executed.*--plugin") as error:
        cfljax.load(folder)[0].samples(0)
    assert "\n" not in str(error.value) and "plugins=" in str(error.value)
    words = ["load", str(folder), "--clusters", str(tmp_path / "clusters")]
    assert cli.main(words) == 2
    assert "was not executed" in capsys.readouterr().err
    with pytest.raises(SpecError, match="missing.py"):
        cfljax.load(folder, plugins=["missing.py"])
    assert not list(tmp_path.glob("*.ran"))
    assert cli.main([*words, "--plugin", str(plugin)]) == 0
    assert list(tmp_path.glob("*.ran")) and (tmp_path / "clusters" / "clusters.json").exists()
    assert len(cfljax.load(folder, plugins=[str(plugin)])[0].samples(0)[0])
