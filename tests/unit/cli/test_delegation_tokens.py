"""`ottla delegation-tokens`: the texts of Kafka's tool."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from ottla.cli.delegation_tokens import date
from ottla.security.delegation_tokens import DelegationToken
from ottla.security.principal import KafkaPrincipal
from ottla.structs import replace

ALICE, BOB = KafkaPrincipal.user("alice"), KafkaPrincipal.user("bob")
HMAC = b"\x01" * 64
TEXT = b64encode(HMAC).decode()
ISSUE_MS = 1_700_000_000_000
TOKEN = DelegationToken(
    "8ku6y4u1T_qc9vim8tVEuw", ALICE, BOB, (BOB,), ISSUE_MS, ISSUE_MS + 1, ISSUE_MS + 2, HMAC
)
HEADER = (
    "TOKENID         HMAC                           OWNER           REQUESTER       RENEWERS"
    "                  ISSUEDATE       EXPIRYDATE      MAXDATE        "
)
ROW = (
    f"8ku6y4u1T_qc9vim8tVEuw {TEXT} User:alice      User:bob        [User:bob]               "
    f" {date(ISSUE_MS)} {date(ISSUE_MS)} {date(ISSUE_MS)}"
)


class FakeTokens:
    """An admin client that keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def __enter__(self) -> FakeTokens:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def create_delegation_token(self, owner, renewers, lifetime_ms) -> DelegationToken:
        self.asked.append(("create", owner, renewers, lifetime_ms))
        return replace(TOKEN, renewers=tuple(renewers))

    def renew_delegation_token(self, hmac: bytes, period_ms: int) -> int:
        self.asked.append(("renew", hmac, period_ms))
        return ISSUE_MS

    def expire_delegation_token(self, hmac: bytes, period_ms: int) -> int:
        self.asked.append(("expire", hmac, period_ms))
        return ISSUE_MS

    def describe_delegation_tokens(self, owners) -> list[DelegationToken]:
        self.asked.append(("describe", owners))
        return [TOKEN]


@pytest.fixture
def tokens(clients) -> FakeTokens:
    clients.client = FakeTokens()
    return clients.client


def test_token_is_made(ottla, tokens):
    """A token is made, and shown with its password."""
    outcome = ottla(
        *("delegation-tokens", "--create", "--renewer-principal", "User:bob"),
        *("--max-life-time-period", "-1"),
    )

    assert outcome.lines == [
        "Calling create token operation with renewers :[User:bob] , max-life-time-period :-1",
        "Created delegation token with tokenId : 8ku6y4u1T_qc9vim8tVEuw",
        "",
        HEADER,
        "",
        ROW,
    ]
    assert tokens.asked == [("create", None, [BOB], -1)]


def test_token_is_made_for_another_owner(ottla, tokens):
    """The lifetime may be left out."""
    ottla("delegation-tokens", "--create", "--owner-principal", "User:bob")

    assert tokens.asked == [("create", BOB, [], -1)]


@pytest.mark.parametrize(
    ("verb", "option", "name"),
    [
        ("renew", "--renew-time-period", "renew-time-period"),
        ("expire", "--expiry-time-period", "expire-time-period"),
    ],
)
def test_token_gets_another_end(ottla, tokens, verb, option, name):
    """The new end of the token is shown."""
    outcome = ottla("delegation-tokens", f"--{verb}", "--hmac", TEXT, option, "60000")

    assert outcome.lines == [
        f"Calling {verb} token operation with hmac :{TEXT} , {name} :60000",
        f"Completed {verb} operation. New expiry date : {date(ISSUE_MS)}",
    ]
    assert tokens.asked == [(verb, HMAC, 60000)]


def test_tokens_are_listed(ottla, tokens):
    """All that one may see, or those of owners."""
    assert ottla("delegation-tokens", "--describe").lines == [
        "Calling describe token operation for current user.",
        "Total number of tokens : 1",
        "",
        HEADER,
        "",
        ROW,
    ]
    outcome = ottla("delegation-tokens", "--describe", "--owner-principal", "User:alice")
    assert outcome.lines[0] == "Calling describe token operation for owners: [User:alice]"
    assert tokens.asked == [("describe", None), ("describe", [ALICE])]


def test_tokens_are_listed_for_programs(ottla, tokens):
    """The output is JSON, and nothing else."""
    outcome = ottla("delegation-tokens", "--describe", "--format", "json")
    (row,) = json.loads(outcome.out)

    assert row["tokenid"] == TOKEN.token_id
    assert row["hmac"] == TEXT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "Command must include exactly one action"),
        (("--create", "--describe"), "Command must include exactly one action"),
        (("--renew",), "missing required option --hmac"),
        (("--expire",), "missing required option --hmac"),
        (("--create", "--hmac", TEXT), "--hmac cannot be used with option --create"),
        (("--describe", "--renew-time-period", "1"), "cannot be used with option --describe"),
        (("--renew", "--hmac", "?"), "in base64"),
        (("--create", "--owner-principal", "alice"), "type:name"),
        (("--create", *("--owner-principal", "User:a") * 2), "one owner"),
        (("--create", "--max-life-time-period", "x"), "takes a number"),
    ],
)
def test_options_that_do_not_fit_are_refused(ottla, tokens, words, said):
    """Such options are a misuse, and no broker is asked."""
    outcome = ottla("delegation-tokens", *words)

    assert outcome.status != 0
    assert said in outcome.err
    assert tokens.asked == []


@pytest.mark.parametrize("years", [10_000, 200_000_000])
def test_token_of_a_far_future_is_shown(years):
    """`delegation.token.max.lifetime.ms` may be as large as a long."""
    assert date(years * 31_556_952_000).startswith("+")


@pytest.mark.parametrize("hmac", ["\u0663", "\udcff", "!", "AAA"])
def test_hmac_that_is_no_base64_is_refused_in_words(ottla, tokens, hmac):
    """Also one of letters beyond ASCII."""
    outcome = ottla("delegation-tokens", "--renew", "--hmac", hmac)

    assert outcome.status == 1
    assert "--hmac takes the HMAC that --create has shown, in base64" in outcome.err
