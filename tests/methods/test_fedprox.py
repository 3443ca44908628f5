"""FedProx against a plain numpy program."""

from tests.methods.baselines import assert_is_plain


def test_one_global_model():
    assert_is_plain("fedprox", {"mu": 0.8}, local={"mu": 0.8})
