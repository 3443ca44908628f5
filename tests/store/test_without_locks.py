"""Where files cannot be locked, as on Windows, a sweep is refused before anything is trained, by the line in docs/install.md."""

from pathlib import Path

from cfljax.commands.cli import main
from cfljax.store import locks

PAGE = Path(__file__).parents[2] / "docs" / "install.md"


def test_a_sweep_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "--set", "method=fedavg", "--set", "seeds=0:1", "--set", "data.clients=4", "--quiet"]) == 3
    said = capsys.readouterr().err
    assert said == "cfljax: results/quickstart/locks: this system has no file locks (flock); run on Linux, macOS or WSL\n"
    assert said.replace("/", "\\") in PAGE.read_text()
    assert not list((tmp_path / "results").rglob("*.npz"))
