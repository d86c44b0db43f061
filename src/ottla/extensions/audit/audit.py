"""Attaches the audit log to a broker that has an audit topic.

It has one record for each administrative request, for each request that was denied something,
and for each login that was refused.
"""

from __future__ import annotations

from ottla.extensions.audit.audit_log import AuditLog
from ottla.extensions.audit.audit_topic import AuditTopic
from ottla.server.extension import Extension


class Audit(Extension):
    """Watches the APIs of a broker, and writes its notes to the audit topic."""

    log: AuditLog

    def wrap(self) -> None:
        broker, name = self.broker, self.broker.config.ottla_audit_topic
        topic = AuditTopic(
            name,
            broker.runtime,
            broker.replica_manager,
            broker.cache,
            broker.create_topic,
            None if broker.link is None else broker.link.connections,
        )
        self.log = AuditLog(broker.runtime, name, broker.broker_id, topic.write)
        self.log.watch(broker.apis)

    async def leave(self) -> None:
        await self.log.close()
