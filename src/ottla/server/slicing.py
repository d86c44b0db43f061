"""The size of one request, and how much of it is done at a time.

All clients share one loop. So a request has a limit of bytes (those with records, assignments, or
the state of a cluster aside), and one of elements in all its arrays together, which is known
before they are made. A larger one than LONG_FRAME_BYTES is read in slices; an answer that is given
entry by entry is given in slices, each the same request with a part of the entries, so that
handlers and checks of rights need not know of it. The connection stays muted meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from functools import cache
from operator import attrgetter
from typing import Any, Final

from ottla.protocol.api_keys import ApiKey
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, StructType
from ottla.runtime.scheduler import FREED_AT_ONCE, Work
from ottla.structs import NO_UUID, NamedTuple

MAX_FRAME_BYTES: Final = 4 * 1024 * 1024
LARGE_FRAME_BYTES: Final = 32 * 1024 * 1024
LARGE_FRAMES: Final = frozenset({ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP})
"""They have subscriptions and assignments; records have `socket.request.max.bytes` alone."""
LONG_FRAME_BYTES: Final = 16 * 1024
LARGE_ANSWER_BYTES: Final = 1024 * 1024
"""A larger one is freed in slices."""
MAX_ELEMENTS: Final = 25_000
MAX_ELEMENTS_OF: Final[Mapping[int, int]] = {
    # Between brokers: the state of 200,000 partitions with three replicas each.
    **dict.fromkeys((ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA), 2_500_000),
    ApiKey.ALTER_PARTITION: 1_000_000,
    ApiKey.STOP_REPLICA: 500_000,
    ApiKey.PRODUCE: 10_000,  # its frame is not decoded in slices
    # The partitions of one member; its topics are counted by the group coordinator.
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 120_000,
    # The following are not answered in slices: they are done as a whole or not at all.
    ApiKey.ADD_PARTITIONS_TO_TXN: 12_000,  # as librdkafka names all of a flush at once
    ApiKey.DELETE_RECORDS: 4_000,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 5_000,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 1_000,
    **dict.fromkeys((ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP), 2_000),
    **dict.fromkeys((ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.CREATE_DELEGATION_TOKEN), 500),
    **dict.fromkeys((ApiKey.UPDATE_FEATURES, ApiKey.DESCRIBE_DELEGATION_TOKEN), 500),
    **dict.fromkeys((ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS), 2_000),
}


class Slicing(NamedTuple):
    """How the answer to a large request is made in slices."""

    entries: tuple[str, ...]
    """The list of the request that is answered entry by entry, and the lists within an entry."""
    results: tuple[str, ...]
    """The lists of the answer that belong to these."""
    most: int = 500
    """Elements in a slice; fewer where an answer is much larger than its question."""
    names_once: bool = False
    """Whether what is named again is answered once."""
    element_bytes: int = 1
    """An element of the request has so many bytes at least."""
    is_whole: bool = False
    """Whether an entry has one answer, which parts of it cannot have."""
    named_by: tuple[str, ...] = ()
    """What names an entry, where handlers refuse entries of one name: they are in one slice."""

    @property
    def whole_bytes(self) -> int:
        """A request of so many bytes needs no slices."""
        return 0 if self.names_once else self.most * self.element_bytes

    def cut(self, body: Request) -> Iterator[list[Any]]:
        """The entries for each slice, as they are wanted; repeated ones once, where that holds."""
        entries = getattr(body, self.entries[0])
        if self.names_once and len(entries) > 1:
            entries = once(entries, self.entries[1:])
            setattr(body, self.entries[0], entries)
        if self.named_by and len(entries) > 1:
            repeated, entries = apart(entries, self.named_by)
            together: list[Any] = []
            for number, same in enumerate(repeated, 1):
                together += same
                if len(together) >= self.most or number == len(repeated):
                    yield together
                    together = []
        if len(self.entries) == 1:
            for place in range(0, len(entries), self.most):
                yield entries[place : place + self.most]
            return
        part: list[Any] = []
        room = self.most
        for entry in entries:
            parts = (entry,) if self.is_whole else pieces(entry, self.entries[1:], room, self.most)
            for piece in parts:
                weight = weigh(piece, self.entries[1:])
                if weight > room and part:
                    yield part
                    part, room = [], self.most
                part.append(piece)
                room -= weight
        if part:
            yield part

    def join(self, whole: Response, more: Response) -> None:
        """Put the results of one more slice behind the others."""
        join_results(whole, more, self.results)


def is_long(body: Any) -> bool:
    """Whether a Produce is answered in slices, for which its frame has to stay."""
    topics = body.topic_data
    if len(topics) == 1:
        return len(topics[0].partition_data) >= PRODUCE_PARTITIONS
    return sum(len(topic.partition_data) + 1 for topic in topics) > PRODUCE_PARTITIONS


def weigh(entry: Any, lists: tuple[str, ...]) -> int:
    """How many elements an entry has, with itself."""
    if not lists:
        return 1
    inner = getattr(entry, lists[0]) or ()
    if len(lists) == 1:
        return 1 + len(inner)
    return 1 + sum(weigh(each, lists[1:]) for each in inner)


def pieces(entry: Any, lists: tuple[str, ...], room: int, most: int) -> Iterator[Any]:
    """The entry, or copies of it with parts of its content, none larger than a slice."""
    if not lists or weigh(entry, lists) <= max(room, most):
        yield entry
        return
    inner, weight = getattr(entry, lists[0]), 1
    part: list[Any] = []
    for each in inner:
        for piece in pieces(each, lists[1:], most - 1, most - 1):
            size = weigh(piece, lists[1:])
            if weight + size > most and part:
                yield _with(entry, lists[0], part)
                part, weight = [], 1
            part.append(piece)
            weight += size
    yield _with(entry, lists[0], part)


def _with(entry: Any, name: str, part: list[Any]) -> Any:
    piece = copy(entry)
    setattr(piece, name, part)
    return piece


def once(entries: list[Any], lists: tuple[str, ...]) -> list[Any]:
    """Each entry once; of entries of one name the lists are put together (null is all)."""
    if not isinstance(entries[0], Struct):
        return list(dict.fromkeys(entries))
    found: dict[Any, Any] = {}
    identity = identity_of(entries[0].__class__)
    for entry in entries:
        known = found.setdefault(identity(entry), entry)
        if known is entry or not lists:
            continue
        inner, more = getattr(known, lists[0]), getattr(entry, lists[0])
        if inner is None or more is None:
            setattr(known, lists[0], None)
        else:
            inner.extend(more)  # in place: a new list for each of many entries is quadratic work
    for entry in found.values():
        inner = getattr(entry, lists[0]) if lists else None
        if inner and len(inner) > 1:
            setattr(entry, lists[0], once(inner, lists[1:]))
    return list(found.values())


def apart(entries: list[Any], named_by: tuple[str, ...]) -> tuple[list[list[Any]], list[Any]]:
    """The entries of each name that is there more than once, and the others."""
    name_of, found = attrgetter(*named_by), defaultdict[Any, list[Any]](list)
    for entry in entries:
        found[entry if type(entry) is str else name_of(entry)].append(entry)
    groups = found.values()
    return [same for same in groups if len(same) > 1], [one for one, *more in groups if not more]


@cache
def identity_of(cls: Any) -> Callable[[Any], Any]:
    """Gives all values of a struct but its lists; of a topic with an id, which may have got its
    name in one slice and not in another, the id alone.
    """
    names = [each.name for each in cls.fields if not isinstance(each.type, Array)]
    values = attrgetter(*names)
    if "topic_id" not in names:
        return values
    return lambda topic: values(topic) if topic.topic_id == NO_UUID else topic.topic_id


def join_results(whole: Any, more: Any, lists: tuple[str, ...]) -> None:
    """Add the results of a later slice; an entry that was cut becomes one again."""
    results, added = getattr(whole, lists[0]), getattr(more, lists[0])
    if len(lists) > 1 and results and added:
        identity = identity_of(added[0].__class__)
        if identity(results[-1]) == identity(added[0]):
            join_results(results[-1], added[0], lists[1:])
            added = added[1:]
    results.extend(added)


@cache
def lists_of(cls: Any) -> list[str]:
    """The lists of structs in a struct."""
    lists = [each for each in cls.fields if isinstance(each.type, Array)]
    return [each.name for each in lists if isinstance(each.type.element, StructType)]


def freed(parts: list[Any]) -> Work[None]:
    """Free the memory of the only part, a large answer, in slices; its lists may be a cache's."""
    for number, part in enumerate(parts, 1):
        for name in lists_of(part.__class__):
            parts += getattr(part, name) or ()
        if not number % FREED_AT_ONCE:
            yield
    parts.reverse()  # what has a list is freed before what is in it
    while parts:
        del parts[-FREED_AT_ONCE:]
        yield


