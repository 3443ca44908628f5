"""The names of the numbers that the engine itself records."""

from cfljax.quantity import Quantity

HISTORY = {
    "round": Quantity("round"),
    "accuracy": Quantity("accuracy", "share"),
    "accuracy_worst10": Quantity("accuracy of the worst tenth of the clients", "share"),
    "accuracy_client_mean": Quantity("accuracy, mean over clients", "share"),
    "accuracy_client_std": Quantity("accuracy, spread between clients", "share"),
    "accuracy_clusters": Quantity("accuracy inside each cluster", "share"),
    "accuracy_newcomers": Quantity("accuracy of clients that came late", "share"),
    "accuracy_train_clients": Quantity("accuracy of clients that train", "share"),
    "accuracy_test_clients": Quantity("accuracy of clients that never train", "share"),
    "val_accuracy": Quantity("validation accuracy", "share"),
    "val_loss": Quantity("validation loss"),
    "loss": Quantity("test loss"),
    "rmse": Quantity("test RMSE"),
    "val_rmse": Quantity("validation RMSE"),
    "train_loss": Quantity("training loss"),
    "discrepancy": Quantity("distance of trained models from their cluster's"),
    "purity": Quantity("purity"),
    "ari": Quantity("adjusted Rand index"),
    "nmi": Quantity("normalised mutual information"),
    "clusters": Quantity("clusters"),
    "scored": Quantity("clients scored"),
    "nonfinite": Quantity("updates left out"),
    "bytes": Quantity("bytes sent", "bytes"),
    "bytes_up": Quantity("bytes that clients sent", "bytes"),
    "bytes_down": Quantity("bytes that clients received", "bytes"),
    "groups_changed": Quantity("clients that changed their group"),
    "clock_s": Quantity("simulated time", "s"),
    "device_s": Quantity("time of all devices", "s"),
    "late": Quantity("participants left out for being late"),
    "staleness": Quantity("steps that updates were late, mean so far"),
}
"""The columns of the history, and `bytes`, the sum of both directions."""

DIAGNOSTICS = {
    "applied": Quantity("updates that have arrived, by cluster"),
    "waited_s": Quantity("waiting of each cluster's members", "s"),
    "mixture_of_groups": Quantity("weights of the models, mean of each true group", "share"),
    "mixture_of_clients": Quantity("weights of the models, by client", "share"),
    "cluster_of_client": Quantity("cluster of each client that has parts of its own"),
}
"""The diagnostics that are no single method's own."""
