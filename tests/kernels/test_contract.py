"""What holds for every kernel: the same compiled, plain and batched; no host callback inside."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax import keys
from cfljax.kernels import choose, cosine, cover, inter_group, kmeans, mix, simplex, sketch, spectral, unite

rng = np.random.default_rng(0)


def real(*shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


labels, mask = jnp.array([0, 1, -1, 1]), jnp.array([True, True, True, False])
sizes, shares = jnp.array([3.0, 2.0, 5.0, 1.0]), jnp.array([[0.9, 0.1], [0.0, 1.0], [0.5, 0.5]])
KERNELS = {
    "mix_updates": (mix.mix_updates, real(3, 4), real(4, 5), real(3, 5)),
    "weights_by": (functools.partial(mix.weights_by, clusters=3), labels, mask, sizes),
    "least_loss": (choose.least_loss, real(3, 4)),
    "joint": (functools.partial(choose.joint_choice, lam=0.2), real(3, 4), real(3, 4)),
    "move_similarity": (choose.move_similarity, real(4, 5), real(5)),
    "nearest": (choose.nearest, real(4, 5), real(3, 5)),
    "reseed_empty": (lambda a, b: choose.reseed_empty(keys.root(0), a, b, 2, jnp.arange(4)), labels, mask),
    "cosine_matrix": (cosine.cosine_matrix, real(4, 5)),
    "sketch": (functools.partial(sketch.sketch, size=32), real(3, 70)),
    "cover": (cover.cover, real(4, 4), jnp.float32(0.2), mask),
    "ccs_threshold": (cover.ccs_threshold, jnp.float32(0.5), jnp.float32(1), jnp.float32(0.05), jnp.float32(0.1)),
    "edc": (functools.partial(spectral.edc, m=2), real(4, 5)),
    "madc": (cosine.madc, cosine.cosine_matrix(real(4, 5))),
    "kmeans": (lambda x: kmeans.kmeans(keys.root(0), x, 2, restarts=1, max_iter=2), real(3, 2)),
    "balance": (functools.partial(simplex.balance, steps=5), shares, jnp.ones(3, bool)),
    "rfedavg_weights": (functools.partial(simplex.rfedavg_weights, clusters=3), labels, sizes + 9, sizes),
    "inter_group": (functools.partial(inter_group.inter_group, eta=0.1), real(3, 5)),
    "unite": (lambda a, n: unite.unite(a + a.T, 0.3, n, n > 0, 3), real(6, 6), jnp.arange(6.0)),
    "complete_linkage": (lambda a: unite.complete_linkage(jnp.abs(a + a.T), 1.0), real(6, 6)),
    "newcomer_group": (inter_group.newcomer_group, real(3, 5), real(4, 5)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_plain_and_batched_agree(name):
    function, *args = KERNELS[name]
    batched = jax.jit(jax.vmap(function))(*(jnp.stack([a, a]) for a in args))
    with jax.disable_jit(name != "kmeans"):  # hashing without compilation takes half a minute there
        plain = function(*args)
    for a, b in zip(jax.tree.leaves(batched), jax.tree.leaves(plain), strict=True):
        assert a.dtype == b.dtype and a.dtype in (jnp.float32, jnp.int32, jnp.bool_)
        np.testing.assert_allclose(np.asarray(a[1], np.float64), np.asarray(b, np.float64), atol=1e-5)
    assert "callback" not in str(jax.make_jaxpr(function)(*args))
