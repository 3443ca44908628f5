"""The guard fails when it should: a changed bit, a missing array, a spec that is refused, a process that dies, no commit."""

import json

import numpy as np
import pytest

from tests.bits import __main__ as command
from tests.bits import sides
from tests.bits.compare import compare
from tests.bits.specs import METHODS, all_specs

OLD = {"models": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3), "labels": np.int16([0, 1]), "status": np.asarray("done")}
REFUSED, FAILED = {"refused": np.asarray("no such option")}, {"failed": np.asarray("TypeError: why")}


def changed(**arrays):
    return OLD | arrays


def with_one_bit():
    bits = OLD["models"].copy().view(np.int32)
    bits[1, 1] ^= 1
    return changed(models=bits.view(np.float32))


def test_the_same_bits_are_the_same():
    nan = changed(loss=np.float32([np.nan, 0]))
    assert compare("a/ifca", nan, {name: array.copy() for name, array in nan.items()}, {}).kind == "same"


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (with_one_bit(), "models by 6e-08, relative 7.5e-08"),
        (changed(models=-OLD["models"] * 0), "models by 1, relative 1"),
        (changed(models=OLD["models"] + np.float32(np.nan)), "models by inf"),
        (changed(models=OLD["models"].astype(np.float64)), "models is float64[2, 3], and was float32[2, 3]"),
        (changed(labels=np.int16([0])), "labels is int16[1], and was int16[2]"),
        (changed(status=np.asarray("lost")), "status is lost, and was done"),
        ({"models": OLD["models"], "status": OLD["status"]}, "labels is missing"),
        (changed(loss=np.float32([1])), "loss is new"),
        (REFUSED, "refused now, and worked before: no such option"),
        (FAILED, "failed now, and worked before: TypeError: why"),
    ],
)
def test_whatever_changes_is_a_difference(new, words):
    outcome = compare("a/ifca", OLD, new, {})
    assert outcome.kind == "differs" and words in outcome.line and outcome.line.startswith("a/ifca: ")


def test_signs_of_zero_count():
    assert compare("a", {"x": np.float32([0.0])}, {"x": np.float32([-0.0])}, {}).kind == "differs"


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (REFUSED, OLD, "now works"),
        (REFUSED, REFUSED, "refused"),
        (REFUSED, FAILED, "differs"),
        (FAILED, REFUSED, "refused"),
        (FAILED, OLD, "now works"),
    ],
)
def test_what_was_refused_may_work_and_may_not_end_in_an_error(old, new, kind):
    assert compare("a", old, new, {}).kind == kind


def test_expected_allows_so_much_and_no_more():
    allows = lambda pattern, tolerance, new: compare("a/ifca", OLD, new, {pattern: (tolerance, "why")}).kind  # noqa: E731
    assert allows("a/* models", 1e-6, with_one_bit()) == "expected"
    assert allows("a/* models", 1e-9, with_one_bit()) == allows("b/* models", 1e-6, with_one_bit()) == "differs"
    assert allows("a/* labels", 1e-6, with_one_bit()) == "differs"
    without = {"models": OLD["models"], "status": OLD["status"]}
    assert allows("a/* labels", 1.0, without) == "differs" and allows("a/* labels", None, without) == "expected"
    assert allows("a/* *", None, REFUSED) == "differs"


@pytest.fixture
def playing(monkeypatch, tmp_path):
    """`playing(new, dead)`: the exit code and the sides that were played, if a spec has these arrays in the working tree."""

    def start(new, dead=()):
        sides_played = []

        def play(package, jobs, cache, side):
            sides_played.append(side)
            for job in jobs.values():
                np.savez(job["file"], **(OLD if side == sides.COMMIT else new))
            return dict.fromkeys(dead, "its process ended with -11") if side != sides.COMMIT else {}

        monkeypatch.setattr(command, "play", play)
        monkeypatch.setattr(command, "package_before", lambda folder: folder)
        code = command.main(["--only", "plain/ifca", "--cache", str(tmp_path)])
        return code, sides_played

    return start


def test_the_command_says_same_bits_and_records_once(playing, capsys):
    assert playing(OLD) == (0, [sides.COMMIT, "working tree"])
    assert playing(OLD) == (0, ["working tree"])
    assert capsys.readouterr().out.splitlines() == ["1 specs: same bits"] * 2


def test_the_command_fails_where_a_bit_differs_or_a_process_dies(playing, capsys):
    assert playing(with_one_bit())[0] == 1
    assert playing(OLD, dead=["plain/ifca"])[0] == 1
    first, _, second, count = capsys.readouterr().out.splitlines()
    assert first.startswith("plain/ifca: 1 of 3 arrays differ: models") and second.endswith("its process ended with -11")
    assert count == "1 of 1 specs differ; 0 specs: same bits"


def test_a_clone_without_the_commit_fails_in_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sides, "ROOT", tmp_path)
    assert command.main(["--only", "plain/ifca", "--cache", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no commit a7ef2bbd to compare with" in line


def test_specs_are_tables_with_files_of_their_own(tmp_path):
    specs = all_specs()
    assert json.loads(json.dumps(specs)) == specs and {f"plain/{method}" for method in METHODS} <= specs.keys()
    alone = [spec for spec in specs.values() if "like" not in spec]
    assert len({sides.reference_file(tmp_path, spec) for spec in alone}) == len(alone)
    assert all(" " not in name for name in specs)


def test_a_worker_plays_a_spec_and_says_what_it_refuses(tmp_path):
    run = all_specs()["plain/fedavg"]["run"]
    jobs = {"good": run, "bad": run | {"model": {"name": "mlp", "hiden": [8]}}}
    jobs = {name: {"run": run, "devices": 1, "file": str(tmp_path / f"{name}.npz")} for name, run in jobs.items()}
    assert sides.play(sides.ROOT, jobs, tmp_path, "test") == {}
    good, bad = (sides.read(tmp_path / f"{name}.npz") for name in jobs)
    assert {"models", "labels", "client_accuracy", "history/bytes_up", "summary/accuracy_last", "status"} <= good.keys()
    assert bad.keys() == {"refused"} and "hiden" in str(bad["refused"])


def test_a_package_that_lacks_another_plays_nothing(tmp_path):
    made = {
        "__init__": "CfljaxError = RuntimeError\nregister_data = lambda _: lambda made: made\n"
        "def run(**options):\n    import no_such_package\n",
        "config": "class plugins: ...\n",
        "federation": 'PARTITIONS = ["overlap"]\n',
    }
    (tmp_path / "cfljax").mkdir()
    for name, text in made.items():
        (tmp_path / "cfljax" / f"{name}.py").write_text(text)
    job = all_specs()["plain/fedavg"] | {"file": str(tmp_path / "made.npz")}
    assert "no_such_package" in sides.play(tmp_path, {"it": job}, tmp_path, "test")["it"]
    assert not (tmp_path / "made.npz").exists()
