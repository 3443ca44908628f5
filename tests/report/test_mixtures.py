"""Pictures of the weights that clients have in models."""

import base64

import numpy as np
import pytest

from cfljax.report import figures, mixture_pictures
from cfljax.report.mixture_pictures import (
    CLIENTS,
    MOST_CLIENTS,
    MOST_ROUNDS,
    ROUNDS,
    WEIGHT_COLUMNS,
)
from cfljax.report.page_data import page_data
from cfljax.report.report_data import read
from cfljax.report.run_pictures import _groups
from cfljax.store import Store
from tests.report import synthetic
from tests.report.synthetic import add
from tests.report.test_page import data_of, made

true_group = np.arange(12) % 3


def pictures(tmp_path, own, **shape):
    synthetic.add(Store(tmp_path), "a", 0, method="fedem", own=own, **shape)
    return read([tmp_path]).pictures[0].mixtures


def shares_of(row, colours):
    """The share of the columns that each colour has."""
    return np.array([(row == colour).mean() for colour in colours])


def test_soft_methods_have_the_figure_and_hard_ones_have_not(tmp_path):
    synthetic.sweep(tmp_path / "hard")
    assert (
        data_of(made(tmp_path / "hard"))["mixtures"] == []
        and figures.FIGURES["mixture"](read([tmp_path / "hard"])) is None
    )
    synthetic.everything(tmp_path / "soft")
    data = data_of(made(tmp_path / "soft"))
    (config,) = {each["config"] for each in data["mixtures"]}
    assert data["configs"][config]["name"] == "new" and [
        each["name"] for each in data["mixtures"]
    ] == [CLIENTS, ROUNDS]
    assert (
        len(base64.b64decode(data["mixtures"][0]["cells"])) == 12 * WEIGHT_COLUMNS
        and data["mixtures"][0]["xlabel"] == "weight, %"
    )
    assert 'id="fig-mixture"' in made(tmp_path / "soft")


def test_a_client_is_a_row_whose_colours_are_its_weights(tmp_path):
    own = synthetic.mixed(np.random.default_rng(0))
    picture, _ = pictures(tmp_path, own)
    assert (
        picture.groups.tolist() == sorted(true_group)
        and picture.at[0] == 0
        and picture.at[-1] == 100
    )
    found = np.array([shares_of(row, range(3)) for row in picture.colours])
    assert np.allclose(found.sum(axis=1), 1)
    for g in range(3):  # the clients of a group are among themselves
        wanted, drawn = own["mixture_of_clients"][-1][true_group == g], found[picture.groups == g]
        assert (
            np.abs(np.sort(np.sort(wanted)[:, -1]) - np.sort(np.sort(drawn)[:, -1])).max()
            <= 1.5 / WEIGHT_COLUMNS
        )
        assert (
            np.abs(np.sort(wanted.mean(axis=0)) - np.sort(drawn.mean(axis=0))).max()
            <= 1.5 / WEIGHT_COLUMNS
        )


def test_a_model_has_the_colour_of_the_group_that_has_most_of_it(tmp_path):
    """Model 2 is that of group 0, model 0 that of group 1, model 1 nobody's."""
    last = np.zeros((12, 3), np.float32)
    last[true_group == 0, 2] = last[true_group == 1, 0] = last[true_group == 2, 0] = 1
    picture, *rest = pictures(tmp_path, {"mixture": last})
    assert (
        rest == []
        and picture.colours[picture.groups == 0].tolist() == np.zeros((4, WEIGHT_COLUMNS)).tolist()
    )
    assert (picture.colours[picture.groups != 0] == 1).all()


def test_rounds_have_a_lane_for_each_group_with_its_mean_weights(tmp_path):
    """Groups 0, 1, 2 have most of the models 2, 0, 1, which have their colours."""
    own, favourite = synthetic.mixed(np.random.default_rng(1)), np.eye(3)[[2, 0, 1]]
    own["mixture_of_clients"] = 0.4 * own["mixture_of_clients"] + 0.6 * favourite[true_group]
    own["mixture_of_groups"] = 0.4 * own["mixture_of_groups"] + 0.6 * favourite
    _, picture = pictures(tmp_path, own)
    assert picture.at.tolist() == [0, 1, 2, 3, 4, 5]
    for g in range(3):
        lane = picture.colours[picture.groups == g]
        found = np.array([shares_of(column, (1, 2, 0)) for column in lane.T])
        assert np.abs(found - own["mixture_of_groups"][:, g]).max() <= 1.5 / len(lane)


