"""Clients of other languages log in: a thousand records by each mechanism, and a wrong password."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator

import pytest
from peer_program import PeerProgram

import ottla
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.testing import InProcessBroker

COUNT = 1000
USER, PASSWORD = "alice", "a-secret of alice"
MODULES = "org.apache.kafka.common.security"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
PEERS = ("java-3.9", "java-4.1", "franz-go", "kafkajs")


@pytest.fixture(scope="module")
def broker(certificates) -> Iterator[InProcessBroker]:
    """Alice has a password for each mechanism; tokens need no signature."""
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*PROTOCOLS, "PLAINTEXT")),
        "ssl.keystore.location": certificates.server,
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    for name in PROTOCOLS:
        prefix = f"listener.name.{name.lower()}"
        settings[f"{prefix}.plain.sasl.jaas.config"] = (
            f'{MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        )
        settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = (
            f"{MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredValidatorPrincipalClaimName="sub";'
        )
    with InProcessBroker(**settings) as running:
        with ottla.Admin(address(running, "PLAINTEXT")) as admin:
            credentials = [UserScramCredential(USER, each, PASSWORD) for each in SCRAM]
            admin.alter_user_scram_credentials(credentials)
        yield running


def address(broker: InProcessBroker, listener: str) -> str:
    ends = {end.listener_name: end.port for end in broker.broker.end_points}
    return f"127.0.0.1:{ends[listener]}"


def unsecured_token() -> str:
    """A token of alice without a signature, good for an hour (RFC 7515, `alg: none`)."""
    claims = {"sub": USER, "iat": int(time.time()), "exp": int(time.time()) + 3600}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), ""])


@pytest.fixture
def log_in(monkeypatch, certificates):
    """Has the peers that are started from now on log in."""

    def log_in(protocol: str, mechanism: str, password: str = PASSWORD) -> None:
        given = {"PROTOCOL": protocol, "MECHANISM": mechanism, "USER": USER, "PASSWORD": password}
        given |= {"TOKEN": unsecured_token(), "CA": certificates.ca}
        for name, value in given.items():
            monkeypatch.setenv(f"PEER_{name}", value)

    return log_in


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("peer", PEERS)
def test_records_by_each_mechanism(broker, log_in, unique, peer, protocol, mechanism):
    """Written and read, by a group of two, on connections that have logged in."""
    topic = unique("logins")
    with ottla.Admin(address(broker, "PLAINTEXT")) as admin:
        admin.create_topics([ottla.NewTopic(topic, 2)])
    log_in(protocol, mechanism)
    program = PeerProgram(peer)
    servers = address(broker, protocol)
    with program.consuming(servers, topic, topic, str(COUNT), "classic") as received:
        program.run("produce", servers, topic, "none", "login", str(COUNT))

    assert len({record["value"] for record in received}) == len(received) == COUNT


@pytest.mark.parametrize("peer", ["java-4.1", "franz-go", "kafkajs"])
def test_wrong_password_is_refused(broker, log_in, unique, peer):
    """The client ends with an error; nothing is written."""
    topic = unique("logins")
    with ottla.Admin(address(broker, "PLAINTEXT")) as admin:
        admin.create_topics([ottla.NewTopic(topic, 1)])
    log_in("SASL_PLAINTEXT", "SCRAM-SHA-256", password="wrong")
    program = PeerProgram(peer)
    produce = program.command(
        "produce", address(broker, "SASL_PLAINTEXT"), topic, "none", "login", "1"
    )
    try:
        done = subprocess.run(produce, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "uthentication" in done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        assert peer == "franz-go", "it tries again for ever, as it does with Kafka"

    assert broker.records(topic) == []
