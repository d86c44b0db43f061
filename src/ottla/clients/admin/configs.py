"""Settings of topics and brokers, quotas of clients, features, log directories."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla.clients.admin.descriptions import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    ConfigSynonym,
)
from ottla.clients.network_client import response_error
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import SOFTWARE_NAME
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResource,
    ConfigOperation,
    ConfigResourceType,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaMatchType,
    QuotaOperation,
)
from ottla.protocol.features import (
    FIRST_VERSION_WITH_DIRECTION,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from ottla.protocol.log_dirs import (
    UNKNOWN_BYTES,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from ottla.protocol.telemetry import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from ottla.security.scram import MECHANISM_NUMBERS, MIN_ITERATIONS, new_salt, salted_password
from ottla.structs import ClientEntity, ConfigSource, TopicPartition
from ottla.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ottla.clients.admin.admin_client import AdminClient
    from ottla.network.timing import Deadline
    from ottla.protocol.message import Request

Entries = dict[str, ConfigEntry]
PER_BROKER = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class ConfigAdmin:
    """Requests about settings; those of one broker go to that broker, all others to any."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_configs(
        self,
        resources: Sequence[ConfigResource],
        include_synonyms: bool,
        include_documentation: bool,
    ) -> dict[ConfigResource, Entries | KafkaError]:
        async def ask(
            some: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, Entries | KafkaError]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=r.type, resource_name=r.name)
                    for r in some
                ]
            )
            if include_synonyms:
                request.include_synonyms = True
            if include_documentation:
                request.include_documentation = True
            response = cast("DescribeConfigsResponse", await self._send(some, request, deadline))
            results: dict[ConfigResource, Entries | KafkaError] = {}
            for result in response.results:
                key = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
                error = response_error(result.error_code, str(key), result.error_message)
                results[key] = error or {c.name: entry_of(c) for c in result.configs}
            return results

        return await self._for_each(resources, ask)

    async def list_client_metrics(self) -> list[str]:
        async def attempt(deadline: Deadline) -> list[str]:
            answer = await self._admin.any_broker(ListConfigResourcesRequest(), deadline)
            response = cast("ListConfigResourcesResponse", answer)
            error = response_error(response.error_code, "subscriptions to clients' metrics")
            if error is not None:
                raise error
            return [each.resource_name for each in response.config_resources]

        return await self._admin.until_done(attempt)

    async def alter_configs(
        self, settings: Mapping[ConfigResource, Mapping[str, str | None]], validate_only: bool
    ) -> dict[ConfigResource, KafkaError | None]:
        async def ask(
            some: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, KafkaError | None]:
            request = AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[
                            AlterableConfig(name=name, value=value)
                            for name, value in settings[r].items()
                        ],
                    )
                    for r in some
                ],
                validate_only=validate_only,
            )
            return outcomes(await self._send(some, request, deadline))

        return await self._for_each(settings, ask)

    async def incremental_alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfigOp]], validate_only: bool
    ) -> dict[ConfigResource, KafkaError | None]:
        wanted = {resource: list(operations) for resource, operations in changes.items()}

        async def ask(
            some: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, KafkaError | None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=r.type,
                        resource_name=r.name,
                        configs=[alterable(operation) for operation in wanted[r]],
                    )
                    for r in some
                ],
                validate_only=validate_only,
            )
            return outcomes(await self._send(some, request, deadline))

        return await self._for_each(changes, ask)

    async def _for_each(
        self,
        resources: Iterable[ConfigResource],
        ask: Callable[[list[ConfigResource], Deadline], Awaitable[dict[ConfigResource, Any]]],
    ) -> dict[ConfigResource, Any]:
        """Send one request to each broker that must answer itself, and one for all others."""

        async def attempt(
            pending: list[ConfigResource], deadline: Deadline
        ) -> dict[ConfigResource, Any]:
            shares: dict[str, list[ConfigResource]] = {}
            for resource in pending:
                shares.setdefault(broker_of(resource), []).append(resource)
            answers = await asyncio.gather(
                *(ask(share, deadline) for share in shares.values()), return_exceptions=True
            )
            results: dict[ConfigResource, Any] = {}
            for share, answer in zip(shares.values(), answers, strict=True):
                if isinstance(answer, KafkaError):
                    results.update(dict.fromkeys(share, answer))
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    results.update(answer)
            return results

        return await self._admin.for_each(resources, attempt)

    async def _send(
        self, resources: Sequence[ConfigResource], request: Request, deadline: Deadline
    ) -> Any:
        broker = broker_of(resources[0])
        if not broker:
            return await self._admin.any_broker(request, deadline)
        if not broker.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker!r}: must be a broker id")
        if int(broker) not in self._admin.client.node_ids:
            await self._admin.metadata.update(deadline)
        return await self._admin.client.send(int(broker), request)


