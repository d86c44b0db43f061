"""No password, key or token in a log, an error, an answer or the output of a tool.

One broker with every mechanism logs at DEBUG, as do its clients; each secret is then looked for in
all forms that it has on its way.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import time
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.clients.admin.descriptions import AlterConfigOp
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import AdminConfig
from ottla.errors import ConfigError
from ottla.protocol.configs import ConfigResourceType
from ottla.testing import InProcessBroker

jwt = pytest.importorskip("jwt", reason="signatures need the package pyjwt (ottla[oauth])")

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKERS, ALICE, BOB = "brokers-own-secret", "alices-plain-secret", "bobs-scram-secret"
KEY_PASSWORD, NEXT_KEY_PASSWORD = "keystore-secret", "next-keystore-secret"
MASTERS = ENCODER, TOKEN_SECRET = "encoder-secret", "secret-of-all-tokens"
WRONG, LATE = "a-wrong-guess", "a-later-secret"
LISTENER = "listener.name.sasl_ssl."
KEY = rsa.generate_private_key(65537, 2048)
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Witness:
    """Everything that was said, and what nobody may say."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.secrets: dict[str | bytes, None] = dict.fromkeys(
            (BROKERS, ALICE, BOB, WRONG, LATE, *(KEY_PASSWORD, NEXT_KEY_PASSWORD), *MASTERS)
        )

    def hear(self, *things: object) -> None:
        for thing in things:
            self.said += [str(thing), repr(thing)]

    @contextlib.contextmanager
    def refused(self) -> Iterator[None]:
        """What is done fails; the error and its causes are heard."""
        with pytest.raises((ottla.KafkaError, ConfigError)) as raised:
            yield
        error: BaseException | None = raised.value
        while error is not None:
            self.hear(error, error.args)
            error = error.__cause__ or error.__context__

    def run(self, *words: str) -> None:
        """Run a tool, and hear what it prints."""
        raw, err = BytesIO(), StringIO()
        out = TextIOWrapper(raw, encoding="utf-8", write_through=True)
        terminal = Terminal(source=BytesIO(), out=out, raw_out=raw, err=err)
        with contextlib.suppress(SystemExit):
            main(list(words), terminal)
        self.hear(raw.getvalue().decode(), err.getvalue())

    def leaks(self) -> set[str | bytes]:
        """The secrets that were said, in any form."""
        text = "\n".join(self.said)
        return {secret for secret in self.secrets if any(form in text for form in forms(secret))}


def forms(secret: str | bytes) -> set[str]:
    """A secret as text, in base64, in hexadecimal digits and as Python shows bytes."""
    data = secret if isinstance(secret, bytes) else secret.encode()
    encoded = base64.b64encode(data).decode()
    texts = {encoded, encoded.rstrip("="), data.hex(), repr(data)[2:-1]}
    return texts if isinstance(secret, bytes) else {secret, *texts}


@pytest.fixture
def witness(caplog) -> Witness:
    caplog.set_level(logging.DEBUG)
    return Witness()


@pytest.fixture
def locked_server(certificates, tmp_path) -> Path:
    """The broker's key and certificates; the key has a password."""
    pem = Path(certificates.server).read_bytes()
    locked = load_pem_private_key(pem, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode())
    )
    file = tmp_path / "locked.pem"
    file.write_bytes(locked + pem[pem.index(b"-----BEGIN CERTIFICATE") :])
    return file


@pytest.fixture
def settings(locked_server, certificates, tmp_path) -> dict[str, object]:
    """Those of a broker with every mechanism."""
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [public | {"kid": "one"}]}))
    own = f'username="broker" password="{BROKERS}"'
    return {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "advertised.host.name": "localhost",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{LISTENER}plain.sasl.jaas.config": f"{PLAIN_MODULE} required {own} "
        f'user_broker="{BROKERS}" user_alice="{ALICE}";',
        f"{LISTENER}scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required {own};",
        f"{LISTENER}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "ssl.keystore.location": str(locked_server),
        "ssl.key.password": KEY_PASSWORD,
        "ssl.truststore.location": certificates.ca,
        "password.encoder.secret": ENCODER,
        "delegation.token.secret.key": TOKEN_SECRET,
        "connection.failed.authentication.delay.ms": 0,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:alice;User:broker",
    }


