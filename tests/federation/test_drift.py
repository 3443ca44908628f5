"""`data.drift`: who changes when, and what each client then sees."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import data
from cfljax.config import read_spec
from cfljax.devices.machine import describe_machine
from cfljax.errors import DataError, SpecError
from cfljax.experiment.assemble import assemble, host_federation
from cfljax.federation.drift import draw_changes, phases, read_changes
from cfljax.federation.gather import samples
from cfljax.federation.options import DriftOptions

ROTATED = {"name": "digits", "partition": "rotated", "groups": 4, "clients": 20}
FIRST = np.arange(40) % 4
as_seen = jax.jit(samples)


def tables(first=FIRST, groups=4, seed=0, **options):
    return phases(first, list(draw_changes(DriftOptions(**options), first, groups, seed)))


def run_of(drift, data=None, rounds=9, **train):
    spec = {
        "data": (data or ROTATED) | {"drift": drift}, "model": "mclr", "method": ["fedavg"], "train": {"rounds": rounds} | train,
    }  # fmt: skip
    return read_spec(spec).runs()[0]


def test_suddenly_at_each_point_a_drawn_share_is_in_another_group():
    begin, group = tables(at=(30, 60), share=0.25)
    assert begin.tolist() == [0, 30, 60] and (group[0] == FIRST).all()
    changed = group[1:] != group[:-1]
    assert (
        changed.sum(axis=1).tolist() == [10, 10] and (changed[0] != changed[1]).any()
    )  # others at the second point
    assert (
        set(np.unique(group)) == {0, 1, 2, 3}
        and len(np.unique((group[1] - group[0])[changed[0]] % 4)) == 3
    )
    assert (tables(at=(30, 60), share=0.25)[1] == group).all() and (
        tables(at=(30, 60), share=0.25, seed=1)[1] != group
    ).any()


def test_recurrently_the_same_clients_go_there_and_back():
    begin, group = tables(kind="recurrent", at=(3, 5, 9), share=0.5)
    assert (
        begin.tolist() == [0, 3, 5, 9]
        and (group[2] == FIRST).all()
        and (group[1] == group[3]).all()
    )
    assert (group[1] != FIRST).sum() == 20


def test_incrementally_one_client_after_another_changes():
    begin, group = tables(kind="incremental", at=(10, 28), share=0.25)
    assert begin.tolist() == [0, *range(10, 29, 2)] and (group != FIRST).sum(
        axis=1
    ).tolist() == list(range(11))
    begin, group = tables(kind="incremental", at=(10, 13), share=0.5)  # more clients than rounds
    assert begin.tolist() == [0, 10, 11, 12, 13] and (group != FIRST).sum(axis=1)[-1] == 20
    assert (np.diff((group != FIRST).sum(axis=1)) >= 3).all()
    one = tables(kind="incremental", at=(10, 13), share=0.01)
    assert one[0].tolist() == [0, 10] and (one[1] != FIRST).sum() == 1


def test_labels_and_images_change_to_a_counterpart_of_the_group_and_back():
    _, group = tables(groups=8, what="labels", at=(2, 4), share=1.0)
    assert (group[1] == FIRST + 4).all() and (group[2] == FIRST).all()


def what_clients_see(federation, t):
    """(x f32[n, …], y i32[n]) of each client's training samples in round t, by the package."""
    now = federation.at(t)
    assert now.drift is None
    bounds = [
        slice(a, a + n)
        for a, n in zip(now.train.start.tolist(), now.train.count.tolist(), strict=True)
    ]
    rows = [np.asarray(now.train.rows)[mine] for mine in bounds]
    owner = np.repeat(np.arange(federation.clients), [len(each) for each in rows])
    x, y = (
        np.asarray(each)
        for each in as_seen(now, owner, np.concatenate(rows), np.ones(len(owner), bool))
    )
    return [(rows[c], x[owner == c], y[owner == c]) for c in range(federation.clients)]


def the_pool(federation):
    return np.asarray(federation.pool.x, np.float32) * np.float32(
        federation.pool.scale
    ), np.asarray(federation.pool.y)


@pytest.mark.parametrize("of", ["train", "test", "valid"])
def test_a_client_sees_all_of_its_samples_as_its_group_of_the_round_does(of):
    federation = host_federation(
        run_of({"at": [2, 5], "share": 0.5}, ROTATED | {"validation": 0.3})
    )
    federation = dataclasses.replace(federation, train=federation.splits[of])
    images, labels = the_pool(federation)
    groups = [federation.drift.group[p] for p in (0, 0, 1, 1, 1, 2, 2)]
    assert (groups[0] != groups[2]).sum() == (groups[4] != groups[5]).sum() == 10
    for t, group in enumerate(groups):
        assert (federation.at(t).group == group).all()
        for c, (rows, x, y) in enumerate(what_clients_see(federation, t)):
            np.testing.assert_array_equal(x, np.rot90(images[rows], group[c], axes=(1, 2)))
            np.testing.assert_array_equal(y, labels[rows])


