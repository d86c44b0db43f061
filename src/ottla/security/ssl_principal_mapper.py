"""Short names for those in certificates (ssl.principal.mapping.rules, KIP-371)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.config.java_regex import java_pattern, java_replacement
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SslPrincipalMapper:
    """The rules of one listener: the first that matches a whole name gives the short one.

    A rule is `DEFAULT`, which takes the name as it is, or `RULE:<regex>/<replacement>/` with `L` or
    `U` behind it for lower or upper case. Rules stand between commas; a comma inside of a regex
    belongs to it, and `\\/` is a slash. The regex is Python's: Java's own syntax is refused.
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


MAPPING_RULES: Final = "ssl.principal.mapping.rules"
_RULE: Final = (
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))?"
    r"\s*(?:,|$)"
)
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


class NoMatchingRuleError(ValueError):
    """No mapping rule has a name for a certificate: the client is not authenticated."""


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
        # The match is replaced, as Java's replaceAll does, though the whole must match.
        return change_case(pattern.sub(expand, name)) if pattern.fullmatch(name) else None

    return apply
