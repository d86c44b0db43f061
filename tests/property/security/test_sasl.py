"""Hostile frames before authentication: refused or answered, never a fault, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from ottla.protocol.api_keys import MODULES, ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import encode_request
from ottla.protocol.message import request_class
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.principal import ANONYMOUS
from ottla.security.sasl import Action, PlainServer, SaslAuthenticator, SaslListener, SaslState
from ottla.security.scram import ScramCredential, ScramServer
from ottla.testing import MockClock

FRAMES = 20_000
MAX_FRAMES_OF_ONE = 8
PASSWORD = "not to be guessed"
CREDENTIALS = {"alice": ScramCredential.of_password("SCRAM-SHA-256", PASSWORD)}
LISTENER = SaslListener(
    {
        "PLAIN": lambda: PlainServer({"alice": PASSWORD}),
        "SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", CREDENTIALS.get),
        "GSSAPI": lambda: ScramServer("SCRAM-SHA-256", CREDENTIALS.get),
    },
    {},
    524_288,
    100,
)
TOKENS = (
    b"\0alice\0guess",
    b"n,,n=alice,r=abc",
    b"n,a=alice,n=alice,r=abc,tokenauth=true",
    b"c=biws,r=abc,p=AAAA",
    b"",
    b"\1",
)


def request(chance: random.Random) -> bytes:
    """A frame that is right, mostly one of an exchange."""
    kind = chance.randrange(8)
    if kind == 0:
        names = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        return encode_request(chance.choice((0, 3, 4)), 1, "fuzz", names)[4:]
    if kind in (1, 2, 3):
        mechanism = chance.choice((*LISTENER.mechanisms, "OAUTHBEARER", ""))
        choice = SaslHandshakeRequest(mechanism=mechanism)
        return encode_request(chance.randrange(2), 1, "fuzz", choice)[4:]
    if kind in (4, 5):
        token = SaslAuthenticateRequest(auth_bytes=chance.choice(TOKENS))
        return encode_request(chance.randrange(3), 1, None, token)[4:]
    if kind == 6:
        return chance.choice(TOKENS)
    other = request_class(chance.choice(list(MODULES)))
    return bytes([0, other.api_key, 0, other.max_version]) + chance.randbytes(40)


def hostile(chance: random.Random) -> bytes:
    """The same, often with bytes that are changed, missing or too many."""
    frame = bytearray(request(chance))
    for _ in range(chance.choice((0, 0, 1, 1, 2, 5))):
        at = chance.randrange(len(frame) + 1)
        match chance.randrange(3):
            case 0:
                frame[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del frame[at:]
            case 2:
                frame[at:at] = chance.randbytes(chance.choice((1, 4, 300)))
    return bytes(frame)


def attack(seed: int, frames: int) -> dict[str, int]:
    """Send so many frames on connections of a few each; how often each thing was done."""
    chance = random.Random(seed)
    outcomes: dict[str, int] = {}
    authenticator = SaslAuthenticator(LISTENER, MockClock())
    left = MAX_FRAMES_OF_ONE
    for _ in range(frames):
        verdict = authenticator.receive(memoryview(hostile(chance)))
        outcomes[verdict.action.name] = outcomes.get(verdict.action.name, 0) + 1
        assert authenticator.principal == ANONYMOUS
        assert authenticator.state is not SaslState.COMPLETE
        left -= 1
        if verdict.action in (Action.FAIL, Action.CLOSE) or not left:
            authenticator = SaslAuthenticator(LISTENER, MockClock())
            left = MAX_FRAMES_OF_ONE
    return outcomes


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
        before, _ = tracemalloc.get_traced_memory()
        attack(9, 6_000)
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
