"""Every client over TLS: large records byte for byte, groups, and who is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import aiokafka.helpers
import confluent_kafka
import kafka
import pytest

import ottla
from ottla.clients.admin.configs import AlterConfigOp, ConfigResource, ConfigResourceType
from ottla.errors import KafkaError, TlsError
from ottla.testing import wait_until
from ottla.testing.processes import BrokerProcess

LIMIT_S = 100
VALUES = [os.urandom(900_000) for _ in range(14)]
FETCH_BYTES = 16 << 20

pytestmark = pytest.mark.usefixtures("sockets_left_open")


class TlsBroker(BrokerProcess):
    """One that serves several listeners, each at a port of its own."""

    ports: dict[str, int]

    def take(self, ready: re.Match[str]) -> None:
        super().take(ready)
        self.ports = {
            name: int(port) for name, port in re.findall(r"(\w+)://[^:]+:(\d+)", ready[1])
        }

    def address(self, listener: str, host: str = "localhost") -> str:
        return f"{host}:{self.ports[listener]}"


@pytest.fixture(scope="module")
def tls_broker(certificates, tmp_path_factory) -> Iterator[TlsBroker]:
    """SSL is as clients like it, STRICT asks them for certificates, WRONG is another host's."""
    names = ("SSL", "STRICT", "WRONG")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "advertised.host.name": "localhost",
        "listener.security.protocol.map": ",".join(f"{name}:SSL" for name in names),
        "ssl.keystore.location": certificates.server,
        "listener.name.wrong.ssl.keystore.location": certificates.elsewhere,
        "listener.name.strict.ssl.client.auth": "required",
        "listener.name.strict.ssl.truststore.location": certificates.ca,
    }
    broker = TlsBroker(tmp_path_factory.mktemp("tls") / "data", **settings).start()
    yield broker
    assert broker.stop() == 0, f"the broker ended badly:\n{broker.log}"


def with_confluent(address, ca, topic):
    """Produce and fetch; returns the values that came back."""
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "SSL",
        "ssl.ca.location": ca,
        "message.max.bytes": FETCH_BYTES,
    }
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(LIMIT_S) == 0
    consumer = confluent_kafka.Consumer(
        settings
        | {
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "max.partition.fetch.bytes": FETCH_BYTES,
            "fetch.min.bytes": 10_000_000,
        }
    )
    consumer.subscribe([topic])
    values = []
    while len(values) < len(VALUES):
        for message in consumer.consume(len(VALUES) - len(values), 1):
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


def with_kafka_python(address, ca, topic):
    """The same."""
    settings = {"bootstrap_servers": address, "security_protocol": "SSL", "ssl_cafile": ca}
    producer = kafka.KafkaProducer(**settings, max_request_size=FETCH_BYTES)
    for future in [producer.send(topic, value) for value in VALUES]:
        future.get(LIMIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        **settings,
        group_id=topic,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_min_bytes=10_000_000,
    )
    values = []
    while len(values) < len(VALUES):
        for batch in consumer.poll(1000).values():
            values += [record.value for record in batch]
    consumer.close()
    return values


def with_aiokafka(address, ca, topic):
    """The same."""
    settings = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_context": aiokafka.helpers.create_ssl_context(cafile=ca),
    }

    async def scenario():
        async with aiokafka.AIOKafkaProducer(**settings, max_request_size=FETCH_BYTES) as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])
        values = []
        async with aiokafka.AIOKafkaConsumer(
            topic,
            **settings,
            group_id=topic,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_min_bytes=10_000_000,
        ) as consumer:
            while len(values) < len(VALUES):
                for batch in (await consumer.getmany(timeout_ms=1000)).values():
                    values += [record.value for record in batch]
        return values

    return asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def with_ottla(address, ca, topic):
    """The same."""
    settings = {"security.protocol": "SSL", "ssl.truststore.location": ca}
    with ottla.Producer(address, settings) as producer:
        for future in [producer.send(topic, value) for value in VALUES]:
            future.result(LIMIT_S)
    values = []
    with ottla.Consumer(
        address,
        settings,
        group_id=topic,
        topics=[topic],
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_min_bytes=10_000_000,
    ) as consumer:
        while len(values) < len(VALUES):
            values += [record.value for record in consumer.poll(1000)]
    return values


@pytest.mark.parametrize("use", [with_confluent, with_kafka_python, with_aiokafka, with_ottla])
def test_large_fetches_come_back_byte_for_byte(tls_broker, certificates, unique, use):
    """More than ten megabytes in one answer, of records that no codec makes smaller, by a group."""
    assert use(tls_broker.address("SSL"), certificates.ca, unique("tls")) == VALUES


def settings_for(certificates, **more):
    """Of our own clients."""
    return {
        "security_protocol": "SSL",
        "ssl_truststore_location": certificates.ca,
        **more,
    }


def topics_of(address, **settings):
    with ottla.Admin(address, **settings) as admin:
        return admin.list_topics()


def wait_for_log(broker, parts):
    """Wait until the broker has logged each of them."""
    wait_until(
        lambda: all(part in broker.log for part in parts),
        f"{parts} in the broker's log",
        LIMIT_S,
        seen=lambda: broker.log,
    )


