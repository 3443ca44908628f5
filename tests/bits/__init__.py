"""Whether results keep their bits: small specs are played with the package of an earlier commit and with that of the working tree.

python -m tests.bits [--quick] [--only "PATTERN"] [--part K/N] [--cache DIR] [--list]
"""

EXPECTED = (
    {
        "*/fesem* *": (None, "FeSEM is as its authors' program has it, and FedGroup's program is fesem_flexcfl"),
        "*/pacfl* *": (
            None,
            "PACFL's default is a published distance, and ours an option; distances other than vectors go by client",
        ),
    }
    | {
        f"* summary/{name}_at_best_val": (None, "new: what tables show beside the accuracy, of the same evaluation")
        for name in ("accuracy_worst10", "ari", "nmi", "clusters")
    }
    | {
        f"*/{name}* *": (None, "new: the method")
        for name in ("ocfl_zuziak", "cfl_gp", "sr_fca", "fedgwc", "adaptive_fedavg", "fedrod", "wecfl", "flux")
    }
    | {"clock/* *_s": (1e-6, "simulated seconds: the devices of a round come with the cohort, and XLA adds in another order")}
    | {"*/cnn_of_batches/* *": (None, "new: batch normalisation")}
    | {f"*/{name}* *": (None, "new: the method") for name in ("moon", "fedala", "fedproto", "fedpac", "fedccfa", "fed*_ft")}
)
"""What may differ, and why: "SPEC ARRAY" -> (tolerance, reason), both with * and ? as in names of files. Numbers may be off by the
tolerance, absolute or relative; with None an array may be anything, or be absent. For example:

    "server_*/ifca models": (1e-6, "the server's step is a program of its own")
"""
