"""What docs/theory.md says of records."""

from pathlib import Path

import numpy as np

from cfljax.results.result import Result, Results

RECORDS = Path(__file__).parents[2] / "experiments" / "records"


def test_weights_that_balance_the_classes_are_those_with_the_higher_accuracy():
    for folder in ("rfedavg_fig2", "rfedavg_fig2_1"):
        results, found = Results(RECORDS / folder), {}
        for row in results.rows:
            if row["config"]["data"]["classes_per_client"] == 1:
                run = Result(*results.store.read(row["id"]))
                found[row["label"]] = (
                    np.mean(run.diag["ccs_rfedavg/balance_error"]),
                    run.summary["accuracy_last"],
                )
        error = {name: values[0] for name, values in found.items()}
        assert error["optimal"] < error["rfedavg"] < error["fedavg"] / 3
        assert (
            found["rfedavg"][1] > found["fedavg"][1] + 0.05
            and abs(found["optimal"][1] - found["rfedavg"][1]) < 0.005
        )
