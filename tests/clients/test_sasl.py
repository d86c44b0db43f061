"""Every client on SASL listeners: records with each mechanism, and who is refused."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator

import aiokafka
import confluent_kafka
import kafka
import pytest

import ottla
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.errors import ErrorCode, SaslAuthenticationError
from ottla.security.delegation_tokens import DelegationToken
from ottla.testing import InProcessBroker, InProcessCluster, wait_until

LIMIT_S = 60
COUNT = 1000
VALUES = [b"record %d" % number for number in range(COUNT)]
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "alice, =secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")

pytestmark = pytest.mark.usefixtures("sockets_left_open")


class SaslBroker(InProcessBroker):
    """One with a listener for each protocol."""

    def address(self, protocol: str) -> str:
        ends = {end.listener_name: end.port for end in self.broker.end_points}
        return f"localhost:{ends[protocol]}"


@pytest.fixture(scope="module")
def broker(certificates) -> Iterator[SaslBroker]:
    """Alice has a password on each listener; a session lasts a second on REAUTH."""
    names = (*PROTOCOLS, "REAUTH", "PLAINTEXT")
    users = f'{PLAIN_MODULE} required user_alice="{PASSWORD}";'
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "advertised.host.name": "localhost",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,"
        "REAUTH:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.location": certificates.server,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.reauth.connections.max.reauth.ms": "1500",
        "delegation.token.secret.key": "of all brokers",
        **{
            f"listener.name.{name.lower()}.plain.sasl.jaas.config": users
            for name in (*PROTOCOLS, "REAUTH")
        },
    }
    with SaslBroker(**settings) as running:
        with ottla.Admin(running.address("PLAINTEXT")) as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredential("alice", each, PASSWORD) for each in MECHANISMS[1:]]
            )
        yield running


@pytest.fixture(params=[(p, m) for p in PROTOCOLS for m in MECHANISMS], ids="-".join)
def login(request, broker, certificates) -> dict[str, str]:
    """How alice connects, as librdkafka and Ottla have it."""
    protocol, mechanism = request.param
    return settings_of(broker, certificates, protocol, mechanism)


def settings_of(broker, certificates, protocol, mechanism="PLAIN", listener=None):
    return {
        "bootstrap.servers": broker.address(listener or protocol),
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    } | ({"ssl.ca.location": certificates.ca} if protocol == "SASL_SSL" else {})


def ours(login: dict[str, str]) -> dict[str, str]:
    """The same for our own clients."""
    return {name.replace("ssl.ca.", "ssl.truststore."): text for name, text in login.items()}


def topic_of(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


# Records


def test_ottla(login, request):
    """Our producer and consumer."""
    topic = topic_of(request)
    with ottla.Producer(None, ours(login)) as producer:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(LIMIT_S)

    assert read_all(ours(login), topic) == VALUES


def test_librdkafka(login, request):
    """confluent-kafka writes and reads."""
    topic = topic_of(request)
    producer = confluent_kafka.Producer(login)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(LIMIT_S) == 0

    consumer = confluent_kafka.Consumer(
        login | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    wait_until(
        lambda: len(values) == COUNT,
        "all records",
        LIMIT_S,
        meanwhile=lambda: values.extend(m.value() for m in consumer.consume(COUNT, 0.5)),
    )
    consumer.close()
    assert values == VALUES


def test_kafka_python(login, request):
    """kafka-python writes and reads."""
    topic = topic_of(request)
    settings = {
        "bootstrap_servers": login["bootstrap.servers"],
        "security_protocol": login["security.protocol"],
        "sasl_mechanism": login["sasl.mechanism"],
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": login.get("ssl.ca.location"),
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(LIMIT_S)
    producer.close()

    consumer = kafka.KafkaConsumer(
        topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=LIMIT_S * 1000
    )
    values = [record.value for _, record in zip(VALUES, consumer, strict=False)]
    consumer.close()
    assert values == VALUES


def test_aiokafka(login, request):
    """aiokafka writes and reads."""
    topic = topic_of(request)

    async def copy() -> list[bytes]:
        context = None
        if "ssl.ca.location" in login:
            context = ssl.create_default_context(cafile=login["ssl.ca.location"])
        settings = {
            "bootstrap_servers": login["bootstrap.servers"],
            "security_protocol": login["security.protocol"],
            "sasl_mechanism": login["sasl.mechanism"],
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
            "ssl_context": context,
        }
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send(topic, value)
            await producer.flush()
        async with aiokafka.AIOKafkaConsumer(
            topic, **settings, auto_offset_reset="earliest"
        ) as consumer:
            return [(await consumer.getone()).value for _ in VALUES]

    assert asyncio.run(asyncio.wait_for(copy(), LIMIT_S)) == VALUES


def read_all(settings: dict[str, str], topic: str) -> list[bytes]:
    with ottla.Consumer(None, settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        values: list[bytes] = []
        wait_until(
            lambda: len(values) >= COUNT,
            "all records",
            LIMIT_S,
            meanwhile=lambda: values.extend(record.value for record in consumer.poll(500)),
        )
    return values


# Who is refused


def list_topics(settings: dict[str, str]) -> None:
    with ottla.Admin(None, settings) as admin:
        admin.list_topics()


def produce(settings: dict[str, str]) -> None:
    with ottla.Producer(None, settings) as producer:
        producer.send("t", b"x").result(LIMIT_S)


@pytest.mark.parametrize("use", [list_topics, produce])
def test_wrong_password_is_refused(login, use, caplog):
    """With SASL_AUTHENTICATION_FAILED; neither log nor error has the password."""
    caplog.set_level(logging.DEBUG)

    with pytest.raises(SaslAuthenticationError) as caught:
        use(ours(login) | {"sasl.password": "SESAME"})

    assert caught.value.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "SESAME" not in caplog.text + str(caught.value)
    assert PASSWORD not in caplog.text


def test_librdkafka_hears_why_it_is_refused(login):
    """Its error has the broker's message; it goes on trying by itself."""
    heard: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer(
        login | {"sasl.password": "SESAME", "error_cb": heard.append, "log_level": 0}
    )
    producer.produce("t", b"x")

    def is_refused() -> bool:
        producer.poll(0.1)
        return any(e.code() == confluent_kafka.KafkaError._AUTHENTICATION for e in heard)

    wait_until(is_refused, "the refusal", LIMIT_S)
    producer.purge()


