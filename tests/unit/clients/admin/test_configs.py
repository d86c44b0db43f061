"""Calls about settings, quotas, features, users and directories: what is asked, what comes back."""

from __future__ import annotations

import pytest
from admin_world import (
    ANYONE,
    CONTROLLER,
    REQUEST_TIMEOUT_MS,
    Call,
    OldBroker,
    asked,
)

from ottla import AlterConfigOp, ConfigResource, KafkaError, TopicPartition
from ottla.clients.admin.descriptions import ConfigEntry, ConfigSynonym
from ottla.clients.admin.features import FeatureDescription
from ottla.clients.admin.log_dirs import LogDirDescription, ReplicaInfo, TopicPartitionReplica
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.errors import ErrorCode
from ottla.protocol.api_versions import ApiVersionsRequest, FinalizedFeatureKey, SupportedFeatureKey
from ottla.protocol.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    AlteredQuota,
    ConfigOperation,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    DescribedQuota,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaMatchType,
    QuotaOperation,
    QuotaValue,
)
from ottla.protocol.features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from ottla.protocol.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from ottla.protocol.telemetry import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)
from ottla.security.scram import salted_password
from ottla.structs import ClientEntity, ConfigSource

TOPIC, BROKER = ConfigResource.topic("pages"), ConfigResource.broker(2)
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def of_topic(kind, **fields):
    return kind(resource_type=2, resource_name="pages", **fields)


def question(resource: ConfigResource) -> DescribeConfigsResource:
    return DescribeConfigsResource(
        resource_type=resource.type, resource_name=resource.name, configuration_keys=None
    )


def entries(*configs: DescribeConfigsResourceResult, **fields) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[of_topic(DescribeConfigsResult, configs=list(configs), **fields)]
    )


def quota(key: str, value: float, remove: bool = False) -> QuotaOperation:
    return QuotaOperation(key=key, value=value, remove=remove)


def altered_quotas(*more: QuotaEntity, code: int = 0) -> AlterClientQuotasResponse:
    entity = [QuotaEntity(entity_type="user", entity_name="ann"), *more]
    return AlterClientQuotasResponse(entries=[AlteredQuota(error_code=code, entity=entity)])


def users(error: int = 0, code: int = 0) -> DescribeUserScramCredentialsResponse:
    infos = [
        CredentialInfo(mechanism=1, iterations=4096),
        CredentialInfo(mechanism=2, iterations=9000),
    ]
    result = DescribeUserScramCredentialsResult(
        user="ann", error_code=code, credential_infos=[] if code else infos
    )
    return DescribeUserScramCredentialsResponse(error_code=error, results=[result])