def broker_of(resource: ConfigResource) -> str:
    """The id of the only broker that can answer, "" if any can."""
    return resource.name if resource.type in PER_BROKER else ""


def alterable(operation: AlterConfigOp) -> IncrementalAlterableConfig:
    op = operation.op
    number = ConfigOperation[op.upper()] if isinstance(op, str) else ConfigOperation(op)
    return IncrementalAlterableConfig(
        name=operation.name, config_operation=number, value=operation.value
    )


def outcomes(response: Any) -> dict[ConfigResource, KafkaError | None]:
    """The error, or None, of each resource in the response to a change."""
    results = {}
    for result in response.responses:
        key = ConfigResource(ConfigResourceType(result.resource_type), result.resource_name)
        results[key] = response_error(result.error_code, str(key), result.error_message)
    return results


def entry_of(config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = source_of(config.config_source)
    return ConfigEntry(
        config.name,
        config.value,
        config.is_default or source is ConfigSource.DEFAULT_CONFIG,
        config.is_sensitive,
        config.read_only,
        source,
        [ConfigSynonym(s.name, s.value, source_of(s.source)) for s in config.synonyms],
        config.documentation,
    )


def source_of(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN


# Quotas of users, client ids and addresses.


ENTITY_TYPES = {"user": "user", "client-id": "client_id", "ip": "ip"}
"""The types of client entities in the protocol, and the attributes of `ClientEntity`."""


class ClientQuotaAdmin:
    """Requests about quotas; any broker answers them (KIP-546)."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_client_quotas(
        self, components: Mapping[str, str | None], strict: bool
    ) -> dict[ClientEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(
            components=[quota_filter(*each) for each in components.items()], strict=strict
        )

        async def attempt(deadline: Deadline) -> dict[ClientEntity, dict[str, float]]:
            answer = await self._admin.any_broker(request, deadline)
            response = cast("DescribeClientQuotasResponse", answer)
            error = response_error(response.error_code, "client quotas", response.error_message)
            if error is not None:
                raise error
            return {
                client_entity(entry.entity): {each.key: each.value for each in entry.values}
                for entry in response.entries or ()
            }

        return await self._admin.until_done(attempt)

    async def alter_client_quotas(
        self,
        changes: Mapping[ClientEntity, Mapping[str, float | None]],
        validate_only: bool,
    ) -> dict[ClientEntity, KafkaError | None]:
        async def attempt(
            pending: list[ClientEntity], deadline: Deadline
        ) -> dict[ClientEntity, KafkaError | None]:
            request = AlterClientQuotasRequest(
                entries=[quota_alteration(entity, changes[entity]) for entity in pending],
                validate_only=validate_only,
            )
            answer = await self._admin.any_broker(request, deadline)
            response = cast("AlterClientQuotasResponse", answer)
            return {
                client_entity(entry.entity): response_error(
                    entry.error_code, "client quotas", entry.error_message
                )
                for entry in response.entries
            }

        return await self._admin.for_each(changes, attempt)


def quota_filter(entity_type: str, name: str | None) -> QuotaFilterComponent:
    """All entities with a name of this type (None), its default (""), or the one of the name."""
    if name is None:
        return QuotaFilterComponent(entity_type=entity_type, match_type=QuotaMatchType.ANY)
    if not name:
        return QuotaFilterComponent(entity_type=entity_type, match_type=QuotaMatchType.DEFAULT)
    return QuotaFilterComponent(
        entity_type=entity_type, match_type=QuotaMatchType.EXACT, match=name
    )


def quota_alteration(entity: ClientEntity, limits: Mapping[str, float | None]) -> QuotaAlteration:
    """The changes to one entity; None removes a limit."""
    return QuotaAlteration(
        entity=[
            QuotaEntity(entity_type=entity_type, entity_name=name or None)
            for entity_type, name in zip(ENTITY_TYPES, entity, strict=True)
            if name is not None
        ],
        ops=[
            QuotaOperation(key=key, value=float(limit or 0), remove=limit is None)
            for key, limit in limits.items()
        ],
    )


def client_entity(components: Iterable[QuotaEntity]) -> ClientEntity:
    """The entity that a broker names; components of newer types are left out."""
    return ClientEntity(
        **{
            ENTITY_TYPES[each.entity_type]: each.entity_name or ""
            for each in components
            if each.entity_type in ENTITY_TYPES
        }
    )


# Features: the finalized levels of the cluster, and the levels that a broker supports.


NO_LEVEL = 0


class FeatureDescription(NamedTuple):
    """The levels that a broker supports, and the finalized one; 0 is none. The epoch may be -1."""

    lowest: int
    highest: int
    level: int
    epoch: int


class FeatureAdmin:
    """Requests about features; changes go to the controller."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_features(self) -> dict[str, FeatureDescription]:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=__version__
        )

        async def attempt(deadline: Deadline) -> ApiVersionsResponse:
            return cast("ApiVersionsResponse", await self._admin.any_broker(request, deadline))

        answer = await self._admin.until_done(attempt)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return {
            each.name: FeatureDescription(
                each.min_version,
                each.max_version,
                levels.get(each.name, NO_LEVEL),
                answer.finalized_features_epoch,
            )
            for each in answer.supported_features
        }

    async def update_features(
        self, levels: Mapping[str, int], direction: UpgradeType, validate_only: bool
    ) -> dict[str, KafkaError | None]:
        request = UpdateFeaturesRequest(
            timeout_ms=self._admin.config.request_timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=direction)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )

        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            answer = await self._admin.controller(
                request, deadline, low=FIRST_VERSION_WITH_DIRECTION
            )
            response = cast("UpdateFeaturesResponse", answer)
            error = response_error(response.error_code, "features", response.error_message)
            results: dict[str, KafkaError | None] = dict.fromkeys(levels, error)
            for each in response.results:
                what = f"feature {each.feature}"
                results[each.feature] = error or response_error(
                    each.error_code, what, each.error_message
                )
            return results

        return await self._admin.for_each(levels, attempt)


