"""FedAvg and FedProx with fine-tuning (`fedavg_ft`, `fedprox_ft`) against the methods without it,
whose fine-tuning `tests/experiments/test_finetune.py` compares with a plain numpy program."""

import numpy as np
import pytest

from tests.experiments.finetuning import outputs, runs
from tests.often import rarely


@pytest.mark.parametrize(("name", "options"), [rarely("fedavg", {}), ("fedprox", {"mu": 0.9})])
def test_what_is_fine_tuned_is_the_model_of_the_method_without_fine_tuning(name, options):
    uneven, method = (
        {"partition": "quantity", "groups": None},
        {"name": name, "average": "uniform"} | options,
    )
    methods = method, method | {"name": f"{name}_ft"}
    (a,), (b,) = (outputs(runs(each, uneven, {"finetune_steps": 5})) for each in methods)
    assert np.array_equal(a.models, b.models) and a.finetuned == b.finetuned
