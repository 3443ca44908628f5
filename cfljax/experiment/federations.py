"""HOST. The federation of a run: its data, divided, as numpy arrays and on the device. Runs of
equal data share it."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from cfljax.config import Data, Run, draw_arrivals
from cfljax.errors import SpecError
from cfljax.federation.drift import apply_drift
from cfljax.federation.pack import pack
from cfljax.federation.room import NO_ROOM, Room, make_room
from cfljax.federation.validation import draw_newcomers, drop_held, hold_out, keep_shots
from cfljax.lazy import jax
from cfljax.methods import METHODS
from cfljax.models.losses import find_score
from cfljax.models.options import common_options
from cfljax.types import Federation, Method, Score
from cfljax.types.federation import NEVER

# Metrics of the package that are about classes
OF_CLASSES = ("macro_f1", "average_precision", "perplexity")


def host_federation(run: Run) -> Federation:
    """Return the run's federation as numpy arrays."""
    return _build_federation(key_of(run))


def federation_of(run: Run) -> Federation:
    """Return the run's federation, on the device."""
    return device_federation(key_of(run))


def flatten_samples(federation: Federation) -> Federation:
    """Store each sample as a line of numbers: a TPU lays images out by pixels, and turns the pool
    round in each step."""
    x = federation.pool.x
    if x.ndim < 3:
        return federation
    lines = x.reshape(x.shape[0], -1)
    return dataclasses.replace(federation, pool=federation.pool._replace(x=lines), form=x.shape[1:])


def sample_shape(federation: Federation) -> tuple[int, ...]:
    """Return the shape of one sample as the model sees it."""
    pool = federation.pool
    return federation.sample_shape + (() if pool.table is None else pool.table.shape[1:])


class FederationKey(NamedTuple):
    """The data of a run, the seed that they are drawn with, and how they are padded. Keys of equal
    data are equal, whatever their spelling."""

    data: Data
    seed: int
    room: Room = NO_ROOM

    def _spell(self) -> tuple[str, int, Room]:
        return self.data.identity, self.seed, self.room

    def __hash__(self) -> int:
        return hash(self._spell())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FederationKey) and self._spell() == other._spell()


def key_of(run: Run) -> FederationKey:
    """Return the key of a run's data."""
    return FederationKey(run.data.with_seed(run.seed), run.data_seed, run.train.room)


@functools.lru_cache(maxsize=2)
def _build_federation(key: FederationKey) -> Federation:
    """Load the data, divide them among clients, set validation samples aside, and pack them."""
    config, seed, room = key
    source = config.load()
    parts = config.divide(source)
    parts, changes = (
        (parts, None) if config.drift is None else apply_drift(config.drift, parts, source, seed)
    )
    train = parts.train
    valid = None
    newcomers = np.zeros(len(parts.train), bool)
    if (new := config.new_clients) is not None:
        newcomers = draw_newcomers([len(rows) for rows in train], new.share, seed)
    trains = np.array([len(rows) > 0 for rows in train]) & ~newcomers
    late = np.where(newcomers, NEVER, draw_arrivals(config.arrive, trains, seed)).astype(np.int32)
    if config.validation:
        # Newcomers keep all their samples, except those that another client holds out
        in_rounds = [
            rows[:0] if apart else rows for rows, apart in zip(train, newcomers, strict=True)
        ]
        kept, valid = hold_out(in_rounds, config.validation, seed, parts.origin)
        of_newcomers = [drop_held(rows, valid, parts.origin) for rows in train]
        train = [
            later if apart else rows
            for later, rows, apart in zip(of_newcomers, kept, newcomers, strict=True)
        ]
    if new is not None and new.shots:
        train = keep_shots(train, newcomers, new.shots, seed)
    packed = pack(
        dataclasses.replace(parts, train=train), source, config.normalise, late, valid, changes
    )
    return packed if room == NO_ROOM else make_room(packed, room)


@functools.lru_cache(maxsize=2)
def device_federation(key: FederationKey) -> Federation:
    """Return the federation of this key, on the device."""
    return jax.device_put(_build_federation(key))


def clear_caches() -> None:
    """Clear the cached federations, because a plug-in has been redefined."""
    for kept in (_build_federation, device_federation):
        kept.cache_clear()


def check_clients(run: Run, federation: Federation) -> None:
    """Reject more clusters than clients that train, methods that need true groups if there are
    none, and clients that the method cannot have."""
    from cfljax.round.common import need_clients, need_groups

    if getattr(run.options, "needs_groups", False):
        need_groups(f'method "{run.method}"', federation)
    clusters = run.options.clusters
    if METHODS.is_built_in(run.method) and run.options.needs_clients and clusters > 1:
        need_clients(federation, clusters, run.method)
    run.options.check_federation(f"method.{run.method}", federation)


def check_labels(run: Run, federation: Federation) -> None:
    """Reject options that need one label per sample, a class."""
    loss = common_options(run.model.options).loss
    scored = find_score(loss) != Score()
    if scored:
        _check_scored(run, f'model.loss = "{loss}"')
    if not (scored or federation.several or federation.continuous):
        return
    _, _, attack, _ = run.train.transit
    if attack is not None and attack.name == "label_flip":
        raise SpecError(
            'train.attack.name = "label_flip": needs one class per sample; take another attack'
        )
    run.options.check_labels(f"method.{run.method}")


def _check_scored(run: Run, loss: str) -> None:
    """Reject what is about accuracies, of a run with a score of its own. `loss`: its option, for
    messages."""
    for metric in run.train.metrics or ():
        if metric in OF_CLASSES:
            raise SpecError(f'train.metrics = "{metric}": is for classes, and {loss} has none')
    if run.data.new_clients is not None:
        raise SpecError(f"data.new_clients: are scored by accuracy, and {loss} has none")
    if run.train.stop is not None and run.train.stop.metric == "val_accuracy":
        raise SpecError(
            f'train.stop.metric = "val_accuracy": {loss} has no accuracy; take "val_loss"'
        )


def check_mixture(run: Run, method: Method, federation: Federation) -> None:
    """Reject methods that mix the probabilities of classes, if samples have not one class each."""
    scored = find_score(common_options(run.model.options).loss) != Score()
    if (scored or federation.several or federation.continuous) and method.mixture is not None:
        raise SpecError(
            f'method.name = "{run.method}": mixes class probabilities, so samples need one class '
            "each; take another method"
        )
