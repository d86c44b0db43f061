"""Clients and their rights: principals, SASL mechanisms, access control lists.

The exports are for programs of users (`principal.builder.class`), and imported when they are first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.late_names import late_names

if TYPE_CHECKING:
    from ottla.security.principal import KafkaPrincipal
    from ottla.security.principal_builder import AuthenticationContext, PrincipalBuilder

__all__ = ["AuthenticationContext", "KafkaPrincipal", "PrincipalBuilder"]

__getattr__, __dir__ = late_names(
    __name__,
    {
        "principal": "KafkaPrincipal",
        "principal_builder": "AuthenticationContext PrincipalBuilder",
    },
)
