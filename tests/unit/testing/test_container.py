"""`KafkaContainer`: the methods of testcontainers-python's, without Docker."""

from __future__ import annotations

import kafka
import pytest

from ottla.runtime.free_port import free_port
from ottla.testing import KafkaContainer

TOPIC = kafka.TopicPartition("test-topic", 0)


def send_and_count(server: str) -> int:
    """As suites with testcontainers do: send a record, and ask for the end of the partition."""
    producer = kafka.KafkaProducer(bootstrap_servers=[server])
    producer.send(TOPIC.topic, b"verification message")
    producer.flush()
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=[server])
    consumer.assign([TOPIC])
    end = consumer.end_offsets([TOPIC])[TOPIC]
    consumer.close()
    return end


@pytest.mark.parametrize("kind", ["plain", "kraft", "port"])
def test_a_suite_for_testcontainers_runs(kind, sockets_left_open):
    """Both kinds of containers and other ports work, as testcontainers tests its own."""
    container = KafkaContainer(port=9888) if kind == "port" else KafkaContainer()
    if kind == "kraft":
        assert container.with_kraft() is container
        assert container.kraft_enabled
    with container as started:
        server = started.get_bootstrap_server()
        assert server == (
            f"{started.get_container_host_ip()}:{started.get_exposed_port(started.port)}"
        )
        assert send_and_count(server) == 1


def test_a_second_start_is_empty(sockets_left_open):
    """What a container has stored goes with it."""
    container = KafkaContainer("confluentinc/cp-kafka:7.9.0").with_cluster_id("x")
    for _ in range(2):
        container.start(timeout=60)
        assert send_and_count(container.get_bootstrap_server()) == 1
        container.stop(force=True)
    with pytest.raises(RuntimeError, match="not started"):
        container.get_bootstrap_server()


def test_the_environment_has_settings():
    """KAFKA_NUM_PARTITIONS is num.partitions; what makes a container a Kafka has no effect."""
    container = (
        KafkaContainer(env={"KAFKA_NUM_PARTITIONS": "3"})
        .with_env("KAFKA_BROKER_ID", 5)
        .with_envs(
            KAFKA_LISTENERS="PLAINTEXT://0.0.0.0:9093", KAFKA_HEAP_OPTS="-Xmx1g", CLUSTER="x"
        )
        .with_name("kafka")
        .with_exposed_ports(9093)
    )
    with container:
        container.broker.create_topic("t")

        assert container.broker.broker.broker_id == 5
        assert len(container.broker.broker.cache.topic("t").partitions) == 3


def test_a_bound_port_is_the_brokers():
    """A program that has the address in its configuration finds it there."""
    port = free_port("127.0.0.1")
    with KafkaContainer().with_bind_ports(9093, port) as container:
        assert container.get_bootstrap_server() == f"127.0.0.1:{port}"
        assert container.get_exposed_port(9093) == port
        with pytest.raises(ConnectionError, match="port 8080 is not exposed"):
            container.get_exposed_port(8080)


def test_what_needs_a_container_is_refused():
    """The error says what to use instead."""
    container = KafkaContainer()
    with pytest.raises(RuntimeError, match=r"exec: .* use Admin"):
        container.exec("kafka-topics --list")
    with pytest.raises(RuntimeError, match=r"use InProcessBroker\(data_dir\)"):
        container.with_volume_mapping("/a", "/b")
    with pytest.raises(RuntimeError, match="no container in which"):
        container.with_command("sh")
    assert container.get_logs() == (b"", b"")