def test_certificate_of_another_host_is_refused(tls_broker, certificates):
    """At once, and with the reason; it is accepted where the check is switched off."""
    settings = settings_for(certificates)
    with pytest.raises(TlsError, match="certificate was not accepted: Hostname mismatch"):
        topics_of(tls_broker.address("WRONG"), **settings)

    topics_of(tls_broker.address("WRONG"), **settings, ssl_endpoint_identification_algorithm="")


def test_certificate_of_an_unknown_authority_is_refused(tls_broker, certificates):
    """By our clients and by librdkafka; a broker that is not trusted is told nothing."""
    settings = settings_for(certificates, ssl_truststore_location=certificates.other_ca)
    with pytest.raises(TlsError, match="certificate was not accepted: "):
        topics_of(tls_broker.address("SSL"), **settings)

    errors = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": tls_broker.address("SSL"),
            "security.protocol": "SSL",
            "ssl.ca.location": certificates.other_ca,
            "error_cb": errors.append,
        }
    )
    # Its code depends on when the handshake fails: _SSL, or _TRANSPORT while it still connects; and
    # another address of localhost, where nobody listens, may be the first to be complained of.
    wait_until(
        lambda: any("certificate verify failed" in error.str() for error in errors),
        "the error of the certificate",
        LIMIT_S,
        seen=lambda: errors,
        meanwhile=lambda: producer.poll(0.1),
    )


def test_client_must_show_a_certificate_where_that_is_required(tls_broker, certificates):
    """One of the authority that the listener trusts; with none, or another, nothing is served."""
    address = tls_broker.address("STRICT")
    topics_of(address, **settings_for(certificates, ssl_keystore_location=certificates.client))
    for own in ({}, {"ssl_keystore_location": certificates.other}):
        with pytest.raises(TlsError, match="alert"):
            topics_of(address, **settings_for(certificates, **own))

    reasons = ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")
    # A client can hear of it before the broker writes it down.
    wait_for_log(tls_broker, [f"on listener STRICT failed: {each}" for each in reasons])


def test_noise_on_the_port_changes_nothing(tls_broker, certificates):
    """Plain requests, random bytes, half handshakes held open: others are served beside them."""
    host, port = "127.0.0.1", tls_broker.ports["SSL"]
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    held = [socket.create_connection((host, port)) for _ in range(20)]
    for each in held:
        each.sendall(hello)
    for data in (b"\x00\x00\x00\x0a\x00\x12\x00\x00", os.urandom(5000), hello + bytes(506)):
        with socket.create_connection((host, port), timeout=LIMIT_S) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1000):
                    pass
            except OSError as error:  # the broker may hang up before it has seen everything
                if error.errno not in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN):
                    raise
    topics_of(tls_broker.address("SSL"), **settings_for(certificates))
    for each in held:
        each.close()


def shows(broker, certificates, known_host):
    """Whether a new connection sees a certificate for localhost, or one for another host."""
    try:
        topics_of(broker.address("SSL"), **settings_for(certificates))
    except TlsError as error:
        return not known_host and "Hostname mismatch" in str(error)
    return known_host


def wait_until_shown(broker, certificates, known_host):
    """Wait until new connections see that certificate."""
    wait_until(
        lambda: shows(broker, certificates, known_host),
        "new connections with the other certificate",
        LIMIT_S,
        seen=lambda: broker.log,
    )


def test_certificates_are_changed_while_the_broker_runs(certificates, tmp_path):
    """By another path, or by a new file, then without a command; what is unusable is refused."""
    store = tmp_path / "store.pem"
    store.write_bytes(Path(certificates.elsewhere).read_bytes())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "advertised.host.name": "localhost",
        "ssl.keystore.location": certificates.server,
        "ssl.allow.dn.changes": "true",
        "ssl.allow.san.changes": "true",
    }
    key = "listener.name.ssl.ssl.keystore.location"
    resource = ConfigResource(ConfigResourceType.BROKER, "0")
    broker = TlsBroker(tmp_path / "data", **settings).start()

    try:
        with ottla.Admin(broker.address("PLAINTEXT")) as admin:
            wait_until_shown(broker, certificates, known_host=True)
            admin.incremental_alter_configs({resource: [AlterConfigOp(key, str(store))]})
            wait_until_shown(broker, certificates, known_host=False)

            store.write_bytes(Path(certificates.server).read_bytes())
            admin.incremental_alter_configs({resource: [AlterConfigOp(key, str(store))]})
            wait_until_shown(broker, certificates, known_host=True)

            for file, known_host in ((certificates.elsewhere, False), (certificates.server, True)):
                store.write_bytes(Path(file).read_bytes())
                wait_until_shown(broker, certificates, known_host)

            missing = {resource: [AlterConfigOp(key, str(tmp_path / "missing.pem"))]}
            with pytest.raises(KafkaError, match=r"INVALID_REQUEST.*ssl\.keystore\.location"):
                admin.incremental_alter_configs(missing)
            assert shows(broker, certificates, known_host=True)
        assert broker.stop() == 0, broker.log
        store.write_bytes(Path(certificates.elsewhere).read_bytes())
        broker.start()
        wait_until_shown(broker, certificates, known_host=False)
    finally:
        if broker.process is not None:
            broker.kill()
