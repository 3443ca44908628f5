"""Texts: LEAF's Shakespeare and Reddit, and columns of tables, become tokens and next tokens, or
texts with classes."""

import json
import re

import numpy as np
import pytest

import cfljax
from cfljax import data
from cfljax.data import mapped, tokens
from tests.importing.helpers import imported, refused, saved

PLAYS = {
    "ROMEO": "but soft what light through yonder window breaks ",
    "JULIET": "o romeo wherefore art thou romeo deny thy father ",
}


def leaf(folder, train, test):
    """LEAF's JSON from {user: (x, y)} for both parts."""
    for name, users in (("train", train), ("test", test)):
        (folder / name).mkdir(parents=True)
        content = {
            "users": list(users),
            "num_samples": [len(y) for _, y in users.values()],
            "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
        }
        (folder / name / "all.json").write_text(json.dumps(content))
    return folder


def shakespeare(folder, length=20):
    """As LEAF makes it: each sample is a piece of a role's lines, its label the character after
    it."""

    def pieces(text, begin, end):
        long = text * 3
        return [long[i : i + length] for i in range(begin, end)], [
            long[i + length] for i in range(begin, end)
        ]

    train = {role: pieces(text, 0, 40) for role, text in PLAYS.items()}
    test = {role: pieces(text, 60, 70) for role, text in PLAYS.items()}
    test["ROMEO"][0][0] = "#" + test["ROMEO"][0][0][1:]  # not in the training texts
    return leaf(folder, train, test), train, test


def shown(home, name, x):
    return tokens.decode_tokens(
        mapped.read_tokens(home / "home" / name), np.asarray(x).astype(int).tolist()
    )


def test_a_sample_of_shakespeare_is_its_characters_and_the_next(home):
    folder, train, _ = shakespeare(home / "plays")
    imported(folder, "--length", "20")
    source = data.load("plays")
    assert (
        source.x_train.shape == (80, 20)
        and source.x_train.dtype == np.float32
        and source.table is None
    )
    names = mapped.read_tokens(home / "home" / "plays")["names"]
    assert source.classes == len(names) == 2 + len(set("".join(PLAYS.values())))
    for user, (x, y) in enumerate(train.values()):
        rows = np.flatnonzero(source.user_train == user)
        assert [shown(home, "plays", row) for row in source.x_train[rows]] == x
        assert [names[label] for label in source.y_train[rows]] == y
    assert (np.asarray(source.x_test) == tokens.UNKNOWN).sum() == 1 and source.x_test[
        0, 0
    ] == tokens.UNKNOWN
    assert not np.any(np.isin(np.asarray(source.x_train), [tokens.UNKNOWN, tokens.PADDING]))


def test_tokens_with_vectors_are_for_the_lstm(home):
    folder, _, _ = shakespeare(home / "plays")
    imported(folder, "--length", "20", "--vectors", "16")
    source = data.load("plays")
    assert (
        source.x_train.dtype == np.int32
        and source.table.shape == (source.classes, 16)
        and not source.table[0].any()
    )
    assert len(np.unique(source.table, axis=0)) == source.classes
    model = {"name": "lstm", "width": 8, "layers": 1, "dense": 8}
    result = cfljax.run("fedavg", {"name": "plays", "partition": "user"}, model, rounds=1)
    assert 0 <= result.summary["accuracy_last10"] <= 1 and result.labels.tolist() == [0, 0]


def test_shorter_samples_cut_a_text_and_longer_ones_are_filled_up(home):
    folder = leaf(home / "t", {"a": (["abcdefg"], ["h"])}, {"a": (["abc"], ["d"])})
    imported(folder, "--length", "3")
    source, names = data.load("t"), mapped.read_tokens(home / "home" / "t")["names"]
    pairs = [
        (shown(home, "t", x), names[y]) for x, y in zip(source.x_train, source.y_train, strict=True)
    ]
    assert pairs == [("abc", "d"), ("def", "g"), ("efg", "h")]
    imported(folder, "--length", "9", "--replace")
    source = data.load("t")
    assert (
        source.x_train[0, :2].tolist() == [0, 0]
        and shown(home, "t", source.x_train[0]) == "abcdefg"
    )


