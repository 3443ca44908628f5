"""The domains of the data are the true groups of their clients."""

import numpy as np
import pytest

from cfljax.config import read_spec
from cfljax.errors import SpecError
from tests.federation.helpers import fake, parts, with_users


def of_domains(sizes=(600, 400, 200), tests=(150, 100, 50)):
    source = fake(sum(sizes), sum(tests))
    users = [
        np.random.default_rng(0).permutation(np.repeat(np.arange(len(n)), n)).astype(np.int32)
        for n in (sizes, tests)
    ]
    return source._replace(user_train=users[0], user_test=users[1])


def test_each_domain_is_divided_among_its_clients():
    source = of_domains()
    made = parts("domains", source, clients=9)
    assert made.group.tolist() == [0] * 3 + [1] * 3 + [2] * 3
    of = np.concatenate([source.user_train, source.user_test])
    for rows, held, group in zip(made.train, made.test, made.group, strict=True):
        assert (
            (of[rows] == group).all()
            and (of[held] == group).all()
            and rows.max() < 1200 <= held.min()
        )
    assert [len(rows) for rows in made.train] == [200] * 3 + [133, 133, 134] + [66, 67, 67]
    assert sorted(np.concatenate(made.train)) == list(range(1200)) and sorted(
        np.concatenate(made.test)
    ) == list(range(1200, 1500))


def test_without_a_number_each_domain_is_a_client():
    assert [len(rows) for rows in parts("domains", of_domains()).train] == [600, 400, 200]


def test_populations_are_domains_of_several_users():
    source = of_domains()._replace(population=np.array([1, 0, 1], np.int32))
    made = parts("domains", source, clients=2)
    assert set(source.user_train[made.train[0]]) == {1} and set(
        source.user_train[made.train[1]]
    ) == {0, 2}


def test_a_domain_without_test_samples_gives_some_of_its_training_samples():
    source = of_domains()._replace(user_test=None)
    made = parts("domains", source, clients=6, test_fraction=0.25)
    assert [len(rows) for rows in made.train] == [225, 225, 150, 150, 75, 75]
    assert [len(rows) for rows in made.test] == [75, 75, 50, 50, 25, 25]
    assert not set(np.concatenate(made.train)) & set(np.concatenate(made.test))
    assert len(parts("domains", source, clients=6, test="global").test) == 300


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clients": 2}, "data.clients = 2: fake has 3 domains; at least 3"),
        ({"clients": 6, "samples_per_client": 101}, "of domain 2; at most 100"),
        ({"clients": 700}, "233 clients share the 200 training samples"),
    ],
)
def test_what_the_domains_cannot_give_is_refused(options, says):
    with pytest.raises(SpecError, match=says) as error:
        parts("domains", of_domains(), **options)
    assert "\n" not in str(error.value)


def test_how_many_domains_there_are_only_the_data_tell():
    """A number of participants is no more than the clients of a spec that does not say how many."""
    data = {"name": "digits", "partition": "domains"}
    spec = {"data": data, "method": "fedavg", "train": {"participation": 2}}
    (run,) = read_spec(spec).runs()
    assert run.data.clients is None and run.data.clients_that_train is None
    with pytest.raises(SpecError, match="train.participation = 2: there are only 1 clients"):
        read_spec(spec | {"data": data | {"clients": 1}}).runs()


def sizes(made):
    return np.array([len(rows) for rows in made.train])


def test_the_spread_of_lognormal_sizes_is_sigma():
    equal, some, much = (
        sizes(parts("quantity", fake(6000), clients=40, sigma=sigma)) for sigma in (0.0, 0.3, 2.0)
    )
    assert np.ptp(equal) <= 1 and np.ptp(some) > 20 and much.max() > 2 * some.max()


def test_the_test_share_of_a_user_without_test_samples():
    for share in (0.0, 0.5):
        made = parts("user", with_users(fake()), test_fraction=share)
        held_out = int(40 * share)
        assert {len(rows) for rows in made.test[20:]} == {held_out}
        assert {len(rows) for rows in made.train[20:]} == {40 - held_out}
