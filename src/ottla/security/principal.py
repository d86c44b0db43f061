"""The principal of a connection: the name under which its requests are judged.

Every connection has one from its first byte. It is `User:ANONYMOUS` until the listener has
authenticated the client, by its certificate or by SASL. `ssl.principal.mapping.rules` make short
names of those in certificates.
"""

from __future__ import annotations

from typing import Final, Self

from ottla.structs import NamedTuple

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
"""A client that did not have to identify itself."""
