"""A client that has some rights, before the checks of its requests."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.extensions.rights.asking import Asking
from ottla.security.principal import KafkaPrincipal

EVE = KafkaPrincipal.user("eve")


class Rights:
    """An authorizer; a client has the rights that it was made with."""

    def __init__(self, *rights):
        self.rights = set(rights)

    def authorize(self, context, operation, resource):
        return (operation, resource.type, resource.name) in self.rights

    has = authorize

    def shows(self, context, resource, operation):
        return self.authorize(context, operation, resource)

    def authorize_broker(self, context):
        return False

    def operations(self, context, resource):
        return 7


def asking(*rights, version=9, principal=EVE):
    context = SimpleNamespace(
        api_version=version, amend=None, principal=principal, close_reason="", in_sight=None
    )
    return Asking(Rights(*rights), context)