UPDATE = UpdateFeaturesRequest(
    timeout_ms=REQUEST_TIMEOUT_MS,
    feature_updates=[FeatureUpdateKey(feature="f0", max_version_level=2, upgrade_type=3)],
    validate_only=True,
)
CALLS = {
    "describe settings": Call(
        lambda admin: admin.describe_configs([TOPIC], include_synonyms=True),
        ANYONE,
        DescribeConfigsRequest(resources=[question(TOPIC)], include_synonyms=True),
        entries(
            DescribeConfigsResourceResult(
                name="retention.ms",
                value="5",
                read_only=True,
                config_source=1,
                is_sensitive=True,
                synonyms=[
                    DescribeConfigsSynonym(name="retention.ms", value="5", source=1),
                    DescribeConfigsSynonym(name="log.retention.ms", value="9", source=99),
                ],
                documentation="How long.",
            ),
            DescribeConfigsResourceResult(name="segment.ms", value="7", config_source=5),
        ),
        {
            TOPIC: {
                "retention.ms": ConfigEntry(
                    "retention.ms",
                    "5",
                    False,
                    True,
                    True,
                    ConfigSource.DYNAMIC_TOPIC_CONFIG,
                    [
                        ConfigSynonym("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
                        ConfigSynonym("log.retention.ms", "9", ConfigSource.UNKNOWN),
                    ],
                    "How long.",
                ),
                "segment.ms": ConfigEntry(
                    "segment.ms", "7", True, False, False, ConfigSource.DEFAULT_CONFIG, []
                ),
            }
        },
    ),
    "describe settings of a broker": Call(
        lambda admin: admin.describe_configs([BROKER], include_documentation=True),
        2,
        DescribeConfigsRequest(resources=[question(BROKER)], include_documentation=True),
        DescribeConfigsResponse(
            results=[DescribeConfigsResult(resource_type=4, resource_name="2", error_code=DENIED)]
        ),
        DENIED,
    ),
    "set all settings": Call(
        lambda admin: admin.alter_configs({TOPIC: {"retention.ms": "5"}}, validate_only=True),
        ANYONE,
        AlterConfigsRequest(
            resources=[
                of_topic(
                    AlterConfigsResource, configs=[AlterableConfig(name="retention.ms", value="5")]
                )
            ],
            validate_only=True,
        ),
        AlterConfigsResponse(responses=[of_topic(AlterConfigsResourceResponse)]),
        None,
    ),
    "change some settings": Call(
        lambda admin: admin.incremental_alter_configs(
            {
                TOPIC: iter(
                    [
                        AlterConfigOp("a", "1"),
                        AlterConfigOp("b", op="delete"),
                        AlterConfigOp("c", "2", ConfigOperation.APPEND),
                    ]
                )
            },
            validate_only=True,
        ),
        ANYONE,
        IncrementalAlterConfigsRequest(
            resources=[
                of_topic(
                    IncrementalAlterConfigsResource,
                    configs=[
                        IncrementalAlterableConfig(name="a", config_operation=0, value="1"),
                        IncrementalAlterableConfig(name="b", config_operation=1, value=None),
                        IncrementalAlterableConfig(name="c", config_operation=2, value="2"),
                    ],
                )
            ],
            validate_only=True,
        ),
        IncrementalAlterConfigsResponse(
            responses=[
                of_topic(
                    IncrementalAlterConfigsResourceResponse, error_code=ErrorCode.INVALID_CONFIG
                )
            ]
        ),
        ErrorCode.INVALID_CONFIG,
    ),
    "list subscriptions": Call(
        lambda admin: admin.list_client_metrics(),
        ANYONE,
        ListConfigResourcesRequest(),
        ListConfigResourcesResponse(config_resources=[ListedConfigResource(resource_name="a")]),
        ["a"],
    ),
    "list subscriptions in vain": Call(
        lambda admin: admin.list_client_metrics(),
        ANYONE,
        ListConfigResourcesRequest(),
        ListConfigResourcesResponse(error_code=DENIED),
        DENIED,
    ),
    "describe quotas": Call(
        lambda admin: admin.describe_client_quotas(
            {"user": "ann", "client-id": "", "ip": None}, strict=True
        ),
        ANYONE,
        DescribeClientQuotasRequest(
            components=[
                QuotaFilterComponent(
                    entity_type="user", match_type=QuotaMatchType.EXACT, match="ann"
                ),
                QuotaFilterComponent(
                    entity_type="client-id", match_type=QuotaMatchType.DEFAULT, match=None
                ),
                QuotaFilterComponent(entity_type="ip", match_type=QuotaMatchType.ANY, match=None),
            ],
            strict=True,
        ),
        DescribeClientQuotasResponse(
            entries=[
                DescribedQuota(
                    entity=[
                        QuotaEntity(entity_type="user", entity_name="ann"),
                        QuotaEntity(entity_type="client-id", entity_name=None),
                        QuotaEntity(entity_type="planet", entity_name="mars"),
                    ],
                    values=[QuotaValue(key="producer_byte_rate", value=1.5)],
                )
            ]
        ),
        {ClientEntity("ann", ""): {"producer_byte_rate": 1.5}},
    ),
    "describe quotas where there are none": Call(
        lambda admin: admin.describe_client_quotas(),
        ANYONE,
        DescribeClientQuotasRequest(components=[]),
        DescribeClientQuotasResponse(entries=None),
        {},
    ),
    "describe quotas in vain": Call(
        lambda admin: admin.describe_client_quotas(),
        ANYONE,
        DescribeClientQuotasRequest(components=[]),
        DescribeClientQuotasResponse(error_code=DENIED, entries=None),
        DENIED,
    ),
    "alter quotas": Call(
        lambda admin: admin.alter_client_quotas(
            {ClientEntity("ann", ""): {"a": 5, "b": None}}, validate_only=True
        ),
        ANYONE,
        AlterClientQuotasRequest(
            entries=[
                QuotaAlteration(
                    entity=[
                        QuotaEntity(entity_type="user", entity_name="ann"),
                        QuotaEntity(entity_type="client-id", entity_name=None),
                    ],
                    ops=[quota("a", 5.0), quota("b", 0.0, remove=True)],
                )
            ],
            validate_only=True,
        ),
        altered_quotas(QuotaEntity(entity_type="client-id", entity_name=None)),
        None,
    ),
    "alter quotas in vain": Call(
        lambda admin: admin.alter_client_quotas({ClientEntity("ann"): {"a": 5}}),
        ANYONE,
        AlterClientQuotasRequest(
            entries=[
                QuotaAlteration(
                    entity=[QuotaEntity(entity_type="user", entity_name="ann")],
                    ops=[quota("a", 5.0)],
                )
            ]
        ),
        altered_quotas(code=int(DENIED)),
        DENIED,
    ),
    "update features": Call(
        lambda admin: admin.update_features({"f0": 2}, UpgradeType.UNSAFE_DOWNGRADE, True),
        CONTROLLER,
        UPDATE,
        UpdateFeaturesResponse(),
        None,
    ),
    "an update of features is refused": Call(
        lambda admin: admin.update_features({"f0": 2}, UpgradeType.UNSAFE_DOWNGRADE, True),
        CONTROLLER,
        UPDATE,
        UpdateFeaturesResponse(error_code=DENIED),
        DENIED,
    ),
    "describe users": Call(
        lambda admin: admin.describe_user_scram_credentials(["ann"]),
        ANYONE,
        DescribeUserScramCredentialsRequest(users=[UserName(name="ann")]),
        users(),
        {"ann": {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 9000}},
    ),
    "describe all users in vain": Call(
        lambda admin: admin.describe_user_scram_credentials(),
        ANYONE,
        DescribeUserScramCredentialsRequest(users=None),
        users(int(DENIED)),
        DENIED,
    ),
    "describe a user that there is not": Call(
        lambda admin: admin.describe_user_scram_credentials(["ann"]),
        ANYONE,
        DescribeUserScramCredentialsRequest(users=[UserName(name="ann")]),
        users(code=int(ErrorCode.RESOURCE_NOT_FOUND)),
        ErrorCode.RESOURCE_NOT_FOUND,
    ),
    "describe directories": Call(
        lambda admin: admin.describe_log_dirs(iter([2])),
        2,
        DescribeLogDirsRequest(topics=None),
        DescribeLogDirsResponse(
            results=[
                DescribeLogDirsResult(
                    log_dir="/a",
                    topics=[
                        DescribeLogDirsTopic(
                            name="pages",
                            partitions=[
                                DescribeLogDirsPartition(
                                    partition_index=1,
                                    partition_size=10,
                                    offset_lag=3,
                                    is_future_key=True,
                                )
                            ],
                        )
                    ],
                    total_bytes=100,
                    usable_bytes=50,
                ),
                DescribeLogDirsResult(log_dir="/b", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
            ]
        ),
        {
            2: {
                "/a": LogDirDescription(
                    ErrorCode.NONE, {TopicPartition("pages", 1): ReplicaInfo(10, 3, True)}, 100, 50
                ),
                "/b": LogDirDescription(ErrorCode.KAFKA_STORAGE_ERROR, {}),
            }
        },
    ),
    "describe directories in vain": Call(
        lambda admin: admin.describe_log_dirs([2]),
        2,
        DescribeLogDirsRequest(topics=None),
        DescribeLogDirsResponse(error_code=DENIED),
        DENIED,
    ),
    "move replicas": Call(
        lambda admin: admin.alter_replica_log_dirs(
            {
                TopicPartitionReplica("pages", 0, 2): "/a",
                TopicPartitionReplica("pages", 1, 2): "/a",
                TopicPartitionReplica("orders", 0, 2): "/b",
            }
        ),
        2,
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path="/a", topics=[AlterReplicaLogDirTopic(name="pages", partitions=[0, 1])]
                ),
                AlterReplicaLogDir(
                    path="/b", topics=[AlterReplicaLogDirTopic(name="orders", partitions=[0])]
                ),
            ]
        ),
        AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(
                    topic_name="pages",
                    partitions=[AlterReplicaLogDirPartitionResult(partition_index=1)],
                )
            ]
        ),
        {TopicPartitionReplica("pages", 1, 2): None},
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_each_call_asks_for_what_it_was_given(virtual_admin, cluster, call):
    """One request, to the broker that has the answer; the answer is returned."""
    call.check(virtual_admin, cluster)


