"""WeCFL against a plain numpy program."""

import numpy as np
import pytest

from tests import play, toy
from tests.methods.host_clusters import check
from tests.often import rarely
from tests.reference import plain
from tests.reference import wecfl as reference


@pytest.mark.parametrize(
    ("partition", "average", "participants", "compare"),
    [
        rarely("dirichlet", "samples", 6, "last"),
        rarely("label_permutation", "uniform", 9, "last"),
        ("dirichlet", "samples", 6, "whole"),
    ],
)
def test_wecfl_follows_the_plain_program(partition, average, participants, compare):
    options = {"alpha": 0.3} if partition == "dirichlet" else {"groups": 3}
    made, model = toy.federation(partition, clients=9, seed=0, **options), toy.model(7)
    w, last = (
        toy.first_model_of(model),
        np.arange(6 * 7 + 7 + 4, model.size),
    )
    out = play.rounds(
        "wecfl",
        made,
        4,
        participants,
        0,
        lr=0.3,
        model=model,
        clusters=3,
        average=average,
        compare=compare,
    )
    columns = last if compare == "last" else slice(None)
    models, labels = reference.wecfl(
        plain.Net(6, 4, 7),
        plain.Clients(made),
        w,
        columns,
        3,
        4,
        participants,
        0,
        average == "samples",
    )
    check(out, models, labels)
    assert len(models) == 3
