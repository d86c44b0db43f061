"""Brokers whose ZooKeeper is encrypted, and asks who they are: a real server, TLS and SASL."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.errors import KafkaError
from ottla.runtime.free_port import free_port
from ottla.testing import InProcessBroker
from ottla.testing.processes import ZooKeeperProcess

LIMIT_S = 60
SASL = {"zookeeper.sasl.username": "broker", "zookeeper.sasl.password": "of-brokers"}
CONNECTION_TIMEOUT = {"zookeeper.connection.timeout.ms": "60000"}
# Of brokers that must not be let in: they try until then.
IN_VAIN = {"zookeeper.connection.timeout.ms": "10000"}


def pkcs8(pem: Path, copy: Path) -> str:
    """A key store whose key Java reads."""
    data = pem.read_bytes()
    key = load_pem_private_key(data, None)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    copy.write_bytes(text + data[data.index(b"-----BEGIN CERTIFICATE") :])
    return str(copy)


class SecureZooKeeper:
    """One server: a port for everybody, an encrypted one, and users of SASL."""

    def __init__(self, folder: Path, certificates) -> None:
        folder.mkdir()
        self.secure_port = free_port("127.0.0.1")
        self.process = ZooKeeperProcess(
            folder,
            **{
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": self.secure_port,
                "ssl.keyStore.location": pkcs8(Path(certificates.server), folder / "server.pem"),
                "ssl.keyStore.type": "PEM",
                "ssl.trustStore.location": certificates.ca,
                "ssl.trustStore.type": "PEM",
                "ssl.enabledProtocols": "TLSv1.2,TLSv1.3",
                "ssl.clientAuth": "want",
                "ssl.hostnameVerification": "false",
                "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            },
        )

    @property
    def secure(self) -> str:
        return f"localhost:{self.secure_port}"


@pytest.fixture(scope="module")
def server(certificates, tmp_path_factory) -> Iterator[SecureZooKeeper]:
    folder = tmp_path_factory.mktemp("zookeeper")
    jaas = folder / "jaas.conf"
    jaas.write_text(
        "Server {\n"
        "  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        '  user_broker="of-brokers";\n'
        "};\n",
        encoding="utf-8",
    )
    with pytest.MonkeyPatch.context() as patch:
        options = f"{os.environ['KAFKA_HEAP_OPTS']} -Djava.security.auth.login.config={jaas}"
        patch.setenv("KAFKA_HEAP_OPTS", options)
        running = SecureZooKeeper(folder / "data", certificates)
        running.process.start()
    yield running
    running.process.stop()


def tls(server, certificates, **others: str) -> dict[str, str]:
    """How a broker connects to the encrypted port."""
    return CONNECTION_TIMEOUT | {
        "zookeeper.connect": f"{server.secure}/tls",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": certificates.ca,
        **others,
    }


def write_and_read(broker: InProcessBroker) -> None:
    """A topic is made, written and read: the registry is of use."""
    with ottla.Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"x").result(LIMIT_S)
    with ottla.Admin(broker.bootstrap_servers) as admin:
        assert "t" in admin.list_topics()


@pytest.mark.wide
def test_connection_is_encrypted(server, certificates):
    """By TLS of 1.2, Kafka's default, and by 1.3."""
    for protocol in ("TLSv1.2", "TLSv1.3"):
        others = {"zookeeper.ssl.protocol": protocol}
        with InProcessBroker(**tls(server, certificates, **others)) as broker:
            write_and_read(broker)
            endpoint = broker.broker.registry.session._client._connection._socket
            assert isinstance(endpoint, ssl.SSLSocket)
            assert endpoint.version() == protocol


def test_server_that_is_not_trusted_gets_nothing(server, certificates, tmp_path):
    """The start fails, and says why."""
    settings = tls(server, certificates) | IN_VAIN
    del settings["zookeeper.ssl.truststore.location"]
    with pytest.raises(KafkaError, match=r"TLS with localhost: .*CERTIFICATE_VERIFY_FAILED"):
        InProcessBroker(**settings).__enter__()


