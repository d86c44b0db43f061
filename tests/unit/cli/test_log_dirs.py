"""`ottla log-dirs` before it asks a broker."""


def test_broker_that_is_not_there_is_one_line_at_once(tool, admin):
    """It would be waited for until the request times out."""
    outcome = tool("log-dirs", "--describe", "--broker-list", "0,8,9")

    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err == "ottla log-dirs: there are no brokers 8, 9\n"


def test_word_for_a_broker_is_refused(tool):
    """The message has the option and what was given; nobody is asked for anything."""
    outcome = tool("log-dirs", "--describe", "--broker-list", "0,one")

    assert outcome.out == ""
    assert "--broker-list takes numbers separated by commas, not '0,one'" in outcome.err