def test_pieces_belong_to_who_said_the_text(home):
    folder = leaf(
        home / "t",
        {"a": (["abcdefg"], ["h"]), "b": (["xyxyxyxyxyx", "xxx"], ["y", "y"])},
        {"b": (["xyx"], ["y"])},
    )
    imported(folder, "--length", "3")
    source = data.load("t")
    of_b = np.array([set(shown(home, "t", x)) <= {"x", "y"} for x in source.x_train])
    assert (
        np.array_equal(source.user_train == 1, of_b) and (~of_b).sum() == 3 and of_b.sum() == 4 + 1
    )


def reddit(folder):
    said = [["<BOS>", "hello", "you"], ["there", "<PAD>", "<PAD>"]]
    sample = {
        "target_tokens": [["hello", "you", "there"], ["<EOS>", "<PAD>", "<PAD>"]],
        "count_tokens": 4,
    }
    return leaf(
        folder, {"u1": ([said], [sample]), "u2": ([said], [sample])}, {"u1": ([said], [sample])}
    )


def test_reddits_words_are_followed_by_the_last_target(home):
    imported(reddit(home / "reddit"), "--length", "5")
    source, kept = data.load("reddit"), mapped.read_tokens(home / "home" / "reddit")
    assert kept["kind"] == "words" and set(kept["names"][2:]) == {
        "<BOS>",
        "hello",
        "you",
        "there",
        "<EOS>",
    }
    assert (
        shown(home, "reddit", source.x_train[0]) == "<BOS> hello you there"
        and kept["names"][source.y_train[0]] == "<EOS>"
    )


def test_leafs_tweets_keep_their_classes(home):
    tweets = [
        ["1", "date", "no", "anna", "good day", "x"],
        ["2", "date", "no", "anna", "bad bad day", "x"],
    ]
    imported(
        leaf(home / "tweets", {"anna": (tweets, [1, 0])}, {"anna": (tweets, [1, 0])}),
        "--length",
        "4",
    )
    source = data.load("tweets")
    assert source.classes == 2 and source.y_train.tolist() == [1, 0]
    assert [shown(home, "tweets", x) for x in source.x_train] == ["good day", "bad bad day"]
    assert source.x_train[0, 2:].tolist() == [0, 0]


def parquet(file, n=20, **more):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    text = [f"{'good' if i % 2 else 'bad'} film number {i}" for i in range(n)]
    columns = {
        "review": text,
        "label": [i % 2 for i in range(n)],
        "user": [f"u{i % 4}" for i in range(n)],
        "stars": list(range(n)),
    }
    parquet.write_table(arrow.table(columns | more), file)
    return file


def test_texts_with_classes_in_a_parquet_file(home):
    imported(parquet(home / "films.parquet"), "--text", "review", "--length", "6")
    source, kept = data.load("films"), mapped.read_tokens(home / "home" / "films")
    assert (
        kept["kind"] == "words" and source.classes == 2 and len(np.unique(source.user_train)) == 4
    )
    for x, y in zip(source.x_train, source.y_train, strict=True):
        assert shown(home, "films", x).startswith("good film" if y else "bad film")
    seen = {kept["names"][int(n)] for n in np.unique(source.x_train)}
    assert {"good", "bad", "film", "number"} <= seen and set(
        kept["names"][2:]
    ) <= seen  # learned from what is trained on


def test_texts_without_classes_have_next_tokens(home):
    file = parquet(home / "films.parquet")
    imported(file, "--text", "review", "--next-token", "--vocabulary", "20", "--length", "12")
    source, kept = data.load("films"), mapped.read_tokens(home / "home" / "films")
    assert kept["kind"] == "characters" and source.classes == len(kept["names"]) <= 20
    text = shown(home, "films", [*source.x_train[0].astype(int), source.y_train[0]])
    assert text and "film number" in "".join(shown(home, "films", x) for x in source.x_train)


def test_a_saved_hugging_face_data_set_of_texts(home):
    texts = [f"no {i}" if i % 2 else f"yes {i}" for i in range(10)]
    saved(home / "hf", {"text": texts, "label": [i % 2 for i in range(10)]}, ["yes", "no"])
    imported(home / "hf", "--text", "text", "--length", "3")
    source = data.load("hf")
    assert json.loads((home / "home/hf/cfljax.json").read_text())["class_names"] == ["yes", "no"]
    assert all(
        shown(home, "hf", x).split()[0] == ("no" if y else "yes")
        for x, y in zip(source.x_train, source.y_train, strict=True)
    )


