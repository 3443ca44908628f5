"""What holds for every kernel: the same compiled, batched and plain; no host callback inside."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.kernels import choose, cosine, cover, inter_group, kmeans, mix, simplex, spectral, unite
from tests.often import every

rng = np.random.default_rng(0)


def real(*shape):
    return rng.normal(size=shape).astype(np.float32)


labels, mask = np.int32([0, 1, -1, 1]), np.array([True, True, True, False])
sizes, shares = np.float32([3.0, 2.0, 5.0, 1.0]), np.float32([[0.9, 0.1], [0.0, 1.0], [0.5, 0.5]])
KERNELS = {
    "mix_updates": (mix.mix_updates, real(3, 4), real(4, 5), real(3, 5)),
    "weights_by": (functools.partial(mix.weights_by, clusters=3), labels, mask, sizes),
    "least_loss": (choose.least_loss, real(3, 4)), "joint": (functools.partial(choose.joint_cost, lam=0.2), real(3, 4), real(3, 4)),
    "move_similarity": (choose.move_similarity, real(4, 5), real(5)), "nearest": (choose.nearest, real(4, 5), real(3, 5)),
    "reseed_empty": (lambda a, b: choose.reseed_empty(keys.root(0), a, b, 2, np.arange(4, dtype=np.int32)), labels, mask),
    "cosine_matrix": (cosine.cosine_matrix, real(4, 5)), "sketch": (functools.partial(cosine.sketch, size=32), real(3, 70)),
    "cover": (cover.cover, real(4, 4), np.float32(0.2), mask),
    "ccs_threshold": (cover.ccs_threshold, *np.float32([0.5, 1, 0.05, 0.1])), "edc": (spectral.edc_between, real(4, 2)),
    "madc": (cosine.madc, real(4, 4)), "kmeans": (lambda x: kmeans.kmeans(keys.root(0), x, 2, restarts=1, max_iter=2), real(3, 2)),
    "balance": (functools.partial(simplex.balance, steps=5), shares, np.ones(3, bool)),
    "rfedavg_weights": (functools.partial(simplex.rfedavg_weights, clusters=3), labels, sizes + 9, sizes),
    "inter_group": (functools.partial(inter_group.inter_group, eta=0.1), real(3, 5)),
    "unite": (lambda a, n: unite.unite(a + a.T, 0.3, n, n > 0, 3), real(6, 6), np.arange(6, dtype=np.float32)),
    "complete_linkage": (lambda a: unite.complete_linkage(jnp.abs(a + a.T), 1.0), real(6, 6)),
    "newcomer_group": (inter_group.newcomer_group, real(3, 5), real(4, 5)),
}  # fmt: skip


OFTEN = ("least_loss", "weights_by", "nearest")
"""Kernels that the ordinary tests also run uncompiled: each operation alone takes as long to
compile as a small program."""


def compare(found, wanted):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == b.dtype and a.dtype in (np.float32, np.int32, np.bool_)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), atol=1e-5)


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_and_batched_agree(name):
    function, *args = KERNELS[name]
    traced = jax.jit(function).trace(*args)
    assert "callback" not in str(traced.jaxpr)
    batched = jax.jit(jax.vmap(function))(*(np.stack([a, a]) for a in args))
    compare(jax.tree.map(lambda of: np.asarray(of)[1], batched), traced.lower().compile()(*args))


@pytest.mark.parametrize(
    "name", every(KERNELS.keys() - {"kmeans"}, OFTEN)
)  # there hashing alone takes half a minute
def test_compiled_and_plain_agree(name):
    function, *args = KERNELS[name]
    with jax.disable_jit():
        plain = function(*map(jnp.asarray, args))
    compare(jax.jit(function)(*args), plain)
