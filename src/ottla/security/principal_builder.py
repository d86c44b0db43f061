"""A builder names a client: the class that programs of users derive theirs from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from ottla.security.principal import KafkaPrincipal
from ottla.structs import Value, field


class PrincipalBuilder(ABC):
    """The builder of clients' names. It is made without arguments, and lives as long as the broker.

    `build` is called for each connection, and again for each login on it, by up to four threads at
    a time. It may wait, but no longer than ten seconds; an exception refuses the client.
    """

    def configure(self, settings: Mapping[str, str]) -> None:
        """Take the broker's settings that have a value, but for secrets."""

    @abstractmethod
    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        """Name the client."""

    def close(self) -> None:
        """The broker stops."""


class AuthenticationContext(Value, frozen=True):
    """A broker's knowledge of a client that has come, and has proved its name where it must."""

    principal: KafkaPrincipal
    """Who it would be without a builder: by `ssl.principal.mapping.rules`, by its login, or
    `User:ANONYMOUS`."""
    listener_name: str
    security_protocol: str
    client_address: str
    """Its address, without the port."""
    certificate: bytes | None = field(default=None, repr=False)
    """Its certificate, in DER; None where it has shown none."""
    subject: str = ""
    """The name in the certificate, the most specific part first: `CN=alice,OU=Clients`."""
    sasl_mechanism: str = ""
    sasl_name: str = ""
    """The name that a login has proved; empty on listeners without logins."""