# The users of SCRAM (KIP-554).


class UserScramCredential(NamedTuple):
    """A credential to make or to replace; with `password` None, one to remove."""

    user: str
    mechanism: str
    password: str | None
    iterations: int = MIN_ITERATIONS

    def __repr__(self) -> str:
        return f"UserScramCredential({self.user!r}, {self.mechanism!r})"


class ScramUserAdmin:
    """Requests about users; changes go to the controller. A password never leaves this process."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe(self, users: Sequence[str] | None) -> dict[str, dict[str, int] | KafkaError]:
        named = None if users is None else [UserName(name=name) for name in users]
        request = DescribeUserScramCredentialsRequest(users=named)

        async def attempt(deadline: Deadline) -> DescribeUserScramCredentialsResponse:
            answer = await self._admin.any_broker(request, deadline)
            return cast("DescribeUserScramCredentialsResponse", answer)

        answer = await self._admin.until_done(attempt)
        error = response_error(answer.error_code, "users", answer.error_message)
        if error is not None:
            raise error
        names = {number: name for name, number in MECHANISM_NUMBERS.items()}
        return {
            each.user: response_error(each.error_code, f"user {each.user}", each.error_message)
            or {names[info.mechanism]: info.iterations for info in each.credential_infos}
            for each in answer.results
        }

    async def alter(
        self, credentials: Sequence[UserScramCredential]
    ) -> dict[str, KafkaError | None]:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=each.user, mechanism=MECHANISM_NUMBERS[each.mechanism])
                for each in credentials
                if each.password is None
            ],
            upsertions=[_salted(each, each.password) for each in credentials if each.password],
        )
        users = dict.fromkeys(each.user for each in credentials)

        async def attempt(pending: list[str], deadline: Deadline) -> dict[str, KafkaError | None]:
            answer = await self._admin.controller(request, deadline)
            results = cast("AlterUserScramCredentialsResponse", answer).results
            return {
                each.user: response_error(each.error_code, f"user {each.user}", each.error_message)
                for each in results
            }

        return await self._admin.for_each(users, attempt)


def _salted(credential: UserScramCredential, password: str) -> ScramCredentialUpsertion:
    salt = new_salt()
    salted = salted_password(credential.mechanism, password, salt, credential.iterations)
    return ScramCredentialUpsertion(
        name=credential.user,
        mechanism=MECHANISM_NUMBERS[credential.mechanism],
        iterations=credential.iterations,
        salt=salt,
        salted_password=salted,
    )


# The log directories of brokers.


class ReplicaInfo(NamedTuple):
    """A replica in a log directory."""

    size_in_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """A log directory; unusable if it has an error. Sizes are of its volume, -1: unknown."""

    error: ErrorCode
    replicas: dict[TopicPartition, ReplicaInfo]
    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES


LogDirs = dict[str, LogDirDescription]


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition that a broker has, written `topic-3-1`."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


Outcomes = dict[TopicPartitionReplica, KafkaError | None]


class LogDirAdmin:
    """Requests about log directories; each is sent to the broker that has them."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    async def describe_log_dirs(self, broker_ids: Sequence[int]) -> dict[int, LogDirs | KafkaError]:
        admin = self._admin

        async def attempt(
            pending: list[int], deadline: Deadline
        ) -> dict[int, LogDirs | KafkaError]:
            if not set(pending) <= set(admin.client.node_ids):
                await admin.metadata.update(deadline)
            request = DescribeLogDirsRequest(topics=None)
            return {each: described(await admin.client.send(each, request)) for each in pending}

        return await admin.for_each(broker_ids, attempt)

    async def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartitionReplica, str]
    ) -> Outcomes:
        admin = self._admin
        brokers = {replica.broker_id for replica in targets}

        async def attempt(deadline: Deadline) -> Outcomes:
            if not brokers <= set(admin.client.node_ids):
                await admin.metadata.update(deadline)
            outcomes: Outcomes = {}
            for broker_id in sorted(brokers):
                mine = {each: path for each, path in targets.items() if each.broker_id == broker_id}
                response = await admin.client.send(broker_id, alteration(mine))
                outcomes |= outcomes_of(broker_id, response)
            return outcomes

        return await admin.until_done(attempt)


