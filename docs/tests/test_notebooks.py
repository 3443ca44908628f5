"""The notebooks run from top to bottom on a CPU."""

import importlib.machinery
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))


def cells(notebook):
    return [
        "".join(cell["source"])
        for cell in json.loads(notebook.read_text())["cells"]
        if cell["cell_type"] == "code"
    ]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.mark.rare
def test_the_tour_of_the_kernels_runs(capsys):
    """As plain code, in this process: no Jupyter needed."""
    names = {"__name__": "__main__"}
    for number, text in enumerate(cells(next(n for n in NOTEBOOKS if n.stem == "kernels"))):
        exec(compile(text, f"kernels:{number}", "exec"), names)
    said = capsys.readouterr().out
    assert (
        "left out: 1" in said
        and "empty cluster moved: False" in said
        and "IFCA chooses as lambda 0: True" in said
    )
    assert "k-means        purity 1.00   ARI 1.00" in said


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A runtime without cfljax whose pip succeeds: `install(hardware)` runs the first cell; the
    packages that pip was asked for."""
    (install, *_), asked = cells(ROOT / "experiments" / "notebooks" / "quickstart.ipynb"), []

    def started(command, **_):
        asked.extend(command[5:])
        return SimpleNamespace(returncode=0)

    def run(hardware=""):
        monkeypatch.setattr(
            shutil, "which", lambda name: "/usr/bin/nvidia-smi" if hardware == "gpu" else None
        )
        if hardware == "tpu":
            (tmp_path / "dev" / "vfio").mkdir(parents=True)
            (tmp_path / "dev" / "vfio" / "0").touch()
        exec(compile(install.replace("/dev", f"{tmp_path}/dev"), "install", "exec"), {})

    for name in [name for name in sys.modules if name == "jax" or name == "cfljax"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        sys, "meta_path", [importlib.machinery.BuiltinImporter, importlib.machinery.PathFinder]
    )
    monkeypatch.setattr(subprocess, "run", started)
    return SimpleNamespace(install=run, asked=asked, folder=tmp_path)


def test_the_first_cell_installs_a_clone_that_lies_beside_it(fresh):
    (fresh.folder / "cfljax" / "cfljax").mkdir(
        parents=True
    )  # Python finds a package without origin here
    (fresh.folder / "cfljax" / "pyproject.toml").touch()
    fresh.install()
    assert fresh.asked == ["./cfljax", "jax>=0.10"]


@pytest.mark.parametrize(
    ("hardware", "wanted"), [("gpu", "jax[cuda12]>=0.10"), ("tpu", "jax[tpu]>=0.10")]
)
def test_the_first_cell_installs_the_wheel_with_the_jax_of_the_device(fresh, hardware, wanted):
    (fresh.folder / "cfljax-0.2.0-py3-none-any.whl").touch()
    fresh.install(hardware)
    assert fresh.asked == ["cfljax-0.2.0-py3-none-any.whl", wanted]


def test_the_first_cell_stops_in_a_line_where_there_is_nothing_to_install(fresh):
    with pytest.raises(SystemExit, match="upload its wheel"):
        fresh.install()
    assert fresh.asked == []


def test_the_second_cell_says_that_jax_does_not_use_the_device_that_is_there(capsys):
    about = cells(ROOT / "experiments" / "notebooks" / "quickstart.ipynb")[1]
    if jax.devices()[0].platform != "cpu":
        pytest.skip("needs a CPU")
    for gpu, words in (
        (True, 'pip install -U "jax[cuda12]>=0.10"'),
        (False, "Change runtime type"),
    ):
        exec(about, {"gpu": gpu, "tpu": False, "jax_for_this": "jax[cuda12]>=0.10"})
        assert words in capsys.readouterr().out


def test_the_notebook_names_the_groups_as_they_are():
    from cfljax.config import read_spec
    from cfljax.experiment.assemble import host_federation

    code = cells(ROOT / "experiments" / "notebooks" / "quickstart.ipynb")
    (digits,) = (
        line.split(" = ", 1)[1]
        for text in code
        for line in text.splitlines()
        if line.startswith("digits = ")
    )
    table = {
        "data": json.loads(digits),
        "model": "mclr",
        "method": "fedavg",
        "train": {"rounds": 1},
        "seeds": [0],
    }
    groups = host_federation(read_spec(table).runs()[0]).group.tolist()
    edges = [f"{groups.index(g)}-{19 - groups[::-1].index(g)}" for g in range(4)]
    assert groups == sorted(
        groups
    ) and f"clients {', '.join(edges[:3])} and {edges[3]} share" in "".join(code)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_notebooks_are_kept_with_their_outputs(notebook):
    code = [
        cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    outputs = [output for cell in code for output in cell["outputs"]]
    counts = [cell["execution_count"] for cell in code]
    assert counts == [*range(1, len(code) + 1)], "run it from the top: jupyter nbconvert --execute"
    assert (
        any("image/png" in output.get("data", {}) for output in outputs)
        and notebook.stat().st_size < 120_000
    )
    assert not [
        output
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]
    assert not re.search(
        r"/(home|root|tmp|usr|opt|Users|content|work)/|\\u001b", json.dumps(outputs)
    )


@pytest.mark.rare
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_notebooks_run_in_jupyter(notebook, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND")  # pictures are shown inline
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    content = nbformat.read(notebook, as_version=4)
    nbformat.validate(content)
    nbclient.NotebookClient(
        content, timeout=600, startup_timeout=300, kernel_name="python3"
    ).execute()
    shown = json.dumps(content)
    assert "image/png" in shown
