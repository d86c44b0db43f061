"""Every client with OAUTHBEARER: tokens with a signature and without, and who is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import aiokafka.abc
import aiokafka.helpers
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import ottla
from ottla.errors import SaslAuthenticationError
from ottla.testing import InProcessBroker, wait_until

jwt = pytest.importorskip("jwt", reason="signatures need the package pyjwt (ottla[oauth])")

LIMIT_S = 60
COUNT = 1000
VALUES = [b"record %d" % number for number in range(COUNT)]
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KEY = rsa.generate_private_key(65537, 2048)

pytestmark = pytest.mark.usefixtures("sockets_left_open")


def token(key=KEY, life_s: float = 600, **more: object) -> str:
    """One of the authority for alice."""
    claims = {"sub": "alice", "iat": time.time(), "exp": time.time() + life_s, "aud": "kafka"}
    return jwt.encode(claims | more, key, "RS256", headers={"kid": "one"})


class OAuthBroker(InProcessBroker):
    """SASL_SSL verifies tokens, SASL_PLAINTEXT takes those that nobody has signed."""

    def address(self, protocol: str) -> str:
        ends = {end.listener_name: end.port for end in self.broker.end_points}
        return f"localhost:{ends[protocol]}"

    @property
    def principals(self) -> set[str]:
        """Of all connections that are open."""
        return {str(each.principal) for each in self.broker.processor.connections}


@pytest.fixture(scope="module")
def broker(certificates, tmp_path_factory) -> Iterator[OAuthBroker]:
    """Whose authority has its keys in a file."""
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps({"keys": [public | {"kid": "one", "use": "sig"}]}))
    prefix = "listener.name.sasl_ssl.oauthbearer.sasl.oauthbearer."
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "advertised.host.name": "localhost",
        "ssl.keystore.location": certificates.server,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        prefix + "jwks.endpoint.url": keys.as_uri(),
        prefix + "expected.audience": "kafka",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{MODULE} required "
        'unsecuredValidatorPrincipalClaimName="sub";',
    }
    with OAuthBroker(**settings) as running:
        yield running


def read_all(settings: dict[str, str], topic: str) -> list[bytes]:
    """What our consumer finds in a topic."""
    values: list[bytes] = []
    with ottla.Consumer(None, settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        wait_until(
            lambda: len(values) >= COUNT,
            "all records",
            LIMIT_S,
            meanwhile=lambda: values.extend(record.value for record in consumer.poll(500)),
        )
    return values


def plain(broker: OAuthBroker) -> dict[str, str]:
    """Settings for the listener that asks for no login."""
    return {"bootstrap.servers": broker.address("PLAINTEXT")}


def ours(broker, certificates, url: str) -> dict[str, str]:
    """Settings of our own clients, whose token is at a URL."""
    return {
        "bootstrap.servers": broker.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": certificates.ca,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
    }


def test_ottla_with_a_token_of_the_authority(broker, certificates, tmp_path: Path):
    """Out of a file, as Kubernetes has it; the name is that of the token."""
    (tmp_path / "token").write_text(token())
    settings = ours(broker, certificates, (tmp_path / "token").as_uri())
    with ottla.Producer(None, settings) as producer:
        for value in VALUES:
            producer.send("ottla", value)
        producer.flush(LIMIT_S)
        assert "User:alice" in broker.principals

    assert read_all(settings, "ottla") == VALUES


def test_ottla_without_a_signature(broker):
    """The options of Kafka's login module, for tests."""
    settings = {
        "bootstrap.servers": broker.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f'{MODULE} required unsecuredLoginStringClaim_sub="bob";',
    }
    with ottla.Producer(None, settings) as producer:
        producer.send("unsecured", b"record").result(LIMIT_S)
        assert "User:bob" in broker.principals


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_librdkafka(broker, certificates, listener):
    """With a callback that gives a token, and with its own tokens without a signature."""
    settings = {
        "bootstrap.servers": broker.address(listener),
        "security.protocol": listener,
        "sasl.mechanism": "OAUTHBEARER",
    }
    if listener == "SASL_SSL":
        settings["ssl.ca.location"] = certificates.ca
        settings["oauth_cb"] = lambda config: (token(), time.time() + 600)
    else:
        settings["enable.sasl.oauthbearer.unsecure.jwt"] = True
        settings["sasl.oauthbearer.config"] = "principal=alice"
    topic = f"librdkafka-{listener}"
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(LIMIT_S) == 0

    assert read_all(plain(broker), topic) == VALUES


class KafkaPythonToken(kafka.net.sasl.oauth.AbstractTokenProvider):
    """What kafka-python asks for a token."""

    def token(self) -> str:
        return token()


def test_kafka_python(broker, certificates):
    """With a token provider."""
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.address("SASL_SSL"),
        security_protocol="SASL_SSL",
        ssl_cafile=certificates.ca,
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=KafkaPythonToken(),
    )
    for value in VALUES:
        producer.send("kafka-python", value)
    producer.flush(LIMIT_S)
    producer.close()

    assert read_all(plain(broker), "kafka-python") == VALUES


class AiokafkaToken(aiokafka.abc.AbstractTokenProvider):
    """What aiokafka asks for a token."""

    async def token(self) -> str:
        return token()


def test_aiokafka(broker, certificates):
    """With a token provider."""

    async def produce() -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.address("SASL_SSL"),
            security_protocol="SASL_SSL",
            ssl_context=aiokafka.helpers.create_ssl_context(cafile=certificates.ca),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AiokafkaToken(),
        ) as producer:
            await asyncio.gather(*[await producer.send("aiokafka", value) for value in VALUES])

    asyncio.run(asyncio.wait_for(produce(), LIMIT_S))
    assert read_all(plain(broker), "aiokafka") == VALUES


def test_token_that_is_not_valid_is_refused(broker, certificates, tmp_path: Path):
    """Expired, for others, or of another key: each is told the same, and nothing more."""
    other = rsa.generate_private_key(65537, 2048)
    for bad in (token(life_s=-60), token(aud="others"), token(other), "no.jwt.x"):
        (tmp_path / "token").write_text(bad)
        settings = ours(broker, certificates, (tmp_path / "token").as_uri())
        with (
            pytest.raises(SaslAuthenticationError, match=r'\{"status":"invalid_token"\}'),
            ottla.Admin(None, settings) as admin,
        ):
            admin.list_topics()


def test_session_ends_with_its_token(broker, certificates, tmp_path: Path):
    """A client logs in again before that, with its next token, and loses nothing (KIP-368)."""
    file = tmp_path / "token"
    file.write_text(token(life_s=3))
    settings = ours(broker, certificates, file.as_uri())
    with ottla.Producer(None, settings) as producer:
        producer.send("session", b"first").result(LIMIT_S)
        (connection,) = [
            each for each in broker.broker.processor.connections if each.authenticator.login_count
        ][-1:]
        count = connection.authenticator.login_count

        def has_logged_in_again() -> bool:
            file.write_text(token(life_s=3))
            producer.send("session", b"next").result(LIMIT_S)
            logins = [
                each.authenticator.login_count for each in broker.broker.processor.connections
            ]
            return max(logins, default=0) > count

        wait_until(has_logged_in_again, "another login on the same connection", LIMIT_S)
