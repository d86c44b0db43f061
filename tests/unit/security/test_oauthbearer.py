"""OAUTHBEARER: messages, claims, signatures and the keys of the authority."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ottla.config.sasl_client_config import SaslLogin
from ottla.errors import SaslAuthenticationError
from ottla.security.jwks import MIN_REFRESH_MS, Jwks, TokenError, read_jwks
from ottla.security.oauth_login import oauth_client, request_token, unsecured_login, unsecured_token
from ottla.security.oauthbearer import (
    INSUFFICIENT_SCOPE,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenRules,
    parse_first,
    signed_validator,
    unsecured_validator,
)
from ottla.security.sasl import SaslError
from ottla.testing import mock_runtime

jwt = pytest.importorskip("jwt", reason="signatures need the package pyjwt (ottla[oauth])")

RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
REFRESH_MS = 3_600_000


def public_jwk(private, key_id: str, **more: str) -> dict[str, str]:
    """The public part of a key as JWKS has it."""
    kinds = {
        rsa.RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    (kind,) = [kinds[each] for each in kinds if isinstance(private, each)]
    return json.loads(kind.to_jwk(private.public_key())) | {"kid": key_id} | more


class Authority:
    """An authority whose keys lie in a file, and a broker on virtual time that reads them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "jwks.json"
        self.publish(public_jwk(RSA, "rsa"), public_jwk(EC, "ec"), public_jwk(ED, "ed"))
        self.runtime = mock_runtime()
        self.keys = Jwks(self.file.as_uri(), REFRESH_MS)
        self.keys.start(self.runtime)
        self.runtime.scheduler.advance(1)

    def publish(self, *keys: dict[str, str]) -> None:
        self.file.write_text(json.dumps({"keys": keys}))

    @property
    def now_s(self) -> int:
        return self.runtime.clock.now_ms() // 1000

    def claims(self, **more: object) -> dict[str, object]:
        claims = {"sub": "alice", "iat": self.now_s, "exp": self.now_s + 600} | more
        return {key: value for key, value in claims.items() if value is not None}

    def token(self, private=RSA, key_id="rsa", algorithm="RS256", headers=None, **claims) -> str:
        head = ({"kid": key_id} if key_id else {}) | (headers or {})
        return jwt.encode(self.claims(**claims), private, algorithm, headers=head)

    def accepts(self, token: str, **rules: object):
        validate = signed_validator(TokenRules(**rules), self.keys, self.runtime.clock)
        return validate(token)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whose keys the broker has read."""
    return Authority(tmp_path)


def first(token: str, authzid: str = "", more: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01{more}\x01".encode()


# Messages


@pytest.mark.parametrize("name", [" admin", "admin ", " admin ", "\tadmin", "admin\u00a0", " ", ""])
def test_name_with_blanks_around_it_is_refused(authority, name):
    """A name without its blanks would be that of another user."""
    with pytest.raises(TokenError, match="without blanks around it"):
        TokenRules().check(authority.claims(sub=name), authority.now_s * 1000)


def test_a_good_token_names_the_client_until_it_expires(authority):
    """One message of the client, and an empty answer."""
    rules = TokenRules()
    server = OAuthBearerServer(unsecured_validator(rules, authority.runtime.clock))
    client = OAuthBearerClient(unsecured_token(authority.claims()), {"trace": "7"})

    assert server.evaluate(client.first()) == b""
    assert client.evaluate(b"") is None
    assert server.is_complete
    assert client.is_complete
    assert str(server.principal) == "User:alice"
    assert server.expires_ms == (authority.now_s + 600) * 1000


def test_a_refused_token_is_told_why_before_the_end(authority):
    """Error 0 with JSON, and 58 with the same text once the client has read it (RFC 7628)."""
    server = OAuthBearerServer(unsecured_validator(TokenRules(), authority.runtime.clock))
    client = OAuthBearerClient(unsecured_token(authority.claims(exp=authority.now_s - 60)))
    answer = server.evaluate(client.first())
    assert answer == b'{"status":"invalid_token"}'
    reply = client.evaluate(answer)
    assert reply == b"\x01"
    assert not client.is_complete

    with pytest.raises(SaslError, match="it has expired") as caught:
        server.evaluate(reply)
    assert caught.value.shown == '{"status":"invalid_token"}'
    assert not server.is_complete


def test_a_scope_that_lacks_is_named(authority):
    """The client can ask the authority for the scope that it lacks."""
    rules = TokenRules(required_scope=frozenset({"write", "read"}))
    server = OAuthBearerServer(unsecured_validator(rules, authority.runtime.clock))

    answer = server.evaluate(first(unsecured_token(authority.claims(scope="read"))))
    assert json.loads(answer) == {"status": INSUFFICIENT_SCOPE, "scope": "read write"}


@pytest.mark.parametrize(("authzid", "fits"), [("a=alice", True), ("a=bob", False), ("", True)])
def test_a_client_is_nobody_but_the_owner_of_its_token(authority, authzid, fits):
    """An authorization id of another one is refused."""
    server = OAuthBearerServer(unsecured_validator(TokenRules(), authority.runtime.clock))
    message = first(unsecured_token(authority.claims()), authzid)
    if fits:
        server.evaluate(message)
        assert server.is_complete
        return
    with pytest.raises(SaslError, match=r"id \(bob\) that is different"):
        server.evaluate(message)


def test_names_in_the_first_message_are_unescaped():
    """A comma and an equals sign have a meaning there."""
    assert parse_first(first("t.t.t", "a=x=2Cy=3D")) == ("x,y=", "t.t.t")
    assert parse_first(b"n,,\x01host=h\x01auth=bEARER  t.t.\x01port=1\x01\x01") == ("", "t.t.")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer t",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,a=x=,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer t\x01\x01\x00",
    ],
)
def test_what_is_no_first_message_is_refused(message):
    """The form is checked before any token is looked at."""
    with pytest.raises(SaslError, match="first message of OAUTHBEARER"):
        parse_first(message)


# Claims


@pytest.mark.parametrize(
    ("claims", "rules", "reason"),
    [
        ({"exp": None}, {}, "exp must be a time"),
        ({"exp": "soon"}, {}, "exp must be a time"),
        ({"exp": True}, {}, "exp must be a time"),
        ({"exp": -1}, {}, "exp must be a time"),
        ({"exp": float("inf")}, {}, "exp must be a time"),
        ({"exp": 1}, {}, "it has expired"),
        ({"iat": None}, {}, "iat must be a time"),
        ({"iat": 1 << 40}, {}, "it begins later"),
        ({"nbf": 1 << 40}, {}, "it begins later"),
        ({"sub": None}, {}, "the claim sub must be"),
        ({"sub": "  "}, {}, "the claim sub must be"),
        ({"sub": ["alice"]}, {}, "the claim sub must be"),
        ({}, {"principal_claim": "email"}, "the claim email must be"),
        ({"iss": "https://evil"}, {"issuer": "https://good"}, "iss must be https://good"),
        ({}, {"issuer": "https://good"}, "iss must be https://good, not None"),
        ({"aud": "other"}, {"audience": frozenset({"kafka"})}, "aud must have one of kafka"),
        ({"aud": 7}, {"audience": frozenset({"kafka"})}, "aud must have one of kafka"),
    ],
)
def test_claims_that_break_a_rule_are_named(authority, claims, rules, reason):
    """In the log: the client is told no more than that its token is not valid."""
    with pytest.raises(TokenError, match=reason):
        authority.accepts(authority.token(**claims), **rules)


def test_claims_may_have_other_names(authority):
    """`sasl.oauthbearer.sub.claim.name` and its kin; a list of audiences is searched."""
    token = authority.token(email="a@b.c", scp=["x", "y"], aud=["one", "kafka"], iss="us")
    rules = {"principal_claim": "email", "scope_claim": "scp", "issuer": "us"}
    read = authority.accepts(token, **rules, audience=frozenset({"kafka"}))

    assert read.principal_name == "a@b.c"
    assert read.scope == {"x", "y"}


def test_clocks_may_differ_a_little(authority):
    """Half a minute, as `sasl.oauthbearer.clock.skew.seconds` says."""
    now = authority.now_s
    authority.accepts(authority.token(iat=now + 29, exp=now + 100))
    authority.accepts(authority.token(iat=now - 100, exp=now - 29))
    with pytest.raises(TokenError, match="expired"):
        authority.accepts(authority.token(iat=now - 100, exp=now - 31))


# Signatures


@pytest.mark.parametrize(
    ("private", "key_id", "algorithm"),
    [(RSA, "rsa", "RS256"), (RSA, "rsa", "PS512"), (EC, "ec", "ES256"), (ED, "ed", "EdDSA")],
)
def test_tokens_of_the_authority_are_taken(authority, private, key_id, algorithm):
    """Each kind of key works, named by the token or the only one of its kind."""
    for name in (key_id, None):
        token = authority.token(private, name, algorithm)
        assert authority.accepts(token).principal_name == "alice"


def test_a_token_without_a_signature_is_refused(authority):
    """`alg: none`, however it is written, and with whatever behind it."""
    for head in ("none", "None", "NONE", "", None, 7):
        whole = authority.token()
        part = base64.urlsafe_b64encode(json.dumps({"alg": head, "kid": "rsa"}).encode())
        unsigned = part.decode().rstrip("=") + "." + whole.split(".")[1] + "."
        for token in (unsigned, unsigned + whole.split(".")[2]):
            with pytest.raises(TokenError, match="is not one of"):
                authority.accepts(token)


def test_a_public_key_is_no_password(authority):
    """A token that was signed by HMAC with the text of the public key is refused."""
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa"}').decode().rstrip("=")
    body = f"{head}.{authority.token().split('.')[1]}"
    secret = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = hmac.digest(secret, body.encode(), "sha256")
    token = f"{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"
    with pytest.raises(TokenError, match="alg 'HS256' is not one of"):
        authority.accepts(token)


def test_signatures_of_others_are_refused(authority):
    """A key of the same name, changed claims and a critical header are refused."""
    with pytest.raises(TokenError, match="does not verify"):
        authority.accepts(authority.token(OTHER_RSA))
    head, _, signature = authority.token().split(".")
    claims = authority.token(sub="root").split(".")[1]
    with pytest.raises(TokenError, match="does not verify"):
        authority.accepts(f"{head}.{claims}.{signature}")
    with pytest.raises(TokenError, match="critical headers"):
        authority.accepts(authority.token(headers={"crit": ["b64"], "b64": True}))
    with pytest.raises(TokenError, match="no key for alg ES256 with kid 'rsa'"):
        authority.accepts(authority.token(EC, "rsa", "ES256"))


@pytest.mark.parametrize(
    "token", ["", "a", "a.b", "a.b.c", "e30.e30", "e30.W10.", "e30.!.", "...."]
)
def test_what_is_no_jwt_is_refused(authority, token):
    """Signed or not; deep JSON as well."""
    unsecured = unsecured_validator(TokenRules(), authority.runtime.clock)
    deep = base64.urlsafe_b64encode(b"[" * 200_000).decode().rstrip("=")
    for text in (token, f"{deep}.{deep}."):
        for validate in (unsecured, authority.accepts):
            with pytest.raises(TokenError):
                validate(text)


def test_unsecured_tokens_have_no_signature(authority):
    """What is signed is for a listener that verifies it."""
    validate = unsecured_validator(TokenRules(), authority.runtime.clock)
    with pytest.raises(TokenError, match="alg none"):
        validate(authority.token())
    with pytest.raises(TokenError, match="alg none"):
        validate(unsecured_token(authority.claims()) + "x")


# Keys


def test_a_new_key_is_read_when_a_token_names_it(authority):
    """The first token is refused; at most every ten seconds keys are read for such a reason."""
    authority.runtime.scheduler.advance(MIN_REFRESH_MS)
    authority.publish(public_jwk(OTHER_RSA, "next"))
    token = authority.token(OTHER_RSA, "next")
    with pytest.raises(TokenError, match="no key for alg RS256 with kid 'next'"):
        authority.accepts(token)
    authority.runtime.scheduler.advance(1)
    authority.accepts(token)

    authority.publish(public_jwk(RSA, "rsa"))
    with pytest.raises(TokenError):
        authority.accepts(authority.token())
    authority.runtime.scheduler.advance(1)
    with pytest.raises(TokenError):
        authority.accepts(authority.token())


def test_keys_are_read_again_from_time_to_time(authority):
    """A key that the authority has taken back is forgotten within an hour."""
    token = authority.token()
    authority.publish(public_jwk(EC, "ec"))
    authority.accepts(token)
    authority.runtime.scheduler.advance(REFRESH_MS + 1)

    with pytest.raises(TokenError, match="no key"):
        authority.accepts(authority.token())


@pytest.mark.parametrize(
    "content", [None, "", "{}", "[]", '{"keys": 7}', '{"keys": [{"kty": "x"}]}']
)
def test_keys_stay_while_they_cannot_be_read(authority, caplog, content):
    """The authority is down, or answers with something else."""
    authority.file.unlink()
    if content is not None:
        authority.file.write_text(content)
    authority.runtime.scheduler.advance(REFRESH_MS + 1)

    authority.accepts(authority.token())
    (line,) = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert line.startswith(f"the keys of OAUTHBEARER cannot be read from {authority.file.as_uri()}")


# A client's token


def test_a_login_for_tests_is_made_of_options():
    """The options of Kafka's login module, with strings, numbers and lists."""
    options = {
        "unsecuredLoginStringClaim_sub": "alice",
        "unsecuredLoginNumberClaim_level": "3",
        "unsecuredLoginListClaim_scope": "|read|write",
        "unsecuredLoginLifetimeSeconds": "60",
    }
    runtime = mock_runtime()
    now_ms = runtime.clock.now_ms()
    validate = unsecured_validator(TokenRules(), runtime.clock)

    read = validate(unsecured_login(options, now_ms))
    assert read == ("alice", now_ms + 60_000, {"read", "write"})