def test_feature_update_needs_a_broker_that_knows_directions(virtual_admin, cluster):
    """Older ones would take a downgrade for an upgrade."""
    OldBroker(lambda admin: admin.update_features({"f": 1}), UpdateFeaturesRequest, 1).check(
        virtual_admin, cluster
    )


def test_broker_may_refuse_one_feature_of_several(virtual_admin, cluster):
    """Until version 2, in which the update is done or refused as a whole."""
    cluster[CONTROLLER].versions[UpdateFeaturesRequest.api_key] = (0, 1)
    results = [
        UpdatableFeatureResult(feature="f"),
        UpdatableFeatureResult(feature="g", error_code=ErrorCode.FEATURE_UPDATE_FAILED),
    ]
    cluster[CONTROLLER].on(UpdateFeaturesRequest, UpdateFeaturesResponse(results=results))
    with pytest.raises(KafkaError, match="feature g") as caught:
        virtual_admin.update_features({"f": 1, "g": 1})

    assert caught.value.error is ErrorCode.FEATURE_UPDATE_FAILED
    assert caught.value.results["f"] is None


def test_brokers_are_asked_each_about_itself(virtual_admin, cluster):
    """An error of one of them leaves the others' answers; what is no broker's goes to any."""
    resources = [TOPIC, *map(ConfigResource.broker, (0, 2))]

    def answer(request, version):
        results = []
        for resource in request.resources:
            code = DENIED if resource.resource_name == "2" else 0
            results.append(
                DescribeConfigsResult(
                    error_code=code,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        return DescribeConfigsResponse(results=results)

    for broker in cluster.brokers.values():
        broker.on(DescribeConfigsRequest, answer)
    with pytest.raises(KafkaError, match="broker 2") as caught:
        virtual_admin.describe_configs(resources)

    questions = [
        (node_id, each.resource_name)
        for node_id, request in asked(cluster, DescribeConfigsRequest)
        for each in request.resources
        if each.resource_name != "pages"
    ]
    assert questions == [(0, "0"), (2, "2")]
    assert [caught.value.results[resource] for resource in resources[:2]] == [{}, {}]


@pytest.mark.parametrize(
    ("resource", "error", "words"),
    [
        (ConfigResource(BROKER.type, "two"), ErrorCode.INVALID_REQUEST, "must be a broker id"),
        (ConfigResource.broker(9), ErrorCode.NETWORK_EXCEPTION, "no broker with the id 9"),
    ],
)
def test_settings_of_a_broker_that_there_is_not_are_refused(
    runtime, cluster, virtual_admin, resource, error, words
):
    """The error says why."""
    virtual_admin.list_topics()
    with pytest.raises(KafkaError, match=words) as caught:
        virtual_admin.describe_configs([resource])

    assert caught.value.error is error


def test_features_are_described_with_their_levels(virtual_admin, cluster):
    """A feature that is not finalized has level 0."""
    versions = cluster[0]._api_versions

    def answer(request, version):
        response = versions(request, version)
        response.supported_features = [
            SupportedFeatureKey(name="f", min_version=1, max_version=4),
            SupportedFeatureKey(name="g", min_version=0, max_version=1),
        ]
        response.finalized_features = [FinalizedFeatureKey(name="f", max_version_level=3)]
        response.finalized_features_epoch = 12
        return response

    for broker in cluster.brokers.values():
        broker.on(ApiVersionsRequest, answer)

    assert virtual_admin.describe_features() == {
        "f": FeatureDescription(1, 4, 3, 12),
        "g": FeatureDescription(0, 1, 0, 12),
    }


def test_password_is_sent_salted_and_a_credential_without_one_is_removed(virtual_admin, cluster):
    """The salt is new for each; the password itself does not leave the process."""
    answer = AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user="ann"),
            AlterUserScramCredentialsResult(user="bob", error_code=ErrorCode.RESOURCE_NOT_FOUND),
        ]
    )
    cluster[CONTROLLER].on(AlterUserScramCredentialsRequest, answer)
    credentials = [
        UserScramCredential("ann", "SCRAM-SHA-256", "secret", 5000),
        UserScramCredential("bob", "SCRAM-SHA-512", None),
    ]
    with pytest.raises(KafkaError, match="user bob"):
        virtual_admin.alter_user_scram_credentials(credentials)

    ((_, request),) = asked(cluster, AlterUserScramCredentialsRequest)
    (made,), (removed,) = request.upsertions, request.deletions
    assert (made.name, made.mechanism, made.iterations) == ("ann", 1, 5000)
    expected = salted_password("SCRAM-SHA-256", "secret", bytes(made.salt), 5000)
    assert bytes(made.salted_password) == expected
    assert (removed.name, removed.mechanism) == ("bob", 2)
    assert "secret" not in repr(credentials)


def test_replicas_of_several_brokers_are_moved_by_their_own(virtual_admin, cluster):
    """An error is returned, not raised."""

    def answer(request, version):
        rows = [AlterReplicaLogDirPartitionResult(partition_index=0, error_code=57)]
        return AlterReplicaLogDirsResponse(
            results=[AlterReplicaLogDirTopicResult(topic_name="pages", partitions=rows)]
        )

    for broker in cluster.brokers.values():
        broker.on(AlterReplicaLogDirsRequest, answer)
    replicas = [TopicPartitionReplica("pages", 0, broker_id) for broker_id in (0, 2)]
    outcomes = virtual_admin.alter_replica_log_dirs(dict.fromkeys(replicas, "/a"))

    assert {str(each): error.error for each, error in outcomes.items()} == {
        "pages-0-0": ErrorCode.LOG_DIR_NOT_FOUND,
        "pages-0-2": ErrorCode.LOG_DIR_NOT_FOUND,
    }
    assert [node_id for node_id, _ in asked(cluster, AlterReplicaLogDirsRequest)] == [0, 2]
