"""GSSAPI: short names, and the exchange with contexts that a test answers for.

tests/clients/test_kerberos.py has a real KDC.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ottla.config.client_config import AdminConfig
from ottla.errors import ConfigError, SaslAuthenticationError
from ottla.security.kerberos import OFFER, GssapiClient, GssapiServer, new_server
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.security.sasl import SaslError
from ottla.security.short_names import ShortNames

REALM = "EXAMPLE.COM"


@pytest.mark.parametrize(
    ("rules", "name", "short"),
    [
        ("DEFAULT", "alice@EXAMPLE.COM", "alice"),
        ("DEFAULT", "alice", "alice"),
        ("DEFAULT", "kafka/host.example.com@EXAMPLE.COM", "kafka"),
        ("RULE:[1:$1]", "alice@ELSEWHERE", "alice"),
        ("RULE:[1:$1@$0](.*@ELSEWHERE)s/@.*//,DEFAULT", "alice@ELSEWHERE", "alice"),
        ("RULE:[1:$1@$0](.*@ELSEWHERE)s/@.*//,DEFAULT", "bob@EXAMPLE.COM", "bob"),
        ("RULE:[2:$2.$1]s/\\./-/g", "a.b/c.d@X", "c-d-a-b"),
        ("RULE:[2:$2.$1]s/\\./-/", "a.b/c.d@X", "c-d.a.b"),
        ("RULE:[1:$1](A.*)s/A(.*)/b$1//L", "ALICE@X", "blice"),
        ("RULE:[1:$1]/U", "alice@X", "ALICE"),
        (" RULE:[1:$1](a{1,2}lice) , DEFAULT", "aalice@X", "aalice"),
    ],
)
def test_first_rule_that_fits_names_the_client(rules, name, short):
    """In Kafka's language of rules; a comma may stand in a regex."""
    assert ShortNames(rules, REALM).of(name) == short


@pytest.mark.parametrize(
    ("rules", "name", "said"),
    [
        ("DEFAULT", "alice@ELSEWHERE", "no rule"),
        ("RULE:[2:$1]", "alice@X", "no rule"),
        ("RULE:[1:$1](b.*)", "alice@X", "no rule"),
        ("RULE:[1:$1@$0]", "alice@X", "no short name"),
        ("RULE:[2:$1/$2]", "a/b@X", "no short name"),
        ("RULE:[1:$1]s/.*//", "alice@X", "no short name"),
        ("DEFAULT", "a/b/c@EXAMPLE.COM", "no name of Kerberos"),
        ("DEFAULT", "", "no name of Kerberos"),
    ],
)
def test_name_without_a_short_one_is_refused(rules, name, said):
    """A name with a slash or an at sign might be taken for another one."""
    with pytest.raises(SaslError, match=said):
        ShortNames(rules, REALM).of(name)


@pytest.mark.parametrize("rules", ["default", "RULE:$1", "RULE:[1:$1](", "DEFAULT x"])
def test_rule_of_another_form_is_refused(rules):
    """The setting is named, and where it cannot be read."""
    with pytest.raises(ConfigError, match=r"principal\.to\.local\.rules=.*: must be DEFAULT"):
        ShortNames(rules, REALM)


@pytest.mark.parametrize(
    ("rule", "said"),
    [("RULE:[1:$1](*)", "cannot be read"), ("RULE:[1:$2]", "names a part")],
)
def test_rule_that_cannot_work_is_refused(rule, said):
    """The refusal comes at the start, not at the first login."""
    with pytest.raises(ConfigError, match=said):
        ShortNames(rule, REALM)


class Context:
    """One side of GSSAPI: `steps` are its tokens, of which the last completes it."""

    initiator_name = "alice@EXAMPLE.COM"

    def __init__(self, *steps: bytes | None) -> None:
        self.steps = list(steps)
        self.complete = False

    def step(self, token: bytes) -> bytes | None:
        if token == b"broken":
            raise ValueError("a  token\nof nobody")
        answer = self.steps.pop(0)
        self.complete = not self.steps
        return answer

    def wrap(self, message: bytes, encrypt: bool) -> SimpleNamespace:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + message)

    def unwrap(self, token: bytes) -> SimpleNamespace:
        return SimpleNamespace(message=token.removeprefix(b"wrapped "))