def test_a_token_may_lie_in_a_file(tmp_path):
    """Kubernetes has such files; a file that is missing is an error of the login."""
    (tmp_path / "token").write_text("a.b.c\n")

    assert request_token((tmp_path / "token").as_uri(), "", "", "") == "a.b.c"
    with pytest.raises(SaslAuthenticationError, match="no token can be had from file:"):
        request_token((tmp_path / "missing").as_uri(), "", "", "")


def login(**options: str) -> SaslLogin:
    return SaslLogin("OAUTHBEARER", options)


def test_a_token_is_used_until_most_of_its_life_is_over(authority, tmp_path):
    """Then another one is asked for; one that does not say when it ends is asked for each time."""
    file, run = tmp_path / "token", authority.runtime.scheduler.run
    file.write_text(authority.token(sub="first"))
    one = login(url=file.as_uri(), extension_trace="7")

    def sent() -> bytes:
        return run(oauth_client(one, authority.runtime)).first()

    first_message = sent()
    assert b"\x01trace=7\x01" in first_message
    file.write_text(authority.token(sub="second"))
    authority.runtime.scheduler.advance(470_000)
    assert sent() == first_message
    authority.runtime.scheduler.advance(20_000)
    assert sent() != first_message
    file.write_text("opaque")
    authority.runtime.scheduler.advance(600_000)
    assert b"opaque" in sent()
    file.write_text("other")
    assert b"other" in sent()


