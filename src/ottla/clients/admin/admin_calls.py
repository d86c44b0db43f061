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
    """Each method is that of `ottla.Admin`, which has its documentation, as a coroutine."""

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
        return await self._topics.list_topics()

    async def describe_topics(
        self, names: Sequence[str] | None = None, include_authorized_operations: bool = False
    ) -> dict[str, TopicDescription]:
        call = self._topics.describe_topics(names, include_authorized_operations)
        return checked(await call)

    async def create_topics(
        self, new_topics: Iterable[NewTopic | str], validate_only: bool = False
    ) -> None:
        topics = [NewTopic(new) if isinstance(new, str) else new for new in new_topics]
        checked(await self._topics.create_topics(topics, validate_only))

    async def delete_topics(self, names: Iterable[str]) -> None:
        checked(await self._topics.delete_topics(list(names)))

    async def create_partitions(
        self,
        total_counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> None:
        checked(await self._topics.create_partitions(total_counts, assignments))

    async def delete_records(
        self, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        return checked(await self._topics.delete_records(dict(offsets)))

    async def describe_cluster(self) -> ClusterDescription:
        cluster = await self._client.until_done(self._client.metadata.update)
        nodes = sorted(cluster.nodes.values())
        return ClusterDescription(cluster.cluster_id, cluster.controller_id, nodes)

    async def api_versions(self, node_id: int) -> dict[ApiKey | int, tuple[int, int]]:
        client = self._client
        if node_id not in client.client.node_ids:
            await client.metadata.update(client.deadline())
        connection = await client.client.ready(node_id)
        known = cast("dict[int, ApiKey]", ApiKey._value2member_map_)
        return {known.get(key, key): versions for key, versions in connection.versions.items()}

    async def describe_log_dirs(self, broker_ids: Iterable[int]) -> dict[int, LogDirs]:
        return checked(await self._log_dirs.describe_log_dirs(list(broker_ids)))

    async def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartitionReplica, str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        return await self._log_dirs.alter_replica_log_dirs(targets)

    async def elect_leaders(
        self,
        election: ElectionType = ElectionType.PREFERRED,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        wanted = None if partitions is None else list(partitions)
        return await self._reassignments.elect_leaders(election, wanted)

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Iterable[int] | None]
    ) -> None:
        checked(await self._reassignments.alter_partition_reassignments(targets))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        wanted = None if partitions is None else list(partitions)
        return await self._reassignments.list_partition_reassignments(wanted)

    async def describe_features(self) -> dict[str, FeatureDescription]:
        return await self._features.describe_features()

    async def update_features(
        self,
        levels: Mapping[str, int],
        direction: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        checked(await self._features.update_features(levels, direction, validate_only))

    async def describe_client_quotas(
        self, components: Mapping[str, str | None] | None = None, strict: bool = False
    ) -> dict[ClientEntity, dict[str, float]]:
        return await self._quotas.describe_client_quotas(components or {}, strict)

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientEntity, Mapping[str, float | None]],
        validate_only: bool = False,
    ) -> None:
        checked(await self._quotas.alter_client_quotas(changes, validate_only))

    async def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None
    ) -> dict[str, dict[str, int]]:
        return checked(await self._users.describe(users))

    async def alter_user_scram_credentials(
        self, credentials: Sequence[UserScramCredential]
    ) -> None:
        checked(await self._users.alter(credentials))

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        described = self._configs.describe_configs(
            list(resources), include_synonyms, include_documentation
        )
        return checked(await described)

    async def list_client_metrics(self) -> list[str]:
        return await self._configs.list_client_metrics()

    async def alter_configs(
        self,
        settings: Mapping[ConfigResource, Mapping[str, str | None]],
        validate_only: bool = False,
    ) -> None:
        checked(await self._configs.alter_configs(settings, validate_only))

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        validate_only: bool = False,
    ) -> None:
        checked(await self._configs.incremental_alter_configs(changes, validate_only))

    async def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        return await self._acls.describe_acls(wanted)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        checked(await self._acls.create_acls(list(bindings)))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        return checked(await self._acls.delete_acls(list(filters)))

    async def create_delegation_token(
        self,
        owner: KafkaPrincipal | None = None,
        renewers: Iterable[KafkaPrincipal] = (),
        max_lifetime_ms: int = -1,
    ) -> DelegationToken:
        return await self._tokens.create(owner, list(renewers), max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        return await self._tokens.renew(hmac, period_ms)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = -1) -> int:
        return await self._tokens.expire(hmac, period_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None
    ) -> list[DelegationToken]:
        return await self._tokens.describe(None if owners is None else list(owners))

    async def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        return await self._groups.list_groups(list(states), list(types))

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        return checked(await self._groups.describe_groups(list(group_ids)))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        checked(await self._groups.delete_groups(list(group_ids)))

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        isolation: str = "read_uncommitted",
    ) -> dict[TopicPartition, ListOffsetsResult]:
        level = IsolationLevel.of(isolation)
        return checked(await self._offsets.list_offsets(dict(timestamps), level))

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        require_stable: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        wanted = None if partitions is None else list(partitions)
        results = await self._offsets.list_group_offsets(group_id, wanted, require_stable)
        return checked(results)[group_id]

    async def list_groups_offsets(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        return checked(await self._offsets.list_groups_offsets(list(group_ids)))

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    ) -> None:
        wanted = with_metadata(offsets)
        checked(await self._offsets.alter_group_offsets(group_id, wanted))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> None:
        checked(await self._offsets.delete_group_offsets(group_id, list(partitions)))

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int | None = None,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        wanted = TransactionFilter(list(states), list(producer_ids), longer_than_ms, id_pattern)
        return await self._transactions.list_transactions(wanted)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> dict[str, TransactionDescription]:
        return checked(await self._transactions.describe_transactions(transactional_ids))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        call = self._transactions.describe_producers(list(partitions), broker_id)
        return checked(await call)

    async def abort_transaction(self, hanging: HangingTransaction) -> None:
        error = await self._transactions.abort_transaction(hanging)
        if error is not None:
            raise error

    async def fence_producers(self, transactional_ids: Iterable[str]) -> dict[str, tuple[int, int]]:
        return checked(await self._transactions.fence_producers(transactional_ids))

    @property
    def _client(self) -> AdminClient:
        return self._client_of()
