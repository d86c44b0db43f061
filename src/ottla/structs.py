"""The small value types and the constants that all packages share."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, TypeGuard, TypeVar, dataclass_transform
from uuid import UUID

from ottla.named_tuple import NamedTuple as NamedTuple

K = TypeVar("K")
V = TypeVar("V")
ValueT = TypeVar("ValueT", bound="Value")

# The numbers that stand for "none", in requests and in files alike.
NO_LEADER: Final = -1
LEADER_DURING_DELETE: Final = -2
"""The leader of a partition whose topic is being deleted, as UpdateMetadata has it."""
NO_REPLICA: Final = -1
"""The preferred read replica of a partition that is read from its leader (KIP-392)."""
NO_EPOCH: Final = -1
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch of StopReplica for a topic that is being deleted: no other one is newer."""
NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_SESSION: Final = -1
"""The session of a transactional producer that has not come over a connection of its own."""
NO_GENERATION: Final = -1
"""The generation of a consumer that is not, or not yet, a member of its group."""
NO_UUID: Final = UUID(int=0)
BROKER_DEFAULT: Final = -1
"""A number of partitions or replicas of a new topic: as the broker is configured (KIP-464)."""

BROKER_CLIENT_ID: Final = "broker-"
"""The client id of a broker that asks another one, before its number."""
CONSUMER_REPLICA_ID: Final = -1
"""The replica id in Fetch, ListOffsets and OffsetForLeaderEpoch of a client that is no broker."""
DEBUGGING_REPLICA_ID: Final = -2
"""A client that is answered with the end of the leader's log, committed or not."""

# The timestamps that ListOffsets takes for a place in the log in place of a time.
LATEST_TIMESTAMP: Final = -1
EARLIEST_TIMESTAMP: Final = -2
MAX_TIMESTAMP: Final = -3
"""The record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL_TIMESTAMP: Final = -4
"""The first record on the broker's own disks (KIP-405)."""
LATEST_TIERED_TIMESTAMP: Final = -5
"""The last record that was moved to the remote tier (KIP-1005)."""
EARLIEST_PENDING_UPLOAD_TIMESTAMP: Final = -6  # still to be moved there (KIP-1023)

TRANSACTION_VERSION: Final = "transaction.version"
"""The feature whose level says how transactions work (KIP-890, KIP-1022)."""
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups of consumers; those of Kafka Connect have another."""

MS_PER_MINUTE: Final = 60_000
MS_PER_HOUR: Final = 3_600_000

MAX_TOPIC_NAME_LENGTH: Final = 249
"""The name of a directory, of 255, holds that of the topic, a dash, and a partition's digits."""
_TOPIC_NAME: Final = rf"(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{MAX_TOPIC_NAME_LENGTH}}}"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""The topics that brokers write: clients may read them, and neither make nor delete them."""
PROGRESS_TOPIC = "__ottla_pipelines"
"""Runs of pipelines write their batches there, and the console reads them."""


def is_topic_name(name: object) -> TypeGuard[str]:
    """Whether a topic may have this name."""
    return isinstance(name, str) and re.fullmatch(_TOPIC_NAME, name) is not None


def encode_uuid(value: UUID) -> str:
    """22 characters of URL-safe base64, as Kafka writes ids of topics and clusters."""
    return urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> UUID:
    """The UUID in a text of `encode_uuid`; ValueError for other text."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))


class ClientEntity(NamedTuple):
    """Whose quotas or credentials: a user, a client id, a user's client id, or an IP address.

    None is a part that the entity does not have; "" stands for the default of its part.
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


class TopicPartition(NamedTuple):
    """A partition of a topic, written ``topic-3`` as its directory is."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TxnProducer(NamedTuple):
    """The sender of a request: the id, and the producer id and epoch that it has.

    `session` numbers the connections of a broker in the order in which they were opened.
    """

    transactional_id: str
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    session: int = NO_SESSION


