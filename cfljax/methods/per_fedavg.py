"""Per-FedAvg (Fallah et al. 2020): a global model w from which one step of gradient descent leads
to a good model for each client. That model, w − alpha ∇f_i(w) with the gradient on all training
samples of the client, is scored; the accuracy of w itself is the diagnostic `accuracy_global`.

On each batch a participant takes half of the samples, B1, for the step ahead w' = w − alpha ∇f(w;
B1), and follows the gradient on the other half there: w ← w − η ∇f(w'; B2), with the learning rate
η of the run. So alpha = 0 is FedAvg on half of each batch. Momentum, weight decay and the optimiser
of the run move w. The trained w are averaged.

A newcomer makes its own step on its labelled samples, like every other client. Without samples it
is scored with w.
"""

from __future__ import annotations

import dataclasses

from cfljax.kernels.mix import usable
from cfljax.lazy import jax, jnp
from cfljax.local.train import Gradient, Position, make_stepper, start_at
from cfljax.round.about import About, Reading
from cfljax.round.recipes import Ask, Clustered, GradientAt, OwnSteps, State, StepRule, option
from cfljax.types import Array, Hyper, LocalStep, Model, Tree

ABOUT = About(
    title="Per-FedAvg",
    family="personal",
    authors="Fallah et al.",
    year=2020,
    paper="Personalized federated learning with theoretical guarantees: a model-agnostic "
    "meta-learning approach",
    venue="NeurIPS",
    link="https://arxiv.org/abs/2002.07948",
)
READINGS = (
    Reading(
        "Second derivatives",
        paper="(I − alpha ∇²f(w; B3)) before the gradient, left out (FO), or by differences (HF)",
        here="left out, or the exact product on B1, so that a step follows the gradient of f(w'; "
        "B2) by w",
        option="hessian",
    ),
    Reading(
        "Batches",
        paper="independent",
        here="every second sample of a shuffled batch is in B1, the others are in B2; a single "
        "sample is in both",
    ),
    Reading(
        "Own step",
        paper="on a batch; the program of pFedMe's authors scores after two steps on test samples",
        here="on all training samples, at each evaluation. Results keep w, and `predict` needs "
        "`cluster = 0`",
    ),
    Reading(
        "Weights of the mean",
        paper="uniform; that program weights by samples",
        here="uniform",
        option='average = "samples"',
    ),
)


@dataclasses.dataclass(frozen=True)
class PerFedAvg(Clustered):
    """Per-FedAvg: a global model that each client adapts by one gradient step.

    On each batch a participant takes the step ahead w' = w − alpha ∇f(w; B1) on one half of the
    samples and moves w f32[d] along ∇f(w'; B2), the gradient on the other half. `hessian` adds the
    term of second derivatives. The w are averaged by `average`, and a client is scored after a step
    of length `alpha` on its own training samples.
    """

    publishes_one_sum_per_round = True

    alpha: float = option(
        0.01, "length of a client's own step", low=0.0, traced=True, search=(0.001, 0.1, "log")
    )
    hessian: bool = option(False, "whether steps have the term of second derivatives")
    average: str = option("uniform", "weights of the participants", choices=("samples", "uniform"))

    def adapt(self, ask: Ask, state: State) -> Array:
        """Return f32[C, d]: the global model after a step on all of a client's samples."""
        gradient = ask.gradients(state.models)
        # A client whose gradient is not finite is scored with the global model
        adapted = state.models - ask.hyper["alpha"] * gradient
        return jnp.where(usable(gradient)[:, None], adapted, state.models)

    def steps(self, model: Model, hyper: Hyper, rule: StepRule) -> OwnSteps:
        """Return steps on w. The loss for the report is the loss of w' on B2."""
        move = make_stepper(rule, LocalStep.of(hyper), ())
        alpha = hyper["alpha"]

        def step(gradient: GradientAt, at: Position) -> tuple[Position, Array]:
            w = at.params
            ahead = jax.tree.map(lambda p, g: p - alpha * g, w, gradient(w, 0).grads)
            loss, count, grads = gradient(ahead, 1)
            if self.hessian:
                # (I − alpha H) ∇f(w'; B2), with the Hessian H on B1 times a vector
                _, bent = jax.jvp(lambda params: gradient(params, 0).grads, (w,), (grads,))
                grads = jax.tree.map(lambda g, h: g - alpha * h, grads, bent)
            return move(at, Gradient(loss, count, grads)), loss

        def begin(start: Tree, _: None) -> Position:
            return start_at(rule, start, None)

        def end(at: Position) -> tuple[Tree, None]:
            return at.params, None

        return OwnSteps(begin, step, end)
