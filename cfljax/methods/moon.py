"""MOON (Li et al. 2021): FedAvg whose clients keep the features of their samples near to the global
model's features, and away from their last model's.

Let z be the features of a sample under the trained model, z_g those under the global model w that
the client was sent, and z_p those under the model that it had when it last trained. With a = cos(z,
z_g) / tau and b = cos(z, z_p) / tau, the loss of a sample is ℓ − mu · log(e^a / (e^a + e^b)).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from cfljax.lazy import jax, jnp
from cfljax.local.train import Position, make_stepper, start_at
from cfljax.models.features import with_features
from cfljax.round.about import BY_SAMPLES, About, Reading
from cfljax.round.recipes import AVERAGES, AtHome, GradientAt, OwnSteps, StepRule, option
from cfljax.types import Array, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="MOON",
    family="global",
    authors="Li et al.",
    year=2021,
    paper="Model-contrastive federated learning",
    venue="CVPR",
    link="https://arxiv.org/abs/2103.16257",
)
READINGS = (
    Reading(
        "Features",
        paper="outputs of a projection of two layers that is added to the body",
        here="what the head gets, as in PFLlib, so that all methods have the same model",
    ),
    Reading(
        "Client that has not trained",
        paper="open; its program leaves the term out, and later takes a random model",
        here="the first global model, for which the gradient of the term is 0 in the first round",
    ),
    Reading(
        "mu",
        paper="the best of 0.1, 1, 5 and 10",
        here="one number",
        option="mu",
    ),
    BY_SAMPLES,
)


@dataclasses.dataclass(frozen=True)
class Moon(AtHome):
    """MOON: FedAvg whose clients keep their features near the global model's, and away from their
    last model's.

    A participant trains the global model f32[d] by ℓ − mu · log(e^a / (e^a + e^b)), where a and b
    are the cosines, over `tau`, of a sample's features with those under the global model and under
    the model that the client had when it last trained, a row of f32[C, d]. `mu` is the weight of
    the contrast, and `average` says how models are averaged.
    """

    own = False
    own_steps = True
    places_unlabelled = True

    # Worth trying: the values of the paper, which takes the best of them
    mu: float = option(
        1.0, "weight of the contrast", low=0.0, traced=True, search=(0.1, 1.0, 5.0, 10.0)
    )
    tau: float = option(0.5, "temperature of the contrast", above=0.0, traced=True)
    average: str = option("samples", "weights of the participants", choices=AVERAGES)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps on the model that was sent; afterwards it is the last model."""
        move = make_stepper(rule, LocalStep.of(hyper), ())
        both, width = with_features(model)

        def begin(start: Tree, home: Array) -> Carry:
            return Carry(start_at(rule, start, None), start, model.unravel(home))

        def step(gradient: GradientAt, at: Carry) -> tuple[Carry, Array]:
            # The contrast is a further output, so that the loss of a sample has it
            def forward(
                params: Tree, x: Array, key: Array | None = None, mask: Array | None = None
            ) -> Array:
                made = both(params, x, key, mask)

                def cosines(other: Tree) -> Array:
                    # Of `made` in each of the two: the order of sums in its gradient decides bits
                    theirs = both(other, x, key)
                    return jnp.sum(_to_unit(made[:, :width]) * _to_unit(theirs[:, :width]), axis=1)

                near = cosines(at.sent)
                far = cosines(at.last)
                # −log(e^a / (e^a + e^b)) = softplus(b − a)
                contrast = jax.nn.softplus((far - near) / hyper["tau"])
                return jnp.column_stack([made, hyper["mu"] * contrast])

            def loss(made: Array, y: Array) -> Array:
                return model.loss(made[:, width:-1], y) + made[:, -1]

            contrasted = model._replace(forward=forward, loss=loss)
            found = gradient(at.position.params, of=contrasted)
            return at._replace(position=move(at.position, found)), found.loss

        def end(at: Carry) -> tuple[Tree, Array]:
            return at.position.params, model.ravel(at.position.params)

        return OwnSteps(begin, step, end)


class Carry(NamedTuple):
    """What the steps of a client carry."""

    position: Position
    # The global model that was sent
    sent: Tree
    # The model that the client had when it last trained
    last: Tree


def _to_unit(z: Array) -> Array:
    """Scale the rows f32[n, width] to length 1."""
    return z * jax.lax.rsqrt(jnp.maximum(jnp.sum(z * z, axis=1, keepdims=True), 1e-16))