def login(certificates, user: str, password: str, mechanism: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": certificates.ca,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_no_secret_is_said(settings, certificates, witness, tmp_path, caplog):
    """By broker, clients and tools, when logins succeed and when they fail."""
    with InProcessBroker(**settings) as broker:
        servers = f"localhost:{broker.broker.end_points[0].port}"
        alice = login(certificates, "alice", ALICE, "PLAIN")
        log_in_by_scram(witness, servers, certificates, alice)
        log_in_by_token(witness, servers, certificates, tmp_path)
        for mechanism in ("PLAIN", *SCRAMS):
            with witness.refused(), ottla.Admin(servers, alice | {
                "sasl.mechanism": mechanism, "sasl.password": WRONG
            }) as admin:  # fmt: skip
                admin.list_topics()
        ask_for_settings(witness, servers, alice)
        run_tools(witness, servers, alice, tmp_path)
        witness.hear(broker.broker.config, broker.broker.processor.sasl)
    witness.hear(caplog.text)

    assert len(caplog.records) > 20
    assert "Failed authentication with" in caplog.text
    assert not witness.leaks()


def log_in_by_scram(witness: Witness, servers: str, certificates, alice: dict[str, str]) -> None:
    """A user is made, logs in, gets a delegation token and logs in with it."""
    with ottla.Admin(servers, alice) as admin:
        credentials = [UserScramCredential("bob", mechanism, BOB) for mechanism in SCRAMS]
        witness.hear(credentials)
        admin.alter_user_scram_credentials(credentials)
        witness.hear(admin.describe_user_scram_credentials())
    for mechanism in SCRAMS:
        bob = login(certificates, "bob", BOB, mechanism)
        with ottla.Admin(servers, bob) as admin:
            token = admin.create_delegation_token()
            witness.secrets |= {token.hmac: None, token.password: None}
            witness.hear(token)
        by_token = login(certificates, token.token_id, token.password, mechanism)
        with ottla.Producer(servers, by_token) as producer, witness.refused():
            producer.send("t", b"x").result(60)
        with ottla.Consumer(servers, by_token, group_id="g") as consumer, witness.refused():
            consumer.subscribe(["t"])
            consumer.poll(60_000)
        witness.hear(producer, consumer)


def log_in_by_token(witness: Witness, servers: str, certificates, folder: Path) -> None:
    """With a JWT that is right, and with one that nobody has signed."""
    now_s = int(time.time())
    claims = {"sub": "carol", "iat": now_s, "exp": now_s + 600}
    good = jwt.encode(claims, KEY, "RS256", headers={"kid": "one"})
    unsigned = jwt.encode(claims, None, "none")
    for token in (good, unsigned):
        witness.secrets |= {token: None, token.rpartition(".")[0]: None}
        (folder / "token").write_text(token)
        carol = {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": certificates.ca,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": (folder / "token").as_uri(),
        }
        with ottla.Admin(servers, carol) as admin:
            if token is good:
                admin.list_topics()
            else:
                with witness.refused():
                    admin.list_topics()


def ask_for_settings(witness: Witness, servers: str, alice: dict[str, str]) -> None:
    """All that DescribeConfigs answers; a password that is changed while the broker runs."""
    broker = ottla.ConfigResource(ConfigResourceType.BROKER, "0")
    with ottla.Admin(servers, alice) as admin:
        witness.hear(admin.describe_configs([broker]))
        key = f"{LISTENER}ssl.key.password"
        change = {broker: [AlterConfigOp(key, NEXT_KEY_PASSWORD)]}
        witness.hear(change)
        with contextlib.suppress(ottla.KafkaError):
            admin.incremental_alter_configs(change)
        witness.hear(admin.describe_configs([broker]))


def run_tools(witness: Witness, servers: str, alice: dict[str, str], folder: Path) -> None:
    """What tools print of users, settings and ACLs."""
    file = folder / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in alice.items()))
    at = ("--bootstrap-server", servers, "--command-config", str(file))
    witness.run("users", "list", *at)
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    witness.run("configs", "--describe", "--all", *broker, *at)
    witness.run("configs", "--describe", "--entity-type", "users", *at)
    credential = f"SCRAM-SHA-256=[iterations=1,password={LATE}]"
    alter = ("--alter", "--entity-type", "users", "--entity-name", "bob")
    witness.run("configs", *alter, "--add-config", credential, *at)
    witness.run("configs", *alter, "--add-config", credential.replace("=1,", "=4096,"), *at)
    witness.run("acls", "--list", *at)
    file.write_text(file.read_text().replace(ALICE, WRONG))
    witness.run("topics", "--list", *at)


BROKEN = {
    "no semicolon": f'{PLAIN_MODULE} required user_alice="{ALICE}"',
    "no quote": f'{PLAIN_MODULE} required user_alice="{ALICE};',
    "another module": f'com.example.Login required user_alice="{ALICE}";',
    "no option": f"{PLAIN_MODULE} required {ALICE};",
    "two modules": f'{PLAIN_MODULE} required a="{ALICE}"; {PLAIN_MODULE} required b="{BROKERS}";',
    "no flag": f'{PLAIN_MODULE} perhaps password="{ALICE}";',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_settings_that_are_refused_are_not_shown(text, settings, witness, caplog):
    """The error names the key and what is wrong, of a broker and of a client."""
    with witness.refused():
        BrokerConfig.parse(settings | {f"{LISTENER}plain.sasl.jaas.config": text})
    client = {"bootstrap.servers": "localhost:1", "security.protocol": "SASL_SSL"}
    with witness.refused():
        AdminConfig.parse(client | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": text})
    with witness.refused():  # a login that would not be used
        AdminConfig.parse({"bootstrap.servers": "localhost:1", "sasl.password": ALICE})
    witness.hear(caplog.text)

    assert "sasl.jaas.config" in witness.said[0]
    assert not witness.leaks()


def test_witness_hears_every_form():
    """Plain, in base64, as digits, and as Python shows it."""
    witness = Witness()
    for form in (ALICE, f"x{base64.b64encode(BOB.encode()).decode()}x", WRONG.encode().hex()):
        witness.hear(form)
    assert witness.leaks() == {ALICE, BOB, WRONG}
