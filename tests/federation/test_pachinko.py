"""The Pachinko partition is the paper's algorithm, and coarse labels come with the data."""

import numpy as np
import pytest

from cfljax import data
from cfljax.data import arrays, mapped
from cfljax.data.cifar import COARSE_LABELS
from cfljax.errors import DataError
from tests.federation.helpers import fake, parts
from tests.importing.helpers import imported, refused
from tests.reference.pachinko import allocate


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path / "home"))
    return tmp_path


def with_coarse(n=1200, classes=12, coarse=4, seed=0):
    source = fake(n, 240, classes=classes, shape=(1,), seed=seed, balanced=False)
    return source._replace(
        coarse=np.random.default_rng(seed).permutation(classes).astype(np.int32) % coarse
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("alpha", "beta", "samples"), [(0.1, 10.0, None), (1.0, 0.3, None), (0.3, 1.0, 20)]
)
def test_clients_hold_what_the_plain_program_gives_them(alpha, beta, samples, seed):
    """All samples are given away, or some of them: classes and coarse labels run out on the way."""
    source = with_coarse(seed=seed)
    made = parts(
        "pachinko", source, seed, clients=30, alpha=alpha, beta=beta, samples_per_client=samples
    )
    rng = np.random.default_rng(seed)
    rng.permutation(len(source.y_train))  # the partition's look at the sizes
    wanted = allocate(source.y_train, source.coarse, 30, samples or 40, alpha, beta, rng)
    assert [rows.tolist() for rows in made.train] == wanted
    if samples is None:
        assert sorted(np.concatenate(made.train)) == list(range(1200))


def test_the_mixes_are_those_of_two_dirichlet_laws():
    """With many samples of each class nothing runs out; E[Σ θ²] of a symmetric Dirichlet law over k
    is (α + 1) / (kα + 1)."""
    source = fake(60_000, 0, classes=20, shape=(1,))._replace(
        coarse=np.arange(20, dtype=np.int32) // 5
    )
    made = parts(
        "pachinko", source, clients=300, samples_per_client=100, alpha=0.5, beta=2.0, test="global"
    )
    mixes = np.stack([np.bincount(source.y_train[rows], minlength=20) for rows in made.train]) / 100
    coarse = mixes.reshape(300, 4, 5).sum(2)
    pairs = lambda shares: ((100 * shares) * (100 * shares - 1) / (100 * 99)).sum(-1).mean()  # noqa: E731 (unbiased)
    assert abs(pairs(coarse) - 1.5 / 3) < 0.04
    fine = [
        m[5 * c : 5 * c + 5] * 100
        for m, shares in zip(mixes, coarse, strict=True)
        for c in range(4)
        if shares[c] >= 0.3
    ]
    same = np.mean([(n * (n - 1)).sum() / (n.sum() * (n.sum() - 1)) for n in fine])
    assert abs(same - 3 / 11) < 0.015


def test_the_true_group_is_the_commonest_coarse_label():
    source = with_coarse()
    made = parts("pachinko", source, clients=30)
    for rows, group in zip(made.train, made.group, strict=True):
        counts = np.bincount(source.coarse[source.y_train[rows]], minlength=4)
        assert counts[group] == counts.max()


def test_a_mix_whose_weight_is_all_on_one_coarse_label_goes_on_when_it_runs_out():
    made = parts("pachinko", with_coarse(), clients=3, alpha=1e-5)
    assert sorted(np.concatenate(made.train)) == list(range(1200))


def test_cifar_has_twenty_coarse_labels_of_five_classes():
    assert np.bincount(COARSE_LABELS).tolist() == [5] * 20


def file_with(folder, **more):
    y = np.arange(40) % 4
    x = np.zeros((40, 2, 2), np.uint8)
    named = {
        "x_train": x,
        "y_train": y,
        "x_test": x[:8],
        "y_test": y[:8],
        "y_coarse_train": y // 2,
        "y_coarse_test": y[:8] // 2,
    }
    np.savez(
        folder / "mine.npz",
        **{key: value for key, value in (named | more).items() if value is not None},
    )
    return data.load("mine", path=str(folder))


def test_own_arrays_bring_coarse_labels(tmp_path):
    source = file_with(tmp_path)
    assert source.coarse.tolist() == [0, 0, 1, 1]
    assert file_with(tmp_path, y_coarse_test=None).coarse.tolist() == [0, 0, 1, 1]
    assert file_with(tmp_path, y_coarse_train=None, y_coarse_test=None).coarse is None
    mapped.write(source, tmp_path / "kept", list("abcd"), "mine.npz")
    assert mapped.read("kept", tmp_path / "kept").coarse.tolist() == [0, 0, 1, 1]
    assert len(parts("pachinko", source, clients=4).train) == 4


@pytest.mark.parametrize(("more", "says"), [
    ({"y_coarse_train": np.arange(40)}, "class 1 has the coarse labels 1 and 0"),
    ({"y_coarse_train": np.arange(39) % 4 // 2, "y_coarse_test": None}, "39 coarse labels for 40 samples"),
    ({"y_coarse_train": None}, "without y_coarse_train"), ({"y_coarse_train": np.full(40, 0.5)}, "y_coarse is float64"),
])  # fmt: skip
def test_coarse_labels_that_do_not_fit_are_refused(tmp_path, more, says):
    with pytest.raises(DataError, match=says) as error:
        file_with(tmp_path, **more)
    assert "mine.npz" in str(error.value) and "\n" not in str(error.value)


def test_a_coarse_label_is_needed_for_every_class_that_has_samples():
    y = np.arange(4)
    named = {
        "x_train": np.zeros((4, 2, 2), np.uint8),
        "y_train": y,
        "x_test": np.zeros((4, 2, 2), np.uint8),
        "y_test": y,
    }
    with pytest.raises(DataError, match="give it a coarse label"):
        arrays.source("mine", "mine", named | {"coarse": np.array([0, 1, -1, 0])})


def test_tables_and_arrays_bring_coarse_labels_to_an_import(home, capsys):
    lines = [
        "a,fine_label,coarse_label",
        *(f"{i}.5,{'abcd'[i % 4]},{'XY'[i % 4 // 2]}" for i in range(40)),
    ]
    (home / "t.csv").write_text("\n".join(lines))
    imported(home / "t.csv")
    source = data.load("t")
    assert source.x_train.shape[1:] == (1,) and source.coarse.tolist() == [0, 0, 1, 1]
    (home / "u.csv").write_text("\n".join(lines).replace("coarse_label", "above"))
    imported(home / "u.csv", "--coarse", "above")
    assert data.load("u").coarse.tolist() == [0, 0, 1, 1]
    (home / "v.csv").write_text("\n".join(lines).replace("0.5,a,X", "0.5,a,Y", 1))
    assert "class 0 has the coarse labels" in refused(capsys, home / "v.csv")
    (home / "arrays").mkdir()
    y = np.arange(40) % 4
    for name, value in {"x": np.zeros((40, 3)), "y": y, "y_coarse": y // 2}.items():
        np.save(home / "arrays" / f"{name}.npy", value)
    imported(home / "arrays")
    assert data.load("arrays").coarse.tolist() == [0, 0, 1, 1]