def server(*steps: bytes | None) -> GssapiServer:
    return GssapiServer(lambda: Context(*steps), ShortNames("DEFAULT", REALM))


def test_server_offers_no_layer_and_names_the_client():
    """After its last token, and the client's empty message."""
    one = server(b"more", b"last")

    assert one.evaluate(b"first") == b"more"
    assert one.evaluate(b"second") == b"last"
    assert one.evaluate(b"") == b"wrapped " + OFFER
    assert (one.is_complete, one.principal) == (False, ANONYMOUS)
    assert one.evaluate(b"wrapped \1\0\0\0kafka@host") == b""
    assert (one.is_complete, one.principal) == (True, KafkaPrincipal.user("alice"))
    with pytest.raises(SaslError, match="after the last"):
        one.evaluate(b"")


def test_server_whose_context_needs_no_answer_offers_at_once():
    """The exchange is that without mutual authentication."""
    assert server(None).evaluate(b"first") == b"wrapped " + OFFER


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([b"broken"], "GSSAPI: a token of nobody"),
        ([b"first", b"too early"], "before the offer"),
        ([b"first", b"", b"wrapped \1\0"], "too short"),
        ([b"first", b"", b"wrapped \4\0\0\0"], "layer 4"),
    ],
)
def test_client_that_breaks_the_exchange_is_refused(tokens, said):
    """The refusal names no client."""
    one = server(b"last")
    *before, last = tokens
    for token in before:
        one.evaluate(token)

    with pytest.raises(SaslError, match=said):
        one.evaluate(last)
    assert (one.is_complete, one.principal) == (False, ANONYMOUS)


def test_client_asks_for_no_layer():
    """Its last word is wrapped; there is none after it."""
    client = GssapiClient(Context(None), b"first")

    assert client.first() == b"first"
    assert client.evaluate(b"last") == b""
    assert client.evaluate(b"wrapped " + OFFER) == b"wrapped " + OFFER
    assert client.is_complete
    assert client.evaluate(b"") is None


@pytest.mark.parametrize(
    ("offer", "said"), [(b"wrapped \2\0\0\0", "wants a layer"), (b"wrapped \1", "wants a layer")]
)
def test_broker_that_wants_a_layer_is_refused(offer, said):
    """Unsigned frames would pass for signed ones."""
    client = GssapiClient(Context(None), b"first")
    client.evaluate(b"last")

    with pytest.raises(SaslAuthenticationError, match=said):
        client.evaluate(offer)
    assert not client.is_complete


def test_broker_that_cannot_prove_itself_is_refused():
    """The reason is one line."""
    with pytest.raises(SaslAuthenticationError, match="GSSAPI: a token of nobody"):
        GssapiClient(Context(None), b"first").evaluate(b"broken")


def test_package_that_is_missing_is_named(monkeypatch):
    """The error names the package to install."""
    monkeypatch.setitem(sys.modules, "gssapi", None)

    with pytest.raises(ConfigError, match=r"pip install ottla\[kerberos\]"):
        new_server("key", {"keyTab": "x", "principal": "kafka/x"}, "DEFAULT", None)


MODULE = "com.sun.security.auth.module.Krb5LoginModule"
CLIENT = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "sasl.kerberos.service.name: must be set"),
        (
            {"sasl.kerberos.service.name": "kafka", "sasl.username": "alice"},
            "sasl.username: must not be set",
        ),
        (
            {
                "sasl.kerberos.service.name": "kafka",
                "sasl.jaas.config": f"{MODULE} required useKeyTab=true principal=a;",
            },
            "must have keyTab",
        ),
        ({"sasl.kerberos.service.name": "kafka", "sasl.kerberos.kinit.cmd": "x"}, "kinit"),
    ],
)
def test_login_that_cannot_work_is_refused(settings, said):
    """Before anything is asked."""
    with pytest.raises(ConfigError, match=said):
        AdminConfig.parse(CLIENT | settings).sasl_login()


def test_login_has_its_service():
    """The service is that of the setting, or of the login module, as older files have it."""
    of_module = {"sasl.jaas.config": f'{MODULE} required serviceName="kafka";'}

    for settings in (of_module, {"sasl.kerberos.service.name": "kafka"}):
        assert AdminConfig.parse(CLIENT | settings).sasl_login().options["serviceName"] == "kafka"
