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
    |   +-- SaslAuthenticationError the broker refuses the login, or offers no such mechanism
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
    """Code on the wire, one sentence, and whether a retry may help (and needs fresh metadata)."""

    retriable: bool
    refresh_metadata: bool
    sentence: str

    def __new__(cls, code: int, sentence: str, flags: tuple[bool, bool] = FATAL) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable, member.refresh_metadata = flags
        member.sentence = sentence
        return member

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """The row of a code from the wire; codes newer than this table are UNKNOWN_SERVER_ERROR."""
        return BY_CODE.get(code, cls.UNKNOWN_SERVER_ERROR)

    # A row for each error, which the formatter would take apart.
    # fmt: off

    UNKNOWN_SERVER_ERROR = -1, "The server met an error that it did not expect; its log says more."
    NONE = 0, "No error."
    OFFSET_OUT_OF_RANGE = (1,
        "The requested offset is outside the range that the log of the partition holds.")
    CORRUPT_MESSAGE = 2, "The record batch failed its checksum or is malformed.", RETRY
    UNKNOWN_TOPIC_OR_PARTITION = 3, "This server does not host the topic or partition.", REFRESH
    INVALID_FETCH_SIZE = 4, "The requested fetch size is invalid."
    LEADER_NOT_AVAILABLE = 5, "The partition has no leader at the moment.", REFRESH
    NOT_LEADER_OR_FOLLOWER = (6,
        "This broker is not the leader, or not a replica, of the partition.", REFRESH)
    REQUEST_TIMED_OUT = 7, "The request was not completed within its time limit.", RETRY
    BROKER_NOT_AVAILABLE = 8, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, "The replica is not available for the partition.", REFRESH
    MESSAGE_TOO_LARGE = 10, "The record batch is larger than the topic accepts (max.message.bytes)."
    STALE_CONTROLLER_EPOCH = 11, "The controller's epoch is older than the newest one known here."
    OFFSET_METADATA_TOO_LARGE = (12,
        "The metadata of the offset commit is larger than offset.metadata.max.bytes.")
    NETWORK_EXCEPTION = 13, "The connection was lost before a response was received.", REFRESH
    COORDINATOR_LOAD_IN_PROGRESS = (14,
        "The coordinator is still loading its state; try again.", RETRY)
    COORDINATOR_NOT_AVAILABLE = 15, "The coordinator is not available; look it up again.", RETRY
    NOT_COORDINATOR = 16, "This broker is not the coordinator; look it up again.", RETRY
    INVALID_TOPIC_EXCEPTION = (17,
        "The topic name is not valid, or the topic may not be used in this way.")
    RECORD_LIST_TOO_LARGE = 18, "The record batch is larger than a segment of the log may be."
    NOT_ENOUGH_REPLICAS = (19,
        "Fewer replicas are in sync than min.insync.replicas; nothing was appended.", RETRY)
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (20,
        "The batch was appended, but fewer replicas than min.insync.replicas were in sync.", RETRY)
    INVALID_REQUIRED_ACKS = 21, "The value of acks is not one of -1, 0 and 1."
    ILLEGAL_GENERATION = 22, "The generation id is not the current generation of the group."
    INCONSISTENT_GROUP_PROTOCOL = (23,
        "The member's protocol type, or all of its protocols, do not fit those of the group.")
    INVALID_GROUP_ID = 24, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, "The coordinator does not know this member; join again."
    INVALID_SESSION_TIMEOUT = (26,
        "The session timeout is outside group.min and group.max.session.timeout.ms.")
    REBALANCE_IN_PROGRESS = 27, "The group is rebalancing; join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, "Not authorized to use the topic."
    GROUP_AUTHORIZATION_FAILED = 30, "Not authorized to use the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, "Not authorized to act on the cluster."
    INVALID_TIMESTAMP = 32, "The timestamp of a record is outside the range that the topic accepts."
    UNSUPPORTED_SASL_MECHANISM = 33, "The SASL mechanism is not one that the listener offers."
    ILLEGAL_SASL_STATE = 34, "The request is not valid in the connection's present SASL state."
    UNSUPPORTED_VERSION = 35, "The version of the API is not supported."
    TOPIC_ALREADY_EXISTS = 36, "A topic of this name already exists."
    INVALID_PARTITIONS = 37, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = (38,
        "The replication factor is not between 1 and the number of live brokers.")
    INVALID_REPLICA_ASSIGNMENT = 39, "The assignment of replicas to brokers is not valid."
    INVALID_CONFIG = 40, "The configuration is not valid."
    NOT_CONTROLLER = 41, "This broker is not the controller.", RETRY
    INVALID_REQUEST = 42, "The request is not valid; the broker's log says why."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (43,
        "The message format of the topic does not support the request.")
    POLICY_VIOLATION = 44, "The request breaks a policy of the cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = (45,
        "The sequence number of the batch is not the next one of its producer.")
    DUPLICATE_SEQUENCE_NUMBER = (46,
        "The batch repeats a sequence number that the broker no longer remembers.")
    INVALID_PRODUCER_EPOCH = (47,
        "The producer's epoch is older than the newest one of its producer id.")
    INVALID_TXN_STATE = 48, "The transaction is in a state that does not permit the request."
    INVALID_PRODUCER_ID_MAPPING = 49, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = (50,
        "The transaction timeout is larger than transaction.max.timeout.ms.")
    CONCURRENT_TRANSACTIONS = (51,
        "Another request of the same transactional id is still being carried out.", RETRY)
    TRANSACTION_COORDINATOR_FENCED = 52, "A newer coordinator of the transaction has taken over."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, "Not authorized to use the transactional id."
    SECURITY_DISABLED = 54, "Security is not enabled on this broker."
    OPERATION_NOT_ATTEMPTED = 55, "The operation was not attempted."
    KAFKA_STORAGE_ERROR = 56, "The log directory of the partition has failed.", REFRESH
    LOG_DIR_NOT_FOUND = 57, "The log directory is not one that the broker is configured with."
    SASL_AUTHENTICATION_FAILED = 58, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, "The producer id is not known to the partition."
    REASSIGNMENT_IN_PROGRESS = 60, "A reassignment of the partition is already in progress."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, "The delegation token does not exist."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, "The principal does not own the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (64,
        "Delegation tokens cannot be requested over this connection.")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, "Not authorized to use delegation tokens."
    DELEGATION_TOKEN_EXPIRED = 66, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, "The type of the principal is not supported."
    NON_EMPTY_GROUP = 68, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, "The group does not exist."
    FETCH_SESSION_ID_NOT_FOUND = (70,
        "The fetch session does not exist; start with a full fetch.", RETRY)
    INVALID_FETCH_SESSION_EPOCH = (71,
        "The epoch of the fetch session is not the next one; start with a full fetch.", RETRY)
    LISTENER_NOT_FOUND = (72,
        "The broker that leads the partition has no listener of this name.", REFRESH)
    TOPIC_DELETION_DISABLED = 73, "Topic deletion is switched off (delete.topic.enable)."
    FENCED_LEADER_EPOCH = (74,
        "The leader epoch in the request is older than that of the broker.", REFRESH)
    UNKNOWN_LEADER_EPOCH = (75,
        "The leader epoch in the request is newer than that of the broker.", RETRY)
    UNSUPPORTED_COMPRESSION_TYPE = (76,
        "The version of the request does not support the compression type.")
    STALE_BROKER_EPOCH = 77, "The broker's epoch is older than its newest registration."
    OFFSET_NOT_AVAILABLE = (78,
        "The leader cannot tell the offset until its high watermark has caught up.", RETRY)
    MEMBER_ID_REQUIRED = 79, "The coordinator has given a member id: join again with it."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, "The preferred leader is not available.", REFRESH
    GROUP_MAX_SIZE_REACHED = 81, "The group has reached group.max.size."
    FENCED_INSTANCE_ID = 82, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, "No replica is eligible to lead the partition.", REFRESH
    ELECTION_NOT_NEEDED = 84, "The partition does not need an election.", REFRESH
    NO_REASSIGNMENT_IN_PROGRESS = 85, "No reassignment is in progress for the partition."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, "The group is subscribed to the topic."
    INVALID_RECORD = 87, "A record is not valid for this topic."
    UNSTABLE_OFFSET_COMMIT = 88, "Transactions on the requested offsets are still open.", RETRY
    THROTTLING_QUOTA_EXCEEDED = 89, "A quota is exceeded.", RETRY
    PRODUCER_FENCED = 90, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, "The resource does not exist."
    DUPLICATE_RESOURCE = 92, "The resource is named more than once."
    UNACCEPTABLE_CREDENTIAL = 93, "The credential does not meet the requirements."
    INCONSISTENT_VOTER_SET = 94, "The sender or the receiver is not among the expected voters."
    INVALID_UPDATE_VERSION = 95, "The version of the update is not valid."
    FEATURE_UPDATE_FAILED = 96, "The feature update failed."
    PRINCIPAL_DESERIALIZATION_FAILURE = (97,
        "The principal in the forwarded request could not be read.")
    SNAPSHOT_NOT_FOUND = 98, "The snapshot does not exist."
    POSITION_OUT_OF_RANGE = 99, "The position in the snapshot is out of range."
    UNKNOWN_TOPIC_ID = 100, "This server does not know the topic id.", REFRESH
    DUPLICATE_BROKER_REGISTRATION = 101, "A broker is already registered under this id."
    BROKER_ID_NOT_REGISTERED = 102, "The broker id is not registered."
    INCONSISTENT_TOPIC_ID = (103,
        "The topic id in the log is not the topic id in the request.", REFRESH)
    INCONSISTENT_CLUSTER_ID = 104, "The cluster id in the request is not that of this cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, "The transactional id does not exist."
    FETCH_SESSION_TOPIC_ID_ERROR = (106,
        "The fetch session mixes requests with and without topic ids.", RETRY)
    INELIGIBLE_REPLICA = 107, "The replica is not eligible to join the in-sync replicas."
    NEW_LEADER_ELECTED = 108, "The election has put a new leader in place."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, "The offset has moved to tiered storage."
    FENCED_MEMBER_EPOCH = 110, "The member's epoch is no longer accepted; join again with epoch 0."
    UNRELEASED_INSTANCE_ID = 111, "Another member still holds this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, "The group has no such server-side assignor."
    STALE_MEMBER_EPOCH = 113, "The member's epoch is older than the coordinator's; heartbeat again."
    MISMATCHED_ENDPOINT_TYPE = 114, "The request went to an endpoint of another type."
    UNSUPPORTED_ENDPOINT_TYPE = 115, "The type of the endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, "The controller id is not known."
    UNKNOWN_SUBSCRIPTION_ID = 117, "The subscription id of the telemetry is not known."
    TELEMETRY_TOO_LARGE = 118, "The telemetry is larger than the broker accepts."
    INVALID_REGISTRATION = 119, "The registration is not valid."
    TRANSACTION_ABORTABLE = (120,
        "The transaction must be aborted; nothing of it is lost by trying again.")
    INVALID_RECORD_STATE = 121, "The record is in a state that does not permit the acknowledgement."
    SHARE_SESSION_NOT_FOUND = 122, "The share session does not exist.", RETRY
    INVALID_SHARE_SESSION_EPOCH = 123, "The epoch of the share session is not the next one.", RETRY
    FENCED_STATE_EPOCH = 124, "The epoch of the share state is older than the newest one."
    INVALID_VOTER_KEY = 125, "The key of the voter is not that of the expected one."
    DUPLICATE_VOTER = 126, "The voter is already part of the set."
    VOTER_NOT_FOUND = 127, "The voter is not part of the set."
    INVALID_REGULAR_EXPRESSION = 128, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, "The client must start again from its bootstrap servers."
    STREAMS_INVALID_TOPOLOGY = 130, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, "The epoch of the topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, "The topology of the member is older than that of the group."
    SHARE_SESSION_LIMIT_REACHED = 133, "The broker has reached its limit of share sessions.", RETRY

    # fmt: on


BY_CODE: Final[Mapping[int, ErrorCode]] = {int(error): error for error in ErrorCode}


class KafkaError(Exception):
    """A request failed with `error`; the text names the request and the reason."""

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
    """The server at an address is not of the kind in the settings: a retry would not help."""

    def __init__(self, message: str, error: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        super().__init__(error, message)

    @property
    def retriable(self) -> bool:
        return False


class TlsError(UnusableConnectionError):
    """No encrypted connection, and falling back to an open one is no choice."""


class NotKafkaError(UnusableConnectionError):
    """The first bytes from a peer are no answer of Kafka's protocol: another server's port."""


class SaslAuthenticationError(UnusableConnectionError):
    """The broker refuses the login, or has no such mechanism: another try would be the same."""

    def __init__(
        self, message: str, error: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED
    ) -> None:
        super().__init__(message, error)


class ProtocolError(KafkaError):
    """Bytes that do not follow the protocol."""

    def __init__(self, message: str, error: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(error, message)


class LocalProtocolError(ProtocolError):
    """We tried to say something that the protocol has no words for: a bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that does not follow the protocol."""
