"""Principals are read and written as Kafka writes them."""

from __future__ import annotations

import re

import pytest

from ottla.errors import ConfigError
from ottla.security.principal import ANONYMOUS, KafkaPrincipal
from ottla.security.ssl_principal_mapper import NoMatchingRuleError, SslPrincipalMapper


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a,O=b:c", "Group:x"])
def test_a_principal_is_read_and_written(text):
    """The first colon ends the type; what follows is the name."""
    assert str(KafkaPrincipal.parse(text)) == text


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_half_a_principal_is_refused(text):
    """A text without a type or a name is named in the error."""
    with pytest.raises(ValueError, match=f"type:name, as User:alice, not '{text}'"):
        KafkaPrincipal.parse(text)


def test_nobody_in_particular_is_anonymous():
    """The principal of a client that was not authenticated is Kafka's."""
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert KafkaPrincipal.user("ANONYMOUS") == ANONYMOUS


BOB = "CN=Bob,OU=a\\, b,O=Example,C=DE"


@pytest.mark.parametrize(
    ("rules", "name", "short"),
    [
        ("DEFAULT", BOB, BOB),
        (" DEFAULT ", BOB, BOB),
        ("RULE:^CN=(.*?),.*$/$1/", BOB, "Bob"),
        ("RULE:^CN=(.*?),.*$/$1/L", BOB, "bob"),
        ("RULE:^CN=(.*?),.*$/$1/U", BOB, "BOB"),
        ("RULE:CN=(.*?),OU=(.*?),O=.*/$2@$1/", BOB, "a\\, b@Bob"),
        ("RULE:^CN=Eve.*$/no/, RULE:CN=(\\w+),.*/yes-$1/L , DEFAULT", BOB, "yes-bob"),
        ("RULE:^CN=Eve.*$/no/,DEFAULT", BOB, BOB),
        ("RULE:CN=(\\w+),.*/$1\\/$2$3/", BOB, "Bob/$2$3"),
        ("RULE:CN=(\\w+),.*/$12/", BOB, "Bob2"),
        ("RULE:CN=(\\w+),.*/$0/", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:CN=(?<who>\\w+),.*/<${who}>/", BOB, "<Bob>"),
        ("RULE:CN=a\\/b/x\\$1/", "CN=a/b", "x$1"),
        ("RULE:(CN|UID)=(x)?b/[$2]/", "CN=b", "[]"),
        ("RULE:.*/x/", "CN=b", "xx"),
        ("RULE:CN=.{1,3},O=o/short/", "CN=abc,O=o", "short"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules, name, short):
    """Commas belong to the regex they stand in, and groups that are not there are text."""
    assert SslPrincipalMapper(rules).name_of(name) == short


@pytest.mark.parametrize("rules", ["", "RULE:^CN=Eve$/eve/", "RULE:^CN=B/x/"])
def test_a_name_without_a_rule_is_refused(rules):
    """A rule has to match the whole name, not a part of it."""
    with pytest.raises(NoMatchingRuleError, match="no rule of ssl"):
        SslPrincipalMapper(rules).name_of(BOB)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("default", "is not from 'default' on"),
        ("DEFAULT,RULE:a/b", "is not from 'RULE:a/b' on"),
        ("RULE:a/b/X", "is not from 'RULE:a/b/X' on"),
        ("RULE:a/b/LU,DEFAULT", "is not from 'RULE:a/b/LU,DEFAULT' on"),
        ("RULE:(/b/", "the regex '(' cannot be read (missing )"),
        ("RULE:\\p{L}/b/", "cannot be read (bad escape"),
        ("RULE:a/${b}/", "the regex 'a' has no group 'b'"),
    ],
)
def test_rules_that_cannot_be_read_are_named(rules, reason):
    """A broker that could not tell its clients apart does not start."""
    with pytest.raises(ConfigError, match=re.escape(reason)):
        SslPrincipalMapper(rules)
