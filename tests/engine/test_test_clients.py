"""`train.test_clients_choose`: on what a client that never trains chooses its model, and on what it is scored."""

import cfljax

DATA = {"name": "blobs", "samples": 300, "partition": "label_permutation", "clients": 6, "test_clients": 3, "test": "own"}


def scored(choice):
    run = cfljax.run("ifca", data=DATA, model="mclr", rounds=2, clusters=2, test_clients_choose=choice, seed=0)
    return run.client_accuracy, run.summary


def test_whoever_chooses_on_half_of_the_samples_is_scored_on_the_other(tmp_path):
    (whole, _), (rest, _) = scored("test_loss"), scored("holdout")
    train, never = slice(0, 6), slice(6, 9)
    assert (whole[train] == rest[train]).all() and (whole[never] != rest[never]).any()