def test_a_client_without_a_token_is_told_why(authority, tmp_path):
    """The file or the server is named."""
    missing = login(url=(tmp_path / "missing").as_uri())
    with pytest.raises(SaslAuthenticationError, match="no token can be had from file:"):
        authority.runtime.scheduler.run(oauth_client(missing, authority.runtime))


# A server over https


@pytest.fixture
def https(certificates, monkeypatch) -> Iterator[HTTPServer]:
    """A server of an authority, which answers with what the test gives it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            server.asked.append((self.headers["Authorization"], self.rfile.read(length)))
            self.do_GET()

        def do_GET(self) -> None:
            status, body, headers = server.answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.url = f"https://localhost:{server.server_port}/token"
    server.asked = []
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_token_is_asked_for_with_name_and_secret(https):
    """The grant client_credentials of RFC 6749."""
    https.answer = (200, b'{"access_token": "a.b.c", "token_type": "Bearer"}', {})

    assert request_token(https.url, "me", "s3cret", "read write") == "a.b.c"
    ((authorization, form),) = https.asked
    assert base64.b64decode(authorization.removeprefix("Basic ")) == b"me:s3cret"
    assert form == b"grant_type=client_credentials&scope=read+write"


@pytest.mark.parametrize(
    "answer",
    [
        (401, b'{"error": "invalid_client"}', {}),
        (302, b"", {"Location": "http://localhost:1/elsewhere"}),
        (200, b"<html>", {}),
        (200, b'{"access_token": 7}', {}),
        (200, b"[]", {}),
    ],
)
def test_an_answer_without_a_token_is_an_error(https, answer):
    """A redirection is not followed: another server would get the secret."""
    https.answer = answer
    with pytest.raises(SaslAuthenticationError, match="no token can be had from https:") as caught:
        request_token(https.url, "me", "s3cret", "")

    assert "s3cret" not in str(caught.value)


def test_keys_are_read_over_https(https, certificates, monkeypatch):
    """The server's certificate must be trusted."""
    https.answer = (200, json.dumps({"keys": [public_jwk(RSA, "rsa")]}).encode(), {})

    assert [key.key_id for key in read_jwks(https.url)] == ["rsa"]
    monkeypatch.setenv("SSL_CERT_FILE", certificates.other_ca)
    with pytest.raises(OSError, match="certificate verify failed"):
        read_jwks(https.url)


