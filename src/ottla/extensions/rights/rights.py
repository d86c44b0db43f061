"""Attaches the authorizer to a broker, with a check before every handler."""

from __future__ import annotations

from ottla.extensions.rights.access_checks import put_checks
from ottla.extensions.rights.acls_handler import AclsHandler
from ottla.extensions.rights.authorizer import Authorizer
from ottla.server.extension import Extension
from ottla.server.parts import Parts


class Rights(Extension):
    """The authorizer of a broker, which knows all ACLs before the first client comes."""

    def __init__(self, broker: Parts) -> None:
        super().__init__(broker)
        self.authorizer = Authorizer(broker.runtime, broker.registry, broker.config)

    async def before_clients(self) -> None:
        await self.authorizer.start()
        self.broker.may_read = self.authorizer.may_read

    def wrap(self) -> None:
        broker = self.broker
        creates_topics = broker.config.auto_create_topics_enable
        put_checks(broker.apis, self.authorizer, broker.cache, creates_topics)
        broker.apis.may_be_broker.append(self.authorizer.may_be_broker)

    def stop(self) -> None:
        self.authorizer.stop()


def new_acls_handler(broker: Parts) -> AclsHandler:
    """The handler of requests for ACLs: without an authorizer it says that there is none."""
    rights = broker.find(Rights)
    return AclsHandler(None if rights is None else rights.authorizer, broker.apis.slices)
