"""A compacted topic that is read as a table."""

import pytest

from ottla import Admin, NewTopic
from ottla.connect.topic_table import FENCED, TableTopic, TopicTable
from ottla.errors import KafkaError
from ottla.structs import TRANSACTION_VERSION
from ottla.testing import InProcessBroker, wait_until

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


@pytest.mark.parametrize("is_made_by_a_broker", [True, False])
def test_topic_that_was_deleted_is_followed_again(table, is_made_by_a_broker):
    """With fewer partitions every refresh failed, and no task of a source began from then on."""
    table.write([(b"a", b"1")], 10_000)
    table.refresh().result(30)

    def is_refreshed():
        return table.refresh().exception(30) is None

    with Admin(table._settings) as admin:
        admin.delete_topics([TOPIC.name])
        if is_made_by_a_broker:
            admin.create_topics([NewTopic(TOPIC.name, 1)])
        wait_until(is_refreshed, "what there is to be read")
        found = len(admin.describe_topics([TOPIC.name])[TOPIC.name].partitions)
    table.write([(b"b", b"2")], 10_000)
    wait_until(is_refreshed, "what was written to be read")

    assert found == table.partitions == (1 if is_made_by_a_broker else TOPIC.partitions)
    assert [each.key for each in table.read] == [b"a", b"b"]


@pytest.mark.parametrize("level", [0, 2])
def test_writer_whose_transactional_id_has_expired_claims_it_again(level):
    """A leader of workers may have nothing to write for weeks."""
    with InProcessBroker(
        transactional_id_expiration_ms=500,
        transaction_remove_expired_transaction_cleanup_interval_ms=10,
    ) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        if level:
            with Admin(settings) as admin:
                admin.update_features({TRANSACTION_VERSION: level})
        following = TopicTable(TOPIC, settings, lambda record: None, transactional_id="leader")
        following.start()
        following.claim()
        ids = broker.broker.coordinators.transactions.manager
        wait_until(lambda: ids.get("leader") is None, "the id to expire")

        with pytest.raises(KafkaError) as refusal:
            following.write([(b"a", b"1")], 10_000)
        assert refusal.value.error in FENCED
        write_as_the_leader(following)
        following.close()


def write_as_the_leader(table):
    """A transaction may take longer than its id lives: as often as it takes."""
    for _ in range(100):
        table.claim()
        try:
            table.write([(b"a", b"1")], 10_000)
        except KafkaError as error:
            if error.error not in FENCED:
                raise
        else:
            return
    raise AssertionError("it was never written")
