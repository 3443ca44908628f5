"""FedBN against a plain numpy program, and resumed."""

from tests import play
from tests.methods.norm import assert_is_plain


def test_batch_statistics_follow_the_plain_program():
    assert_is_plain("fedbn", {})


def test_a_run_of_fedbn_goes_on_from_a_checkpoint_with_the_same_bits():
    saved = []
    (whole,) = play.on_nine(
        "fedbn", [{}], chunk_rounds=2, checkpoint=lambda make: saved.append(make())
    )
    (again,) = play.on_nine("fedbn", [{}], resume=saved[0])
    assert whole.models.tobytes() == again.models.tobytes()
