"""SCRAM: the examples of the RFCs, what is refused, and what an attacker learns."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping

import pytest

from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import SaslAuthenticationError
from ottla.network.sasl_login import sasl_client
from ottla.security.principal import KafkaPrincipal
from ottla.security.sasl import MAX_TOKEN_BYTES, SaslError
from ottla.security.scram import (
    HASHES,
    ScramClient,
    ScramCredential,
    ScramServer,
    UserCredentials,
    salted_password,
)

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCES = ("rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
"""Those of RFC 7677, of client and server."""
CREDENTIAL = ScramCredential.of_password("SCRAM-SHA-256", "pencil", 4096, SALT)
USERS = {"user": CREDENTIAL, "a,b=c": ScramCredential.of_password("SCRAM-SHA-256", "pencil")}


def users_of(
    credentials: Mapping[str, ScramCredential], mechanism: str = "SCRAM-SHA-256"
) -> UserCredentials:
    """Users with these credentials, as the registry has them."""
    settings = {name: {mechanism: each.format()} for name, each in credentials.items()}
    return UserCredentials(mechanism, lambda name: settings.get(name, {}), lambda: settings)


def server(nonce: str = NONCES[1]) -> ScramServer:
    return ScramServer("SCRAM-SHA-256", users_of(USERS), lambda: nonce)


def client(name: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", name, password, nonce=lambda: NONCES[0])


def last_message(first: bytes, password: str = "pencil") -> bytes:
    """What an honest client answers to the first message of a server."""
    honest = client(password=password)
    return honest.evaluate(first)


# The exchange


@pytest.mark.parametrize("part", [b"=2C", b",a=b", b"x"])
def test_longest_message_is_read_in_a_moment(part):
    """The authenticator gives no longer one: half a megabyte of extensions took 0.4 seconds."""
    begin = b"n,,n=a" if part == b"=2C" else b"n,,n=a,r=b"
    room = ScramServer.max_token_bytes - len(begin) - 4
    message = begin + part * (room // len(part)) + (b",r=b" if part == b"=2C" else b"")

    assert len(message) <= ScramServer.max_token_bytes < MAX_TOKEN_BYTES
    assert server().evaluate(message).startswith(b"r=b")


def test_example_of_rfc_7677():
    """Byte for byte, on both sides."""
    one, other = client(), server()
    messages = [one.first()]
    messages.append(other.evaluate(messages[-1]))
    messages.append(one.evaluate(messages[-1]))
    messages.append(other.evaluate(messages[-1]))

    assert [message.decode() for message in messages] == [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ]
    assert one.evaluate(messages[-1]) is None
    assert one.is_complete
    assert (other.is_complete, other.principal) == (True, KafkaPrincipal.user("user"))


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "=2C", "ä ö"])
def test_both_sides_agree(mechanism, name):
    """Both hashes work, and names that must be escaped."""
    users = {name: ScramCredential.of_password(mechanism, "pässword,=")}
    other = ScramServer(mechanism, users_of(users, mechanism))
    login = SaslLogin(mechanism, {"username": name, "password": "pässword,="})
    one = sasl_client(login)

    one.evaluate(other.evaluate(one.evaluate(other.evaluate(one.first()))))

    assert one.is_complete
    assert other.principal == KafkaPrincipal.user(name)


# Credentials


def test_credential_is_kept_as_kafka_keeps_it():
    """Four parts, in base64 where they are bytes; and it is read back."""
    text = CREDENTIAL.format()

    assert re.fullmatch(
        r"salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=[^,]{44},server_key=[^,]{44},iterations=4096",
        text,
    )
    assert ScramCredential.parse(text) == CREDENTIAL
    assert UserCredentials("S", {"u": {"S": text}}.get).of("u") == CREDENTIAL


def test_user_without_a_credential_has_none():
    """Quotas may stand in its place."""
    assert UserCredentials("S", {"u": {"producer_byte_rate": "1"}}.get).of("u") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=AA==",
        "salt=AA==,stored_key=AA==,server_key=AA==,iterations=x",
        "salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096,more=1",
        "salt=AA==,stored_key=AA==,server_key=AA==,server_key=AA==",
        "salt=,stored_key=AA==,server_key=AA==,iterations=4096",
        "salt=SECRET!,stored_key=AA==,server_key=AA==,iterations=4096",
    ],
)
def test_stored_text_that_is_none_is_refused_without_showing_it(text):
    """Nobody logs in with it, and it stands in no log."""
    with pytest.raises(ValueError, match="SCRAM credential") as caught:
        ScramCredential.parse(text)

    assert "SECRET" not in str(caught.value)
    with pytest.raises(SaslError):
        UserCredentials("S", {"u": {"S": text}}.get).of("u")


def test_credential_shows_no_key():
    """A log line of it tells the iterations only."""
    assert repr(CREDENTIAL) == "ScramCredential(iterations=4096)"


# Who is refused


def test_wrong_password_is_refused():
    """After the proof, not before."""
    other = server()
    first = other.evaluate(client().first())

    with pytest.raises(SaslError, match="wrong password for user 'user'"):
        other.evaluate(last_message(first, "pen"))
    assert not other.is_complete


def test_unknown_user_gets_as_far_as_a_known_one():
    """A salt that is always the same for the name, and the refusal only after the proof."""
    firsts = []
    for _ in range(2):
        other = server()
        firsts.append(other.evaluate(client("nobody").first()))
        with pytest.raises(SaslError, match="no SCRAM-SHA-256 credential"):
            other.evaluate(last_message(firsts[-1]))

    known = {len(b64encode(each.salt)) for each in USERS.values()}
    assert firsts[0] == firsts[1]
    assert len(re.search(r"s=([^,]*)", firsts[0].decode()).group(1)) in known
    assert firsts[0].endswith(b",i=4096")


@pytest.mark.parametrize(
    "forge",
    [
        lambda nonce: NONCES[0],
        lambda nonce: nonce + "x",
        lambda nonce: nonce[:-1],
        lambda nonce: "x" + nonce,
        lambda nonce: "other" + NONCES[1],
    ],
    ids=["the client's only", "longer", "shorter", "longer in front", "the server's end"],
)
def test_forged_nonce_is_refused(forge):
    """A right proof does not help a forged nonce, even one that ends right (CVE-2024-56128)."""
    other = server()
    honest = client()
    begin = honest.first()
    first = other.evaluate(begin).decode()
    nonce = forge(NONCES[0] + NONCES[1])
    bare = f"c=biws,r={nonce}"
    message = f"{begin.decode()[3:]},{first},{bare}".encode()
    signature = hmac.digest(CREDENTIAL.stored_key, message, "sha256")
    salted = salted_password("SCRAM-SHA-256", "pencil", SALT, 4096)
    key = hmac.digest(salted, b"Client Key", "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()

    with pytest.raises(SaslError, match="nonce"):
        other.evaluate(f"{bare},p={proof}".encode())


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"", "malformed"),
        (b"n,,n=user", "malformed"),
        (b"y,,n=user,r=abc", "malformed"),
        (b"p=tls-unique,,n=user,r=abc", "malformed"),
        (b"n,,n=us=er,r=abc", "malformed"),
        (b"n,,n=,r=abc", "malformed"),
        (b"n,,n=user,r=", "malformed"),
        (b"n,,n=user,r=a b", "malformed"),
        (b"n,,m=x,n=user,r=abc", "malformed"),
        (b"\xff", "not UTF-8"),
        (b"n,a=other,n=user,r=abc", "authorization id"),
    ],
)
def test_first_message_that_does_not_fit_is_refused(message, said):
    """Before anything is looked up."""
    with pytest.raises(SaslError, match=said):
        server().evaluate(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws",
        b"c=biws,r=%s,p=" % "".join(NONCES).encode(),
        b"c=biws,r=%s,p=AA==" % "".join(NONCES).encode(),
        b"c=biws,r=%s,p=A" % "".join(NONCES).encode(),
        b"c=eSws,r=%s,p=AAAA" % "".join(NONCES).encode(),
        b"\xff",
    ],
)
def test_last_message_that_does_not_fit_is_refused(message):
    """Short proofs, other channel bindings, and what is no message."""
    other = server()
    other.evaluate(client().first())

    with pytest.raises(SaslError):
        other.evaluate(message)
    assert not other.is_complete


def test_own_name_as_authorization_id_is_let_in():
    """The binding may be that of the first message, or that of Kafka's clients."""
    other = server()
    first = other.evaluate(b"n,a=user,n=user,r=" + NONCES[0].encode())

    other.evaluate(last_message(first))

    assert other.is_complete


