"""Checks of options against the clients and their samples, before anything is compiled."""

from __future__ import annotations

from cfljax.config import Run
from cfljax.errors import SpecError
from cfljax.methods import METHODS
from cfljax.types import Federation, Method


def check_clients(run: Run, federation: Federation) -> None:
    """Reject more clusters than clients that train, and methods that need true groups if there are none."""
    from cfljax.round.choice import need_clients
    from cfljax.round.common import need_groups

    if getattr(run.options, "true_groups", False):
        need_groups(f'method "{run.method}"', federation)
    clusters = run.options.clusters
    if METHODS.ours(run.method) and run.options.needs_clients and isinstance(clusters, int) and clusters > 1:
        need_clients(federation, clusters, run.method)


def check_labels(run: Run, federation: Federation) -> None:
    """Reject options that need one label per sample."""
    if not federation.several:
        return
    _, _, attack, _ = run.train.transit
    if attack is not None and attack.name == "label_flip":
        raise SpecError('train.attack.name = "label_flip": samples have several labels; take another attack')
    run.options.check_labels(f"method.{run.method}")


def check_mixture(run: Run, method: Method, federation: Federation) -> None:
    """Reject methods that mix the probabilities of classes, if samples have several labels."""
    if federation.several and method.mixture is not None:
        raise SpecError(
            f'method.name = "{run.method}": mixes class probabilities, but samples have several labels; take another method'
        )
