"""Arrays of shapes that do not belong together are refused before anything is computed: broadcasting would hide the mistake."""

import jax
import numpy as np
import pytest

from cfljax import keys
from cfljax.kernels import blocks, choose, cosine, cover, inter_group, kmeans, mix, simplex, sketch, spectral

KEY = keys.root(0)


def real(*shape):
    return np.ones(shape, np.float32)


def whole(*shape):
    return np.zeros(shape, np.int32)


def true(*shape):
    return np.ones(shape, bool)


CASES = [
    (blocks.product, real(4), real(4), real(), real()), (blocks.product, real(3, 4), real(2, 1), real(3), real(2)),
    (blocks.combine, real(3), real(3, 2), real(3)), (blocks.squared_distances, real(4), real(4)),
    (blocks.squared_distances, real(3, 4), real(2, 1)), (choose.least_loss, real(3)), (choose.move_similarity, real(4), real(4)),
    (choose.move_similarity, real(3, 4), real(1)), (choose.joint_cost, real(3), real(3), 0.5),
    (choose.joint_cost, real(3, 2), real(3, 1), 0.5),
    (lambda *arrays: choose.reseed_empty(KEY, *arrays[:2], 2, arrays[2]), whole(3, 1), true(3, 1), whole(3, 1)),
    (lambda *arrays: choose.reseed_empty(KEY, *arrays[:2], 2, arrays[2]), whole(3), true(1), whole(3)),
    (cosine.cosine_matrix, real(3)), (cosine.cosine_matrix, real(3, 4), None, true(1)), (cosine.cosine_rows, real(3), real(3)),
    (cover.cover, real(3, 2), 0.5), (cover.cover, real(3, 3), 0.5, true(1)), (cosine.madc, real(3, 1)),
    (cosine.madc, real(3, 3), true(1)), (inter_group.inter_group, real(3), 0.1),
    (lambda w, on: inter_group.inter_group(w, 0.1, active=on), real(3, 2), true(1)), (lambda x: kmeans.kmeans(KEY, x, 2), real(3)),
    (lambda x, uid: kmeans.kmeans(KEY, x, 2, uid=uid), real(3, 2), whole(1)),
    (lambda *arrays: mix.weights_by(*arrays, 2), whole(3, 1), true(3, 1), real(3, 1)),
    (lambda *arrays: mix.weights_by(*arrays, 2), whole(3), true(1), real(3)), (mix.mix_updates, real(3), real(3), real(3)),
    (mix.mix_updates, real(2, 1), real(3, 4), real(2, 4)), (mix.mix_updates, real(2, 3), real(3, 1), real(2, 4)),
    (simplex.balance, real(3), true(3)), (simplex.balance, real(3, 4), true(1)),
    (lambda *arrays: simplex.class_shares(*arrays, 2), whole(3, 1), real(3, 4)),
    (lambda *arrays: simplex.class_shares(*arrays, 2), whole(1), real(3, 4)), (simplex.imbalance_level, real(3), 5.0),
    (lambda *arrays: simplex.cluster_imbalance(*arrays, 2), whole(3, 1), real(3, 1), real(3, 1)),
    (lambda *arrays: simplex.cluster_imbalance(*arrays, 2), whole(3), real(1), real(3)),
    (simplex.reshaped_balance, real(3), real(3)), (simplex.reshaped_balance, real(1), real(3, 4)), (sketch.sketch, real(3)),
    (lambda x: spectral.leading_directions(x, 2), real(3)),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "arrays"), [(case[0], case[1:]) for case in CASES], ids=range(len(CASES)))
def test_shapes_that_do_not_belong_together_are_refused(kernel, arrays):
    with pytest.raises(AssertionError, match="Assertion"):
        jax.eval_shape(kernel, *arrays)