TOPICS: Final = ("topics", "partitions")
RESOURCE: Final = ("resource_type", "resource_name")
PRODUCE_PARTITIONS: Final = 200
SLICED: Final[Mapping[int, tuple[Slicing, ...]]] = {
    ApiKey.PRODUCE: (
        Slicing(
            ("topic_data", "partition_data"),
            ("responses", "partition_responses"),
            PRODUCE_PARTITIONS,
            element_bytes=3,  # a topic's name, the length of its list, and its tagged fields
        ),
    ),
    ApiKey.METADATA: (Slicing(("topics",), ("topics",), 50, names_once=True),),
    ApiKey.LIST_OFFSETS: (Slicing(TOPICS, TOPICS),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (Slicing(TOPICS, TOPICS),),
    ApiKey.OFFSET_COMMIT: (Slicing(TOPICS, TOPICS, 1000),),
    ApiKey.OFFSET_DELETE: (Slicing(TOPICS, TOPICS, 1000),),
    ApiKey.TXN_OFFSET_COMMIT: (Slicing(TOPICS, TOPICS, 500),),
    ApiKey.WRITE_TXN_MARKERS: (
        Slicing(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),
    ),
    ApiKey.OFFSET_FETCH: (
        Slicing(("topics", "partition_indexes"), TOPICS, names_once=True),
        Slicing(
            ("groups", "topics", "partition_indexes"),
            ("groups", "topics", "partitions"),
            names_once=True,
        ),
    ),
    ApiKey.FIND_COORDINATOR: (Slicing(("coordinator_keys",), ("coordinators",), names_once=True),),
    ApiKey.DESCRIBE_GROUPS: (Slicing(("groups",), ("groups",), 50, names_once=True),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Slicing(("group_ids",), ("groups",), 20, names_once=True),),
    ApiKey.DELETE_GROUPS: (Slicing(("groups_names",), ("results",), 100, names_once=True),),
    ApiKey.CREATE_TOPICS: (
        Slicing(
            ("topics", "assignments", "broker_ids"),
            ("topics",),
            20,
            is_whole=True,
            named_by=("name",),
        ),
    ),
    ApiKey.DELETE_TOPICS: (
        Slicing(("topic_names",), ("responses",), 50, named_by=("topic_names",)),
        Slicing(("topics",), ("responses",), 50, named_by=("name", "topic_id")),
    ),
    ApiKey.CREATE_PARTITIONS: (Slicing(("topics",), ("results",), 20, named_by=("name",)),),
    ApiKey.DESCRIBE_CONFIGS: (
        Slicing(
            ("resources", "configuration_keys"), ("results",), 10, names_once=True, is_whole=True
        ),
    ),
    ApiKey.ALTER_CONFIGS: (Slicing(("resources",), ("responses",), 10, named_by=RESOURCE),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (
        Slicing(("resources",), ("responses",), 10, named_by=RESOURCE),
    ),
    ApiKey.CREATE_ACLS: (Slicing(("creations",), ("results",), 100),),
    ApiKey.DELETE_ACLS: (Slicing(("filters",), ("filter_results",), 20),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        Slicing(("dirs", "topics", "partitions"), ("results", "partitions"), names_once=True),
    ),
    ApiKey.ELECT_LEADERS: (
        Slicing(
            ("topic_partitions", "partitions"),
            ("replica_election_results", "partition_result"),
            200,
            names_once=True,
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Slicing(TOPICS, ("responses", "partitions"), 100),),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        Slicing(("topics", "partition_indexes"), TOPICS, names_once=True),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (
        Slicing(("topics", "partition_indexes"), TOPICS, 100, names_once=True),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Slicing(("transactional_ids",), ("transaction_states",), 100, names_once=True),
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: (Slicing(("entries",), ("entries",), 50),),
}
"""What is answered entry by entry: the first list that is not empty counts."""