def by_topic(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The parts of each topic, in order: of partitions, which are pairs, their numbers."""
    topics: dict[K, list[V]] = {}
    for topic, value in pairs:
        topics.setdefault(topic, []).append(value)
    return topics


class IsolationLevel(IntEnum):
    """How far a consumer may read: to the high watermark, or to the last stable offset (KIP-98).

    With READ_COMMITTED no records of open or aborted transactions are visible.
    """

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, name: str) -> IsolationLevel:
        """The level with Kafka's name in settings, such as read_committed."""
        return cls[name.upper()]


class ElectionType(IntEnum):
    """Which replica an election chooses: the first of the assignment, or any live one (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class ConfigSource(IntEnum):
    """Where a value comes from (v1 and newer of DescribeConfigs)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Node(NamedTuple):
    """A broker as clients see it: the id of the cluster member and where it listens."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id: {self.id} rack: {self.rack})"


class EndPoint(NamedTuple):
    """Where a listener binds or is advertised; an empty host is every address of the machine."""

    listener_name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener_name}://{host}:{self.port}"


class BrokerEndPoints(NamedTuple):
    """A live broker with all the listeners that it advertises.

    `epoch` numbers the registration: a broker that was started again has a higher one (KIP-380).
    """

    id: int
    epoch: int
    endpoints: tuple[EndPoint, ...]
    rack: str | None = None

    def node(self, listener_name: str) -> Node | None:
        """The broker as clients of this listener reach it; None where it has no such listener."""
        for end_point in self.endpoints:
            if end_point.listener_name == listener_name:
                return Node(self.id, end_point.host, end_point.port, self.rack)
        return None


class LeaderAndIsr(NamedTuple):
    """The leader of a partition, its epoch, and the replicas that are in sync with it.

    `version` is the version of the partition's state znode that these values were read from.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    version: int = 0


class PartitionState(NamedTuple):
    """The state of one partition in the controller's orders (LeaderAndIsr, UpdateMetadata).

    `adding_replicas` and `removing_replicas` are those of a reassignment under way (KIP-455).
    """

    topic_partition: TopicPartition
    topic_id: UUID
    controller_epoch: int
    leader_and_isr: LeaderAndIsr
    replicas: tuple[int, ...]
    is_new: bool = False
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def leader(self) -> int:
        return self.leader_and_isr.leader

    @property
    def leader_epoch(self) -> int:
        return self.leader_and_isr.leader_epoch


class TopicMetadata(NamedTuple):
    """A topic and the state of each of its partitions, by partition index, as a broker knows it."""

    name: str
    topic_id: UUID
    partitions: dict[int, PartitionState]


class StopReplicaPartition(NamedTuple):
    """A partition that a broker shall give up; with `delete` its log goes, hosted or not.

    `leader_epoch` is that of the controller's decision; an older one than the replica's is refused,
    unless it is NO_EPOCH or EPOCH_DURING_DELETE.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


class MetadataUpdate(NamedTuple):
    """The news of an UpdateMetadata for a broker's clients; partitions that are not named stay.

    `brokers` are all that live. With `is_full` topics that are not named are forgotten.
    """

    states: Sequence[PartitionState] = ()
    brokers: Sequence[BrokerEndPoints] = ()
    deleted_topics: Sequence[str] = ()
    is_full: bool = False


_NONE_GIVEN: Final[Any] = object()


class ValueField(NamedTuple):
    """The declaration of a field of a Value; one that is not given starts as the default."""

    default: Any = _NONE_GIVEN
    default_factory: Callable[[], Any] | None = None
    init: bool = True
    repr: bool = True
    compare: bool = True


def field(
    *,
    default: Any = _NONE_GIVEN,
    default_factory: Callable[[], Any] | None = None,
    init: bool = True,
    repr: bool = True,
    compare: bool = True,
) -> Any:
    """Declare a field that starts as something new, or is not given, not shown or not compared."""
    return ValueField(default, default_factory, init, repr, compare)


def _hash_of_values(self: Value) -> int:
    return hash(type(self)._compared(self))


def _refuse_change(self: Value, name: str, *_value: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot be set")


def _construct_first(self: Value, *values: Any, **named: Any) -> None:
    """Compile the constructor of a class when its first object is made: of most there is none."""
    cls = type(self)
    cls.__init__ = _constructor(cls)  # type: ignore[method-assign]  # as said above
    cls.__init__(self, *values, **named)


def _constructor(cls: ValueType) -> Callable[..., None]:
    """`def __init__(self, a, b=b_default): self.a = a ...`, through the slots of a frozen one."""
    scope: dict[str, Any] = {"_none": object()}
    parameters = ["self", "*"] if cls._kw_only else ["self"]
    lines = []
    for name, said in cls._fields.items():
        parameter = value = name
        if said.default_factory is not None:
            scope[f"{name}_new"] = said.default_factory
            parameter, value = f"{name}=_none", f"{name}_new() if {name} is _none else {name}"
        elif said.default is not _NONE_GIVEN:
            scope[f"{name}_default"] = said.default
            parameter = f"{name}={name}_default"
        if not said.init:
            continue
        parameters.append(parameter)
        if cls._is_frozen:
            scope[f"set_{name}"] = getattr(cls, name).__set__
        lines.append(f"set_{name}(self, {value})" if cls._is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines or ["pass"])
    exec(compile(text, f"<fields of {cls.__name__}>", "exec"), scope)
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@dataclass_transform(field_specifiers=(field,))
class ValueType(type):
    """Turns the annotations of a class body into slots; those of its base come first.

    Objects compare by value. Those of a `frozen` class cannot be changed, and have a hash; with
    `eq=False` each equals itself alone. With `kw_only` they are made of keywords.
    """

    _fields: dict[str, ValueField]
    _compared: Callable[[Any], Any]
    _is_frozen: bool
    _kw_only: bool

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        frozen: bool = False,
        eq: bool = True,
        kw_only: bool = False,
    ) -> ValueType:
        fields: dict[str, ValueField] = dict(getattr(bases[0], "_fields", {})) if bases else {}
        types: dict[str, str] = namespace.get("__annotations__", {})
        declared = [each for each in types if "ClassVar" not in str(types[each])]
        own = [each for each in declared if each not in fields]
        for each in own:
            said = namespace.pop(each, _NONE_GIVEN)
            fields[each] = said if isinstance(said, ValueField) else ValueField(said)
        namespace |= {"__slots__": own, "__init__": _construct_first}
        if frozen:
            namespace |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
        if not eq:
            namespace |= {"__eq__": object.__eq__, "__hash__": object.__hash__}
        else:
            namespace.setdefault("__hash__", _hash_of_values if frozen else None)
        made = super().__new__(mcs, name, bases, namespace)
        made._fields, made._is_frozen, made._kw_only = fields, frozen, kw_only
        compared = [each for each, said in fields.items() if said.compare]
        made._compared = attrgetter(*compared) if compared else type
        return made


class Value(metaclass=ValueType):
    """An object that is its fields: a class below it declares them as a dataclass does.

    It has a tenth of a dataclass's price: `dataclasses` compiles up to eight functions of each
    class while it is imported, which was an eighth of the start of a broker.
    """

    def __eq__(self, other: object) -> bool:
        cls = type(self)
        if other.__class__ is not cls:
            return NotImplemented
        return bool(cls._compared(self) == cls._compared(other))

    __hash__ = None  # type: ignore[assignment]  # unless a class is frozen

    def __repr__(self) -> str:
        cls = type(self)
        shown = [
            f"{name}={getattr(self, name)!r}" for name, said in cls._fields.items() if said.repr
        ]
        return f"{cls.__qualname__}({', '.join(shown)})"


def replace(value: ValueT, **changes: Any) -> ValueT:
    """Another value of the same class, which differs in these fields."""
    cls = type(value)
    same = {name: getattr(value, name) for name, said in cls._fields.items() if said.init}
    return cls(**same | changes)


@lru_cache(maxsize=1024)  # each request of a group's members asks again
def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, in 32 bits; Kafka places groups and ids by it."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


def partition_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic that has the records of a group or transactional id."""
    code = java_hash(key)
    signed = code - 2**32 if code >= 2**31 else code
    # Kafka's Utils.abs, which is 0 where Java's own would stay negative.
    return (0 if signed == -(2**31) else abs(signed)) % partition_count
