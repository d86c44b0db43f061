"""A compacted topic that is read as a table."""

import pytest

from ottla.connect.topic_table import TableTopic, TopicTable
from ottla.testing import InProcessBroker

TOPIC = TableTopic("config.storage.topic", "table", 2, 1, {})


@pytest.fixture
def table():
    """A table that is followed, and what it has read."""
    read = []
    with InProcessBroker() as broker:
        following = TopicTable(TOPIC, {"bootstrap.servers": broker.bootstrap_servers}, read.append)
        following.start()
        following.read = read
        yield following
        following.close()


def test_what_was_written_is_read_when_it_is_refreshed(table):
    """A refresh is done when all that is in the topic was given on."""
    table.write([(b"a", b"1"), (b"b", b"2"), (b"a", None)], 10_000)
    table.refresh().result(30)

    assert {each.key: each.value for each in table.read} == {b"a": None, b"b": b"2"}


def test_refresh_ends_where_the_topic_has_become_shorter(table, monkeypatch):
    """Ends that were there before an unclean election, or in a topic that was made again."""
    consumer = table._consumer
    found = consumer.end_offsets
    asked = []

    def ends(partitions):
        asked.append(partitions)
        lost = 3 if len(asked) == 1 else 0
        return {place: end + lost for place, end in found(partitions).items()}

    monkeypatch.setattr(consumer, "end_offsets", ends)
    table.write([(b"a", b"1")], 10_000)
    table.refresh().result(30)

    assert [each.key for each in table.read] == [b"a"]
    assert len(asked) > 1
