"""`data.views`: shifts that combine, against counts made by hand in plain numpy."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import cfljax
from cfljax.commands.describe import describe
from cfljax.commands.samples import as_seen as as_drawn
from cfljax.config import read_spec
from cfljax.contract.padding import pad
from cfljax.errors import SpecError
from cfljax.experiment.federations import host_federation
from cfljax.federation import VIEWS
from cfljax.federation.common import labels_seen
from cfljax.federation.corruptions import corrupt_images
from cfljax.federation.drift import apply_drift
from cfljax.federation.pack import pack
from cfljax.federation.room import _complete_views
from cfljax.local.attacks import flip_labels
from cfljax.registry.checksums import hash_partition
from tests.federation.helpers import fake, parts, with_users
from tests.federation.test_drift import what_clients_see

BOTH = ["label_swap", {"name": "rotated", "groups": 2}]
COPIED = [
    {"name": "label_permutation", "groups": 2},
    {"name": "rotated", "groups": 4, "copies": True},
]


def run_of(data):
    return read_spec(
        {"data": {"name": "digits"} | data, "method": ["fedavg"], "train": {"rounds": 9}}
    ).runs()[0]


def dealt(source, seed=0, **data):
    return dataclasses.replace(run_of(data).data, seed=seed).divide_unchecked(source)


def test_label_mixes_and_two_views_by_hand():
    source, options = fake(shape=(4, 4)), {"partition": "dirichlet", "clients": 20, "alpha": 0.5}
    made, plain = (
        dealt(source, views=BOTH, **options),
        parts("dirichlet", source, clients=20, alpha=0.5),
    )
    assert all(
        np.array_equal(a, b)
        for a, b in zip([*made.train, *made.test], [*plain.train, *plain.test], strict=True)
    )
    assert (
        sorted(np.bincount(made.group).tolist()) == [2] * 4 + [3] * 4
        and len(set(made.group[:8])) == 8
    )
    swaps = [made.labels[made.view[np.argmax(made.group // 2 == s)]] for s in range(4)]
    assert [int((swap != np.arange(10)).sum()) for swap in swaps] == [0, 2, 2, 2] and len(
        set(map(tuple, swaps))
    ) == 4
    federation = pack(made, source, "none")
    counts = labels_seen(federation)
    for order in (np.arange(20), np.random.default_rng(1).permutation(20)):
        shown = what_clients_see(
            pad(federation, samples=2, rng=np.random.default_rng(0)).take(order), 0
        )
        for client, (_, x, y) in zip(order, shown, strict=True):
            (swap, turn), rows = divmod(made.group[client], 2), made.train[client]
            assert np.array_equal(x, np.rot90(source.x_train[rows], 2 * turn, axes=(1, 2)))
            assert np.array_equal(y, swaps[swap][source.y_train[rows]])
            assert np.array_equal(
                counts[client], np.bincount(swaps[swap][source.y_train[rows]], minlength=10)
            )


def test_labels_change_in_the_order_of_the_list_and_shifts_add_up():
    views = ["label_swap", {"name": "label_permutation", "groups": 2}, "feature_shift"]
    made, *(swapped, permuted, shifted) = (
        dealt(fake(), views=each, clients=16) for each in (views, *([v] for v in views))
    )
    for view, group in zip(made.view, made.group, strict=True):
        a, b, c = np.unravel_index(group, (4, 2, 2))
        assert np.array_equal(made.labels[view], permuted.labels[b][swapped.labels[a]])
        assert (made.gain[view], made.offset[view]) == (shifted.gain[c], shifted.offset[c])


BY_LABEL = [
    {"name": "label_swap", "groups": 2, "pairs": 3},
    {"name": "rotated", "groups": 2, "angles": [90.0, 180.0], "labels": [0, 3, 7]},
    {"name": "feature_shift", "groups": 2, "labels": [3, 4]},
]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_view_of_some_labels_changes_no_other_samples(order):
    """By hand: turned and inverted where the label of the data set says so, and relabelled."""
    source, views = fake(), [BY_LABEL[at] for at in order]
    made = dealt(source, partition="dirichlet", alpha=1.0, clients=16, views=views)
    federation = pack(made, source, "unit")
    swap = np.asarray(made.labels)
    digits = np.array(np.unravel_index(made.group, (2, 2, 2)))[np.argsort(order)]
    shown = what_clients_see(pad(federation, samples=2, rng=np.random.default_rng(0)), 0)
    for client, (_, x, y) in enumerate(shown[: len(made.train)]):
        _, turn, shift = digits[:, client]
        rows = made.train[client]
        labels = source.y_train[rows]
        wanted = source.x_train[rows] / np.float32(255)
        of_labels = np.isin(labels, [0, 3, 7])
        wanted[of_labels] = np.rot90(wanted[of_labels], 1 + turn, axes=(1, 2))
        inverted = np.isin(labels, [3, 4]) & (shift == 1)
        wanted[inverted] = 1 - wanted[inverted]
        np.testing.assert_allclose(x.reshape(wanted.shape), wanted, atol=1e-6)
        assert np.array_equal(y, swap[made.view[client]][labels])
        drawn, drawn_y = as_drawn(source, made, client, rows)
        np.testing.assert_allclose(drawn, wanted, atol=1e-6)
        assert np.array_equal(drawn_y, y)


def test_clients_of_a_view_of_some_labels_drift_and_are_attacked():
    """A change of group takes a client's samples of these labels along, and flipped labels have the
    pixels of the label that they were."""
    source = fake()
    views = [{"name": "rotated", "groups": 2, "labels": [1, 2]}]
    (run,) = read_spec(
        {
            "data": {"name": "digits", "clients": 6, "views": views, "drift": {"at": [1]}},
            "method": ["fedavg"],
            "train": {"rounds": 3, "attack": {"name": "label_flip", "share": 0.5}},
        }
    ).runs()
    made = dataclasses.replace(run.data, drift=None).divide_unchecked(source)
    made, changes = apply_drift(run.data.drift, made, source, 0)
    federation = pack(made, source, "none", drift=changes)
    attack = run.train.transit.attack
    # One program each, in place of one for each operation
    first, second = (jax.jit(lambda each, t=t: each.at(t))(federation) for t in (0, 1))
    flipped = jax.jit(lambda each: flip_labels(attack, {"attack.share": 0.5}, each))(first)
    who = np.asarray(flipped.view.of) >= len(federation.view.pixels)
    assert 0 < who.sum() < 6
    before, after, attacked = (what_clients_see(each, 0) for each in (first, second, flipped))
    assert (changes.group[0] != changes.group[1]).sum() == 3
    for client, rows in enumerate(made.train):
        labels, x = source.y_train[rows], source.x_train[rows]
        for group, seen in zip(
            changes.group[:, client], (before[client], after[client]), strict=True
        ):
            of_labels = np.isin(labels, [1, 2])
            wanted = np.where(of_labels[:, None, None], np.rot90(x, 2 * group, axes=(1, 2)), x)
            assert np.array_equal(seen[1].reshape(x.shape), wanted)
            assert np.array_equal(seen[2], labels)
        assert np.array_equal(attacked[client][1], before[client][1])
        assert np.array_equal(attacked[client][2], 9 - labels if who[client] else labels)


def test_room_for_more_groups_keeps_the_views_of_some_labels():
    source = fake()
    views = [{"name": "rotated", "groups": 2, "labels": [1, 2]}]
    federation = pack(dealt(source, clients=6, views=views), source, "none")
    roomy = dataclasses.replace(federation, view=_complete_views(federation, 7))
    assert len(roomy.view.by_label) == len(roomy.view.pixels) == 7
    for one, other in zip(what_clients_see(federation, 0), what_clients_see(roomy, 0), strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_each_client_draws_a_combination():
    """FLUX's fifteen combinations for ten clients; true groups are the combinations that they
    drew."""
    views = [
        {"name": "rotated", "groups": 5, "angles": [0.0, 45.0, 90.0, 180.0, 270.0]},
        {"name": "feature_shift", "kind": "gain", "groups": 3},
    ]
    source = fake()
    drawn = [
        dealt(source, seed, clients=10, views=views, views_draw="random") for seed in range(40)
    ]
    for made in drawn[:3]:
        assert np.array_equal(made.group, made.view % 5 * 3 + made.view // 5)
    groups = np.concatenate([made.group for made in drawn])
    counts = np.bincount(groups, minlength=15)
    # 400 draws of 15: 27 each, with a deviation of 5
    assert len(set(map(tuple, (made.group for made in drawn)))) == 40
    assert counts.min() > 8 and counts.max() < 50
    again = dealt(source, 3, clients=10, views=views, views_draw="random")
    assert np.array_equal(again.group, drawn[3].group)
    shares = [0.5] + [0] * 13 + [0.5]
    uneven = [
        dealt(source, seed, clients=10, views=views, views_draw="random", view_shares=shares)
        for seed in range(20)
    ]
    groups = np.concatenate([made.group for made in uneven])
    assert set(groups) == {0, 14} and 60 < (groups == 0).sum() < 140


def test_drawn_combinations_may_have_copies_of_the_data():
    views = [{"name": "rotated", "groups": 4, "copies": True}, {"name": "label_swap", "groups": 2}]
    source = fake()
    made = dealt(source, 2, clients=12, views=views, views_draw="random")
    for turn in np.unique(made.group // 2):
        held = np.concatenate(
            [rows for rows, g in zip(made.train, made.group, strict=True) if g // 2 == turn]
        )
        assert sorted(held.tolist()) == list(range(1200))


def test_views_cross_the_groups_of_the_partition():
    source = with_users(fake(), users=3, test_users=3, test_only=0)._replace(population=None)
    options = {"partition": "domains", "clients": 24, "views": BOTH}
    made = dealt(source, **options)
    assert sorted(made.group.tolist()) == list(range(24))
    assert (
        dealt(source, true_groups="partition", **options).group.tolist()
        == [0] * 8 + [1] * 8 + [2] * 8
    )
    turned = dealt(source, true_groups="rotated", **options)
    assert np.array_equal(turned.group, made.group % 2) and np.array_equal(turned.view, made.view)


def test_with_copies_every_sample_is_in_each_of_the_groups_once():
    source = fake()
    made = dealt(source, partition="dirichlet", clients=16, alpha=0.5, views=COPIED)
    for turn in range(4):
        held = np.concatenate(
            [rows for rows, group in zip(made.train, made.group, strict=True) if group % 4 == turn]
        )
        assert sorted(held.tolist()) == list(range(1200))
    assert np.bincount(made.group).tolist() == [2] * 8
    uneven = dealt(
        source,
        partition="iid",
        clients=20,
        views=COPIED,
        view_shares=[0.2, 0.1, 0.1, 0.1, 0.3, 0.1, 0.1, 0],
    )
    assert np.bincount(uneven.group).tolist() == [4, 2, 2, 2, 6, 2, 2]


@pytest.mark.parametrize("holdout", [0.0, 0.5])
def test_corrupted_copies_of_what_clients_hold(holdout):
    """Also if test samples are held out of the training samples."""
    source, kinds = fake(shape=(8, 8, 3)), ["none", "contrast"]
    views = ["label_swap", {"name": "corrupted", "groups": 2, "kinds": kinds}]
    made = dealt(source, clients=8, holdout=holdout, views=views)
    plain = parts("iid", source, clients=8, holdout=holdout)
    x, y = (np.concatenate([made.source[i], made.source[i + 2]]) for i in (1, 2))
    before, labels = (
        np.concatenate([source.x_train, source.x_test]),
        np.concatenate([source.y_train, source.y_test]),
    )
    for c, group in enumerate(made.group):
        for mine, theirs in ((made.train[c], plain.train[c]), (made.test[c], plain.test[c])):
            wanted = (
                corrupt_images(before, kinds[group % 2], 3, (0,), theirs)
                if group % 2
                else before[theirs]
            )
            assert np.array_equal(x[mine], wanted) and np.array_equal(y[mine], labels[theirs])
        assert np.array_equal(made.origin[made.train[c]], plain.train[c])


@pytest.mark.parametrize(
    "views", [COPIED, ["label_swap", {"name": "corrupted", "groups": 2, "copies": True}]]
)
def test_nobody_trains_on_a_validation_sample_in_any_group(views):
    data = {
        "partition": "dirichlet",
        "clients": 24,
        "alpha": 1.0,
        "views": views,
        "validation": 0.2,
        "seed": "run",
    }
    drift = {"at": [3], "what": "labels"}
    run = run_of(
        data
        | {
            "drift": drift,
            "arrive": {"clients": 3, "round": 2},
            "new_clients": {"share": 0.2, "shots": 5},
        }
    )
    federation, source = host_federation(run), run.data.with_seed(0).load()
    made = run.data.with_seed(0).divide_unchecked(source)
    origin = np.arange(len(source.y_train)) if made.origin is None else made.origin
    of_pool = {
        tuple(x.ravel()): origin[row] for row, x in enumerate((made.source or source).x_train)
    }
    assert len({tuple(x.ravel()) for x in source.x_train}) == len(
        source.y_train
    )  # no image is there twice

    def rows(split):
        used = [
            np.asarray(split.rows)[int(a) : int(a) + int(n)]
            for a, n in zip(split.start, split.count, strict=True)
        ]
        return {
            of_pool[tuple(np.asarray(federation.pool.x)[row].ravel())]
            for row in np.concatenate(used)
        }

    trained, held = rows(federation.train), rows(federation.valid)
    assert held and not trained & held and (federation.arrive == 2).sum() == 3
    before, after = (what_clients_see(federation, t) for t in (0, 3))
    changed = [not np.array_equal(a[2], b[2]) for a, b in zip(before, after, strict=True)]
    assert sum(changed) == 12 and all(
        np.array_equal(a[1], b[1]) for a, b in zip(before, after, strict=True)
    )


def test_all_begin_alike_and_drift_to_the_groups():
    """FedCCFA's protocol: one concept, then three others."""
    options = {
        "partition": "dirichlet",
        "clients": 20,
        "views": ["label_swap", "rotated"],
        "view_shares": [1, 0, 0, 0] + [0] * 12,
    }
    made = host_federation(run_of(options | {"drift": {"at": [3], "share": 1.0}}))
    assert (
        not np.asarray(made.group).any()
        and made.groups == np.asarray(made.drift.group[1]).max() + 1
    )
    labels = [np.asarray(made.view.labels)[np.asarray(made.drift.view[1])[c]] for c in range(20)]
    for client, (a, b) in enumerate(
        zip(what_clients_see(made, 0), what_clients_see(made, 3), strict=True)
    ):
        swap, turn = divmod(int(made.drift.group[1][client]), 4)
        assert np.array_equal(b[2], labels[client][a[2]]) and (
            labels[client] != np.arange(10)
        ).any() == bool(swap)
        assert np.array_equal(b[1], np.rot90(a[1], turn, axes=(1, 2)))
    one = run_of(
        options
        | {"true_groups": "rotated", "view_shares": [1] * 16, "clients": 32, "drift": {"at": [3]}}
    )
    one = host_federation(one)  # a client that changes its rotation keeps its labels
    tables = np.asarray(one.view.labels)[np.asarray(one.drift.view)]
    assert (
        np.array_equal(tables[0], tables[1])
        and (one.drift.group[0] != one.drift.group[1]).sum() == 16
    )


