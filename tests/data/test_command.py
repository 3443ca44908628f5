"""`python -m cfljax.data`."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from cfljax.commands import describe as told
from cfljax.commands import samples
from cfljax.data import load
from cfljax.errors import DataError
from cfljax.federation import PARTITIONS, gather
from cfljax.federation.pack import pack
from cfljax.types import Parts
from tests.importing.helpers import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.delenv("CFLJAX_DEBUG", raising=False)
    x, y = np.zeros((40, 4, 4), np.uint8), np.arange(40) % 4
    np.savez(tmp_path / "toy.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return tmp_path


def test_list_shows_what_is_built_in_what_is_here_and_what_can_be_had(folder, capsys):
    (folder / "notes").mkdir()
    (folder / "cache" / "tfds" / "svhn_cropped" / "3.0.0").mkdir(parents=True)
    (folder / "cache" / "tfds" / "svhn_cropped" / "3.0.0" / "dataset_info.json").write_text("{}")
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert "scikit-learn" in rows["digits"] and str(folder / "toy.npz") in rows["toy"]
    assert (
        "prepare cifar10" in rows["cifar10"]
        and "prepared in" in rows["svhn_cropped"]
        and "notes" not in rows
    )


def test_describe_is_a_table_of_the_partition(folder, capsys):
    flags = ["--set", "data.partition=rotated", "--set", "data.groups=2", "--set", "data.clients=4"]
    assert main(["describe", "toy", *flags]) == 0
    rows = {line[:20].strip(): line[21:] for line in capsys.readouterr().out.splitlines()}
    assert rows["clients"] == "4, of which 4 train" and rows["samples"] == "40 training, 40 test"
    assert rows["true groups"] == "2 (group:clients 0:2 1:2)"
    assert (
        rows["training samples"] == "20 to 20, median 20, 80 in all"
        and rows["shared samples"] == "40 held by several clients"
    )


def test_describe_draws_a_picture_whole_or_not_at_all(folder, capsys):
    picture = folder / "who.png"
    assert main(["describe", "toy", "--set", "data.clients=4", "--png", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.read_bytes().endswith(
        b"IEND\xaeB`\x82"
    )
    assert (
        main(
            [
                "describe",
                "toy",
                "--set",
                "data.clients=4",
                "--png",
                str(folder / "gone" / "who.png"),
            ]
        )
        == 3
    )
    assert sorted(p.name for p in folder.iterdir()) == ["toy.npz", "who.png"]


def test_describe_draws_samples_as_each_group_sees_them(folder, capsys):
    picture = folder / "samples.png"
    flags = ["--set", "data.partition=rotated", "--set", "data.groups=2", "--set", "data.clients=4"]
    assert main(["describe", "toy", *flags, "--draw", str(picture)]) == 0
    assert str(picture) in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.read_bytes().endswith(
        b"IEND\xaeB`\x82"
    )
    assert main(["describe", "toy", *flags, "--draw", str(folder / "gone" / "samples.png")]) == 3
    assert sorted(p.name for p in folder.iterdir()) == ["samples.png", "toy.npz"]


def test_a_line_of_samples_is_of_one_client_and_of_many_labels():
    source = load("digits")
    parts = PARTITIONS.entry("rotated").make(
        PARTITIONS.check(
            "rotated", {"clients": 8, "groups": 4, "angles": [0.0, 90.0, 180.0, 45.0]}, "data"
        ),
        source,
        np.random.default_rng(0),
    )
    lines = samples.choose_samples(source, parts)
    assert [name for name, _, _ in lines] == ["group 0", "group 1", "group 2", "group 3"]
    for name, client, rows in lines:
        x, y = samples.as_seen(source, parts, client, rows)
        assert set(rows) <= set(parts.train[client]) and len(set(y)) >= 7
        images = source.x_train[rows] / 255
        turns = int(name[-1])
        if turns < 3:
            assert np.array_equal(x, np.rot90(images, turns, axes=(1, 2)))
        else:
            assert not x[:, 0, 0].any()  # from outside the image


def test_what_is_drawn_is_what_a_model_gets(monkeypatch):
    """Against the device's own gathering, for views of every kind."""
    source = load("digits")
    for name, options in (
        ("label_swap", {}),
        ("feature_shift", {}),
        ("feature_shift", {"kind": "offset"}),
        ("corrupted", {"groups": 2, "clients": 4}),
    ):
        checked = PARTITIONS.check(name, {"clients": 4, "groups": 2} | options, "data")
        parts = PARTITIONS.entry(name).make(checked, source, np.random.default_rng(0))
        federation = pack(parts, source)
        for client in (0, 3):
            count = int(federation.train.count[client])
            start = int(federation.train.start[client])
            rows = np.asarray(federation.train.rows)[start : start + count]
            wanted = gather.samples(federation, np.full(count, client), rows, np.ones(count, bool))
            x, y = samples.as_seen(parts.source or source, parts, client, parts.train[client])
            np.testing.assert_allclose(x, wanted[0], atol=1e-6)
            np.testing.assert_array_equal(y, wanted[1])


