"""What holds for any partition and for the packing of any clients."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cfljax.contract.padding import pad
from cfljax.errors import CfljaxError
from cfljax.federation import PARTITIONS
from cfljax.federation.pack import pack
from cfljax.types import Parts
from tests.federation.helpers import fake

CALM = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@CALM
@given(st.integers(1, 12), st.integers(0, 2**31), st.data())
def test_packing_keeps_who_holds_what(clients, seed, data):
    """Whatever rows the clients hold, some of them none: also after padding, and in another
    order."""
    source, rng = fake(90, 30, seed=1), np.random.default_rng(seed)
    sizes = data.draw(st.lists(st.integers(0, 15), min_size=clients, max_size=clients))
    train = [rng.integers(0, 90, n) for n in sizes]
    test = [90 + rng.integers(0, 30, n // 2) for n in sizes]
    parts = Parts(train, test, rng.integers(-1, 3, clients).astype(np.int32))
    federation = pack(parts, source, "none")
    order = rng.permutation(clients)
    wide = pad(federation, samples=int(rng.integers(0, 4)), rng=rng).take(order)
    padded = pad(federation, clients=2, rng=rng)
    x, y = (
        np.concatenate([source.x_train, source.x_test]),
        np.concatenate([source.y_train, source.y_test]),
    )
    for made, who in ((federation, range(clients)), (wide, order), (padded, range(clients))):
        pool = np.asarray(made.pool.x), np.asarray(made.pool.y)
        for position, client in enumerate(who):
            for split, held in ((made.train, train[client]), (made.test, test[client])):
                start, count = int(split.start[position]), int(split.count[position])
                rows = np.asarray(split.rows)[start : start + count]
                assert count == len(held) <= split.longest
                assert np.array_equal(pool[0][rows], x[held]) and np.array_equal(
                    pool[1][rows], y[held]
                )
            assert made.group[position] == parts.group[client] and made.uid[position] == client
    assert (padded.uid[clients:] == -1).all() and not padded.train.count[clients:].any()


@CALM
@given(
    st.sampled_from(
        [
            "iid",
            "quantity",
            "shards",
            "classes",
            "dirichlet",
            "rotated",
            "label_swap",
            "label_permutation",
        ]
    ),
    st.integers(1, 40),
    st.integers(0, 2**31),
    st.none() | st.integers(1, 40),
)
def test_partitions_hold_rows_that_exist_and_no_client_holds_a_row_twice(name, clients, seed, most):
    """Rows exist, training rows come from the training part, and no client holds a row twice; or
    one line says why not."""
    source, entry = fake(300, 80, seed=2), PARTITIONS.entry(name)
    table = {"clients": clients} | ({} if most is None else {"samples_per_client": most})
    try:
        made = entry.make(
            PARTITIONS.check(name, table, "data"), source, np.random.default_rng(seed)
        )
    except CfljaxError as error:
        assert "data." in str(error) and "\n" not in str(error)
        return
    assert len(made.train) == clients == len(made.group)
    for rows in made.train:
        assert len(rows) == 0 or (rows.min() >= 0 and rows.max() < 300)
        assert len(np.unique(rows)) == len(rows)
    tests = [made.test] if isinstance(made.test, np.ndarray) else made.test
    assert all(len(rows) == 0 or (rows.min() >= 300 and rows.max() < 380) for rows in tests)
