"""Hostile frames of clients that have not logged in: for a listener alone, or a whole broker."""

from __future__ import annotations

import base64
import json
import random
import socket
import struct
from collections import Counter

from ottla.protocol.api_keys import MESSAGES
from ottla.protocol.api_versions import ApiVersionsRequest
from ottla.protocol.header import encode_request
from ottla.protocol.message import request_class
from ottla.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from ottla.security.principal import ANONYMOUS
from ottla.security.sasl import Action, PlainServer, SaslAuthenticator, SaslListener, SaslState
from ottla.security.scram import ScramCredential, ScramServer, UserCredentials
from ottla.testing import MockClock

MAX_FRAMES_OF_ONE = 8
MAX_RECEIVE_BYTES = 524_288
WAIT_S = 60
PASSWORD = "not to be guessed"
ALICE = {"SCRAM-SHA-256": ScramCredential.of_password("SCRAM-SHA-256", PASSWORD).format()}
USERS = UserCredentials(
    "SCRAM-SHA-256", lambda name: ALICE if name == "alice" else {}, lambda: ["alice"]
)
LISTENER = SaslListener(
    {
        "PLAIN": lambda: PlainServer({"alice": PASSWORD}),
        "SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", USERS),
        "GSSAPI": lambda: ScramServer("SCRAM-SHA-256", USERS),
    },
    {},
    MAX_RECEIVE_BYTES,
    100,
)


def unsigned_token(algorithm: str) -> bytes:
    """A token of OAUTHBEARER that says how nobody has signed it."""
    claims = {"sub": "alice", "iat": 1_700_000_000, "exp": 4_000_000_000}
    parts = [{"alg": algorithm}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b"n,,\1auth=Bearer " + b".".join(encoded) + b".\1\1"


TOKENS = (
    b"\0alice\0guess",
    b"admin\0alice\0not to be guessed",
    b"n,,n=alice,r=abc",
    b"n,a=alice,n=alice,r=abc,tokenauth=true",
    b"n,a=admin,n=alice,r=abc",
    b"c=biws,r=abc,p=AAAA",
    b"",
    b"\1",
    unsigned_token("none"),
    unsigned_token("HS256"),
)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "")


def request(chance: random.Random) -> bytes:
    """A frame that is right, mostly one of an exchange."""
    kind = chance.randrange(8)
    if kind == 0:
        names = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        return encode_request(chance.choice((0, 3, 4)), 1, "fuzz", names)[4:]
    if kind in (1, 2, 3):
        choice = SaslHandshakeRequest(mechanism=chance.choice(MECHANISMS))
        return encode_request(chance.randrange(2), 1, "fuzz", choice)[4:]
    if kind in (4, 5):
        token = SaslAuthenticateRequest(auth_bytes=chance.choice(TOKENS))
        return encode_request(chance.randrange(3), 1, None, token)[4:]
    if kind == 6:
        return chance.choice(TOKENS)
    other = request_class(chance.choice(list(MESSAGES)))
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


def attack(seed: int, frames: int) -> Counter[str]:
    """Send so many frames on connections of a few each; how often each thing was done."""
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    authenticator = SaslAuthenticator(LISTENER, MockClock())
    left = MAX_FRAMES_OF_ONE
    for _ in range(frames):
        verdict = authenticator.receive(memoryview(hostile(chance)))
        outcomes[verdict.action.name] += 1
        assert authenticator.principal == ANONYMOUS
        assert authenticator.state is not SaslState.COMPLETE
        left -= 1
        if verdict.action in (Action.FAIL, Action.CLOSE) or not left:
            authenticator = SaslAuthenticator(LISTENER, MockClock())
            left = MAX_FRAMES_OF_ONE
    return outcomes


def claimed_size(chance: random.Random, frame: bytes) -> int:
    """The size before a frame: sometimes a wrong one, or one that nobody may send yet."""
    if chance.random() < 0.9:
        return len(frame)
    wrong = (-1, 0, MAX_RECEIVE_BYTES + 1, 0x7FFFFFFF, 0x16030100, chance.randrange(1 << 20))
    return chance.choice(wrong)


def storm(port: int, seed: int, frames: int) -> Counter[str]:
    """Send so many frames to a listener of a broker: how often there was an answer, or the end."""
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    sent = 0
    while sent < frames:
        outcomes["connections"] += 1
        with socket.create_connection(("127.0.0.1", port), WAIT_S) as client:
            for _ in range(MAX_FRAMES_OF_ONE):
                frame, sent = hostile(chance), sent + 1
                size = claimed_size(chance, frame)
                is_answered = is_answer_to(client, struct.pack(">i", size) + frame, size)
                outcomes["answers" if is_answered else "ends"] += 1
                if not is_answered:
                    break
    return outcomes


def is_answer_to(client: socket.socket, data: bytes, size: int) -> bool:
    """Whether something comes back; what the broker would wait for more of has its end here."""
    try:
        client.sendall(data)
        if size != len(data) - 4:
            client.shutdown(socket.SHUT_WR)
        return bool(client.recv(1 << 16))
    except OSError:  # it was closed already, or is now
        return False
