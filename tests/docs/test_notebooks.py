"""The notebooks run from top to bottom on a CPU."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "experiments" / "notebooks").glob("*.ipynb"))


def cells(notebook):
    return ["".join(cell["source"]) for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")


@pytest.mark.long
def test_the_tour_of_the_kernels_runs(capsys):
    """As plain code, in this process: no Jupyter needed."""
    names = {"__name__": "__main__"}
    for number, text in enumerate(cells(next(n for n in NOTEBOOKS if n.stem == "kernels"))):
        exec(compile(text, f"kernels:{number}", "exec"), names)
    said = capsys.readouterr().out
    assert "left out: 1" in said and "empty cluster moved: False" in said and "IFCA chooses as lambda 0: True" in said
    assert "k-means        purity 1.00   ARI 1.00" in said


def test_notebooks_are_kept_without_outputs():
    for notebook in NOTEBOOKS:
        content = json.loads(notebook.read_text())
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in content["cells"]), notebook.name


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda n: n.stem)
def test_notebooks_run_in_jupyter(notebook, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("MPLBACKEND")  # pictures are shown inline
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    content = nbformat.read(notebook, as_version=4)
    nbformat.validate(content)
    nbclient.NotebookClient(content, timeout=600, startup_timeout=300, kernel_name="python3").execute()
    shown = json.dumps(content)
    assert "<svg" in shown if notebook.stem == "quickstart" else "image/png" in shown