def test_token_after_the_last_is_refused():
    """An exchange proves one name, once."""
    other = server()
    last = last_message(other.evaluate(client().first()))
    other.evaluate(last)

    with pytest.raises(SaslError, match="after the last"):
        other.evaluate(last)


# Brokers that are none


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"r=%s,s=AAAA,i=4096" % NONCES[0].encode(), "has not added to the nonce"),
        (b"r=other,s=AAAA,i=4096", "has not added to the nonce"),
        (b"r=%sx,s=AAAA,i=4095" % NONCES[0].encode(), "4095 iterations"),
        (b"r=%sx,s=AAAA,i=100000000" % NONCES[0].encode(), "100000000 iterations"),
        (b"r=%sx,s=A,i=4096" % NONCES[0].encode(), "base64"),
        (b"e=other-error", "malformed"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_client_proves_nothing_to_a_broker_that_does_not_play(message, said):
    """Few iterations would make the password easy to guess from the proof."""
    with pytest.raises(SaslAuthenticationError, match=said):
        client().evaluate(message)


@pytest.mark.parametrize("message", [b"v=AAAA", b"e=invalid-proof", b""])
def test_client_is_not_done_before_the_broker_has_proved_itself(message):
    """A broker that does not know the keys of the password cannot be the right one."""
    one = client()
    one.evaluate(server().evaluate(one.first()))

    with pytest.raises(SaslAuthenticationError, match="does not know the password"):
        one.evaluate(message)
    assert not one.is_complete


# Whether a user exists


def shown(name: str, users: Mapping[str, ScramCredential]) -> tuple[int, int, str]:
    """What a broker tells of a name before the login: iterations, length of the salt, the salt."""
    exchange = ScramServer("SCRAM-SHA-256", users_of(users))
    answer = exchange.evaluate(client(name).first()).decode()
    fields = dict(part.split("=", 1) for part in answer.split(","))
    return int(fields["i"]), len(b64decode(fields["s"])), fields["s"]


def test_users_that_are_not_there_look_like_those_that_are():
    """Every broker says the same, also after a restart, and each name has a salt of its own."""
    users = {
        f"user-{number}": ScramCredential.of_password(
            "SCRAM-SHA-256", "secret", 4096 * (1 + number % 2), b"s" * (16 + 8 * (number % 2))
        )
        for number in range(6)
    }
    names = [f"nobody-{number}" for number in range(40)]
    one = [shown(name, users) for name in names]

    assert one == [shown(name, dict(reversed(users.items()))) for name in names]
    assert {each[:2] for each in one} == {(4096, 16), (8192, 24)}
    assert len({salt for *_, salt in one}) == len(names)


def test_credential_that_is_damaged_does_not_give_others_away():
    """It is no model for those that are not there."""
    settings = {"a": {"SCRAM-SHA-256": "damaged"}, "b": {"SCRAM-SHA-256": CREDENTIAL.format()}}
    users = UserCredentials("SCRAM-SHA-256", lambda name: settings.get(name, {}), lambda: settings)

    assert users.decoy_of("nobody").iterations == 4096
    assert len(users.decoy_of("nobody").salt) == len(SALT)


def test_where_there_are_no_users_nobody_can_be_told_apart():
    """Each name keeps its salt as long as the broker runs."""
    assert shown("a", {}) == shown("a", {})
    assert shown("a", {})[2] != shown("b", {})[2]


def test_unknown_names_cost_one_look_at_all_users_for_each_change():
    """It takes as long as there are users, so that a name that is not there could be told by it."""
    looks, changes = [], [0]
    settings = {"a": {"SCRAM-SHA-256": CREDENTIAL.format()}}

    def names():
        looks.append(changes[0])
        return settings

    users = UserCredentials(
        "SCRAM-SHA-256", lambda name: settings.get(name, {}), names, lambda: changes[0]
    )
    before = [users.decoy_of("nobody") for _ in range(3)]
    assert looks == [0]
    changes[0] = 1
    settings["0"] = {"SCRAM-SHA-256": ScramCredential.of_password("SCRAM-SHA-256", "x").format()}
    after = [users.decoy_of("nobody") for _ in range(3)]

    assert looks == [0, 1]
    assert before[0] == before[2] != after[0] == after[2]
