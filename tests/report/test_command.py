import subprocess
import sys

import pytest

from cfljax.commands import process
from cfljax.commands.report import parser, run
from cfljax.store import Store
from tests.report import synthetic


def call(*words):
    return process.main(run, parser(), [str(w) for w in words])


def test_the_table_is_printed_and_the_files_are_written(tmp_path, capsys):
    synthetic.everything(tmp_path / "a")
    assert call(tmp_path / "a", "--no-figures") == 0
    said = capsys.readouterr()
    assert "oracle" in said.out and "1 diverged, 1 failed of 17 runs" in said.out and said.err == ""
    assert said.out.splitlines()[-1] == f"report: {tmp_path / 'a' / 'report' / 'index.html'}"
    assert not (tmp_path / "a" / "report" / "figures").exists()


def test_several_folders_go_to_a_folder_here(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        synthetic.sweep(tmp_path / name)
    assert call("a", "b", "--no-figures") == 0
    assert (tmp_path / "report" / "table.csv").is_file() and not (
        tmp_path / "a" / "report"
    ).exists()


def test_only_the_figures_that_are_asked_for_are_drawn(tmp_path, capsys):
    from PIL import Image

    synthetic.sweep(tmp_path / "a")
    assert (
        call(
            tmp_path / "a", "--figures", "accuracy,mixture", "--dpi", "50", "--out", tmp_path / "p"
        )
        == 0
    )
    said = capsys.readouterr()
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
        "accuracy.png",
        "accuracy.svg",
    ]
    assert said.out == f"figure: {tmp_path / 'p' / 'accuracy.png'}\n" and said.err.startswith(
        "cfljax: mixture: "
    )
    assert Image.open(tmp_path / "p" / "accuracy.png").width == 275  # 5.5 inches


def test_columns_may_be_chosen(tmp_path, capsys):
    synthetic.sweep(tmp_path / "a")
    assert call(tmp_path / "a", "--no-figures", "--columns", "last,worst,bytes") == 0
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "runs",
        "last",
        "worst",
        "tenth",
        "bytes",
    ]
    written = (tmp_path / "a" / "report" / "table.csv").read_text()
    assert written.startswith("folder,method,label,done,diverged,failed,accuracy_last_mean")
    assert (
        call(tmp_path / "a", "--columns", "lst") == 2
        and 'did you mean "last"' in capsys.readouterr().err
    )


def test_a_target_makes_columns(tmp_path, capsys):
    synthetic.sweep(tmp_path)
    call(tmp_path, "--no-figures", "--target", "0.5")
    assert "rounds to target" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["x", "--target", "50"],
        ["x", "--target", "nan"],
        ["x", "--target", "high"],
        ["x", "--wrong"],
        ["x", "--figures", "nice"],
    ],
)
def test_wrong_flags_are_code_2_and_one_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        call(*words)
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1


def test_what_is_no_results_folder_is_code_3_and_one_line(tmp_path, capsys):
    assert call(tmp_path) == 3
    assert call(tmp_path / "nowhere") == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "no units/" in said[0] and "no such folder" in said[1]


def test_a_file_in_the_way_is_code_3_and_one_line(tmp_path, capsys):
    synthetic.sweep(tmp_path / "a", seeds=1)
    (tmp_path / "file").write_text("")
    assert call(tmp_path / "a", "--out", tmp_path / "file", "--no-figures") == 3
    assert capsys.readouterr().err.count("\n") == 1


def test_an_empty_folder_is_no_mistake(tmp_path, capsys):
    Store(tmp_path)
    assert call(tmp_path) == 0
    assert "no finished runs" in capsys.readouterr().out


def test_help_has_examples_and_nothing_heavy_is_imported_for_it():
    code = (
        "import sys, cfljax.commands.report as m; m.parser().print_help(); "
        "print(sorted({'jax', 'pandas', 'matplotlib', 'scipy'} & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "python -m cfljax.report results/a results/b" in said and said.endswith("[]\n")


def test_a_page_needs_neither_pandas_nor_matplotlib(tmp_path):
    """Nor JAX, though it asks methods for their names, families and diagnostics."""
    synthetic.everything(tmp_path)
    words = [sys.executable, "-X", "importtime", "-m", "cfljax.report", str(tmp_path)]
    said = subprocess.run([*words, "--no-figures"], capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in said.stderr.splitlines()}
    assert "cfljax.round.recipes" in imported  # which methods import
    assert not imported & {"jaxlib", "pandas", "matplotlib", "scipy.stats"}
