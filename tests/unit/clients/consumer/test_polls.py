"""Readers that poll up to the ends of their partitions."""

from __future__ import annotations

import pytest

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition
from ottla.clients.consumer.polls import polls_up_to
from ottla.errors import ErrorCode
from ottla.testing import InProcessBroker

PLACE = TopicPartition("pages", 0)


@pytest.fixture
def broker():
    """A broker with a topic of ten records."""
    with InProcessBroker(auto_create_topics_enable="false") as broker:
        fill(broker, 10)
        yield broker


@pytest.fixture
def consumer(broker):
    """A consumer that begins with the first record."""
    settings = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
    with Consumer(broker.bootstrap_servers, **settings) as consumer:
        consumer.assign([PLACE])
        yield consumer


def fill(broker, count: int) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("pages", 1)])
    with Producer(broker.bootstrap_servers) as producer:
        producer.send_values("pages", [b"v"] * count).result(60)


def delete(broker) -> None:
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_topics(["pages"])


def read(consumer, ends, start=0) -> list[int]:
    consumer.seek(PLACE, start)
    return [each.offset for some in polls_up_to(consumer, ends, 200) for each in some]


@pytest.mark.parametrize("count", [0, 3])
def test_topic_that_is_shorter_by_now_is_read_to_its_end(broker, consumer, count):
    """It was deleted and created again since the ends were asked for."""
    ends = consumer.end_offsets([PLACE])
    delete(broker)
    fill(broker, count)
    assert read(consumer, ends) == list(range(count))


def test_topic_that_is_gone_is_an_error(broker, consumer):
    """Nothing more would come."""
    ends = consumer.end_offsets([PLACE])
    delete(broker)
    with pytest.raises(KafkaError) as raised:
        read(consumer, ends)
    assert raised.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_up_to_the_ends_are_read(broker, consumer):
    """All of them, once; none where the positions are there already."""
    ends = consumer.end_offsets([PLACE])
    assert read(consumer, ends) == list(range(10))
    assert read(consumer, ends, 10) == []


def test_records_that_are_deleted_meanwhile_end_the_reader(broker, consumer):
    """The log begins where it ends."""
    ends = consumer.end_offsets([PLACE])
    with Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({PLACE: 10})
    assert read(consumer, ends) == []