def alteration(targets: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    """The request to the broker that has these replicas."""
    dirs: dict[str, dict[str, list[int]]] = {}
    for (topic, partition, _), path in targets.items():
        dirs.setdefault(path, {}).setdefault(topic, []).append(partition)
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for path, topics in dirs.items()
        ]
    )


def outcomes_of(broker_id: int, response: AlterReplicaLogDirsResponse) -> Outcomes:
    """The errors of the broker's replicas, None for success."""
    return {
        (replica := TopicPartitionReplica(topic.topic_name, row.partition_index, broker_id)): (
            response_error(row.error_code, str(replica))
        )
        for topic in response.results
        for row in topic.partitions
    }


def described(response: DescribeLogDirsResponse) -> LogDirs | KafkaError:
    """The directories of a response by their paths."""
    if response.error_code:
        return KafkaError(ErrorCode.of(response.error_code))
    return {
        result.log_dir: LogDirDescription(
            ErrorCode.of(result.error_code),
            {
                TopicPartition(topic.name, replica.partition_index): ReplicaInfo(
                    replica.partition_size, replica.offset_lag, replica.is_future_key
                )
                for topic in result.topics
                for replica in topic.partitions
            },
            result.total_bytes,
            result.usable_bytes,
        )
        for result in response.results
    }
