"""How the field's programs deal samples: Dirichlet up to an even part, classes first, exact sizes,
and samples that are held out after dealing."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.federation.common import class_counts, hold_out_each, label_of
from tests.federation.helpers import fake, parts


def plain_capped(labels, clients, alpha, rng, classes_of=None):
    """The loop of PFLlib, NIID-Bench and Flower over classes: counts of each client and class. A
    client that has N / clients samples, or does not hold the class, gets no share."""
    number = labels.max() + 1
    counts = np.zeros((clients, number), int)
    for label in range(number):
        shares = rng.dirichlet([alpha] * clients)
        for client in range(clients):
            full = counts[client].sum() >= len(labels) / clients
            if full or (classes_of is not None and label not in classes_of[client]):
                shares[client] = 0
        edges = (np.cumsum(shares / shares.sum()) * (labels == label).sum()).astype(int)
        counts[:, label] = np.diff(edges, prepend=0)
    return counts


def statistics_of(counts):
    """The share of a client's commonest class, the spread of sizes, the largest client."""
    sizes = counts.sum(1)
    held = counts[sizes > 0]
    majority = (held.max(1) / held.sum(1)).mean()
    return majority, sizes.std() / sizes.mean(), sizes.max() / sizes.sum()


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_capped_shares_are_distributed_as_those_of_a_plain_program(alpha):
    source, clients = fake(20_000, 0, shape=(1,)), 20
    options = {"clients": clients, "alpha": alpha, "min_samples": 0}
    drawn = {"capped": [], "plain": [], "shares": []}
    for seed in range(30):
        for balance in ("capped", "shares"):
            made = parts(
                "dirichlet", source, seed, balance=balance, holdout=0.0, test="global", **options
            )
            drawn[balance].append(statistics_of(class_counts(made.train, source)))
        rng = np.random.default_rng([1, seed])
        drawn["plain"].append(statistics_of(plain_capped(source.y_train, clients, alpha, rng)))
    mean = {name: np.mean(each, 0) for name, each in drawn.items()}
    error = {name: np.std(each, 0) / np.sqrt(len(each)) for name, each in drawn.items()}
    both = np.hypot(error["capped"], error["plain"])
    assert (np.abs(mean["capped"] - mean["plain"]) < 4 * both).all(), mean
    # And not as plain shares: sizes are far more even
    assert mean["capped"][1] < mean["shares"][1] - 4 * np.hypot(error["capped"], error["shares"])[1]


@pytest.mark.parametrize("options", [{}, {"classes_first": 3}, {"of_each_class": 2}])
def test_nobody_with_an_even_part_gets_more(options):
    source, clients = fake(), 12
    for seed in range(10):
        made = parts(
            "dirichlet", source, seed, clients=clients, alpha=0.3, balance="capped", **options
        )
        counts = class_counts(made.train, source)
        assert counts.sum() == 1200
        for own in counts - options.get("of_each_class", 0):
            # Before the last class from which the client has samples, it had less than that
            last = np.flatnonzero(own).max(initial=0)
            even = (1200 - options.get("of_each_class", 0) * 10 * clients) / clients
            if "classes_first" not in options:
                assert own[:last].sum() < even


@pytest.mark.parametrize("balance", ["shares", "capped"])
def test_classes_come_first_and_then_shares_of_these(balance):
    source = fake()
    seen = set()
    for seed in range(5):
        made = parts(
            "dirichlet", source, seed, clients=20, alpha=5.0, classes_first=3, balance=balance
        )
        counts = class_counts(made.train, source)
        assert counts.sum() == 1200 and ((counts > 0).sum(1) <= 3).all()
        # PFLlib draws until each class has half of its even number of clients
        assert ((counts > 0).sum(0) >= 3).all()
        seen.add(tuple(map(tuple, counts > 0)))
        for own, tested in zip(made.train, made.test, strict=True):
            assert set(label_of(source, tested)) <= set(label_of(source, own))
    assert len(seen) == 5
    mixed = class_counts(parts("dirichlet", source, clients=20, classes_first=10).train, source)
    assert ((mixed > 0).sum(1) > 3).any()


