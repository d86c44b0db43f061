"""The calls of an administrative client, as coroutines on one loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from ottla.clients.admin.admin_client import AdminClient, checked
from ottla.clients.admin.descriptions import ClusterDescription, NewTopic, TransactionFilter
from ottla.clients.topic_offsets import ListOffsetsResult, OffsetAndMetadata, with_metadata
from ottla.config.place import found_at
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.features import UpgradeType
from ottla.structs import ClientEntity, ElectionType, IsolationLevel, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ottla.clients.admin.acls import AclAdmin
    from ottla.clients.admin.client_quotas import ClientQuotaAdmin
    from ottla.clients.admin.configs import ConfigAdmin
    from ottla.clients.admin.delegation_tokens import DelegationTokenAdmin
    from ottla.clients.admin.descriptions import (
        AlterConfigOp,
        ConfigEntry,
        ConfigResource,
        GroupDescription,
        GroupListing,
        TopicDescription,
    )
    from ottla.clients.admin.features import FeatureAdmin, FeatureDescription
    from ottla.clients.admin.groups import GroupAdmin
    from ottla.clients.admin.log_dirs import LogDirAdmin, LogDirs, TopicPartitionReplica
    from ottla.clients.admin.offsets import OffsetAdmin
    from ottla.clients.admin.scram_users import ScramUserAdmin, UserScramCredential
    from ottla.clients.admin.topics import PartitionReassignment, ReassignmentAdmin, TopicAdmin
    from ottla.clients.admin.transactions import (
        HangingTransaction,
        ProducerDescription,
        TransactionAdmin,
        TransactionDescription,
        TransactionListing,
    )
    from ottla.errors import KafkaError
    from ottla.security.acls import AclBinding, AclBindingFilter
    from ottla.security.delegation_tokens import DelegationToken
    from ottla.security.principal import KafkaPrincipal


PartT = TypeVar("PartT")


class LatePart(Generic[PartT]):
    """A part of the calls: a program uses one or two of them, and imports no others."""

    def __init__(self, place: str) -> None:
        self._place = f"{__package__}.{place}"

    def __get__(self, calls: AdminCalls, _: type[AdminCalls]) -> PartT:
        part: PartT = found_at(self._place)(calls._client)
        return part


class AdminCalls:
    """The methods of `ottla.Admin` and `ottla.aio.Admin`, of which the former waits for each."""

    _topics: LatePart[TopicAdmin] = LatePart("topics:TopicAdmin")
    _configs: LatePart[ConfigAdmin] = LatePart("configs:ConfigAdmin")
    _quotas: LatePart[ClientQuotaAdmin] = LatePart("client_quotas:ClientQuotaAdmin")
    _acls: LatePart[AclAdmin] = LatePart("acls:AclAdmin")
    _tokens: LatePart[DelegationTokenAdmin] = LatePart("delegation_tokens:DelegationTokenAdmin")
    _groups: LatePart[GroupAdmin] = LatePart("groups:GroupAdmin")
    _offsets: LatePart[OffsetAdmin] = LatePart("offsets:OffsetAdmin")
    _log_dirs: LatePart[LogDirAdmin] = LatePart("log_dirs:LogDirAdmin")
    _transactions: LatePart[TransactionAdmin] = LatePart("transactions:TransactionAdmin")
    _features: LatePart[FeatureAdmin] = LatePart("features:FeatureAdmin")
    _users: LatePart[ScramUserAdmin] = LatePart("scram_users:ScramUserAdmin")
    _reassignments: LatePart[ReassignmentAdmin] = LatePart("topics:ReassignmentAdmin")

    def __init__(self, client_of: Callable[[], AdminClient]) -> None:
        """`client_of` gives the core, or refuses to where it cannot be used."""
        self._client_of = client_of

    async def list_topics(self) -> set[str]:
        """The names of all topics, internal ones included."""
        return await self._topics.list_topics()

    async def describe_topics(
        self, names: Sequence[str] | None = None, include_authorized_operations: bool = False
    ) -> dict[str, TopicDescription]:
        """Describe some topics, or all of them."""
        call = self._topics.describe_topics(names, include_authorized_operations)
        return checked(await call)

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], validate_only: bool = False
    ) -> None:
        """Create topics; one given by name only has the broker's defaults."""
        topics = [NewTopic(new) if isinstance(new, str) else new for new in new_topics]
        checked(await self._topics.create_topics(topics, validate_only))

    async def delete_topics(self, names: Iterable[str]) -> None:
        checked(await self._topics.delete_topics(list(names)))

    async def create_partitions(
        self,
        total_counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> None:
        """Raise topics to these partition totals; `assignments` are for the new partitions."""
        checked(await self._topics.create_partitions(total_counts, assignments))

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before the offsets (-1: all); returns the low watermarks."""
        return checked(await self._topics.delete_records(dict(offsets)))

    async def describe_cluster(self) -> ClusterDescription:
        """The live brokers, and the controller."""
        cluster = await self._client.until_done(self._client.metadata.update)
        nodes = sorted(cluster.nodes.values())
        return ClusterDescription(cluster.cluster_id, cluster.controller_id, nodes)

    async def api_versions(self, node_id: int) -> dict[ApiKey | int, tuple[int, int]]:
        """The lowest and the highest version of each API that a broker serves."""
        client = self._client
        if node_id not in client.client.node_ids:
            await client.metadata.update(client.deadline())
        connection = await client.client.ready(node_id)
        known = cast("dict[int, ApiKey]", ApiKey._value2member_map_)
        return {known.get(key, key): versions for key, versions in connection.versions.items()}

    async def describe_log_dirs(self, broker_ids: Iterable[int]) -> dict[int, LogDirs]:
        """The log directories of brokers by their paths, and the replicas in them."""
        return checked(await self._log_dirs.describe_log_dirs(list(broker_ids)))

    async def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Begin to move replicas to other log directories of their brokers; None for success.

        REPLICA_NOT_AVAILABLE is returned, not raised: the broker has no such replica yet, and will
        create it there. `describe_log_dirs` shows the progress of a move.
        """
        return await self._log_dirs.alter_replica_log_dirs(targets)

    async def elect_leaders(
        self,
        election: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these partitions, or of all that need it; None for success.

        Errors of partitions are returned, not raised; ELECTION_NOT_NEEDED is one of them.
        """
        wanted = None if partitions is None else list(partitions)
        return await self._reassignments.elect_leaders(election, wanted)

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Iterable[int] | None]
    ) -> None:
        """Begin to move partitions to these brokers; None cancels a move in progress."""
        checked(await self._reassignments.alter_partition_reassignments(targets))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments in progress, of these partitions or of all."""
        wanted = None if partitions is None else list(partitions)
        return await self._reassignments.list_partition_reassignments(wanted)

    async def describe_features(self) -> dict[str, FeatureDescription]:
        """The features that a broker supports, and the cluster's finalized levels."""
        return await self._features.describe_features()

    async def update_features(
        self,
        levels: Mapping[str, int],
        direction: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize feature levels; all of them are upgrades, or all are downgrades."""
        checked(await self._features.update_features(levels, direction, validate_only))

    async def describe_client_quotas(
        self, components: Mapping[str, str | None] | None = None, strict: bool = False
    ) -> dict[ClientEntity, dict[str, float]]:
        """The quotas of the entities that have these components, or of all (KIP-546).

        Components are `user`, `client-id` or `ip`, each with a name, "" for its default, or None
        for any; `strict` leaves entities out that have further ones.
        """
        return await self._quotas.describe_client_quotas(components or {}, strict)

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientEntity, Mapping[str, float | None]],
        validate_only: bool = False,
    ) -> None:
        """Set limits of entities, as `producer_byte_rate`; None removes one."""
        checked(await self._quotas.alter_client_quotas(changes, validate_only))

    async def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None
    ) -> dict[str, dict[str, int]]:
        """The iterations by mechanism of some users, or of all that have SCRAM credentials."""
        return checked(await self._users.describe(users))

    async def alter_user_scram_credentials(
        self, credentials: Sequence[UserScramCredential]
    ) -> None:
        """Make, replace and remove credentials; a user whose entry is refused keeps all of its."""
        checked(await self._users.alter(credentials))

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """All settings of the resources; on request with synonyms and documentation (KIP-569)."""
        described = self._configs.describe_configs(
            list(resources), include_synonyms, include_documentation
        )
        return checked(await described)

    async def list_client_metrics(self) -> list[str]:
        """The names of the subscriptions to metrics that clients push (KIP-714)."""
        return await self._configs.list_client_metrics()

    async def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, str | None]],
        validate_only: bool = False,
    ) -> None:
        """Give resources exactly these settings; those not named revert to their defaults."""
        checked(await self._configs.alter_configs(settings, validate_only))

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        validate_only: bool = False,
    ) -> None:
        """Change some settings and leave the others as they are."""
        checked(await self._configs.incremental_alter_configs(changes, validate_only))

    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The ACLs that match, or all of them; SECURITY_DISABLED without an authorizer."""
        return await self._acls.describe_acls(wanted)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs; those that are there already are left as they are."""
        checked(await self._acls.create_acls(list(bindings)))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Remove the ACLs that each filter matches, and return them."""
        return checked(await self._acls.delete_acls(list(filters)))

    async def create_delegation_token(
        self,
        owner: KafkaPrincipal | None = None,
        renewers: Iterable[KafkaPrincipal] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        """A new token, of the user of this client, or of another owner (KIP-373)."""
        return await self._tokens.create(owner, list(renewers), max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Have a token end later; below 0 by the broker's own period. Returns its new end."""
        return await self._tokens.renew(hmac, period_ms)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        """Have a token end within a time; below 0 at once. Returns its new end."""
        return await self._tokens.expire(hmac, period_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None
    ) -> list[DelegationToken]:
        """The tokens of the owners, or all that this client may see."""
        return await self._tokens.describe(None if owners is None else list(owners))

    async def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """The groups of all brokers, by id; only those with the named `states` and `types`.

        Where a broker does not answer, the error's `results` has the list of each that does.
        """
        return await self._groups.list_groups(list(states), list(types))

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        """Groups with their members; one that does not exist is described as Dead."""
        return checked(await self._groups.describe_groups(list(group_ids)))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Delete groups that have no members, with their offsets."""
        checked(await self._groups.delete_groups(list(group_ids)))

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation: str = "read_uncommitted",
    ) -> dict[TopicPartition, ListOffsetsResult]:
        """The first offset at or after each timestamp, or of an `OffsetSpec`; -1 if none."""
        level = IsolationLevel.of(isolation)
        return checked(await self._offsets.list_offsets(dict(timestamps), level))

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of a group, for some partitions or for all; others are left out.

        With `require_stable` it waits until no open transaction may change it (KIP-447).
        """
        wanted = None if partitions is None else list(partitions)
        results = await self._offsets.list_group_offsets(group_id, wanted, require_stable)
        return checked(results)[group_id]

    async def list_groups_offsets(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """All committed offsets of several groups, in one request to each coordinator (KIP-709)."""
        return checked(await self._offsets.list_groups_offsets(list(group_ids)))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        """Commit offsets for a group that has no members."""
        wanted = with_metadata(offsets)
        checked(await self._offsets.alter_group_offsets(group_id, wanted))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        """Delete a group's committed offsets, of topics that it does not currently read."""
        checked(await self._offsets.delete_group_offsets(group_id, list(partitions)))

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers; with filters, those that pass every filter.

        Where a broker does not answer, the error's `results` has the list of each that does.
        """
        wanted = TransactionFilter(list(states), list(producer_ids), longer_than_ms, id_pattern)
        return await self._transactions.list_transactions(wanted)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        """The transactional ids as their coordinators know them."""
        return checked(await self._transactions.describe_transactions(transactional_ids))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent producers of partitions, as known to their leaders or to one broker."""
        call = self._transactions.describe_producers(list(partitions), broker_id)
        return checked(await call)

    async def abort_transaction(self, hanging: HangingTransaction) -> None:
        """Abort a transaction in a partition without its coordinator, which has lost it."""
        error = await self._transactions.abort_transaction(hanging)
        if error is not None:
            raise error

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Abort open transactions of the ids and fence their producers; returns the new epochs."""
        return checked(await self._transactions.fence_producers(transactional_ids))

    @property
    def _client(self) -> AdminClient:
        return self._client_of()