def test_texts_are_drawn_with_what_follows(folder, monkeypatch, capsys):
    drawn = []
    monkeypatch.setattr(
        samples,
        "_draw_sample",
        lambda place, x, tokens, texts: drawn.append(samples.decode_tokens(tokens, x.astype(int))),
    )
    (folder / "said.csv").write_text(
        "said,user\n" + "\n".join(f"abcdefg{i},u{i % 2}" for i in range(20))
    )
    assert main(["import", str(folder / "said.csv"), "--text", "said", "--length", "7"]) == 0
    assert (
        main(["describe", "said", "--set", "data.partition=user", "--draw", str(folder / "s.png")])
        == 0
    )
    assert set(drawn) == {"abcdefg", "bcdefg1"} and (folder / "s.png").exists()


def test_classes_are_counted_as_the_client_sees_them():
    source = load("blobs", {"samples": 20, "classes": 2})
    rows = [
        np.flatnonzero(source.y_train == 0)[:3],
        np.array([], int),
        np.flatnonzero(source.y_train == 0)[:2],
    ]
    test = [
        np.array([], int),
        len(source.y_train) + np.flatnonzero(source.y_test == 1)[:2],
        np.array([], int),
    ]
    swapped = np.array([[0, 1], [1, 0]])
    parts = Parts(rows, test, np.zeros(3, int), view=np.array([0, 0, 1]), labels=swapped)
    np.testing.assert_array_equal(told.seen_counts(parts, source), [[3, 0], [0, 2], [0, 2]])


def test_thousands_of_clients_make_a_picture_of_bounded_size(tmp_path):
    counts = np.random.default_rng(0).integers(0, 5, (3000, 10))
    told.draw(tmp_path / "a.png", "many", counts, np.repeat([1, 0, -1], 1000))
    assert 10_000 < (tmp_path / "a.png").stat().st_size < 1_000_000


@pytest.mark.parametrize("known", [True, False])
def test_ticks_are_clients_and_classes_that_there_are(known):
    group = np.arange(20) // 10 if known else np.full(20, -1)
    axes = told._draw_bubbles(Figure(), np.ones((20, 10), int), group)
    assert set(axes.get_xticks()) <= set(range(20)) and set(axes.get_yticks()) == set(range(10))
    assert axes.get_xlabel() == ("client, ordered by true group" if known else "client")


WRONG = {
    "describe nonesuch": (4, "nonesuch.npz"), "describe toyy": (4, 'did you mean "toy"?'),
    "describe ../toy": (2, "a name has letters"), "describe toy --set data.partitoin=iid": (2, 'did you mean "partition"'),
    "describe toy --set data.clients=-1": (2, "data.clients"), "describe toy --set data.clients=2,4": (2, "one value per option"),
    "describe toy --set train.lr=1": (2, "only options of the data table"), "describe toy --set data.clients=41": (2, "at most 40"),
    "describe": (2, "name"), "lst": (2, "list"), "prepare": (2, "name"), "": (2, "list"),
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_one_line_and_its_code(line, folder, capsys):
    code, message = WRONG[line]
    assert main(line.split()) == code
    out, err = capsys.readouterr()
    assert (
        out == ""
        and err.count("\n") == 1
        and err.startswith(("cfljax: ", "cfljax data"))
        and message in err
    )


def test_a_traceback_is_shown_for_debugging_alone(folder, monkeypatch):
    monkeypatch.setenv("CFLJAX_DEBUG", "1")
    with pytest.raises(DataError):
        main(["describe", "nonesuch"])


@pytest.mark.parametrize("command", [[], ["list"], ["prepare"], ["describe"]])
def test_help_has_examples(command, capsys):
    assert main([*command, "--help"]) == 0
    assert "python -m cfljax.data describe digits --set" in capsys.readouterr().out


def test_the_command_runs_as_a_module_without_a_warning(folder):
    broken = folder / "toy.npz"
    broken.write_bytes(broken.read_bytes()[:300])
    done = subprocess.run(
        [sys.executable, "-m", "cfljax.data", "describe", "toy"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (
        done.returncode == 4
        and done.stderr.startswith(f"cfljax: {broken}")
        and done.stderr.count("\n") == 1
    )


def test_loading_imports_no_large_package_that_it_does_not_use():
    code = (
        "import sys, cfljax.data as d; d.load('blobs'); print([m for m in sys.modules if m in "
        "{names}])"
    )
    names = (
        "sklearn",
        "tensorflow_datasets",
        "tensorflow",
        "pandas",
        "matplotlib",
        "flax",
        "optax",
    )
    done = subprocess.run(
        [sys.executable, "-c", code.format(names=names)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.skipif(not os.environ.get("CFLJAX_DATA"), reason="CFLJAX_DATA is not set")
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("mnist", (60000, 28, 28, 1), 10),
        ("cifar10", (50000, 32, 32, 3), 10),
        ("mnist_users", (60000, 28, 28, 1), 10),
    ],
)
def test_real_files(name, shape, classes):
    if not (Path(os.environ["CFLJAX_DATA"]) / f"{name}.npz").exists():
        pytest.skip(f"no {name}.npz")
    s = load(name)
    assert s.x_train.shape == shape and s.classes == classes and len(s.y_test) == 10000
    if name == "mnist_users":
        assert (
            len(np.unique(s.user_train)) == 539
            and len(s.population) == 836
            and set(s.population) == {0, 1}
        )
