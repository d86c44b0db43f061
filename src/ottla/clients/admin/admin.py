"""`ottla.Admin`: the synchronous API of the administrative client."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from ottla.clients.admin.admin_calls import AdminCalls
from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings
from ottla.config.client_config import AdminConfig
from ottla.runtime.io_thread import MARGIN_MS, IoThread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

T = TypeVar("T")
P = ParamSpec("P")


def _blocking(
    call: Callable[Concatenate[AdminCalls, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Admin, P], T]:
    """The same call, documentation included, as one that waits for its outcome."""

    @wraps(call)
    def blocking(self: Admin, /, *arguments: P.args, **keywords: P.kwargs) -> T:
        return self._run(call(self._calls, *arguments, **keywords))

    return blocking


class Admin(ClosedOnExit):
    """Reads and changes a cluster's topics, settings, groups, offsets and transactions.

        with Admin("localhost:9092") as admin:
            admin.create_topics([NewTopic("pages", num_partitions=3)])

    Calls about several things try all of them; if any failed, the KafkaError of the first one is
    raised, and its `results` has the outcome of each. One client may be used by several threads.
    """

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        self._config = AdminConfig.parse(merge_settings(bootstrap_servers, settings, keywords))
        self._io = IoThread(f"{self._config.client_id}-admin")
        self._client = self._io.begin_with(self._build())
        self._calls = AdminCalls(lambda: self._client)

    list_topics = _blocking(AdminCalls.list_topics)
    describe_topics = _blocking(AdminCalls.describe_topics)
    create_topics = _blocking(AdminCalls.create_topics)
    delete_topics = _blocking(AdminCalls.delete_topics)
    create_partitions = _blocking(AdminCalls.create_partitions)
    delete_records = _blocking(AdminCalls.delete_records)

    describe_cluster = _blocking(AdminCalls.describe_cluster)
    api_versions = _blocking(AdminCalls.api_versions)
    describe_log_dirs = _blocking(AdminCalls.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AdminCalls.alter_replica_log_dirs)

    elect_leaders = _blocking(AdminCalls.elect_leaders)
    alter_partition_reassignments = _blocking(AdminCalls.alter_partition_reassignments)
    list_partition_reassignments = _blocking(AdminCalls.list_partition_reassignments)

    describe_features = _blocking(AdminCalls.describe_features)
    update_features = _blocking(AdminCalls.update_features)

    describe_client_quotas = _blocking(AdminCalls.describe_client_quotas)
    alter_client_quotas = _blocking(AdminCalls.alter_client_quotas)

    describe_user_scram_credentials = _blocking(AdminCalls.describe_user_scram_credentials)
    alter_user_scram_credentials = _blocking(AdminCalls.alter_user_scram_credentials)

    describe_configs = _blocking(AdminCalls.describe_configs)
    list_client_metrics = _blocking(AdminCalls.list_client_metrics)
    alter_configs = _blocking(AdminCalls.alter_configs)
    incremental_alter_configs = _blocking(AdminCalls.incremental_alter_configs)

    describe_acls = _blocking(AdminCalls.describe_acls)
    create_acls = _blocking(AdminCalls.create_acls)
    delete_acls = _blocking(AdminCalls.delete_acls)

    create_delegation_token = _blocking(AdminCalls.create_delegation_token)
    renew_delegation_token = _blocking(AdminCalls.renew_delegation_token)
    expire_delegation_token = _blocking(AdminCalls.expire_delegation_token)
    describe_delegation_tokens = _blocking(AdminCalls.describe_delegation_tokens)

    list_groups = _blocking(AdminCalls.list_groups)
    describe_groups = _blocking(AdminCalls.describe_groups)
    delete_groups = _blocking(AdminCalls.delete_groups)

    list_offsets = _blocking(AdminCalls.list_offsets)
    list_group_offsets = _blocking(AdminCalls.list_group_offsets)
    list_groups_offsets = _blocking(AdminCalls.list_groups_offsets)
    alter_group_offsets = _blocking(AdminCalls.alter_group_offsets)
    delete_group_offsets = _blocking(AdminCalls.delete_group_offsets)

    list_transactions = _blocking(AdminCalls.list_transactions)
    describe_transactions = _blocking(AdminCalls.describe_transactions)
    describe_producers = _blocking(AdminCalls.describe_producers)
    abort_transaction = _blocking(AdminCalls.abort_transaction)
    fence_producers = _blocking(AdminCalls.fence_producers)

    def close(self) -> None:
        """Close the connections and end the I/O thread. Closing twice does nothing."""
        self._io.close(self._client.close)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        # A call keeps its own deadline; this limit is a safety net.
        limit_ms = 2 * self._config.default_api_timeout_ms + self._config.request_timeout_ms
        return self._io.run(call, limit_ms + MARGIN_MS)

    async def _build(self) -> AdminClient:
        return AdminClient(self._io.runtime, self._config)
