"""Impossible requests are one line that names the option, the value and what would work."""

import numpy as np
import pytest

from cfljax.errors import SpecError
from cfljax.federation import PARTITIONS
from tests.federation.helpers import fake, parts

WRONG = [
    ("iid", {"clients": 1201}, "data.clients = 1201", "at most 1200"),
    (
        "iid",
        {"clients": 10, "samples_per_client": 121},
        "data.samples_per_client = 121",
        "at most 120",
    ),
    ("quantity", {"clients": 100, "min_samples": 13}, "data.min_samples = 13", "at most 12"),
    ("shards", {"clients": 601, "shards": 2}, "data.clients = 601", "at most 600"),
    (
        "shards",
        {"clients": 100, "samples_per_client": 13},
        "data.samples_per_client = 13",
        "at most 12",
    ),
    ("classes", {"classes_per_client": 11}, "data.classes_per_client = 11", "at most 10"),
    (
        "classes",
        {"clients": 11, "classes_per_client": 1, "samples_per_client": 100},
        "data.samples_per_client = 100",
        "at most 60",
    ),
    ("classes", {"clients": 3, "groups": 4}, "data.groups = 4", "at most 3"),
    ("classes", {"clients": 700}, "data.clients = 700", "at most 600"),
    ("dirichlet", {"clients": 100, "min_samples": 13}, "data.min_samples = 13", "at most 12"),
    (
        "dirichlet",
        {"clients": 50, "alpha": 0.01, "min_samples": 5},
        "data.min_samples = 5",
        "at most 0",
    ),
    ("rotated", {"clients": 3}, "data.groups = 4", "at most 3"),
    (
        "rotated",
        {"clients": 8, "samples_per_client": 601},
        "data.samples_per_client = 601",
        "at most 600",
    ),
    ("rotated", {"clients": 8, "test_clients": 3}, "data.test_clients = 3", "at least 4"),
    (
        "rotated",
        {"clients": 8, "test_clients": 4, "samples_per_client": 301},
        "data.samples_per_client = 301",
        "at most 300",
    ),
    ("rotated", {"clients": 8, "angles": [0.0, 10.0]}, "data.angles = [0.0, 10.0]", "give 4"),
    ("label_swap", {"clients": 8, "pairs": 6}, "data.pairs = 6", "at most 5"),
    ("label_swap", {"clients": 80, "groups": 47}, "data.groups = 47", "at most 46"),
    ("label_swap", {"clients": 700, "groups": 632, "pairs": 2}, "data.groups = 632", "at most 631"),
    ("feature_shift", {"clients": 8, "groups": 3}, "data.groups = 3", "at most 2"),
    ("pachinko", {}, 'data.partition = "pachinko"', "y_coarse_train"),
    (
        "corrupted",
        {"clients": 8, "kinds": ["blur", "none", "none", "none"]},
        'data.kinds: "blur"',
        "gaussian_blur",
    ),
    ("corrupted", {"clients": 8, "kinds": ["none"]}, 'data.kinds = ["none"]', "give 4"),
    ("corrupted", {"clients": 20, "groups": 9}, "data.groups = 9", "at most 8"),
    ("fedprox", {"clients": 1000}, "data.clients = 1000", "at most 150"),
    ("fedprox", {"clients": 10, "total": 7}, "data.total = 7", "the nearest has"),
    ("domains", {}, 'data.partition = "domains"', "choose another"),
    ("user", {}, 'data.partition = "user"', "choose another"),
    ("iid", {"test": "owm"}, 'data.test = "owm"', '"own"'),
    ("iid", {"clients": 0}, "data.clients = 0", "at least 1"),
]


@pytest.mark.parametrize(
    ("name", "options", "says", "offers"),
    WRONG,
    ids=[f"{n}-{i}" for i, (n, *_) in enumerate(WRONG)],
)
def test_an_impossible_request_says_what_is_possible(name, options, says, offers):
    with pytest.raises(SpecError) as error:
        parts(name, fake(), **options)
    text = str(error.value)
    assert says in text and offers in text and "\n" not in text


def test_groups_are_as_many_as_labels_can_be_permuted():
    source = fake(classes=3)
    assert parts("label_permutation", source, clients=12, groups=6).group.max() == 5
    with pytest.raises(SpecError, match="there are 6 ways to permute 3 labels; at most 6"):
        parts("label_permutation", source, clients=12, groups=7)


def test_the_class_that_is_scarce_is_named():
    labels = np.repeat(np.arange(10), [105] * 9 + [104]).astype(np.int32)
    source = fake(len(labels), 0)._replace(y_train=labels)
    with pytest.raises(SpecError, match="class 1 has 105 samples, 110 are needed"):
        parts("fedprox", source, clients=105)


def test_what_just_fits_is_accepted():
    assert {len(rows) for rows in parts("quantity", fake(), clients=600, min_samples=2).train} == {
        2
    }
    for name in ("rotated", "label_swap", "label_permutation", "feature_shift"):
        assert not parts(name, fake(), clients=4, groups=1).group.any()


def test_what_the_error_offers_works():
    source = fake()
    parts("iid", source, clients=10, samples_per_client=120)
    parts("classes", source, clients=11, classes_per_client=1, samples_per_client=60)
    parts("fedprox", source, clients=150)
    parts("rotated", source, clients=8, test_clients=4, samples_per_client=300)
    parts("label_swap", source, clients=80, groups=46)
    parts("classes", source, clients=600)


def test_samples_that_are_no_images_cannot_be_rotated():
    with pytest.raises(SpecError, match="images"):
        parts("rotated", fake(shape=(60,)))


def test_more_users_than_the_source_has_are_refused():
    source = fake()._replace(user_train=np.zeros(1200, np.int32))
    with pytest.raises(SpecError, match="at most 1200"):
        parts("user", source, min_samples=1201)
    with pytest.raises(SpecError, match="at most 1"):
        parts("user", source, clients=2)


def test_every_option_says_what_it_is_and_every_partition_has_a_summary():
    import dataclasses

    for name in (
        name for name in PARTITIONS if PARTITIONS.origin(name) is None
    ):  # other tests add their own
        entry = PARTITIONS.entry(name)
        assert len(entry.summary) > 20
        assert all(field.metadata["help"] for field in dataclasses.fields(entry.options)), name
        assert {"clients", "test"} <= {field.name for field in dataclasses.fields(entry.options)}