def test_exact_sizes():
    source, sizes = fake(), [400, 3, 97, 200]
    made = parts("quantity", source, clients=4, sizes=sizes)
    assert [len(rows) for rows in made.train] == sizes
    # In each client the classes are mixed as in the data
    assert (class_counts(made.train, source)[0] > 20).all()
    made = parts("dirichlet", source, clients=4, sizes=sizes, balance="equal", alpha=0.1)
    assert [len(rows) for rows in made.train] == sizes
    shares = class_counts(made.train, source)[0] / 400
    assert shares.max() > 0.2
    rows = np.concatenate(made.train)
    assert len(np.unique(rows)) == len(rows)


HELD_OUT = [
    ("dirichlet", {"alpha": 0.3}),
    ("dirichlet", {"balance": "capped", "alpha": 0.3}),
    ("quantity", {}),
    ("quantity", {"sizes": [100] * 12}),
    ("classes", {"classes_per_client": 2}),
]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(("name", "options"), HELD_OUT)
def test_a_share_of_each_client_is_held_out_after_dealing(name, options, merged):
    source = fake()
    options = {"clients": 12, "merged": merged, "holdout": 0.25} | options
    made = parts(name, source, **options)
    total = 1500 if merged else 1200
    for train, test in zip(made.train, made.test, strict=True):
        size = len(train) + len(test)
        assert len(train) == int(0.75 * size)
        assert set(label_of(source, test)) <= set(range(10))
    rows = np.concatenate([*made.train, *made.test])
    assert len(np.unique(rows)) == len(rows) and rows.max() < total
    assert (rows >= 1200).any() == merged
    whole = parts(name, source, **options | {"test": "global"})
    assert sorted(np.concatenate(made.test)) == whole.test.tolist()
    # The rows that are dealt are those of the partition without a test part
    if not merged:
        dealt = parts(name, source, **options | {"holdout": 0.0})
        for train, test, rows in zip(made.train, made.test, dealt.train, strict=True):
            assert sorted([*train, *test]) == sorted(rows)


@pytest.mark.parametrize("name", ["iid", "shards"])
def test_training_and_test_samples_are_dealt_together(name):
    source = fake()
    made = parts(name, source, clients=10, holdout=0.2, merged=True)
    rows = np.concatenate([*made.train, *made.test])
    assert sorted(rows) == list(range(1500))
    assert sum(map(len, made.train)) == 1200
    trained = np.concatenate(made.train)
    assert 0.1 < (trained >= 1200).mean() < 0.3


def test_held_out_samples_are_drawn_as_in_pfllib():
    rng = np.random.default_rng(0)
    held = [np.arange(n) for n in (0, 1, 4, 10, 11)]
    train, rest = hold_out_each(held, 0.25, rng)
    assert [len(rows) for rows in train] == [0, 0, 3, 7, 8]
    for rows, a, b in zip(held, train, rest, strict=True):
        assert sorted([*a, *b]) == rows.tolist()


WRONG = [
    ("dirichlet", {"merged": True}, "data.merged = true: .* give data.holdout"),
    ("iid", {"merged": True}, "data.merged = true: .* give data.holdout"),
    ("dirichlet", {"classes_first": 11}, "data.classes_first = 11: .*at most 10"),
    ("dirichlet", {"clients": 4, "classes_first": 2}, "data.classes_first = 2: in none of"),
    ("dirichlet", {"classes_first": 2, "balance": "equal"}, 'data.classes_first = 2: .*"capped"'),
    ("dirichlet", {"classes_first": 2, "of_each_class": 1}, "leave of_each_class out"),
    ("dirichlet", {"sizes": [1, 2]}, 'data.sizes: .*balance = "equal"'),
    ("quantity", {"sizes": [1, 2]}, r"data.sizes = \[1, 2\]: .* give data.clients = 2"),
    ("quantity", {"clients": 2, "sizes": [1000, 201]}, "are 1201 samples, and there are 1200"),
    ("quantity", {"clients": 2, "sizes": [5, 0]}, "data.sizes.*at least 1"),
    ("dirichlet", {"balance": "caped"}, 'did you mean "capped"'),
]


@pytest.mark.parametrize(("name", "options", "says"), WRONG)
def test_impossible_options_are_refused_in_one_line(name, options, says):
    with pytest.raises(SpecError, match=says) as error:
        parts(name, fake(), **options)
    assert "\n" not in str(error.value)