def test_client_without_a_login_is_closed(broker):
    """It hears nothing from the listener."""
    with pytest.raises(ottla.errors.KafkaError):
        ottla.Admin(broker.address("SASL_PLAINTEXT"), default_api_timeout_ms=1000).list_topics()


def test_login_on_a_listener_without_one_is_refused(broker, certificates):
    """A password must not be sent where nobody asks for it."""
    settings = settings_of(broker, certificates, "SASL_PLAINTEXT", listener="PLAINTEXT")

    with pytest.raises(SaslAuthenticationError, match="must be without SASL_"):
        list_topics(settings)


def test_scram_user_holds_from_the_next_login_on(broker, certificates):
    """Made, changed and removed while the broker runs; who is logged in stays."""
    login = settings_of(broker, certificates, "SASL_SSL", "SCRAM-SHA-512") | {
        "sasl.username": "late",
        "sasl.password": "first",
    }
    credential = UserScramCredential("late", "SCRAM-SHA-512", "first", 8192)

    def is_let_in(settings: dict[str, str]) -> bool:
        try:
            list_topics(ours(settings))
        except SaslAuthenticationError:
            return False
        return True

    with ottla.Admin(broker.address("PLAINTEXT")) as admin:
        assert not is_let_in(login)
        admin.alter_user_scram_credentials([credential])
        assert admin.describe_user_scram_credentials(["late"]) == {"late": {"SCRAM-SHA-512": 8192}}
        wait_until(lambda: is_let_in(login), "the login", LIMIT_S)
        with ottla.Admin(None, ours(login)) as old:
            old.list_topics()
            admin.alter_user_scram_credentials([credential._replace(password="second")])
            wait_until(lambda: not is_let_in(login), "the refusal", LIMIT_S)
            assert is_let_in(login | {"sasl.password": "second"})
            old.list_topics()
        admin.alter_user_scram_credentials([credential._replace(password=None)])
        wait_until(lambda: not is_let_in(login | {"sasl.password": "second"}), "the end", LIMIT_S)


# Sessions


def test_clients_outlive_their_sessions(broker, certificates):
    """They log in again on the same connections; no record is lost or refused."""
    settings = settings_of(broker, certificates, "SASL_PLAINTEXT", listener="REAUTH")
    failed: list[object] = []
    rdkafka = confluent_kafka.Producer(settings)
    counts = {"ottla": 0, "librdkafka": 0}

    def logins() -> list[int]:
        connections = broker.broker.processor.connections
        return sorted(each.authenticator.login_count for each in connections if each.authenticator)

    def write() -> None:
        rdkafka.produce("librdkafka", b"x", on_delivery=lambda error, _: failed.append(error))
        rdkafka.flush(LIMIT_S)
        counts["librdkafka"] += 1
        own.send("ottla", b"x").result(LIMIT_S)
        counts["ottla"] += 1

    with ottla.Producer(None, settings) as own:
        wait_until(
            lambda: logins()[-2:] >= [3, 3], "two more logins of each", LIMIT_S, meanwhile=write
        )

    assert not any(failed)
    with ottla.Admin(None, settings) as admin:
        ends = admin.list_offsets({ottla.TopicPartition(topic, 0): -1 for topic in counts})
    assert {partition.topic: end.offset for partition, end in ends.items()} == counts


# Delegation tokens


