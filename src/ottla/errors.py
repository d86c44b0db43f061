"""Every error that the protocol knows, in one table, and the exceptions that carry them.

Servers put the code of a row into a response. Clients raise `KafkaError`, whose `error` is the row:

    KafkaError                      anything that went wrong with a request
    +-- RetriableError              the same call may succeed later
    |   +-- InvalidMetadataError    ... after the metadata has been refreshed
    |   +-- KafkaTimeoutError       it took longer than the time limit that was set
    +-- ConfigError                 a setting is missing, unknown or out of range
    +-- UnusableConnectionError     connecting again would not help
    |   +-- TlsError                the peer is not trusted, does not trust us, or speaks no TLS
    |   +-- NotKafkaError           the peer answers, but not in Kafka's protocol
    +-- ProtocolError               bytes that do not follow the protocol
        +-- LocalProtocolError      ... made by us: a bug here
        +-- RemoteProtocolError     ... made by the peer
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

FATAL: Final = (False, False)
RETRY: Final = (True, False)
REFRESH: Final = (True, True)


class ErrorCode(IntEnum):
    """Code on the wire, whether a retry may help (and needs fresh metadata), and one sentence."""

    retriable: bool
    refresh_metadata: bool
    sentence: str

    def __new__(cls, code: int, flags: tuple[bool, bool], sentence: str) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable, member.refresh_metadata = flags
        member.sentence = sentence
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The row of a code from the wire; codes newer than this table are UNKNOWN_SERVER_ERROR."""
        return BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    UNKNOWN_SERVER_ERROR = (
        -1,
        FATAL,
        "The server met an error that it did not expect; its log says more.",
    )
    NONE = (0, FATAL, "No error.")
    OFFSET_OUT_OF_RANGE = (
        1,
        FATAL,
        "The requested offset is outside the range that the log of the partition holds.",
    )
    CORRUPT_MESSAGE = (2, RETRY, "The record batch failed its checksum or is malformed.")
    UNKNOWN_TOPIC_OR_PARTITION = (3, REFRESH, "This server does not host the topic or partition.")
    INVALID_FETCH_SIZE = (4, FATAL, "The requested fetch size is invalid.")
    LEADER_NOT_AVAILABLE = (5, REFRESH, "The partition has no leader at the moment.")
    NOT_LEADER_OR_FOLLOWER = (
        6,
        REFRESH,
        "This broker is not the leader, or not a replica, of the partition.",
    )
    REQUEST_TIMED_OUT = (7, RETRY, "The request was not completed within its time limit.")
    BROKER_NOT_AVAILABLE = (8, FATAL, "The broker is not available.")
    REPLICA_NOT_AVAILABLE = (9, REFRESH, "The replica is not available for the partition.")
    MESSAGE_TOO_LARGE = (
        10,
        FATAL,
        "The record batch is larger than the topic accepts (max.message.bytes).",
    )
    STALE_CONTROLLER_EPOCH = (
        11,
        FATAL,
        "The controller's epoch is older than the newest one known here.",
    )
    OFFSET_METADATA_TOO_LARGE = (
        12,
        FATAL,
        "The metadata of the offset commit is larger than offset.metadata.max.bytes.",
    )
    NETWORK_EXCEPTION = (13, REFRESH, "The connection was lost before a response was received.")
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        RETRY,
        "The coordinator is still loading its state; try again.",
    )
    COORDINATOR_NOT_AVAILABLE = (15, RETRY, "The coordinator is not available; look it up again.")
    NOT_COORDINATOR = (16, RETRY, "This broker is not the coordinator; look it up again.")
    INVALID_TOPIC_EXCEPTION = (
        17,
        FATAL,
        "The topic name is not valid, or the topic may not be used in this way.",
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        FATAL,
        "The record batch is larger than a segment of the log may be.",
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        RETRY,
        "Fewer replicas are in sync than min.insync.replicas; nothing was appended.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        RETRY,
        "The batch was appended, but fewer replicas than min.insync.replicas were in sync.",
    )
    INVALID_REQUIRED_ACKS = (21, FATAL, "The value of acks is not one of -1, 0 and 1.")
    ILLEGAL_GENERATION = (
        22,
        FATAL,
        "The generation id is not the current generation of the group.",
    )
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        FATAL,
        "The member's protocol type, or all of its protocols, do not fit those of the group.",
    )
    INVALID_GROUP_ID = (24, FATAL, "The group id is not valid.")
    UNKNOWN_MEMBER_ID = (25, FATAL, "The coordinator does not know this member; join again.")
    INVALID_SESSION_TIMEOUT = (
        26,
        FATAL,
        "The session timeout is outside group.min and group.max.session.timeout.ms.",
    )
    REBALANCE_IN_PROGRESS = (27, FATAL, "The group is rebalancing; join again.")
    INVALID_COMMIT_OFFSET_SIZE = (28, FATAL, "The offset commit is too large to be stored.")
    TOPIC_AUTHORIZATION_FAILED = (29, FATAL, "Not authorized to use the topic.")
    GROUP_AUTHORIZATION_FAILED = (30, FATAL, "Not authorized to use the group.")
    CLUSTER_AUTHORIZATION_FAILED = (31, FATAL, "Not authorized to act on the cluster.")
    INVALID_TIMESTAMP = (
        32,
        FATAL,
        "The timestamp of a record is outside the range that the topic accepts.",
    )
    UNSUPPORTED_SASL_MECHANISM = (
        33,
        FATAL,
        "The SASL mechanism is not one that the listener offers.",
    )
    ILLEGAL_SASL_STATE = (
        34,
        FATAL,
        "The request is not valid in the connection's present SASL state.",
    )
    UNSUPPORTED_VERSION = (35, FATAL, "The version of the API is not supported.")
    TOPIC_ALREADY_EXISTS = (36, FATAL, "A topic of this name already exists.")
    INVALID_PARTITIONS = (37, FATAL, "The number of partitions is not valid.")
    INVALID_REPLICATION_FACTOR = (
        38,
        FATAL,
        "The replication factor is not between 1 and the number of live brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = (39, FATAL, "The assignment of replicas to brokers is not valid.")
    INVALID_CONFIG = (40, FATAL, "The configuration is not valid.")
    NOT_CONTROLLER = (41, RETRY, "This broker is not the controller.")
    INVALID_REQUEST = (42, FATAL, "The request is not valid; the broker's log says why.")
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        FATAL,
        "The message format of the topic does not support the request.",
    )
    POLICY_VIOLATION = (44, FATAL, "The request breaks a policy of the cluster.")
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        FATAL,
        "The sequence number of the batch is not the next one of its producer.",
    )
    DUPLICATE_SEQUENCE_NUMBER = (
        46,
        FATAL,
        "The batch repeats a sequence number that the broker no longer remembers.",
    )
    INVALID_PRODUCER_EPOCH = (
        47,
        FATAL,
        "The producer's epoch is older than the newest one of its producer id.",
    )
    INVALID_TXN_STATE = (
        48,
        FATAL,
        "The transaction is in a state that does not permit the request.",
    )
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        FATAL,
        "The producer id does not belong to this transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        FATAL,
        "The transaction timeout is larger than transaction.max.timeout.ms.",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        RETRY,
        "Another request of the same transactional id is still being carried out.",
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        FATAL,
        "A newer coordinator of the transaction has taken over.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        FATAL,
        "Not authorized to use the transactional id.",
    )
    SECURITY_DISABLED = (54, FATAL, "Security is not enabled on this broker.")
    OPERATION_NOT_ATTEMPTED = (55, FATAL, "The operation was not attempted.")
    KAFKA_STORAGE_ERROR = (56, REFRESH, "The log directory of the partition has failed.")
    LOG_DIR_NOT_FOUND = (
        57,
        FATAL,
        "The log directory is not one that the broker is configured with.",
    )
    SASL_AUTHENTICATION_FAILED = (58, FATAL, "Authentication failed.")
    UNKNOWN_PRODUCER_ID = (59, FATAL, "The producer id is not known to the partition.")
    REASSIGNMENT_IN_PROGRESS = (
        60,
        FATAL,
        "A reassignment of the partition is already in progress.",
    )
    DELEGATION_TOKEN_AUTH_DISABLED = (61, FATAL, "Delegation tokens are not enabled.")
    DELEGATION_TOKEN_NOT_FOUND = (62, FATAL, "The delegation token does not exist.")
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        FATAL,
        "The principal does not own the delegation token.",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        FATAL,
        "Delegation tokens cannot be requested over this connection.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (65, FATAL, "Not authorized to use delegation tokens.")
    DELEGATION_TOKEN_EXPIRED = (66, FATAL, "The delegation token has expired.")
    INVALID_PRINCIPAL_TYPE = (67, FATAL, "The type of the principal is not supported.")
    NON_EMPTY_GROUP = (68, FATAL, "The group still has members.")
    GROUP_ID_NOT_FOUND = (69, FATAL, "The group does not exist.")
    FETCH_SESSION_ID_NOT_FOUND = (
        70,
        RETRY,
        "The fetch session does not exist; start with a full fetch.",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        RETRY,
        "The epoch of the fetch session is not the next one; start with a full fetch.",
    )
    LISTENER_NOT_FOUND = (
        72,
        REFRESH,
        "The broker that leads the partition has no listener of this name.",
    )
    TOPIC_DELETION_DISABLED = (73, FATAL, "Topic deletion is switched off (delete.topic.enable).")
    FENCED_LEADER_EPOCH = (
        74,
        REFRESH,
        "The leader epoch in the request is older than that of the broker.",
    )
    UNKNOWN_LEADER_EPOCH = (
        75,
        RETRY,
        "The leader epoch in the request is newer than that of the broker.",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        FATAL,
        "The version of the request does not support the compression type.",
    )
    STALE_BROKER_EPOCH = (77, FATAL, "The broker's epoch is older than its newest registration.")
    OFFSET_NOT_AVAILABLE = (
        78,
        RETRY,
        "The leader cannot tell the offset until its high watermark has caught up.",
    )
    MEMBER_ID_REQUIRED = (79, FATAL, "The coordinator has given a member id: join again with it.")
    PREFERRED_LEADER_NOT_AVAILABLE = (80, REFRESH, "The preferred leader is not available.")
    GROUP_MAX_SIZE_REACHED = (81, FATAL, "The group has reached group.max.size.")
    FENCED_INSTANCE_ID = (82, FATAL, "Another member has taken over this group.instance.id.")
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (83, REFRESH, "No replica is eligible to lead the partition.")
    ELECTION_NOT_NEEDED = (84, REFRESH, "The partition does not need an election.")
    NO_REASSIGNMENT_IN_PROGRESS = (85, FATAL, "No reassignment is in progress for the partition.")
    GROUP_SUBSCRIBED_TO_TOPIC = (86, FATAL, "The group is subscribed to the topic.")
    INVALID_RECORD = (87, FATAL, "A record is not valid for this topic.")
    UNSTABLE_OFFSET_COMMIT = (88, RETRY, "Transactions on the requested offsets are still open.")
    THROTTLING_QUOTA_EXCEEDED = (89, RETRY, "A quota is exceeded.")
    PRODUCER_FENCED = (90, FATAL, "A newer producer with the same transactional id has taken over.")
    RESOURCE_NOT_FOUND = (91, FATAL, "The resource does not exist.")
    DUPLICATE_RESOURCE = (92, FATAL, "The resource is named more than once.")
    UNACCEPTABLE_CREDENTIAL = (93, FATAL, "The credential does not meet the requirements.")
    INCONSISTENT_VOTER_SET = (
        94,
        FATAL,
        "The sender or the receiver is not among the expected voters.",
    )
    INVALID_UPDATE_VERSION = (95, FATAL, "The version of the update is not valid.")
    FEATURE_UPDATE_FAILED = (96, FATAL, "The feature update failed.")
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        FATAL,
        "The principal in the forwarded request could not be read.",
    )
    SNAPSHOT_NOT_FOUND = (98, FATAL, "The snapshot does not exist.")
    POSITION_OUT_OF_RANGE = (99, FATAL, "The position in the snapshot is out of range.")
    UNKNOWN_TOPIC_ID = (100, REFRESH, "This server does not know the topic id.")
    DUPLICATE_BROKER_REGISTRATION = (101, FATAL, "A broker is already registered under this id.")
    BROKER_ID_NOT_REGISTERED = (102, FATAL, "The broker id is not registered.")
    INCONSISTENT_TOPIC_ID = (
        103,
        REFRESH,
        "The topic id in the log is not the topic id in the request.",
    )
    INCONSISTENT_CLUSTER_ID = (
        104,
        FATAL,
        "The cluster id in the request is not that of this cluster.",
    )
    TRANSACTIONAL_ID_NOT_FOUND = (105, FATAL, "The transactional id does not exist.")
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        RETRY,
        "The fetch session mixes requests with and without topic ids.",
    )
    INELIGIBLE_REPLICA = (107, FATAL, "The replica is not eligible to join the in-sync replicas.")
    NEW_LEADER_ELECTED = (108, FATAL, "The election has put a new leader in place.")
    OFFSET_MOVED_TO_TIERED_STORAGE = (109, FATAL, "The offset has moved to tiered storage.")
    FENCED_MEMBER_EPOCH = (
        110,
        FATAL,
        "The member's epoch is no longer accepted; join again with epoch 0.",
    )
    UNRELEASED_INSTANCE_ID = (111, FATAL, "Another member still holds this group.instance.id.")
    UNSUPPORTED_ASSIGNOR = (112, FATAL, "The group has no such server-side assignor.")
    STALE_MEMBER_EPOCH = (
        113,
        FATAL,
        "The member's epoch is older than the coordinator's; heartbeat again.",
    )
    MISMATCHED_ENDPOINT_TYPE = (114, FATAL, "The request went to an endpoint of another type.")
    UNSUPPORTED_ENDPOINT_TYPE = (115, FATAL, "The type of the endpoint is not supported.")
    UNKNOWN_CONTROLLER_ID = (116, FATAL, "The controller id is not known.")
    UNKNOWN_SUBSCRIPTION_ID = (117, FATAL, "The subscription id of the telemetry is not known.")
    TELEMETRY_TOO_LARGE = (118, FATAL, "The telemetry is larger than the broker accepts.")
    INVALID_REGISTRATION = (119, FATAL, "The registration is not valid.")
    TRANSACTION_ABORTABLE = (
        120,
        FATAL,
        "The transaction must be aborted; nothing of it is lost by trying again.",
    )
    INVALID_RECORD_STATE = (
        121,
        FATAL,
        "The record is in a state that does not permit the acknowledgement.",
    )
    SHARE_SESSION_NOT_FOUND = (122, RETRY, "The share session does not exist.")
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        RETRY,
        "The epoch of the share session is not the next one.",
    )
    FENCED_STATE_EPOCH = (124, FATAL, "The epoch of the share state is older than the newest one.")
    INVALID_VOTER_KEY = (125, FATAL, "The key of the voter is not that of the expected one.")
    DUPLICATE_VOTER = (126, FATAL, "The voter is already part of the set.")
    VOTER_NOT_FOUND = (127, FATAL, "The voter is not part of the set.")
    INVALID_REGULAR_EXPRESSION = (128, FATAL, "The regular expression is not valid.")
    REBOOTSTRAP_REQUIRED = (129, FATAL, "The client must start again from its bootstrap servers.")
    STREAMS_INVALID_TOPOLOGY = (130, FATAL, "The topology is not valid.")
    STREAMS_INVALID_TOPOLOGY_EPOCH = (131, FATAL, "The epoch of the topology is not valid.")
    STREAMS_TOPOLOGY_FENCED = (
        132,
        FATAL,
        "The topology of the member is older than that of the group.",
    )
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        RETRY,
        "The broker has reached its limit of share sessions.",
    )