def test_a_csv_file_of_texts_and_another_of_test_texts(home):
    (home / "a.csv").write_text(
        "said,label\n"
        + "\n".join(f'"hello, {w}",{i % 2}' for i, w in enumerate(["you", "me", "us", "them"]))
    )
    (home / "b.csv").write_text('said,label\n"hello, you",0\n"goodbye",1\n')
    imported(home / "a.csv", "--text", "said", "--test", home / "b.csv", "--length", "3")
    source = data.load("a")
    assert len(source.y_train) == 4 and [shown(home, "a", x) for x in source.x_test] == [
        "hello , you",
        "\N{REPLACEMENT CHARACTER}",
    ]


def test_a_folder_of_leafs_texts_says_how_to_import_it(home):
    folder, _, _ = shakespeare(home / "home" / "plays")
    with pytest.raises(cfljax.errors.DataError, match="data import"):
        data.load("plays")


def test_an_import_never_replaces_what_it_reads(home, capsys):
    folder, _, _ = shakespeare(home / "home" / "plays")
    assert "choose another --name" in refused(capsys, folder, "--replace")
    assert "choose another --name" in refused(
        capsys, folder / "train" / "all.json", "--kind", "leaf", "--name", "plays", "--replace"
    )
    assert (folder / "train" / "all.json").exists()
    imported(folder, "--name", "spoken", "--length", "20")
    assert data.load("spoken").classes > 10


def test_mistakes_are_said_in_a_line(home, capsys):
    file = parquet(home / "films.parquet")
    assert (
        "--text reviev" in (said := refused(capsys, file, "--text", "reviev")) and "review" in said
    )
    assert "--shape: has no effect with --text" in refused(
        capsys, file, "--text", "review", "--shape", "2x2"
    )
    assert "--tokens: is for texts" in refused(capsys, file, "--tokens", "words", "--x", "stars")
    assert "--next-token" in refused(
        capsys, file, "--text", "review", "--next-token", "--label", "label"
    )
    assert "--length 0" in refused(capsys, file, "--text", "review", "--length", "0")
    assert "--vocabulary 2" in refused(capsys, file, "--text", "review", "--vocabulary", "2")
    assert "--vectors -1" in refused(capsys, file, "--text", "review", "--vectors", "-1")
    assert "has no text in row 1" in refused(capsys, file, "--text", "stars")
    np.savez(home / "x.npz", x=np.zeros((9, 2)), y=np.arange(9) % 2)
    assert "--tokens: has no effect" in refused(capsys, home / "x.npz", "--tokens", "words")
    folder = leaf(home / "short", {"a": (["", ""], ["x", "y"])}, {})
    assert "no training text has two characters" in refused(capsys, folder)
    folder = leaf(home / "odd", {"a": ([["a", {"b": 1}]], ["x"])}, {})
    assert "must be a text, or words" in refused(capsys, folder)


def test_short_texts_are_not_filled_up_without_end(home, capsys):
    (home / "t.csv").write_text("said\n" + "\n".join(["ab"] * 3000))
    assert "give a smaller one" in (
        said := refused(capsys, home / "t.csv", "--text", "said", "--length", "9000")
    )
    assert "--length 9000" in said


def test_halves_of_characters_are_replaced(home):
    folder = leaf(home / "t", {"a": (["ab\ud800cd"], ["e"])}, {})
    imported(folder, "--test-fraction", "0.5")
    assert shown(home, "t", data.load("t").x_train[0]) == "ab?cd"


def test_samples_whose_next_word_is_unknown_are_left_out_with_their_number(home, capsys):
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in np.minimum(rng.geometric(0.02, 3000), 400)]
    lines = [" ".join(words[at : at + 30]) for at in range(0, 3000, 30)]
    (home / "said.csv").write_text("text\n" + "\n".join(lines))
    imported(
        home / "said.csv",
        "--text",
        "text",
        "--tokens",
        "words",
        "--vocabulary",
        "40",
        "--length",
        "5",
    )
    said, source = capsys.readouterr().err, data.load("said")
    assert not np.any(source.y_train == tokens.UNKNOWN) and not np.any(
        source.y_test == tokens.UNKNOWN
    )
    assert np.any(source.x_train == tokens.UNKNOWN)
    told = [
        re.search(rf"(\d+) of (\d+) {part} samples are left out", said).groups()
        for part in ("training", "test")
    ]
    for (left, of), y in zip(told, (source.y_train, source.y_test), strict=True):
        assert int(of) - int(left) == len(y) and int(left) > 0
