"""`ottla.Admin`: the synchronous API of the administrative client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ottla.clients.admin.admin_calls import AdminCalls
from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.client_settings import ClosedOnExit, Servers, merge_settings
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata
from ottla.config.client_config import AdminConfig
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.features import UpgradeType
from ottla.runtime.io_thread import MARGIN_MS, IoThread
from ottla.structs import ClientEntity, ElectionType, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence

    from ottla.clients.admin.descriptions import (
        AlterConfigOp,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        GroupDescription,
        GroupListing,
        NewTopic,
        TopicDescription,
    )
    from ottla.clients.admin.features import FeatureDescription
    from ottla.clients.admin.log_dirs import LogDirs, TopicPartitionReplica
    from ottla.clients.admin.scram_users import UserScramCredential
    from ottla.clients.admin.topics import PartitionReassignment
    from ottla.clients.admin.transactions import (
        HangingTransaction,
        ProducerDescription,
        TransactionDescription,
        TransactionListing,
    )
    from ottla.errors import KafkaError
    from ottla.security.acls import AclBinding, AclBindingFilter
    from ottla.security.delegation_tokens import DelegationToken
    from ottla.security.principal import KafkaPrincipal

T = TypeVar("T")


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

    # Topics

    def list_topics(self) -> set[str]:
        """The names of all topics, internal ones included."""
        return self._run(self._calls.list_topics())

    def describe_topics(
        self, names: Sequence[str] | None = None, include_authorized_operations: bool = False
    ) -> dict[str, TopicDescription]:
        """Describe some topics, or all of them."""
        return self._run(self._calls.describe_topics(names, include_authorized_operations))

    def create_topics(
        self, new_topics: Iterable[NewTopic | str], validate_only: bool = False
    ) -> None:
        """Create topics; one given by name only has the broker's defaults."""
        self._run(self._calls.create_topics(new_topics, validate_only))

    def delete_topics(self, names: Iterable[str]) -> None:
        self._run(self._calls.delete_topics(names))

    def create_partitions(
        self,
        total_counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> None:
        """Raise topics to these partition totals; `assignments` are for the new partitions."""
        self._run(self._calls.create_partitions(total_counts, assignments))

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before the offsets (-1: all); returns the low watermarks."""
        return self._run(self._calls.delete_records(offsets))

    # Cluster

    def describe_cluster(self) -> ClusterDescription:
        """The live brokers, and the controller."""
        return self._run(self._calls.describe_cluster())

    def api_versions(self, node_id: int) -> dict[ApiKey | int, tuple[int, int]]:
        """The lowest and the highest version of each API that a broker serves."""
        return self._run(self._calls.api_versions(node_id))

    def describe_log_dirs(self, broker_ids: Iterable[int]) -> dict[int, LogDirs]:
        """The log directories of brokers by their paths, and the replicas in them."""
        return self._run(self._calls.describe_log_dirs(broker_ids))

    def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Begin to move replicas to other log directories of their brokers; None for success.

        REPLICA_NOT_AVAILABLE is returned, not raised: the broker has no such replica yet, and will
        create it there. `describe_log_dirs` shows the progress of a move.
        """
        return self._run(self._calls.alter_replica_log_dirs(targets))

    # Leaders and replicas

    def elect_leaders(
        self,
        election: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these partitions, or of all that need it; None for success.

        Errors of partitions are returned, not raised; ELECTION_NOT_NEEDED is one of them.
        """
        return self._run(self._calls.elect_leaders(election, partitions))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Iterable[int] | None]
    ) -> None:
        """Begin to move partitions to these brokers; None cancels a move in progress."""
        self._run(self._calls.alter_partition_reassignments(targets))

    def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress, of these partitions or of all."""
        return self._run(self._calls.list_partition_reassignments(partitions))

    # Features

    def describe_features(self) -> dict[str, FeatureDescription]:
        """The features that a broker supports, and the cluster's finalized levels."""
        return self._run(self._calls.describe_features())

    def update_features(
        self,
        levels: Mapping[str, int],
        direction: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize feature levels; all of them are upgrades, or all are downgrades."""
        self._run(self._calls.update_features(levels, direction, validate_only))

    # Quotas

    def describe_client_quotas(
        self, components: Mapping[str, str | None] | None = None, strict: bool = False
    ) -> dict[ClientEntity, dict[str, float]]:
        """The quotas of the entities that have these components, or of all (KIP-546).

        Components are `user`, `client-id` or `ip`, each with a name, "" for its default, or None
        for any; `strict` leaves entities out that have further ones.
        """
        return self._run(self._calls.describe_client_quotas(components, strict))

    def alter_client_quotas(
        self,
        changes: Mapping[ClientEntity, Mapping[str, float | None]],
        validate_only: bool = False,
    ) -> None:
        """Set limits of entities, as `producer_byte_rate`; None removes one."""
        self._run(self._calls.alter_client_quotas(changes, validate_only))

    # Users

    def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """The iterations by mechanism of some users, or of all that have SCRAM credentials."""
        return self._run(self._calls.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(self, credentials: Sequence[UserScramCredential]) -> None:
        """Make, replace and remove credentials; a user whose entry is refused keeps all of its."""
        self._run(self._calls.alter_user_scram_credentials(credentials))

    # Settings

    def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """All settings of the resources; on request with synonyms and documentation (KIP-569)."""
        return self._run(
            self._calls.describe_configs(resources, include_synonyms, include_documentation)
        )

    def list_client_metrics(self) -> list[str]:
        """The names of the subscriptions to metrics that clients push (KIP-714)."""
        return self._run(self._calls.list_client_metrics())

    def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, str | None]],
        validate_only: bool = False,
    ) -> None:
        """Give resources exactly these settings; those not named revert to their defaults."""
        self._run(self._calls.alter_configs(settings, validate_only))

    def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        validate_only: bool = False,
    ) -> None:
        """Change some settings and leave the others as they are."""
        self._run(self._calls.incremental_alter_configs(changes, validate_only))

    # Access control lists

    def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The ACLs that match, or all of them; SECURITY_DISABLED without an authorizer."""
        return self._run(self._calls.describe_acls(wanted))

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs; those that are there already are left as they are."""
        self._run(self._calls.create_acls(bindings))

    def delete_acls(
        self, filters: Iterable[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Remove the ACLs that each filter matches, and return them."""
        return self._run(self._calls.delete_acls(filters))

    # Delegation tokens

    def create_delegation_token(
        self,
        owner: KafkaPrincipal | None = None,
        renewers: Iterable[KafkaPrincipal] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """A new token, of the user of this client, or of another owner (KIP-373)."""
        return self._run(self._calls.create_delegation_token(owner, renewers, max_lifetime_ms))

    def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Have a token end later; below 0 by the broker's own period. Returns its new end."""
        return self._run(self._calls.renew_delegation_token(hmac, period_ms))

    def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Have a token end within a time; below 0 at once. Returns its new end."""
        return self._run(self._calls.expire_delegation_token(hmac, period_ms))

    def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None
    ) -> list[DelegationToken]:
        """The tokens of the owners, or all that this client may see."""
        return self._run(self._calls.describe_delegation_tokens(owners))

    # Groups

    def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers, by id; only those with the named `states` and `types`."""
        return self._run(self._calls.list_groups(states, types))

    def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their members; one that does not exist is described as Dead."""
        return self._run(self._calls.describe_groups(group_ids))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members, with their offsets."""
        self._run(self._calls.delete_groups(group_ids))

    # Offsets

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation: str = "read_uncommitted",
    ) -> dict[TopicPartition, ListOffsetsResult]:
        """The first offset at or after each timestamp, or of an `OffsetSpec`; -1 if none."""
        return self._run(self._calls.list_offsets(timestamps, isolation))

    def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, for some partitions or for all; others are left out.

        With `require_stable` it waits until no open transaction may change it (KIP-447).
        """
        return self._run(self._calls.list_group_offsets(group_id, partitions, require_stable))

    def list_groups_offsets(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """All committed offsets of several groups, in one request to each coordinator (KIP-709)."""
        return self._run(self._calls.list_groups_offsets(group_ids))

    def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Commit offsets for a group that has no members."""
        self._run(self._calls.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets, of topics that it does not currently read."""
        self._run(self._calls.delete_group_offsets(group_id, partitions))

    # Transactions

    def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers; with filters, those that pass every filter."""
        return self._run(
            self._calls.list_transactions(states, producer_ids, longer_than_ms, id_pattern)
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """The transactional ids as their coordinators know them."""
        return self._run(self._calls.describe_transactions(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers of partitions, as known to their leaders or to one broker."""
        return self._run(self._calls.describe_producers(partitions, broker_id))

    def abort_transaction(self, hanging: HangingTransaction) -> None:
        """Abort a transaction in a partition without its coordinator, which has lost it."""
        self._run(self._calls.abort_transaction(hanging))

    def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Abort open transactions of the ids and fence their producers; returns the new epochs."""
        return self._run(self._calls.fence_producers(transactional_ids))

    def close(self) -> None:
        """Close the connections and end the I/O thread. Closing twice does nothing."""
        self._io.close(self._client.close)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        # A call keeps its own deadline; this limit is a safety net.
        limit_ms = 2 * self._config.default_api_timeout_ms + self._config.request_timeout_ms
        return self._io.run(call, limit_ms + MARGIN_MS)

    async def _build(self) -> AdminClient:
        return AdminClient(self._io.runtime, self._config)