BY_CODE: Final[Mapping[int, ErrorCode]] = {int(error): error for error in ErrorCode}


class KafkaError(Exception):
    """A request failed with `error`; the text says what was asked and why it was refused."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(f"{error.name}: {message or error.sentence}")
        self.error = error
        self.message = message or error.sentence

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.error.retriable

    @staticmethod
    def of(code: int, message: str | None = None) -> KafkaError:
        """The exception for an error code from the wire, of the class that suits its row."""
        error = ErrorCode.of(code)
        text = message or ""
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return KafkaTimeoutError(text)
        if error.refresh_metadata:
            return InvalidMetadataError(error, text)
        if error.retriable:
            return RetriableError(error, text)
        return KafkaError(error, text)


class RefusedRecordsError(KafkaError):
    """A batch was refused because of some of its records: why, by their index in it (KIP-467)."""

    def __init__(self, error: ErrorCode, message: str, record_errors: dict[int, str]) -> None:
        super().__init__(error, message)
        self.record_errors = record_errors


class RetriableError(KafkaError):
    """The same call may succeed later."""


class InvalidMetadataError(RetriableError):
    """The call went to the wrong broker or about an unknown topic; refresh metadata, then retry."""


class KafkaTimeoutError(RetriableError):
    """It took longer than the time limit that was set."""

    def __init__(self, message: str = "") -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class ConfigError(KafkaError):
    """A setting is missing, unknown or out of range; the text names key, value and rule."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_CONFIG, message)


class UnusableConnectionError(KafkaError):
    """What listens at an address is not what the settings say: a retry would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)

    @property
    def retriable(self) -> bool:
        return False


class TlsError(UnusableConnectionError):
    """No encrypted connection, and falling back to an open one is no choice."""


class NotKafkaError(UnusableConnectionError):
    """The first bytes from a peer are no answer of Kafka's protocol: another server's port."""


class ProtocolError(KafkaError):
    """Bytes that do not follow the protocol."""

    def __init__(self, message: str, error: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(error, message)


class LocalProtocolError(ProtocolError):
    """We tried to say something that the protocol has no words for: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that does not follow the protocol."""
