"""Every type that modules share, with shapes. One letter per axis everywhere:
C clients, S participants (cohort), K clusters, N samples of a client, d parameters, R runs, P pool rows, T rows of a split.
"""

from cfljax.types.arrays import Array, Hyper, Tree, on_host
from cfljax.types.federation import Cohort, Federation, Grams, Parts, Pool, Source, Split, View
from cfljax.types.method import Info, Init, Method, Mixture, Models, Regroup, Round, Score, Setup, Traffic
from cfljax.types.training import Forward, Jobs, LocalStep, Model, OfLogits, Plan, Updates

__all__ = [
    "Array", "Cohort", "Federation", "Forward", "Grams", "Hyper", "Info", "Init", "Jobs", "LocalStep", "Method", "Mixture",
    "Model", "Models", "OfLogits", "Parts", "Plan", "Pool", "Regroup", "Round", "Score", "Setup", "Source", "Split",
    "Traffic", "Tree", "Updates", "View", "on_host",
]  # fmt: skip