# A source of tokens of one's own


def first_of(source, runtime) -> bytes:
    login = SaslLogin("OAUTHBEARER", {}, {"source": source})
    return runtime.scheduler.run(oauth_client(login, runtime)).first()


def test_token_comes_from_a_callable():
    """It is asked again when the token is near its end, not before."""
    runtime = mock_runtime()
    asked: list[str] = []

    def source() -> str:
        now_s = runtime.clock.now_ms() // 1000
        asked.append(unsecured_token({"sub": "alice", "exp": now_s + 100, "iat": now_s}))
        return asked[-1]

    login = SaslLogin("OAUTHBEARER", {}, {"source": source})
    for _ in range(2):
        first = runtime.scheduler.run(oauth_client(login, runtime)).first()
        assert asked[0].encode() in first
    assert len(asked) == 1
    runtime.scheduler.advance(90_000)
    assert asked[0].encode() not in runtime.scheduler.run(oauth_client(login, runtime)).first()
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("source", "said"),
    [(lambda: 1 // 0, "ZeroDivisionError"), (lambda: b"x", "a bytes"), (lambda: "", "no text")],
)
def test_source_that_gives_no_token_is_named(source, said):
    """The login fails, with the reason."""
    with pytest.raises(SaslAuthenticationError, match=rf"token\.source .*{said}"):
        first_of(source, mock_runtime())
