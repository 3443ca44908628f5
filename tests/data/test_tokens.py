"""Tokens that are made from the data: characters and words."""

from cfljax.data import tokens

TEXTS = [
    "the cat sat on the mat; the cat's hat",
    "that is the thing: the the the",
    "naïve café – 12 12 121",
    "a man at the market\nthanks them",
]


def test_a_text_and_back():
    learned = tokens.learn_tokens("characters", TEXTS)
    for text in TEXTS:
        numbers = learned.encode(text)
        assert tokens.decode_tokens(learned.table(), [tokens.PADDING, *numbers]) == text
        assert tokens.UNKNOWN not in numbers and max(numbers) < len(learned.names)


def test_words_and_marks_are_tokens_the_commonest_first():
    learned = tokens.learn_tokens("words", TEXTS)
    assert learned.names[:3] == ["<padding>", "<unknown>", "the"]
    assert [learned.names[n] for n in learned.encode("the cat's hat; mat")] == ["the", "cat's", "hat", ";", "mat"]
    assert learned.encode("the dog") == [2, tokens.UNKNOWN]
    assert learned.encode(["the", "dog", "is"])[:2] == [2, tokens.UNKNOWN]
    few = tokens.learn_tokens("words", TEXTS, 4)
    assert len(few.names) == 4 and few.names == learned.names[:4]


def test_what_the_training_texts_lack_is_unknown():
    for kind in tokens.TOKEN_KINDS:
        assert set(tokens.learn_tokens(kind, ["aaaa"]).encode("zzz")) == {tokens.UNKNOWN}
