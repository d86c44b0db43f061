"""Short names of Kerberos principals, by the rules of sasl.kerberos.principal.to.local.rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError
from ottla.security.sasl import SaslError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RULES: Final = "sasl.kerberos.principal.to.local.rules"

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:\[(?P<count>\d+):(?P<form>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU])?)\s*(?:,|$)"
)
_NAME: Final = re.compile(r"(?P<service>[^/@]+)(?:/(?P<host>[^/@]+))?(?:@(?P<realm>[^/@]+))?")
_PARAMETER: Final = re.compile(r"\$(\d)")
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class ShortNames:
    """The rules of a broker: the first that fits a name gives the short one.

    `RULE:[2:$1@$0](.*@EXAMPLE.COM)s/@.*//L` is for names of two parts, of which it makes
    `part@realm`; if that matches the regex, the substitution is done, and the result in lower case
    is the name. `DEFAULT` takes the first part of a name of the broker's own realm.
    """

    def __init__(self, rules: str, realm: str) -> None:
        self._realm = realm
        self._rules = [self._parse(rule) for rule in _split(rules)]

    def of(self, name: str) -> str:
        """The short name of a principal of Kerberos.

        Raises:
            SaslError: no rule fits, or the result is none.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            raise SaslError(f"{name!r} is no name of Kerberos")
        service, host, realm = match["service"], match["host"], match["realm"] or self._realm
        parts = [realm, service, *([host] if host else [])]
        for rule in self._rules:
            short = rule(parts)
            if short is None:
                continue
            if not short or _NOT_SIMPLE.search(short):
                raise SaslError(f"{RULES} make {short!r} of {name}, which is no short name")
            return short
        raise SaslError(f"no rule of {RULES} fits {name}")

    def _parse(self, rule: re.Match[str]) -> Callable[[list[str]], str | None]:
        if rule["default"]:
            return lambda parts: parts[1] if parts[0] == self._realm else None
        count, form = int(rule["count"]), rule["form"]
        match = None if rule["match"] is None else _regex(rule["match"])
        pattern = None if rule["pattern"] is None else _regex(rule["pattern"])
        replacement = _PARAMETER.sub(r"\\g<\1>", rule["replacement"] or "")
        times = 0 if rule["all"] else 1
        change_case = {"L": str.lower, "U": str.upper}.get(rule["case"] or "", str)
        if any(int(number) > count for number in _PARAMETER.findall(form)):
            raise ConfigError(f"{RULES}: [{count}:{form}] names a part that such names do not have")

        def apply(parts: list[str]) -> str | None:
            if len(parts) - 1 != count:
                return None
            base = _PARAMETER.sub(lambda number: parts[int(number[1])], form)
            if match is not None and not match.fullmatch(base):
                return None
            if pattern is not None:
                base = pattern.sub(replacement, base, times)
            return change_case(base)

        return apply


def _split(rules: str) -> Iterator[re.Match[str]]:
    start = 0
    while start < len(rules):
        match = _RULE.match(rules, start)
        if match is None:
            raise ConfigError(
                f"{RULES}={rules}: must be DEFAULT and RULE:[n:form](regex)s/from/to/[g][/L|/U] "
                f"with commas between, and is not from {rules[start:].strip()!r} on"
            )
        start = match.end()
        yield match


def _regex(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"{RULES}: the regex {text!r} cannot be read ({error})") from None