@pytest.fixture
def token(broker, certificates) -> DelegationToken:
    """One of alice."""
    alice = settings_of(broker, certificates, "SASL_SSL", "SCRAM-SHA-512")
    with ottla.Admin(None, ours(alice)) as admin:
        return admin.create_delegation_token()


def token_login(broker, certificates, token: DelegationToken, **others: str) -> dict[str, str]:
    """How who has the token connects."""
    login = settings_of(broker, certificates, "SASL_SSL", "SCRAM-SHA-256")
    return login | {"sasl.username": token.token_id, "sasl.password": token.password} | others


def test_our_clients_log_in_with_a_token(broker, certificates, token, caplog):
    """In the form of Java's clients, which says that it is one; the password stays out of logs."""
    caplog.set_level(logging.DEBUG)
    login = ours(token_login(broker, certificates, token))
    name, password = login.pop("sasl.username"), login.pop("sasl.password")
    login["sasl.jaas.config"] = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{name}" password="{password}" tokenauth="true";'
    )
    produce(login)
    with ottla.Admin(None, login) as admin, pytest.raises(ottla.errors.KafkaError) as caught:
        admin.create_delegation_token()

    assert caught.value.error is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert password not in caplog.text
    principals = {each.principal.name for each in broker.broker.processor.connections}
    assert token.token_id not in principals


def test_other_clients_log_in_with_a_token(broker, certificates, token):
    """librdkafka and kafka-python have no word for tokens: id and HMAC are name and password."""
    login = token_login(broker, certificates, token)
    producer = confluent_kafka.Producer(login)
    producer.produce("tokens", b"librdkafka")
    assert producer.flush(LIMIT_S) == 0

    python = kafka.KafkaProducer(
        bootstrap_servers=login["bootstrap.servers"],
        security_protocol=login["security.protocol"],
        sasl_mechanism=login["sasl.mechanism"],
        sasl_plain_username=token.token_id,
        sasl_plain_password=token.password,
        ssl_cafile=login["ssl.ca.location"],
    )
    python.send("tokens", b"kafka-python").get(LIMIT_S)
    python.close()


def test_token_that_was_ended_is_refused(broker, certificates, token):
    """From the next login on; before, its end was moved."""
    login = ours(token_login(broker, certificates, token))
    alice = ours(settings_of(broker, certificates, "SASL_SSL", "SCRAM-SHA-512"))
    with ottla.Admin(None, alice) as admin:
        end_ms = admin.renew_delegation_token(token.hmac, 2_000)
        assert end_ms < token.expiry_ms
        list_topics(login)
        assert admin.expire_delegation_token(token.hmac) <= end_ms
        assert token.token_id not in {each.token_id for each in admin.describe_delegation_tokens()}

    with pytest.raises(SaslAuthenticationError):
        list_topics(login)


# Brokers among themselves


CLUSTER = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "connections.max.reauth.ms": 1500,
}


def cluster_settings(listener: str, password: str = "brokers") -> dict[str, object]:
    """One listener for brokers and clients, and the login of the brokers."""
    entry = f'{PLAIN_MODULE} required username="broker" password="{password}" '
    users = f'user_broker="brokers" user_alice="{PASSWORD}";'
    return CLUSTER | {
        "listeners": f"{listener}://localhost:0",
        "inter.broker.listener.name": listener,
        f"listener.name.{listener.lower()}.plain.sasl.jaas.config": entry + users,
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_brokers_log_in_to_each_other(protocol, certificates):
    """They replicate over many sessions of a second and a half; no follower ever falls behind."""
    settings = cluster_settings(protocol)
    if protocol == "SASL_SSL":
        settings |= {
            "ssl.keystore.location": certificates.server,
            "ssl.truststore.location": certificates.ca,
        }
    with InProcessCluster(3, **settings) as cluster:
        servers = ",".join(f"localhost:{port}" for port in cluster.ports.values())
        login = {
            "bootstrap.servers": servers,
            "security.protocol": protocol,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": PASSWORD,
        } | ({"ssl.truststore.location": certificates.ca} if protocol == "SASL_SSL" else {})
        with ottla.Producer(None, login, acks="all") as producer:
            count = 0

            def sessions() -> int:
                """How often brokers have logged in again, on the connections that are open."""
                connections = [
                    connection
                    for broker_id in cluster.ports
                    for connection in cluster.broker(broker_id).processor.connections
                ]
                logins = [each.authenticator for each in connections if each.authenticator]
                return max(
                    (each.login_count for each in logins if each.principal.name == "broker"),
                    default=0,
                )

            def write() -> None:
                nonlocal count
                producer.send("replicated", b"%d" % count).result(LIMIT_S)
                count += 1

            wait_until(lambda: sessions() >= 3, "three sessions", LIMIT_S, meanwhile=write)
        with ottla.Admin(None, login) as admin:
            described = admin.describe_topics(["replicated"])["replicated"]
        assert count
        assert all(len(each.isr) == 3 for each in described.partitions)
