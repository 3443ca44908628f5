"""The partition whose groups are the domains of the data (photographs, sketches …), each dealt to
several clients."""

from __future__ import annotations

import dataclasses

import numpy as np

from cfljax.federation import common
from cfljax.federation.common import Common, Partition, Rng
from cfljax.registry import Entry
from cfljax.registry.options import option
from cfljax.types import Parts, Source


@dataclasses.dataclass(frozen=True)
class Domains(Common):
    """Options of `domains`."""

    clients: int = option(
        0, "number of clients, equally many for each domain; 0: one for each", low=0
    )
    samples_per_client: int | None = option(
        None, "training samples per client; default: all are divided", low=1
    )
    test_fraction: float = option(
        0.2, "share for testing, if a domain has no test samples", low=0, high=0.9
    )


def domains(options: Domains, source: Source, rng: Rng) -> Parts:
    """Each domain of the data is divided among its clients; the true group is the domain."""
    if source.user_train is None:
        why = (
            f"{source.name} does not say which domain a sample is from; import it with "
            "--by-domain, or choose another, such as iid"
        )
        raise common.bad_option("partition", "domains", why)
    held, tested = _group_by_domain(source)
    number = len(held)
    clients = options.clients or number
    if clients < number:
        raise common.bad_option(
            "clients", clients, f"{source.name} has {number} domains; at least {number}"
        )
    group = common.group_blocks(clients, number)
    train, test = [], []
    for domain, (rows, test_rows) in enumerate(zip(held, tested, strict=True)):
        rows = rng.permutation(rows)
        if options.test == "own" and not len(test_rows):
            edge = max(1, len(rows) - int(round(options.test_fraction * len(rows))))
            test_rows = rows[edge:]
            rows = rows[:edge]
        size = int((group == domain).sum())
        train += common.share_out(
            rows,
            size,
            options.samples_per_client,
            f"share the {len(rows)} training samples of domain {domain}",
        )
        test += common.split_at(rng.permutation(test_rows), common.even_sizes(len(test_rows), size))
    return Parts(train, common.test_rows(source) if options.test == "global" else test, group)


def _group_by_domain(source: Source) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the training rows and the test rows of each domain: a population of users, or a user
    if the source knows no populations."""
    assert source.user_train is not None
    train = source.user_train
    test = np.zeros(0, np.int64) if source.user_test is None else source.user_test
    if source.population is not None:
        train = source.population[train]
        test = source.population[test]
    domains = np.unique(train)
    edge = len(source.y_train)
    return (
        [np.flatnonzero(train == domain) for domain in domains],
        [edge + np.flatnonzero(test == domain) for domain in domains],
    )


DOMAINS = Entry[Partition](Domains, domains)
