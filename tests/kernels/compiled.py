"""Kernels as the package uses them: compiled, once for each shape and set of options."""

import functools

import jax
import numpy as np

from cfljax.kernels.mix import PLAIN, replace_by, sum_by


@functools.cache
def _jitted(function, static):
    return jax.jit(functools.partial(function, **dict(static)))


def compiled(function, *args, **options):
    """function(*args, **options) under jit, as numpy arrays; options that are not arrays are
    static."""
    traced = {
        k: v for k, v in options.items() if isinstance(v, (np.ndarray, np.generic, jax.Array))
    }
    static = tuple((k, v) for k, v in options.items() if k not in traced)
    return jax.tree.map(np.asarray, _jitted(function, static)(*args, **traced))


def mix_models(mix, models, old, rule=PLAIN):
    """The aggregation of methods whose participants started from different models."""
    mean, finite = sum_by(rule, mix, models)
    return replace_by(mix, mean, finite, old, rule)
