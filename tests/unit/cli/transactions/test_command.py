"""Which options of `ottla transactions` belong to which action."""

import pytest


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("describe", "missing required option --transactional-id"),
        ("describe-producers --topic t", "missing required option --partition"),
        ("abort --partition 1 --start-offset 3", "missing required option --topic"),
        ("abort --topic t --partition 1", "the transaction to abort is named by --start-offset"),
        (
            "abort --topic t --partition 1 --start-offset 3 --producer-id 5",
            "option --start-offset cannot be used with option --producer-id",
        ),
        (
            "abort --topic t --partition 1 --producer-id 5 --producer-epoch 1",
            "missing required option --coordinator-epoch",
        ),
        ("find-hanging", "find-hanging needs --topic or --broker-id"),
        ("find-hanging --partition 3", "option --partition needs --topic"),
        ("list --topic t", "option --topic cannot be used with list"),
        ("force-terminate", "missing required option --transactional-id"),
        ("forget", "not 'forget'"),
    ],
)
def test_options_that_do_not_fit_are_refused(transactions, words, complaint):
    """With the option's name, before any broker is asked."""
    outcome = transactions(*words.split())

    assert outcome.status == 1
    assert complaint in outcome.err
    assert outcome.out == ""
