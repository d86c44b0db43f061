"""The clients' settings and the rules between them."""

from __future__ import annotations

import re

import pytest

from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("given", "expected"), [("all", -1), ("-1", -1), (-1, -1), (0, 0), ("1", 1), (1, 1)]
)
def test_acks_is_a_number_in_the_end(given, expected):
    """Words and numbers, as Kafka takes them."""
    assert ProducerConfig.parse(acks=given).acks == expected


def test_idempotence_gives_way_to_other_settings():
    """It is on unless something was chosen that it does not go with."""
    assert ProducerConfig().enable_idempotence
    assert not ProducerConfig.parse(acks=1).enable_idempotence
    assert not ProducerConfig.parse(retries=0).enable_idempotence
    assert not ProducerConfig.parse(max_in_flight_requests_per_connection=6).enable_idempotence


def test_idempotence_that_was_asked_for_does_not_give_way():
    """Then the other setting is wrong."""
    with pytest.raises(ConfigError, match=r"acks=1: does not go with enable\.idempotence"):
        ProducerConfig.parse(acks=1, enable_idempotence=True)


@pytest.mark.parametrize(
    "settings",
    [{"acks": 1}, {"enable_idempotence": False}, {"transactional_id": ""}],
    ids=["acks", "idempotence", "no name"],
)
def test_transactions_need_a_name_and_idempotence(settings):
    """Nothing is switched off behind the back of a producer with transactions."""
    assert ProducerConfig.parse(transactional_id="till").transactional_id == "till"
    with pytest.raises(ConfigError, match=r"transactional\.id"):
        ProducerConfig.parse(**{"transactional_id": "till", **settings})


def test_delivery_timeout_leaves_room_for_one_try():
    """A default grows to leave the room; a value set by hand is refused."""
    config = ProducerConfig.parse(linger_ms=100_000, request_timeout_ms=30_000)

    assert config.delivery_timeout_ms == 130_000
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms=10"):
        ProducerConfig.parse(delivery_timeout_ms=10)


def test_callables_pass_as_they_are():
    """Serializers, partitioners and interceptors are objects of the program."""
    config = ProducerConfig.parse(
        value_serializer=str.encode, partitioner_class=min, interceptor_classes=[max]
    )

    assert config.value_serializer == str.encode
    assert config.partitioner_class is min
    assert config.interceptor_classes == (max,)


def test_heartbeats_are_more_frequent_than_the_session_is_long():
    """Otherwise every member would be thrown out."""
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms=45000"):
        ConsumerConfig.parse(heartbeat_interval_ms=45_000)


def test_consumer_without_a_group_commits_nothing_by_itself():
    """There is nobody to commit for."""
    assert ConsumerConfig.parse(group_id="g").enable_auto_commit
    assert not ConsumerConfig().enable_auto_commit


@pytest.mark.parametrize("servers", ["localhost", "a:1,b", "a:0", "a:x", ":9092"])
def test_bootstrap_servers_are_host_and_port(servers):
    """Each of them, in all clients."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        AdminConfig.parse({"bootstrap.servers": servers})


@pytest.mark.parametrize("protocol", ["SASL", "TLS", "ssl"])
def test_security_protocol_that_is_not_there_is_refused(protocol):
    """A client must not talk in the clear where it was told not to."""
    with pytest.raises(ConfigError, match=rf"security\.protocol={protocol}: .* PLAINTEXT, SSL"):
        AdminConfig.parse({"security.protocol": protocol})


@pytest.mark.parametrize("table", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_tables_and_lists_of_unused_names_do_not_overlap(table):
    """A key that is acted on is not called unused."""
    assert not set(table.keys) & set(table.unused)


@pytest.mark.parametrize("table", [ProducerConfig, ConsumerConfig, AdminConfig])
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("sasl.mechanism", "PLAIN", "PLAIN"),
        ("sasl.jaas.config", 'PlainLoginModule required password="SESAME";', "[hidden]"),
        ("sasl.username", "alice", "alice"),
        ("sasl.password", "SESAME", "[hidden]"),
    ],
)
def test_credentials_that_would_not_be_used_are_refused(table, name, value, shown):
    """A client that was to log in must not connect as nobody; the secret is not shown."""
    expected = re.escape(f"{name}={shown}: must not be set with security.protocol=PLAINTEXT")
    with pytest.raises(ConfigError, match=expected) as caught:
        table.parse({name: value})

    assert "SESAME" not in caught.value.message


@pytest.mark.parametrize("table", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_credentials_at_kafkas_defaults_pass(table):
    """They ask for nothing."""
    table.parse({"sasl.mechanism": "GSSAPI", "sasl.jaas.config": None, "ssl.provider": ""})


@pytest.mark.parametrize("table", [ProducerConfig, ConsumerConfig, AdminConfig])
def test_misspelt_protocol_does_not_fall_back_to_plaintext(table):
    """security.protocl=SSL is no warning beside a connection in the clear."""
    with pytest.raises(ConfigError, match=r"did you mean security\.protocol\?"):
        table.parse({"security.protocl": "SSL"})


def test_one_dict_serves_producer_and_consumer():
    """What is the other one's setting is passed over, not taken for a misspelt one."""
    ProducerConfig.parse({"value.deserializer": bytes, "group.id": "g"})
    ConsumerConfig.parse({"value.serializer": str.encode, "batch.size": "1"})


NAMES = {
    "client.id": AdminConfig,
    "transactional.id": ProducerConfig,
    "group.id": ConsumerConfig,
    "group.instance.id": ConsumerConfig,
    "client.rack": ConsumerConfig,
}


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("name", ["\ud800", "a\udcff", "x" * 32_768, "\u20ac" * 10_923])
def test_name_for_which_requests_have_no_room_is_refused(key, name):
    """Nothing could be sent, and each try would end a task with a traceback."""
    servers = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
    with pytest.raises(ConfigError, match=f"^INVALID_CONFIG: {key}=.*: must be text of at most"):
        NAMES[key].parse({**servers, key: name})
    assert NAMES[key].parse({**servers, key: name[:10] if name.isascii() else "\u20ac"})
