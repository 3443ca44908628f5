"""What a pass of a model keeps in memory, from its jaxpr: by hand for small functions."""

import jax
import jax.numpy as jnp

from cfljax.config import read_spec
from cfljax.experiment import assemble
from cfljax.experiment.needs import in_tiles
from cfljax.local import live

B, N = 16, 8
X, W = jax.ShapeDtypeStruct((B, N), jnp.float32), jax.ShapeDtypeStruct((N, N), jnp.float32)
ONE = 4 * B * N


def deep(x, *kernels):
    for w in kernels:
        x = jnp.tanh(x @ w)
    return jnp.sum(x)


def test_a_forward_pass_has_one_layer_and_the_next_at_a_time():
    # a product, its tanh, which the next product reads, and what that makes
    assert live.most(deep, X, W) == ONE
    assert live.most(deep, X, W, W) == live.most(deep, X, *[W] * 9) == 3 * ONE


def test_a_backward_pass_needs_what_every_layer_leaves():
    step = lambda layers: live.most(jax.grad(lambda kernels, x: deep(x, *kernels)), [W] * layers, X)  # noqa: E731
    assert [step(layers) for layers in (1, 2, 7)] == [2 * ONE, 4 * ONE, 14 * ONE]  # products, and their tanh


def test_joined_operations_have_no_memory_of_their_own():
    assert live.most(lambda x: jnp.exp(x) + jnp.sin(x) * 2, X) == 0
    whole = lambda x: jnp.sum(jnp.exp(x) * jnp.sin(x), 1)  # noqa: E731
    assert live.most(lambda x: whole(x) + 1, X) == 4 * B
    assert live.most(whole, X) == 0  # results are counted elsewhere


def test_the_same_operation_is_done_once():
    def by_turns(one, other):
        return jnp.sum(one @ one.T) + jnp.sum(other @ other.T) + jnp.sum(one @ one.T) + jnp.sum(other @ other.T)

    same = live.most(lambda x: by_turns(jnp.exp(x), jnp.exp(x)), X)
    assert live.most(lambda x: by_turns(jnp.exp(x), jnp.exp(-x)), X) > same + ONE - 8  # sums of four bytes begin and end between


def test_a_loop_keeps_what_it_stacks_and_has_its_body_besides():
    def cells(x, w):
        step = lambda hidden, _: (jnp.tanh(hidden @ w), hidden @ w)  # noqa: E731
        return jnp.tanh(jax.lax.scan(step, x, None, 5)[1])

    def alone(x, w):
        return jnp.tanh(x @ w), x @ w

    assert live.most(cells, X, W) >= 6 * ONE + live.most(alone, X, W)


def test_branches_for_a_cpu_are_left_out():
    small, large = lambda x: jnp.tanh(x @ x.T), lambda x: jnp.tanh(jnp.concatenate([x, x]) @ x.T)[:B]
    chosen = live.most(lambda x: jax.lax.platform_dependent(x, cpu=large, default=small), X)
    assert chosen == live.most(small, X) < live.most(large, X)
    chosen = lambda x: jax.lax.platform_dependent(x, cpu=small, cuda=large, default=small)  # noqa: E731
    assert live.most(chosen, X) == live.most(large, X)
    assert live.most(chosen, X, layout=live.Layout("tpu")) == live.most(small, X)


def test_images_fill_lines_of_a_tpu_and_sequences_are_turned():
    assert in_tiles((50, 32, 32, 16), 4, True, False) == 4 * 128 * 32 * 32 * 16
    assert in_tiles((20, 32, 32, 60), 4, True, False) == 4 * 24 * 32 * 32 * 128
    assert in_tiles((50, 4, 80, 80), 4, False, False) == 4 * 50 * 4 * 80 * 80
    assert in_tiles((80, 10, 200), 4, False, True) == 4 * 80 * 16 * 256
    assert in_tiles((50, 10), 4, True, False) == 4 * 50 * 128
    assert in_tiles((50,), 4, True, False) == 200 and in_tiles((), 4, False, False) == 4


def test_on_a_tpu_squares_of_pooling_are_written_and_stacks_of_loops_copied():
    tiles = live.Layout(tiles=True)
    spread = lambda x: jnp.sum(jnp.tanh(x)[:, None, :, None, None] * jnp.ones((1, 4, 1, 2, 3)), (1, 3, 4)).T  # noqa: E731
    assert live.most(spread, X) < 24 * ONE <= live.most(spread, X, layout=tiles)
    stacks = lambda x, w: jnp.sum(jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), h), x, None, 5)[1] @ w)  # noqa: E731
    assert live.most(stacks, X, W) + 5 * ONE == live.most(stacks, X, W, layout=tiles)


def test_a_deeper_network_takes_more_for_a_step():
    steps, looks = [], []
    for hidden in ([64], [64] * 4):
        data, model = {"name": "digits", "partition": "iid", "clients": 4}, {"name": "mlp", "hidden": hidden}
        run = read_spec({"data": data, "model": model, "method": ["fedavg"], "train": {"rounds": 1}}).runs()[0]
        federation = assemble.host_federation(run)
        model = assemble.model_of(run, federation)
        steps.append(live.of_step(model, federation, 10))
        looks.append(live.of_look(model, federation, 10))
    assert steps[1] > 2 * steps[0] and all(look < step for look, step in zip(looks, steps, strict=True))
