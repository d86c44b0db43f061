"""Hostile frames before authentication: refused or answered, never a fault, in bounded memory."""

from __future__ import annotations

import gc
import json
import logging
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from login_fuzzer import LISTENER, MAX_RECEIVE_BYTES, PASSWORD, attack, hostile, storm

import ottla
from ottla.protocol.api_keys import ApiKey
from ottla.security.sasl import Action, SaslAuthenticator
from ottla.testing import InProcessBroker, MockClock, wait_until

FRAMES = 20_000
STORM_FRAMES = 2_000
KEY = {
    "kty": "EC",
    "crv": "P-256",
    "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    "kid": "one",
}
"""The public key of RFC 7517, appendix A.1."""
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize("seed", range(3))
def test_hostile_frames_are_judged(seed: int) -> None:
    """Each ends in a verdict, nobody is let in, and every verdict occurs."""
    outcomes = attack(seed, FRAMES)

    assert set(outcomes) == {"PASS_ON", "ANSWER", "FAIL"}
    assert min(outcomes.values()) > FRAMES // 100


def test_hostile_frames_leave_nothing_behind() -> None:
    """Memory is the same after many frames as after some."""
    attack(9, 2_000)  # codecs are made on first use
    tracemalloc.start()
    try:
        attack(9, 1_000)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        attack(9, 6_000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert after - before < 64 * 1024


def test_only_api_versions_is_passed_on() -> None:
    """Whatever the frame is, no other request reaches a handler."""
    chance = random.Random(5)
    for _ in range(FRAMES):
        frame = hostile(chance)
        verdict = SaslAuthenticator(LISTENER, MockClock()).receive(memoryview(frame))
        if verdict.action is Action.PASS_ON:
            assert int.from_bytes(frame[:2]) == ApiKey.API_VERSIONS


@pytest.fixture
def victim(tmp_path) -> Iterator[InProcessBroker]:
    """A broker with every mechanism, which lets nobody wait who is refused."""
    pytest.importorskip("jwt", reason="OAUTHBEARER needs the package pyjwt (ottla[oauth])")
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps({"keys": [KEY]}))
    prefix = "listener.name.sasl_plaintext."
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.server.max.receive.size": MAX_RECEIVE_BYTES,
        "connection.failed.authentication.delay.ms": 0,
        f"{prefix}plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" '
        f'password="{PASSWORD}" user_alice="{PASSWORD}";',
        f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    with InProcessBroker(**settings) as broker:
        yield broker


def test_broker_outlives_a_storm_of_them(victim: InProcessBroker, caplog) -> None:
    """Each is answered or closed, and refusals are counted; then users log in as before."""
    caplog.set_level(logging.ERROR)
    processor = victim.broker.processor

    outcomes = storm(processor.listeners[0].port, 7, STORM_FRAMES)

    wait_until(lambda: not processor.connections, "all connections are closed")
    counts = processor.sasl["SASL_PLAINTEXT"].counts
    assert outcomes["answers"] > STORM_FRAMES // 10
    assert outcomes["connections"] // 2 < counts.failed <= outcomes["connections"]
    assert counts.succeeded == 0
    assert not caplog.records
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    with ottla.Admin(victim.bootstrap_servers, login) as admin:
        admin.list_topics()
    assert counts.succeeded
