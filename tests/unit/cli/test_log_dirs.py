"""`ottla log-dirs`: what it refuses before it asks a broker, and its table."""

from ottla.clients.admin.log_dirs import LogDirDescription, ReplicaInfo
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition


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


def test_topics_are_shown_with_their_share_of_the_disk(tool, admin):
    """--format: a row for each topic in a directory, the largest first."""
    sizes = {("small", 0): 1, ("large", 0): 600, ("large", 1): 400}
    replicas = {
        TopicPartition(*partition): ReplicaInfo(size, 0, False) for partition, size in sizes.items()
    }
    admin.log_dirs[0] = {"/data": LogDirDescription(ErrorCode.NONE, replicas, total_bytes=10_000)}

    outcome = tool("log-dirs", "--describe", "--format", "table")

    header, *rows = outcome.lines
    assert header.split("  ")[-1] == "MOVING"
    assert [line.split() for line in rows] == [
        ["0", "/data", "large", "2", "1,000", "10.00%", "0", "no"],
        ["0", "/data", "small", "1", "1", "0.01%", "0", "no"],
    ]