def test_a_run_is_scored_against_each_view_alone(tmp_path):
    data = {"name": "digits", "clients": 16, "views": BOTH}
    results = cfljax.sweep(
        {"data": data, "model": "mclr", "method": ["oracle"], "train": {"rounds": 1}}, out=tmp_path
    )
    (row,), combined = results.to_pandas().to_dict("records"), np.arange(16) % 8
    assert row["ari_last"] == 1.0
    assert row["ari_label_swap"] == pytest.approx(adjusted_rand_score(combined // 2, combined))
    assert row["ari_rotated"] == pytest.approx(adjusted_rand_score(combined % 2, combined))


@pytest.mark.parametrize("name", list(VIEWS))
def test_partitions_of_one_view_keep_the_bits_that_they_had_before_there_were_views(name):
    bits = {
        "rotated": "0a5c0309",
        "label_swap": "6b0bd3f8",
        "label_permutation": "d8c500fe",
        "feature_shift": "3b4bbfde",
    }
    made = parts(name, fake(shape=(8, 8, 3)), clients=12, test_clients=4)
    assert hash_partition(made)[:8] == (bits | {"corrupted": "827d1633"})[name]


def test_clients_of_equal_size_draw_mixes_of_classes():
    made = parts("dirichlet", fake(), clients=40, alpha=0.1, balance="equal")
    assert {len(rows) for rows in made.train} == {30} and len(
        np.unique(np.concatenate(made.train))
    ) == 1200
    mixes = np.array([np.bincount(fake().y_train[rows], minlength=10) for rows in made.train[:20]])
    assert 1.5 < (mixes > 0).sum(1).mean() < 6
    made = parts("dirichlet", fake(), clients=40, alpha=0.1, of_each_class=2)
    assert min(np.bincount(fake().y_train[rows], minlength=10).min() for rows in made.train) == 2


@pytest.mark.parametrize(
    ("name", "groups"),
    [("fedrc", [12, 9, 9]), ("cfl_gp", [8, 8]), ("fedccfa", [20]), ("anda", [5, 5])],
)
def test_published_protocols_are_specs_of_two_sizes(name, groups):
    path = Path(__file__).parents[2] / "experiments" / "protocols" / f"{name}.toml"
    full, small = read_spec(path).runs(), read_spec(path, ["size=small"]).runs()
    assert {run.data.parts.clients for run in full} != {
        run.data.parts.clients for run in small
    } or name == "anda"
    assert np.bincount(host_federation(small[0]).group).tolist() == groups


@pytest.mark.parametrize(
    ("name", "row", "smaller"),
    [
        ("fedrc", 0, {"clients": 30, "samples_per_client": 40}),
        ("cfl_gp", 0, {"clients": 16, "samples_per_client": 89}),
        ("anda", 2, {}),  # four angles
        (
            "fedccfa",
            1,
            {
                "clients": 20,
                "of_each_class": 2,
                "views": ["label_swap"],
                "drift": {"at": [10], "share": 1.0},
            },
        ),
    ],
)
def test_a_preset_is_the_protocol_and_each_option_can_be_overridden(name, row, smaller):
    path = Path(__file__).parents[2] / "experiments" / "protocols" / f"{name}.toml"

    def datasets(sets, table):
        runs = read_spec(path, sets).runs()
        written = list({run.data.cheap_id: run.data for run in runs}.values())[row]
        data = {"name": written.name, "partition": name} | table
        (run,) = read_spec({"data": data, "method": ["fedavg"], "train": {"rounds": 200}}).runs()
        return written, run.data

    full, preset = datasets([], {})
    assert full == preset
    small, preset = datasets(["size=small"], smaller)
    assert small == preset and small != full
    source = small.with_seed(0).load()
    assert hash_partition(small.divide_unchecked(source)) == hash_partition(
        preset.divide_unchecked(source)
    )


def test_a_preset_stands_beside_other_partitions_and_describe_says_what_it_became():
    spec = {
        "data": {"name": "digits", "partition": ["anda", "iid"], "clients": 12, "views": []},
        "method": ["fedavg"],
    }
    assert len({run.data.cheap_id for run in read_spec(spec).runs()}) == 1
    del spec["data"]["views"]
    assert [[view.name for view in run.data.views] for run in read_spec(spec).runs()] == [
        ["rotated"],
        [],
    ]
    text = describe("digits", ["data.partition=fedccfa", "data.clients=20"])
    assert (
        "dirichlet x label_permutation in 4" in text
        and 'kind = "sudden"' in text
        and "at = [100]" in text
    )
    with pytest.raises(
        SpecError, match='data.partition = "fedr": unknown partition; did you mean "fedrc"'
    ):
        run_of({"partition": "fedr"})


def test_a_spec_says_views_once_and_a_list_of_lists_is_an_axis():
    spec = {
        "data": {"name": "digits", "views": [["rotated"], BOTH]},
        "method": ["fedavg"],
        "seeds": [0, 1],
    }
    runs = read_spec(spec | {"data": spec["data"] | {"seed": "run", "clients": 16}}).runs()
    assert [len(run.data.views) for run in runs] == [1, 1, 2, 2] and len(
        {run.data.identity for run in runs}
    ) == 2
    again = read_spec({"data": runs[2].data.to_table(), "method": ["fedavg"]}).runs()[0]
    assert again.data.identity == runs[2].data.identity
    first, second = (
        run.data.with_seed(run.seed).divide_unchecked(runs[0].data.with_seed(0).load())
        for run in runs[2:]
    )
    assert not np.array_equal(first.labels, second.labels)
    assert runs[2].varies["data.views"] == ["label_swap", {"name": "rotated", "groups": 2}]
    assert "rotated in 2" in describe(
        "digits", ['data.views=[{name="rotated",groups=2}]', "data.clients=8"]
    )


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (
            {"views": ["rotated", "rotated"]},
            r'data.views: has "rotated" twice; give each view once',
        ),
        (
            {"views": BOTH, "clients": 5},
            "data.views: 4 label_swap x 2 rotated = 8 combinations for 5 clients; give fewer "
            'groups, or data.views_draw = "random"',
        ),
        (
            # refused before an array of all combinations is made, which would need gigabytes
            {"views": [{"name": "label_permutation", "groups": 10**12}], "clients": 8},
            "data.views: 10{12} label_permutation = 10{12} combinations for 8 clients; give fewer",
        ),
        (
            {"views": [{"name": "rotated", "groups": 10**12, "copies": True}], "clients": 8},
            "data.views: 10{12} rotated = 10{12} combinations for 8 clients; give fewer",
        ),
        (
            {"views": [{"name": "rotated", "groups": 2}], "view_shares": [0.99, 0.01]},
            r"data.view_shares = \[0.99, 0.01\]: the share 0.01 is less than one of 32 clients; "
            "give a larger one, or 0",
        ),
        ({"views": ["rotate"]}, 'data.views = "rotate": unknown view; did you mean "rotated"'),
        (
            {"views": [{"name": "rotated", "pairs": 1}]},
            "data.views.rotated.pairs: there is no such option; known: angles, groups",
        ),
        (
            {"views": [{"groups": 1}]},
            r"data.views: \{ groups = 1 \}: must be a name, or a table with one",
        ),
        ({"views": "rotated"}, 'data.views = "rotated": must be a list of values'),
        (
            {"views": ["rotated"], "true_groups": "label_swap"},
            'data.true_groups = "label_swap": no such view',
        ),
        (
            {"views": ["rotated"], "true_groups": "partition"},
            "the partition has no groups of its own",
        ),
        (
            {"views": ["rotated"], "view_shares": [1, 0]},
            r"data.view_shares = \[1.0, 0.0\]: 2 shares for 4 rotated; give 4",
        ),
        (
            {"views": ["rotated"], "view_shares": [0, 0]},
            r"data.view_shares = \[0.0, 0.0\]: needs data.views, and some share above",
        ),
        (
            {"views": ["rotated"], "partition": "rotated"},
            'partition "rotated" is a view itself; take another, such as "iid"',
        ),
        (
            {"views": [{"name": "label_swap", "pairs": 7}]},
            "data.views.label_swap.pairs = 7: digits has 10 classes; at most 5",
        ),
        (
            {"views": [{"name": "rotated", "copies": True}], "holdout": 0.1},
            'copies = true: partition "iid" holds samples out',
        ),
        (
            {"views": [{"name": "rotated", "copies": True}], "partition": "user"},
            'partition "user" defines the clients itself',
        ),
        (
            {"views": ["rotated"], "drift": {"at": [1], "what": "rotation"}},
            'view "rotated" rotates the images already',
        ),
        (
            {"views": ["corrupted", "rotated"], "drift": {"at": [1]}},
            "this partition does not transform the data of groups",
        ),
        (
            {"views": [{"name": "label_permutation", "groups": 2, "labels": [[0], [1]]}]},
            "give each of 2 groups the labels 0 to 9",
        ),
        (
            {"views": [{"name": "rotated", "labels": [0, 10]}]},
            r"data.views.rotated.labels = \[0, 10\]: digits has the labels 0 to 9",
        ),
        (
            {"views": [{"name": "label_swap", "labels": [0]}]},
            "data.views.label_swap.labels: there is no such option",
        ),
        (
            {"views": [{"name": "rotated", "labels": ["a"]}]},
            r"data.views.rotated.labels = \[\"a\"\]: must be a list of integers",
        ),
        ({"views_draw": "random"}, 'data.views_draw = "random": needs data.views'),
        (
            {"views": [{"name": "label_permutation", "groups": 10**12}], "views_draw": "random"},
            "combinations to draw from; give fewer",
        ),
        (
            {
                "views": [{"name": "rotated", "copies": True}],
                "partition": "quantity",
                "sizes": [1] * 32,
            },
            'copies = true: partition "quantity" has exact sizes',
        ),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(data, says):
    with pytest.raises(SpecError, match=says) as error:
        host_federation(run_of({"partition": "iid", "clients": 32} | data))
    assert "\n" not in str(error.value)
