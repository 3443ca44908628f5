"""Tweets: tokens, word vectors, accounts and slices of time."""

import gzip
import json

import numpy as np
import pytest

from cfljax import data
from cfljax.config import plugins
from experiments.tests.test_recipes import EXPERIMENTS
from tests.packaging.own import forgotten


@pytest.fixture(autouse=True)
def sent140():
    with forgotten():
        plugins.load([str(EXPERIMENTS / "sent140.py")])
        yield


TEXTS = ["Good day!", "bad bad day, isn't it?", "good", "no words @ # here;", "Bad.", "day day day"]


def tweets(folder, texts=TEXTS, y=(1, 0, 1, 0, 0, 1), repeat=20, **change):
    texts, y = list(texts) * repeat, np.array(list(y) * repeat, np.uint8)
    y = change.pop("labels", y)
    raw = [t.encode() for t in texts]
    offset = np.concatenate([[0], np.cumsum([len(r) for r in raw])])
    made = {
        "text": np.frombuffer(b"".join(raw), np.uint8),
        "offset": offset,
        "y": y,
        "row": np.arange(len(y))[::-1],
    }
    np.savez(folder / "sent140.npz", **(made | change))


def glove(file, lines):
    text = "".join(f"{line}\n" for line in lines)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return str(file)


def load(folder, **options):
    return data.load("sent140", {"slices": 3, "width": 4, **options}, path=str(folder))


def sentences(s, x):
    """The rows of x as tuples of their vectors' first numbers, which the tests' GloVe files number
    the words by."""
    return [tuple(int(v) for v in s.table[row][:, 0]) for row in x]


@pytest.mark.parametrize("name", ["glove.txt", "glove.txt.gz"])
def test_known_words_get_their_vectors_and_the_rest_is_zero(name, tmp_path):
    tweets(tmp_path)
    lines = [
        "the 9 0 0 0",
        "good 1 2 3 4",
        "day 2 0 0 0",
        ". . . 7 7 7 7",
        "isn't 3 0 0 0",
        ", 4 0 0 0",
    ]
    s = load(tmp_path, glove=glove(tmp_path / name, lines), tokens=6)
    assert s.x_train.dtype == np.int32 and s.x_train.shape[1] == 6 and s.table.shape == (5, 4)
    assert not s.table[0].any()
    seen = set(sentences(s, np.concatenate([s.x_train, s.x_test])))
    assert seen == {
        (1, 2, 0, 0, 0, 0),  # good day [!]
        (0, 0, 2, 4, 3, 0),  # [bad bad] day , isn't [it ?]: cut after six
        (1, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 0, 0),
        (2, 2, 2, 0, 0, 0),
    }
    np.testing.assert_array_equal(
        s.table[s.x_train[sentences(s, s.x_train).index((1, 0, 0, 0, 0, 0))][0]], [1, 2, 3, 4]
    )


def test_test_tweets_have_no_say_in_which_words_are_kept(tmp_path):
    often, seldom = ["only here"] * 5, ["seen now"]
    leaf = {"train": {"a": (seldom * 3, [0, 1, 0])}, "test": {"a": (often, [1, 0, 1, 0, 1])}}
    for part, users in leaf.items():
        (tmp_path / "sent140" / part).mkdir(parents=True)
        made = {
            "users": list(users),
            "num_samples": [len(y) for _, y in users.values()],
            "user_data": {},
        }
        for user, (words, y) in users.items():
            made["user_data"][user] = {
                "x": [["1", "date", "no", user, text, "x"] for text in words],
                "y": y,
            }
        (tmp_path / "sent140" / part / "all.json").write_text(json.dumps(made))
    kept = data.load("sent140", {"width": 4, "vocabulary": 2}, path=str(tmp_path))
    assert kept.x_train[:, :2].all() and not kept.x_test.any()


def test_without_glove_vectors_depend_on_the_word_alone_and_a_warning_is_given(tmp_path):
    tweets(tmp_path)
    with pytest.warns(UserWarning, match=r"data\.glove"):
        a = load(tmp_path)
    tweets(tmp_path, texts=["good"] * 6)
    with pytest.warns(UserWarning):
        b = load(tmp_path)
    assert any(np.array_equal(row, b.table[1]) for row in a.table)


@pytest.mark.filterwarnings("ignore:sent140 without")
def test_slices_follow_time_inside_each_label_and_have_both(tmp_path):
    numbered = [f"w{i}" for i in range(60)]
    row = np.random.default_rng(0).permutation(60)
    tweets(tmp_path, numbered, [0] * 40 + [1] * 20, repeat=1, row=row)
    s = load(tmp_path, vocabulary=100)
    users, y = np.concatenate([s.user_train, s.user_test]), np.concatenate([s.y_train, s.y_test])
    np.testing.assert_array_equal(np.unique(users), [0, 1, 2])
    assert all(
        set(y[users == u]) == {0, 1} and set(s.y_train[s.user_train == u]) == {0, 1}
        for u in range(3)
    )
    assert len(s.y_test) == pytest.approx(12, abs=2)


@pytest.mark.filterwarnings("ignore:sent140 without")
def test_leafs_folder_keeps_accounts_and_its_cut(tmp_path):
    def columns(text):
        return ["123", "Mon May 11", "NO_QUERY", "somebody", text, "training"]

    for part, users in (
        ("train", {"ann": [["good", "bad"], [1, 0]], "bob": [["day"], [4]]}),
        ("test", {"bob": [["no"], [0]]}),
    ):
        (tmp_path / "sent140" / part).mkdir(parents=True)
        body = {
            u: {"x": [columns(t) for t in x], "y": [4 * bool(v) for v in y]}
            for u, (x, y) in users.items()
        }
        (tmp_path / "sent140" / part / "a.json").write_text(
            json.dumps({"users": list(users), "user_data": body})
        )
    s = load(tmp_path)
    np.testing.assert_array_equal(s.user_train, [0, 0, 1])
    np.testing.assert_array_equal(s.user_test, [1])
    np.testing.assert_array_equal(s.y_train, [1, 0, 1])
    assert s.classes == 2 and len(s.table) == 5 and (s.x_train > 0).sum() == 3
