"""The picture of true groups that change."""

import numpy as np

from cfljax.report import figures
from cfljax.report.mixture_pictures import MOST_CLIENTS, MOST_ROUNDS
from cfljax.report.page_data import page_data
from cfljax.report.report_data import read
from cfljax.report.run_pictures import _groups
from cfljax.store import Store
from tests.report.synthetic import add

GROUPS = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [1, 1, 1, 0]], np.int16)


def test_rows_are_in_the_order_of_the_groups_that_clients_were_in():
    picture = _groups(np.arange(3), GROUPS[:, [3, 1, 0, 2]])
    assert picture.colours.tolist() == [[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]]
    assert picture.groups.tolist() == [0, 0, 1, 1] and picture.clients == 4 and picture.rounds.tolist() == [0, 1, 2]


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
    assert [panel["config"] for panel in panels] == [0, 2] and all(panel["shade"] == "true group then" for panel in panels)
    figure = figures.FIGURES["groups"](data)
    assert len(figure.axes) == 2
