"""The principal of a connection: the name under which its requests are judged.

Every connection has one from its first byte. It is `User:ANONYMOUS` until the listener has
authenticated the client, by its certificate or by SASL. `ssl.principal.mapping.rules` make short
names of those in certificates.

Wing: attaches to `network.connection`; the core serves everybody, and works without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Self

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
_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))?"
    r"\s*(?:,|$)"
)
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_REPLACEMENT_PART: Final = re.compile(r"\\(?P<plain>.)|\$(?P<number>\d+)|\$\{(?P<name>\w+)\}", re.S)
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
        match = _RULE.match(rules, start)
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
        pattern = re.compile(_NAMED_GROUP.sub("(?P<", rule["pattern"]))
    except re.error as error:
        raise ConfigError(
            f"{MAPPING_RULES}: the regex {rule['pattern']!r} cannot be read ({error})"
        ) from None
    parts = list(_replacement_parts(rule["replacement"], pattern))
    change_case = _CASES[rule["case"]]

    def expand(match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part[0]] or "" for part in parts)

    def apply(name: str) -> str | None:
        # What is found is replaced, as Java's replaceAll does, though the whole must match.
        return change_case(pattern.sub(expand, name)) if pattern.fullmatch(name) else None

    return apply


def _replacement_parts(
    replacement: str, pattern: re.Pattern[str]
) -> Iterator[str | tuple[int | str]]:
    """Text, and in tuples the groups that stand for text."""
    end = 0
    for match in _REPLACEMENT_PART.finditer(replacement):
        yield replacement[end : match.start()]
        end = match.end()
        if match["plain"] is not None:
            yield match["plain"]
        elif match["number"] is not None:
            yield from _numbered_group(match["number"], pattern.groups)
        elif match["name"] in pattern.groupindex:
            yield (match["name"],)
        else:
            raise ConfigError(
                f"{MAPPING_RULES}: the regex {pattern.pattern!r} has no group {match['name']!r}"
            )
    yield replacement[end:]


def _numbered_group(digits: str, count: int) -> Iterator[str | tuple[int | str]]:
    """`$12` is group 12, or group 1 and a 2 where there are fewer; text where there is neither."""
    for length in range(len(digits), 0, -1):
        if int(digits[:length]) <= count:
            yield (int(digits[:length]),)
            yield digits[length:]
            return
    yield f"${digits}"
