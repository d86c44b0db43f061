"""Clients and their rights: principals, SASL mechanisms, access control lists.

The exports are for programs of users (`principal.builder.class`), and imported when they are first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.security.principal import KafkaPrincipal
    from ottla.security.principal_builder import AuthenticationContext, PrincipalBuilder

__all__ = ["AuthenticationContext", "KafkaPrincipal", "PrincipalBuilder"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "KafkaPrincipal":
        from ottla.security.principal import KafkaPrincipal

        return KafkaPrincipal
    from ottla.security import principal_builder

    return getattr(principal_builder, name)