def test_plain_port_is_no_place_for_tls(server, certificates):
    """Nothing is sent in the clear instead."""
    plain = {"zookeeper.connect": server.process.connect}
    settings = tls(server, certificates) | plain | IN_VAIN
    with pytest.raises(KafkaError, match="no ZooKeeper server answered"):
        InProcessBroker(**settings).__enter__()


def test_broker_is_known_by_its_login(server, znodes_of):
    """DIGEST-MD5; what it makes is its own, and others may read it, but not what is private."""
    settings = SASL | CONNECTION_TIMEOUT | {"zookeeper.set.acl": "true"}
    connect = f"{server.process.connect}/sasl"
    with InProcessBroker(zookeeper_connect=connect, **settings) as broker:
        write_and_read(broker)
    acls, _ = znodes_of.get_acls("/sasl/brokers/topics/t")
    assert {(acl.id.scheme, acl.id.id) for acl in acls} == {("sasl", "broker"), ("world", "anyone")}
    assert znodes_of.get("/sasl/brokers/topics/t")[0]
    for path in ("/sasl/config/users", "/sasl/config/brokers"):
        with pytest.raises(NoAuthError):
            znodes_of.get(path)
    with pytest.raises(NoAuthError):
        znodes_of.delete("/sasl/brokers/topics/t", recursive=True)


def test_wrong_password_is_refused(server):
    """The start fails, and says why; the password is not shown."""
    settings = SASL | CONNECTION_TIMEOUT | {"zookeeper.sasl.password": "SESAME"}
    with pytest.raises(
        KafkaError, match=r"refused the login of zookeeper\.sasl\.username"
    ) as caught:
        InProcessBroker(zookeeper_connect=server.process.connect, **settings).__enter__()
    assert "SESAME" not in str(caught.value)


def test_broker_is_known_by_its_certificate(server, certificates, znodes_of):
    """TLS alone is enough for zookeeper.set.acl, where the broker shows a certificate."""
    others = {
        "zookeeper.connect": f"{server.secure}/certified",
        "zookeeper.ssl.keystore.location": certificates.client,
        "zookeeper.set.acl": "true",
    }
    with InProcessBroker(**tls(server, certificates) | others) as broker:
        write_and_read(broker)
    acls, _ = znodes_of.get_acls("/certified/brokers/topics/t")
    assert {acl.id.scheme for acl in acls} == {"x509", "world"}


def test_tools_reach_what_the_brokers_reach(server, certificates, tmp_path):
    """The first user and the first ACL, by --zk-tls-config-file."""
    settings = tls(server, certificates) | {"zookeeper.connect": "elsewhere:1"}
    path = tmp_path / "zookeeper.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    secret = tmp_path / "secret"
    secret.write_text("alice-secret")
    connect = f"{server.secure}/tools"
    file = ("--zk-tls-config-file", path)
    run("users", "add", "alice", "--zookeeper", connect, *file, "--password-file", secret)
    listed = run("users", "list", "--zookeeper", connect, *file)
    assert listed.startswith("alice: SCRAM-SHA-256")
    words = ("--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", "t")
    properties = ("--authorizer-properties", f"zookeeper.connect={connect}")
    assert "principal=User:bob" in run("acls", *properties, *file, *words)


def run(*words: object) -> str:
    """What `ottla` prints; its status must be 0."""
    raw, err = BytesIO(), StringIO()
    out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
    terminal = Terminal(source=BytesIO(), out=out, raw_out=raw, err=err)
    assert main([str(word) for word in words], terminal) == 0, err.getvalue()
    return raw.getvalue().decode()


@pytest.fixture
def znodes_of(server) -> Iterator[KazooClient]:
    """Somebody who has not said who it is."""
    client = KazooClient(server.process.connect)
    client.start(LIMIT_S)
    yield client
    client.stop()
    client.close()