def test_changed_labels_are_the_next_ones_on_top_of_the_view_that_a_client_has():
    swapped = {"name": "digits", "partition": "label_swap", "groups": 2, "clients": 6}
    federation = host_federation(run_of({"at": [3], "share": 0.5, "what": "labels"}, swapped))
    plain = host_federation(run_of({"at": [3]}, swapped))
    assert federation.view.labels.shape == (4, 10) and (federation.group == plain.group).all()
    before, after = what_clients_see(plain, 0), what_clients_see(federation, 3)
    changed = federation.at(3).group >= 2
    assert changed.sum() == 3 and (federation.at(3).group % 2 == plain.group).all()
    for c, ((_, x, y), (_, x2, y2)) in enumerate(zip(before, after, strict=True)):
        np.testing.assert_array_equal(x, x2)
        np.testing.assert_array_equal((y + changed[c]) % 10, y2)
    for (_, _, y), (_, _, y2) in zip(before, what_clients_see(federation, 2), strict=True):
        np.testing.assert_array_equal(y, y2)


def test_without_groups_the_changed_clients_are_one_group_and_the_others_the_other():
    dirichlet = {"name": "digits", "partition": "dirichlet", "clients": 8}
    federation = host_federation(
        run_of({"kind": "recurrent", "at": [1, 2], "share": 0.25, "what": "rotation"}, dirichlet)
    )
    images, _ = the_pool(federation)
    assert (
        federation.groups == 2
        and (federation.group == 0).all()
        and federation.at(1).group.sum() == 2
    )
    for t, changes in enumerate((False, True, False)):
        for c, (rows, x, _) in enumerate(what_clients_see(federation, t)):
            turned = changes and federation.drift.group[1][c] == 1
            np.testing.assert_array_equal(x, np.rot90(images[rows], int(turned), axes=(1, 2)))


def test_the_round_may_be_traced_and_clients_may_be_taken():
    federation = host_federation(run_of({"at": [2, 5]}))
    at = jax.jit(lambda federation, t: federation.at(t))
    some = np.array([3, 1])
    for t in (1, 2, 4, 5, 8):
        np.testing.assert_array_equal(
            at(federation, jnp.int32(t)).view.of, federation.at(t).view.of
        )
        np.testing.assert_array_equal(
            federation.take(some).at(t).group, federation.at(t).group[some]
        )


def test_changes_come_from_a_file_and_its_contents_are_in_the_id(tmp_path):
    file, other = tmp_path / "changes.csv", tmp_path / "elsewhere.csv"
    file.write_text("round,client,group\n4,1,2\n2,0,3\n\n4,0,0\n")
    assert [tuple(change) for change in read_changes(file, 20, 4)] == [
        (2, 0, 3),
        (4, 0, 0),
        (4, 1, 2),
    ]
    run = run_of({"file": str(file)})
    federation = host_federation(run)
    assert federation.drift.begin.tolist() == [0, 2, 4]
    assert federation.drift.group[:, :3].tolist() == [[0, 0, 0], [3, 0, 0], [0, 2, 0]]
    other.write_text(file.read_text())
    same = run_of({"file": str(other)})
    assert (
        same.id == run.id
        and same.cheap_id != run.cheap_id
        and list(run.contents) == ["data.drift.file"]
    )
    other.write_text("round,client,group\n4,1,2\n")
    assert run_of({"file": str(other)}).id != run.id


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("round,who,group\n1,1,1\n", "its first line must be round,client,group"),
        ("round,client,group\n", "has no changes"),
        ("round,client,group\n1,2\n", "line 2: 1,2: must be three whole numbers"),
        ("round,client,group\n1,2,x\n", "line 2: 1,2,x: must be three whole numbers"),
        ("round,client,group\n1,2,3\n0,2,3\n", "line 3: round = 0: must be from 1"),
        ("round,client,group\n1,20,3\n", "line 2: client = 20: must be from 0 to 19"),
        ("round,client,group\n1,2,4\n", "line 2: group = 4: must be from 0 to 3"),
        ("round,client,group\n1,2,3\n1,2,0\n", "line 3: client 2 has two groups in round 1"),
    ],
)
def test_a_file_that_cannot_be_is_refused_with_its_line(tmp_path, text, why):
    file = tmp_path / "changes.csv"
    file.write_text(text)
    with pytest.raises(DataError) as error:
        host_federation(run_of({"file": str(file)}))
    assert (
        str(file) in str(error.value) and why in str(error.value) and "\n" not in str(error.value)
    )
    with pytest.raises(DataError, match="cannot be read"):
        read_changes(tmp_path / "nowhere.csv", 1, 1)


