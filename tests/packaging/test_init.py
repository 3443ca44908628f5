"""`cfljax init`: from data to a spec."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cfljax.api import one_run
from cfljax.commands import cli
from cfljax.config import read_spec
from tests.packaging.own import forgotten


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_without_data_a_spec_and_a_plugin_are_written_and_run(capsys):
    with forgotten():
        assert cli.main(["init"]) == 0
        assert "next: cfljax run my_method --plugin my_method.py" in capsys.readouterr().out
        spec = read_spec("digits.toml")
        assert len(spec.runs()) == 18 * 5
        assert (
            one_run("digits.toml", ["method=my_method", "seeds=0:1", "train.rounds=1"]).status
            == "done"
        )
    before = Path("digits.toml").read_text()
    Path("my_method.py").unlink()
    assert cli.main(["init"]) == 2 and capsys.readouterr().err.startswith(
        "cfljax: digits.toml: exists already"
    )
    assert Path("digits.toml").read_text() == before and not Path("my_method.py").exists()


@pytest.mark.parametrize("kind", ["csv", "npz", "images", "name"])
def test_data_are_imported_described_and_compared(kind, here, capsys):
    x, y = np.random.default_rng(0).normal(size=(60, 4)).round(3), np.arange(60) % 3
    np.savez("seen.npz", x=x.astype(np.float32), y=y)
    Path("seen.csv").write_text(
        "a,b,c,d,label,user\n"
        + "\n".join(f"{','.join(map(str, r))},{k},u{k}" for r, k in zip(x, y, strict=True))
    )
    for at in range(12):
        (folder := here / "seen" / f"class{at % 2}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), 20 * at, np.uint8)).save(folder / f"{at}.png")
    source = {"csv": "seen.csv", "npz": "seen.npz", "images": "seen", "name": "digits"}[kind]
    assert cli.main(["init", source]) == 0
    said, file = capsys.readouterr().out, f"{'digits' if kind == 'name' else 'seen'}.toml"
    assert (
        "classes of a client" in said
        and "time on this machine: about" in said
        and said.endswith(f"cfljax sweep {file}\n")
    )
    table = tomllib.loads(Path(file).read_text())
    assert (
        len(table["method"]) == 17 and table["seeds"] == "0:5" and len(read_spec(file).runs()) == 85
    )
    wanted = {"csv": ("user", "pixel"), "npz": ("dirichlet", "pixel")}.get(
        kind, ("dirichlet", "unit")
    )
    assert (table["data"]["partition"], table["data"]["normalise"]) == wanted and table["data"][
        "validation"
    ] == 0.1
    assert cli.main(["init", source]) == 2 and "exists already" in capsys.readouterr().err


def test_a_folder_with_quotes_and_backslashes_is_written_as_toml(here, monkeypatch):
    monkeypatch.setattr("cfljax.commands.init._time", lambda _: "")
    rows = "\n".join(f"{k % 7},{k % 3}" for k in range(60))
    (folder := here / 'we"ird \\dir').mkdir()
    (folder / "x.csv").write_text("a,label\n" + rows)
    flags = ["init", str(folder / "x.csv"), "--dir", str(folder / "out")]
    assert cli.main(flags) == 0
    (spec,) = here.glob("*.toml")
    assert tomllib.loads(spec.read_text())["data"]["path"] == str(folder / "out" / "x")
    assert read_spec(spec).runs()[0].data.path == str(folder / "out" / "x")


def test_texts_need_another_model(capsys):
    Path("said.csv").write_text(
        "text,label\n" + "\n".join(f"{'yes no '[k % 5 :]} now,{k % 2}" for k in range(40))
    )
    assert cli.main(["init", "said.csv", "--text", "text"]) == 2
    assert "samples are texts" in capsys.readouterr().err and not Path("said.toml").exists()


@pytest.mark.parametrize("source", ["visist.csv", "photos/"])
def test_a_file_that_is_not_there_is_no_name_of_a_data_set(source, capsys):
    assert cli.main(["init", source]) == 2 and capsys.readouterr().err.endswith(
        f"{source}: there is no such file or folder\n"
    )
