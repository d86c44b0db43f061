"""JAAS entries: `<module class> required key="value" ...;`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError
from ottla.structs import Value, field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OAUTHBEARER: Final = "OAUTHBEARER"

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
GSSAPI: Final = "GSSAPI"

LOGIN_MODULES: Final[Mapping[str, str]] = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    SCRAM_SHA_256: "org.apache.kafka.common.security.scram.ScramLoginModule",
    SCRAM_SHA_512: "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
"""The mechanisms, and the class that Kafka's files name for each."""

NEEDS_ENTRY: Final = {PLAIN: "its users", GSSAPI: "its keytab and its principal"}
"""The mechanisms of a listener that need a `sasl.jaas.config`, and the content that they need."""

NEEDS_OF_LOGIN: Final[Mapping[str, tuple[str, ...]]] = {
    PLAIN: ("username", "password"),
    SCRAM_SHA_256: ("username", "password"),
    SCRAM_SHA_512: ("username", "password"),
    OAUTHBEARER: (),
    GSSAPI: (),
}
"""The options without which a mechanism cannot log in."""

CONTROL_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


class JaasEntry(Value, frozen=True):
    """One login module and its options, which are secrets, or may be."""

    module: str
    options: Mapping[str, str] = field(repr=False)


_TOKEN: Final = (
    r"(?s)\s+|//[^\n]*|/\*.*?\*/"
    r"|(?P<quoted>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')"
    r"|(?P<word>[\w.$+-]+)|(?P<sign>[=;])|(?P<other>.)"
)
_ESCAPE: Final = r"(?s)\\([0-7]{1,3}|.)"
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def parse_jaas(key: str, text: str) -> JaasEntry:
    """Read the value of a `sasl.jaas.config`; it is data, and no class is ever loaded.

    Raises:
        ConfigError: it is not one module with its options. The value is not shown.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[1].lower() not in CONTROL_FLAGS or tokens[-1] != ";":
        raise _not_jaas(key, 'must be <login module> required <name>="<value>" ... ;')
    module, _, *rest = tokens[:-1]
    if ";" in rest:
        raise _not_jaas(key, "must have exactly one login module")
    if len(rest) % 3 or any(sign != "=" for sign in rest[1::3]):
        raise _not_jaas(key, 'must have its options as <name>="<value>"')
    return JaasEntry(
        module,
        {_unquoted(name): _unquoted(rest[3 * index + 2]) for index, name in enumerate(rest[::3])},
    )


def _tokens(text: str) -> Iterator[str]:
    for match in re.finditer(_TOKEN, text):
        if match.lastgroup is not None:
            yield match[0]


def _unquoted(token: str) -> str:
    if token[0] not in "\"'":
        return token
    return re.sub(_ESCAPE, _unescaped, token[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter, 8)) if letter[0] in "01234567" else _ESCAPED.get(letter, letter)


def _not_jaas(key: str, rule: str) -> ConfigError:
    return ConfigError(f"{key}=[hidden]: {rule}")


def require_module(key: str, entry: JaasEntry, mechanism: str) -> None:
    """ConfigError unless the entry is for the mechanism."""
    expected = LOGIN_MODULES[mechanism]
    if entry.module != expected:
        raise ConfigError(
            f"{key}: must name the login module of {mechanism}, {expected}, not {entry.module}"
        )


USER_OPTION: Final = "user_"


def users_of(entry: JaasEntry) -> dict[str, str]:
    """The passwords by name: `user_<name>="<password>"` of PLAIN's entry."""
    return {
        name.removeprefix(USER_OPTION): password
        for name, password in entry.options.items()
        if name.startswith(USER_OPTION)
    }