def test_models_of_other_clients_are_taken_together_by_true_group(tmp_path):
    each = np.random.default_rng(2).dirichlet(np.ones(12), (6, 12)).astype(np.float32)
    means = np.stack([each[:, true_group == g].mean(axis=1) for g in range(3)], axis=1)
    picture, rounds = pictures(
        tmp_path, {"mixture_of_clients": each, "mixture_of_groups": means}, personal=True
    )
    of_group = np.stack([each[-1][:, true_group == g].sum(axis=1) for g in range(3)], axis=1)
    found = np.array([shares_of(row, range(3)) for row in picture.colours])
    assert (
        np.abs(np.sort(found, axis=None) - np.sort(of_group, axis=None)).max()
        <= 1.5 / WEIGHT_COLUMNS
    )
    lane = rounds.colours[rounds.groups == 1]
    assert np.abs(
        shares_of(lane[:, -1], range(3)) - of_group[true_group == 1].mean(axis=0)
    ).max() <= 1.5 / len(lane)


@pytest.mark.parametrize(("models", "drawn"), [(3, [CLIENTS]), (12, [])])
def test_without_true_groups_there_are_no_lanes_and_others_models_have_no_colours(
    tmp_path, models, drawn
):
    own = synthetic.mixed(np.random.default_rng(3), models=models)
    assert [
        each.name for each in pictures(tmp_path, own, known_groups=False, personal=models == 12)
    ] == drawn


def test_as_many_models_as_clients_are_not_taken_for_the_clients_own(tmp_path):
    own = synthetic.mixed(np.random.default_rng(5), models=12)
    picture, *_ = pictures(tmp_path, own)
    assert len(np.unique(picture.colours)) > 3  # more than a colour for each true group
    assert [each.name for each in pictures(tmp_path, own, known_groups=False)] == [CLIENTS]


def test_many_clients_and_rounds_are_thinned_out():
    rng = np.random.default_rng(4)
    own, group = synthetic.mixed(rng, evaluations=300, clients=999), np.arange(999) % 3
    found = mixture_pictures.mixtures(
        own, np.arange(300), group, lambda labels, group: {0: 0, 1: 1, 2: 2}
    )
    assert [each.colours.shape for each in found] == [(200, WEIGHT_COLUMNS), (198, 128)]
    assert (found[0].clients, found[0].drawn) == (999, 200)


GROUPS = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 0]], np.int16)


def test_rows_are_in_the_order_of_the_groups_that_clients_were_in():
    picture = _groups(np.arange(3), GROUPS[:, [3, 1, 0, 2]])
    assert picture.colours.tolist() == [[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert (
        picture.groups.tolist() == [0, 0, 1, 1]
        and picture.clients == 4
        and picture.rounds.tolist() == [0, 1, 2]
    )


def test_there_is_none_where_nobody_changes_or_rounds_are_unknown():
    assert _groups(np.arange(3), None) is None
    assert _groups(np.arange(3), np.tile(GROUPS[:1], (3, 1))) is None
    assert _groups(np.arange(4), GROUPS) is None


def test_of_many_clients_and_rounds_some_are_drawn():
    many = np.random.default_rng(0).integers(3, size=(300, 1000))
    picture = _groups(np.arange(300), many)
    assert picture.colours.shape == (MOST_CLIENTS, MOST_ROUNDS) and picture.clients == 1000


def test_methods_that_see_the_same_changes_share_a_picture(tmp_path):
    same = np.arange(12)[None] % 3 + np.zeros((6, 1), int)
    changed = np.where(np.arange(6)[:, None] > 3, (same + 1) % 3, same)
    store = Store(tmp_path / "r")
    for name, groups in (("fedavg", changed), ("ifca", changed), ("oracle", changed[::-1])):
        add(store, name, 0, method=name, changing=groups)
    data = read([tmp_path / "r"])
    panels = page_data(data)["groups"]
    assert [panel["config"] for panel in panels] == [0, 2] and all(
        panel["shade"] == "true group then" for panel in panels
    )
    figure = figures.FIGURES["groups"](data)
    assert len(figure.axes) == 2
