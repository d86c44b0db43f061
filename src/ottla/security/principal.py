"""The principal of a connection: the name under which its requests are judged.

Every connection has one from its first byte. It is `User:ANONYMOUS` until the listener has
authenticated the client, by its certificate or by SASL. `ssl.principal.mapping.rules` make short
names of those in certificates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Self

from ottla.config.java_regex import java_pattern, java_replacement
from ottla.errors import ConfigError

USER_TYPE: Final = "User"
"""The only type that authentication gives; it is case-sensitive, as in Kafka."""


class KafkaPrincipal(NamedTuple):
    """A type and a name, written `type:name`; the name may hold colons."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `type:name`.

        Raises:
            ValueError: a part is missing.
        """
        type_, colon, name = text.partition(":")
        if not (type_ and colon and name):
            raise ValueError(f"a principal is type:name, as User:alice, not {text!r}")
        return cls(type_, name)

    @classmethod
    def user(cls, name: str) -> Self:
        """A principal of type User."""
        return cls(USER_TYPE, name)


class TokenPrincipal(KafkaPrincipal):
    """The owner of a delegation token, as a client that has logged in with it; equal to the owner.

    It has the owner's rights, but may not ask for tokens.
    """

    __slots__ = ()


ANONYMOUS: Final = KafkaPrincipal(USER_TYPE, "ANONYMOUS")
"""A client that was not asked who it is."""


# Short names for those in certificates (ssl.principal.mapping.rules, KIP-371).

MAPPING_RULES: Final = "ssl.principal.mapping.rules"
DEFAULT_RULE: Final = "DEFAULT"
_RULE: Final = (
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))?"
    r"\s*(?:,|$)"
)
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class NoMatchingRuleError(Exception):
    """No mapping rule has a name for a certificate: the client is not authenticated."""


class SslPrincipalMapper:
    """The rules of one listener: the first that matches a whole name gives the short one.

    A rule is `DEFAULT`, which takes the name as it is, or `RULE:<regex>/<replacement>/` with `L` or
    `U` behind it for lower or upper case. Rules stand between commas; a comma inside of a regex
    belongs to it, and `\\/` is a slash. The regex is Python's: what only Java's has is refused.
    """

    def __init__(self, rules: str) -> None:
        self._rules = [_parse_rule(match) for match in _split_rules(rules)]

    def name_of(self, distinguished_name: str) -> str:
        """The short name.

        Raises:
            NoMatchingRuleError: no rule matches.
        """
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRuleError(
            f"no rule of {MAPPING_RULES} matches the certificate of {distinguished_name}"
        )


def _split_rules(rules: str) -> Iterator[re.Match[str]]:
    start = 0
    while start < len(rules):
        match = re.compile(_RULE).match(rules, start)
        if match is None:
            raise ConfigError(
                f"{MAPPING_RULES}={rules}: must be DEFAULT and RULE:<regex>/<replacement>/[L|U] "
                f"with commas between, and is not from {rules[start:].strip()!r} on"
            )
        start = match.end()
        if match["default"] or match["pattern"] is not None:
            yield match


def _parse_rule(rule: re.Match[str]) -> Callable[[str], str | None]:
    if rule["default"]:
        return lambda name: name
    try:
        pattern = java_pattern(rule["pattern"])
    except re.error as error:
        raise ConfigError(
            f"{MAPPING_RULES}: the regex {rule['pattern']!r} cannot be read ({error})"
        ) from None
    try:
        expand = java_replacement(rule["replacement"], pattern)
    except ValueError as error:
        raise ConfigError(f"{MAPPING_RULES}: {error}") from None
    change_case = _CASES[rule["case"]]

    def apply(name: str) -> str | None:
        # What is found is replaced, as Java's replaceAll does, though the whole must match.
        return change_case(pattern.sub(expand, name)) if pattern.fullmatch(name) else None

    return apply
