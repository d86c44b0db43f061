"""The APIs that only brokers use: refused on every listener but the brokers' own.

Kafka asks for ClusterAction on the cluster (without it there was CVE-2018-1288). A listener
that clients cannot reach keeps them from it as well; where brokers and clients share one, a
client that knows the ids of the replicas and the epochs of the cluster can pose as a broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest
from ottla.server.api import BROKERS_ONLY, Answer, Handler
from ottla.server.apis import Apis
from ottla.structs import CONSUMER_REPLICA_ID

logger = logging.getLogger(__name__)

FIRST_ADD_PARTITIONS_OF_BROKERS: Final = 4


def keep_to_brokers(apis: Apis, *listener_names: str, has_rights: bool = False) -> None:
    """Answer these APIs, Fetch as a follower and AddPartitionsToTxn of brokers, here only.

    There are several while the listener of the brokers changes from broker to broker.

    Listeners may be added while the broker runs: each request is looked at, however many there are
    now. Where rights are asked for, an administrator may end a transaction on any other (KIP-664).
    """

    def guarded(is_reserved: Callable[[RequestContext, Any], bool], handler: Handler) -> Handler:
        def handle(context: RequestContext, body: Any) -> Answer:
            if context.listener_name not in listener_names and is_reserved(context, body):
                name = type(body).__name__
                if apis.refusals.is_news(context.client_host, name):
                    logger.info("%s of a client at %s is refused", name, context.client_host)
                if apis.on_refused_request is not None:
                    apis.on_refused_request(context)
                raise KafkaError.of(
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                    f"{name} on listener {context.listener_name}: brokers talk "
                    f"to each other on {listener_names[0]}",
                )
            return handler(context, body)

        return handle

    apis.may_be_broker.append(lambda context: context.listener_name in listener_names)
    for key in BROKERS_ONLY:
        if not (has_rights and key is ApiKey.WRITE_TXN_MARKERS):
            apis.wrap(key, partial(guarded, lambda context, body: True))
    apis.wrap(ApiKey.FETCH, partial(guarded, lambda context, body: is_follower(body)))
    apis.wrap(ApiKey.ADD_PARTITIONS_TO_TXN, partial(guarded, _is_of_broker))


def _is_of_broker(context: RequestContext, body: object) -> bool:
    """Whether AddPartitionsToTxn comes in a version that speaks for many producers (KIP-890)."""
    return context.api_version >= FIRST_ADD_PARTITIONS_OF_BROKERS


def is_follower(body: FetchRequest) -> bool:
    """Whether a replica fetches: its fetch offset advances the high watermark."""
    return replica_id_of(body) > CONSUMER_REPLICA_ID


def replica_id_of(body: FetchRequest) -> int:
    """The broker that follows, CONSUMER_REPLICA_ID for a consumer; v15 has it in another field."""
    state = body.replica_state
    return body.replica_id if state is None else max(state.replica_id, body.replica_id)
