"""The verifiable clients, against a broker in this process: each event is a line of JSON."""

import json

import pytest

from ottla import Consumer, Producer
from ottla.cli.terminal import Clients


@pytest.fixture
def servers(ottla_fresh_broker, clients):
    """The address of a broker; commands get real clients."""
    real = Clients()
    clients.admin, clients.producer, clients.consumer = real.admin, real.producer, real.consumer
    return ottla_fresh_broker.bootstrap_servers


def events(outcome):
    """The events in order, without their times, which come first."""
    assert outcome.status == 0, outcome.err
    found = [json.loads(line) for line in outcome.lines]
    assert all(list(event)[:2] == ["timestamp", "name"] for event in found)
    for event in found:
        assert event.pop("timestamp") > 1_600_000_000_000
    return found


def test_producer_prints_what_was_acknowledged(ottla, servers, ottla_fresh_broker):
    """Each number with its place, then the end and the counts."""
    words = ("--topic", "t", "--max-messages", 3, "--repeating-keys", 2, "--value-prefix", 7)
    first, *sent, end, data = events(
        ottla("verifiable-producer", "--bootstrap-server", servers, *words)
    )

    assert first == {"name": "startup_complete"}
    assert sent == [
        {
            "name": "producer_send_success",
            "key": str(number % 2),
            "value": f"7.{number}",
            "topic": "t",
            "partition": 0,
            "offset": number,
        }
        for number in range(3)
    ]
    assert end == {"name": "shutdown_complete"}
    assert data.pop("avg_throughput") > 0
    assert data == {"name": "tool_data", "sent": 3, "acked": 3, "target_throughput": -1}
    assert [record.value for record in ottla_fresh_broker.records("t")] == [b"7.0", b"7.1", b"7.2"]


def test_records_have_the_time_that_is_asked_for(ottla, servers, ottla_fresh_broker):
    """The first one that time, the others later; without a key the key is null."""
    words = ("--topic", "t", "--max-messages", 2, "--message-create-time", 1_500_000_000_000)
    found = events(ottla("verifiable-producer", "--broker-list", servers, *words, "--acks", 1))

    assert [event["key"] for event in found if "key" in event] == [None, None]
    times = [record.timestamp_ms for record in ottla_fresh_broker.records("t")]
    assert 1_500_000_000_000 <= times[0] <= times[1] < 1_500_000_600_000


def test_producer_prints_what_was_refused(ottla, servers, ottla_fresh_broker):
    """A record that is not taken is an event, not the end."""
    ottla_fresh_broker.create_topic("t", max_message_bytes="10")
    words = ("--topic", "t", "--max-messages", 2)
    found = events(ottla("verifiable-producer", "--bootstrap-server", servers, *words))

    refused = [event for event in found if event["name"] == "producer_send_error"]
    assert [(event["value"], event["topic"]) for event in refused] == [("0", "t"), ("1", "t")]
    assert all(event["exception"].startswith("class ") for event in refused)
    assert found[-1]["acked"] == 0


def test_consumer_prints_partitions_records_and_commits(ottla, servers):
    """It stops after so many records, and has committed these and no more."""
    with Producer(servers) as producer:
        for number in range(5):
            producer.send("t", str(number), key=b"k")
    words = ("--topic", "t", "--group-id", "g", "--max-messages", 3, "--verbose")
    found = events(ottla("verifiable-consumer", "--bootstrap-server", servers, *words))

    place = {"topic": "t", "partition": 0}
    assert found[:2] == [
        {"name": "startup_complete"},
        {"name": "partitions_assigned", "partitions": [place]},
    ]
    assert found[2] == {"name": "record_data", "key": "k", "value": "0", **place, "offset": 0}
    consumed = next(event for event in found if event["name"] == "records_consumed")
    assert consumed == {
        "name": "records_consumed",
        "count": 3,
        "partitions": [{**place, "count": 3, "minOffset": 0, "maxOffset": 2}],
    }
    committed = [event for event in found if event["name"] == "offsets_committed"]
    assert committed == [
        {"name": "offsets_committed", "offsets": [{**place, "offset": 3}], "success": True}
    ]
    assert found[-1] == {"name": "shutdown_complete"}
    with Consumer(servers, group_id="g", topics=["t"]) as consumer:
        assert [record.value for record in consumer.poll(30_000)] == [b"3", b"4"]


@pytest.mark.parametrize(
    "words",
    [
        ("--group-protocol", "CONSUMER"),
        ("--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor"),
        ("--enable-autocommit", "--group-instance-id", "one"),
    ],
)
def test_consumer_is_a_member_of_any_kind(ottla, servers, words):
    """Both protocols, an assignor by Kafka's class, a static member."""
    with Producer(servers) as producer:
        producer.send("t", b"x")
    usual = ("--topic", "t", "--group-id", "g", "--max-messages", 1)
    found = events(ottla("verifiable-consumer", "--bootstrap-server", servers, *usual, *words))

    assert sum(event["name"] == "records_consumed" for event in found) == 1
    assert any(event["name"] == "offsets_committed" for event in found) == (
        "--enable-autocommit" not in words
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("verifiable-producer",), "missing required option --topic"),
        (("verifiable-consumer", "--topic", "t"), "missing required option --group-id"),
        (("verifiable-producer", "--acks", "2"), "--acks may be -1, 0, 1, not '2'"),
    ],
)
def test_options_are_checked(ottla, words, complaint):
    """One line says what is missing or wrong."""
    assert complaint in ottla(*words).err
