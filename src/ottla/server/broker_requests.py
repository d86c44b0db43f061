"""What only brokers ask of each other: refused on every listener but the brokers' own.

Kafka asks for ClusterAction on the cluster (CVE-2018-1288 is what happens without). A listener that
clients cannot reach keeps them from it as well; where brokers and clients share one, a client that
knows the ids of the replicas and the epochs of the cluster can pose as a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest
from ottla.server.apis import Answer, Apis, Handler

logger = logging.getLogger(__name__)

BROKERS_ONLY: Final = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.WRITE_TXN_MARKERS,
)


def keep_to_brokers(apis: Apis, listener_name: str) -> None:
    """From now on these APIs, and Fetch as a follower, are answered on this listener only."""

    def guard(is_reserved: Callable[[Any], bool]) -> Callable[[Handler], Handler]:
        def guarded(handler: Handler) -> Handler:
            def handle(context: RequestContext, body: Any) -> Answer:
                if context.listener_name != listener_name and is_reserved(body):
                    name = type(body).__name__
                    logger.info("%s of a client at %s is refused", name, context.client_host)
                    raise KafkaError.of(
                        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                        f"{name} on listener {context.listener_name}: brokers talk "
                        f"to each other on {listener_name}",
                    )
                return handler(context, body)

            return handle

        return guarded

    for key in BROKERS_ONLY:
        apis.wrap(key, guard(lambda body: True))
    apis.wrap(ApiKey.FETCH, guard(is_follower))


def is_follower(body: FetchRequest) -> bool:
    """Whether the fetch is one of a replica, which commits what it has read."""
    replica_id = body.replica_id if body.replica_state is None else body.replica_state.replica_id
    return replica_id >= 0 or body.replica_id >= 0
