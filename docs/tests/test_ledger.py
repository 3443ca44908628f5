"""The ledger names each option that no spec of the repository sets, and why it stays."""

from docs.tests import ledger


def differences(text, unset):
    """What a ledger lacks, and what it should not have."""
    lines = ledger.ledger(text)
    lacks = {each: of - lines[each].owners if each in lines else of for each, of in unset.items()}
    stale = {each: line.owners - unset.get(each, set()) for each, line in lines.items()}
    return {each: of for each, of in lacks.items() if of}, {
        each: of for each, of in stale.items() if of
    }


def test_each_option_that_no_spec_sets_is_there_with_a_reason(monkeypatch):
    unset, text = ledger.unset(monkeypatch), ledger.LEDGER.read_text()
    lacks, stale = differences(text, unset)
    assert not lacks, "set it in a spec, remove it, or say in docs/ledger.md why it stays"
    assert not stale, "a spec sets it, or it is gone: take it out of docs/ledger.md"
    assert all(len(line.reason.split()) >= 3 for line in ledger.ledger(text).values())


def test_options_that_specs_set_are_not_missed(monkeypatch):
    """By a table, a list of names, `[defaults]`, a size, a table in a table, and a view."""
    given = ledger.given(monkeypatch)
    assert (
        {
            ledger.Option("method", "joint", "lam"),
            ledger.Option("method", "ifca", "reseed"),
            ledger.Option("model", "mlp", "hidden"),
            ledger.Option("data set", "blobs", "features"),
            ledger.Option("partition", "rotated", "groups"),
            ledger.Option("data", "", "validation"),
            ledger.Option("data.drift", "", "at"),
            ledger.Option("train.server", "", "name"),
            ledger.Option("train.privacy.choice", "", "epsilon"),
            ledger.Option("train.clock", "", "deadline_s"),
        }
        <= given
        <= ledger.declared() | given
    )
    assert len(given & ledger.declared()) > 200


def test_what_is_missing_or_stale_is_found():
    text = (
        "## Methods\n| `xi` | `ocfl` | a number |\n| `tau` | `moon`, `fedsoft` | a number |\n"
        "## Tables of a spec\n| `train.clock.speed` | a reason |\n"
    )
    unset = {
        ("method", "tau"): {"moon", "fedccfa"},
        ("model", "width"): {"lstm"},
        ("train.clock", "speed"): {""},
    }
    assert differences(text, unset) == (
        {("method", "tau"): {"fedccfa"}, ("model", "width"): {"lstm"}},
        {("method", "xi"): {"ocfl"}, ("method", "tau"): {"fedsoft"}},
    )