def test_a_change_of_a_file_that_no_round_sees_is_refused(tmp_path):
    file = tmp_path / "changes.csv"
    file.write_text("round,client,group\n4,1,2\n9,0,0\n")
    with pytest.raises(
        SpecError,
        match=r"data\.drift\.file = .*train\.rounds = 9 ends a run before the last change, in "
        r"round 9",
    ):
        run_of({"file": str(file)})


@pytest.mark.parametrize(
    ("table", "data", "why"),
    [
        ({}, ROTATED, r"data.drift.at = \[\]: must be rounds in ascending order"),
        ({"at": [5, 3]}, ROTATED, r"data.drift.at = \[5, 3\]: must be rounds in ascending order"),
        ({"at": [0]}, ROTATED, r"data.drift.at = \[0\]: must be at least 1"),
        (
            {"at": [9]},
            ROTATED,
            r"data.drift.at = \[9\]: train.rounds = 9 ends a run before the last change",
        ),
        ({"at": [3], "kind": "sudenly"}, ROTATED, r'data.drift.kind = "sudenly": unknown.*sudden'),
        (
            {"at": [3], "kind": "incremental"},
            ROTATED,
            r'data.drift.at = \[3\]: kind = "incremental" needs two rounds',
        ),
        ({"at": [3], "share": 0}, ROTATED, r"data.drift.share = 0.0: must be greater than 0"),
        ({"at": [3], "shares": 1}, ROTATED, r"data.drift.shares: there is no such option.*share"),
        ({"at": [3], "what": "images"}, ROTATED, r'data.drift.what = "images": unknown'),
        (
            {"at": [3], "file": "x.csv"},
            ROTATED,
            r"data.drift.at = \[3\]: the file lists all changes; leave at out",
        ),
        (
            {"at": [3]},
            {"name": "digits", "partition": "dirichlet"},
            r'data.drift.what = "group": partition "dirichlet" does not transform',
        ),
        (
            {"at": [3]},
            {"name": "digits", "partition": "shards"},
            r'data.drift.what = "group": partition "shards" does not transform',
        ),
        (
            {"at": [3]},
            ROTATED | {"groups": 1},
            r'data.drift.what = "group": partition "rotated" does not transform',
        ),
        (
            {"at": [3], "what": "rotation"},
            ROTATED,
            r'data.drift.what = "rotation": partition "rotated" rotates the images already',
        ),
    ],
)
def test_a_mistake_is_one_line_before_any_data_are_loaded(table, data, why):
    with pytest.raises(SpecError, match=why) as error:
        run_of(table, data)
    assert "\n" not in str(error.value)


def test_what_only_the_data_show_is_refused_when_they_are_there():
    blobs = {"name": "blobs", "features": 6, "partition": "iid", "clients": 5}
    with pytest.raises(SpecError, match="cannot be rotated"):
        host_federation(run_of({"at": [3], "what": "rotation"}, blobs))


def test_matrices_of_what_clients_saw_at_first_are_not_kept():
    steps = {"participation": 1.0, "plan": {"gram": 512}}
    plain = read_spec(
        {"data": ROTATED, "model": "mclr", "method": ["fedavg"], "train": {"rounds": 9} | steps}
    ).runs()[0]
    kept = [
        assemble(run, 1, describe_machine()).federation.train.grams
        for run in (plain, run_of({"at": [3]}, **steps))
    ]
    assert kept[0] is not None and kept[1] is None
    with pytest.raises(SpecError, match=r"train.plan.keep = true: .*data.drift"):
        run_of({"at": [3]}, plan={"keep": True})


def test_without_drift_the_federation_and_the_id_are_as_before():
    (run,) = read_spec(
        {"data": ROTATED, "model": "mclr", "method": ["fedavg"], "train": {"rounds": 9}}
    ).runs()
    federation = host_federation(run)
    assert federation.drift is None and federation.at(7) is federation
    assert "drift" not in run.data._canonical_options and run.id != run_of({"at": [3]}).id
    assert run_of({"at": [3]}).id != run_of({"at": [4]}).id
    assert run_of({"at": [3], "share": 0.5, "kind": "sudden"}).id == run_of({"at": [3]}).id
    assert data.load("digits") is not None
