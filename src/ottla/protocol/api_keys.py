"""The numbers of the APIs, under Kafka's names, and where each one's messages are."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ApiKey(IntEnum):
    """The kind of a request: the first int16 of its header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CLIENT_METRICS_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87


MESSAGES: Final[dict[int, tuple[str, str]]] = {
    ApiKey.PRODUCE: ("produce", "0-13"),
    ApiKey.FETCH: ("fetch", "0-18"),
    ApiKey.LIST_OFFSETS: ("list_offsets", "0-11"),
    ApiKey.METADATA: ("metadata", "0-13"),
    ApiKey.LEADER_AND_ISR: ("leader_and_isr", "0-7"),
    ApiKey.STOP_REPLICA: ("leader_and_isr", "0-4"),
    ApiKey.UPDATE_METADATA: ("update_metadata", "0-8"),
    ApiKey.CONTROLLED_SHUTDOWN: ("controller_requests", "1-3"),
    ApiKey.OFFSET_COMMIT: ("offsets", "0-10"),
    ApiKey.OFFSET_FETCH: ("offsets", "0-10"),
    ApiKey.FIND_COORDINATOR: ("group", "0-6"),
    ApiKey.JOIN_GROUP: ("group", "0-9"),
    ApiKey.HEARTBEAT: ("group", "0-4"),
    ApiKey.LEAVE_GROUP: ("group", "0-5"),
    ApiKey.SYNC_GROUP: ("group", "0-5"),
    ApiKey.DESCRIBE_GROUPS: ("group", "0-6"),
    ApiKey.LIST_GROUPS: ("group", "0-5"),
    ApiKey.DELETE_GROUPS: ("group", "0-2"),
    ApiKey.SASL_HANDSHAKE: ("sasl", "0-1"),
    ApiKey.API_VERSIONS: ("api_versions", "0-4"),
    ApiKey.CREATE_TOPICS: ("topics", "0-7"),
    ApiKey.DELETE_TOPICS: ("topics", "0-6"),
    ApiKey.DELETE_RECORDS: ("topics", "0-2"),
    ApiKey.CREATE_PARTITIONS: ("topics", "0-3"),
    ApiKey.INIT_PRODUCER_ID: ("transactions", "0-5"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("leader_epoch", "0-4"),
    ApiKey.ADD_PARTITIONS_TO_TXN: ("transactions", "0-5"),
    ApiKey.ADD_OFFSETS_TO_TXN: ("transactions", "0-4"),
    ApiKey.END_TXN: ("transactions", "0-5"),
    ApiKey.WRITE_TXN_MARKERS: ("transactions", "0-2"),
    ApiKey.TXN_OFFSET_COMMIT: ("transactions", "0-6"),
    ApiKey.DESCRIBE_ACLS: ("acls", "0-3"),
    ApiKey.CREATE_ACLS: ("acls", "0-3"),
    ApiKey.DELETE_ACLS: ("acls", "0-3"),
    ApiKey.DESCRIBE_CONFIGS: ("configs", "0-4"),
    ApiKey.ALTER_CONFIGS: ("configs", "0-2"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("configs", "0-1"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ("log_dirs", "1-2"),
    ApiKey.DESCRIBE_LOG_DIRS: ("log_dirs", "0-4"),
    ApiKey.SASL_AUTHENTICATE: ("sasl", "0-2"),
    ApiKey.CREATE_DELEGATION_TOKEN: ("delegation_tokens", "0-3"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("delegation_tokens", "0-2"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("delegation_tokens", "0-2"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ("delegation_tokens", "0-3"),
    ApiKey.ELECT_LEADERS: ("reassignments", "0-2"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ("reassignments", "0-1"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ("reassignments", "0"),
    ApiKey.OFFSET_DELETE: ("offsets", "0"),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ("configs", "0-1"),
    ApiKey.ALTER_CLIENT_QUOTAS: ("configs", "0-1"),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ("scram_users", "0"),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ("scram_users", "0"),
    ApiKey.ALTER_PARTITION: ("controller_requests", "0-3"),
    ApiKey.UPDATE_FEATURES: ("features", "0-2"),
    ApiKey.DESCRIBE_CLUSTER: ("describe_cluster", "0-2"),
    ApiKey.DESCRIBE_PRODUCERS: ("transactions", "0"),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transactions", "0"),
    ApiKey.LIST_TRANSACTIONS: ("transactions", "0-2"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("consumer_group", "0-1"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("consumer_group", "0-1"),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ("telemetry", "0"),
    ApiKey.PUSH_TELEMETRY: ("telemetry", "0"),
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: ("telemetry", "0"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ("metadata", "0"),
}
"""The module that defines request and response, and which versions both have."""
