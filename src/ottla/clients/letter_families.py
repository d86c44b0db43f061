"""Where dead letters are from, and what failed, by the headers of the libraries that write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.clients.dead_letter_headers import HEADER_PREFIX
from ottla.structs import NamedTuple, is_topic_name

LONGEST_NUMBER: Final = 20


class HeaderFamily(NamedTuple):
    """The headers by which one library tells where a dead letter is from, and what failed.

    `prefixes` are those of all headers that it adds, in lower case. They are taken from every
    letter if they are `reserved`, names that no application gives to headers of its own; others
    only from letters of this family. Of several headers with one name the last counts, which the
    queue has put behind those of the record; `first_counts` is for the library that puts its own
    before them.
    """

    name: str
    prefixes: tuple[str, ...]
    topic: str
    partition: str = ""
    offset: str = ""
    timestamp: str = ""
    error: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    stage: str = ""
    connector: str = ""
    reserved: bool = True
    first_counts: bool = False


SHARE_GROUPS: Final = HeaderFamily(
    "share-groups",
    ("__dlq.errors.",),
    topic="__dlq.errors.topic",
    partition="__dlq.errors.partition",
    offset="__dlq.errors.offset",
    message=("__dlq.errors.message",),
    connector="__dlq.errors.group",
)
PIPELINES: Final = HeaderFamily(
    "pipelines",
    ("source.topic", "source.partition", "source.offset", "reason", "length"),
    topic="source.topic",
    partition="source.partition",
    offset="source.offset",
    message=("reason",),
    reserved=False,
)
FAMILIES: Final = (
    HeaderFamily(
        "connect",
        (HEADER_PREFIX,),
        topic="__connect.errors.topic",
        partition="__connect.errors.partition",
        offset="__connect.errors.offset",
        error=("__connect.errors.exception.class.name",),
        message=("__connect.errors.exception.message",),
        stage="__connect.errors.stage",
        connector="__connect.errors.connector.name",
    ),
    HeaderFamily(
        "streams",
        ("__streams.errors.",),
        topic="__streams.errors.topic",
        partition="__streams.errors.partition",
        offset="__streams.errors.offset",
        error=("__streams.errors.exception",),
        message=("__streams.errors.message",),
    ),
    HeaderFamily(
        "spring",
        ("kafka_dlt-", "springdeserializerexception"),
        topic="kafka_dlt-original-topic",
        partition="kafka_dlt-original-partition",
        offset="kafka_dlt-original-offset",
        timestamp="kafka_dlt-original-timestamp",
        error=("kafka_dlt-exception-cause-fqcn", "kafka_dlt-exception-fqcn"),
        message=("kafka_dlt-exception-message", "kafka_dlt-key-exception-message"),
        connector="kafka_dlt-original-consumer-group",
    ),
    HeaderFamily(
        "spring-retry",
        ("kafka_original-", "kafka_exception-", "retry_topic-"),
        topic="kafka_original-topic",
        partition="kafka_original-partition",
        offset="kafka_original-offset",
        timestamp="kafka_original-timestamp",
        error=("kafka_exception-cause-fqcn", "kafka_exception-fqcn"),
        message=("kafka_exception-message",),
        connector="kafka_dlt-original-consumer-group",
    ),
    SHARE_GROUPS,
    HeaderFamily(
        "smallrye",
        ("dead-letter-",),
        topic="dead-letter-topic",
        partition="dead-letter-partition",
        offset="dead-letter-offset",
        error=("dead-letter-cause-class-name", "dead-letter-exception-class-name"),
        message=("dead-letter-reason",),
        reserved=False,
        first_counts=True,
    ),
    HeaderFamily(
        "x",
        ("x-original-", "x-exception-", "x-error"),
        topic="x-original-topic",
        partition="x-original-partition",
        offset="x-original-offset",
        timestamp="x-original-timestamp",
        error=("x-exception-fqcn", "x-exception-class", "x-exception-type", "x-error-type"),
        message=("x-exception-message", "x-error-message", "x-error"),
        reserved=False,
    ),
    PIPELINES,
)
"""Kafka Connect (KIP-298) and Ottla's connectors and mirrors; Kafka Streams (KIP-1034); Spring
Kafka, and its retry topics; share groups (KIP-1191); SmallRye; Spring Cloud Stream and the
middlewares of FastStream and others, which have this convention; pipelines of Ottla."""


class LetterOrigin:
    """The headers of a record, as those of a dead letter.

    `topic` is empty where it is none, or where the header has no name that a topic may have:
    `bad_topic` is the text of that header then.
    """

    def __init__(
        self,
        headers: Sequence[tuple[str, bytes | None]],
        families: Sequence[HeaderFamily] = FAMILIES,
    ) -> None:
        last = {name.lower(): value for name, value in headers}
        first = {name.lower(): value for name, value in reversed(headers)}
        found = {each: first if each.first_counts else last for each in families}
        topics = {each: _text(of_each.get(each.topic)) for each, of_each in found.items()}
        naming = [each for each in families if topics[each]]
        self.is_ambiguous = len({topics[each] for each in naming}) > 1
        self.family = naming[0] if naming and not self.is_ambiguous else None
        self._headers = found[self.family] if self.family else {}
        named = topics[self.family] if self.family else ""
        self.topic, self.bad_topic = (named, "") if is_topic_name(named) else ("", named)

    @property
    def partition(self) -> int | None:
        return self.number("partition")

    @property
    def offset(self) -> int | None:
        return self.number("offset")

    @property
    def error(self) -> str:
        """The class of the error; empty where no header has it."""
        found = self._first_of(self.family.error if self.family else ())
        return found.partition(":")[0]  # some have the message in the same header

    @property
    def message(self) -> str:
        return self._first_of(self.family.message if self.family else ())

    @property
    def stage(self) -> str:
        return self._first_of([self.family.stage] if self.family else ())

    @property
    def connector(self) -> str:
        """The connector, or the group, that could not use the record."""
        return self._first_of([self.family.connector] if self.family else ())

    def has(self, name: str) -> bool:
        """Whether there is a header of this name."""
        return name in self._headers

    def number(self, field: str) -> int | None:
        """The number in the header of a field of `HeaderFamily`; None where there is none."""
        name = getattr(self.family, field) if self.family else ""
        return _number_of(self._headers.get(name) or b"")

    def _first_of(self, names: Sequence[str]) -> str:
        return next((text for name in names if (text := _text(self._headers.get(name)))), "")


def _text(value: bytes | None) -> str:
    """What a header says; nothing where its bytes are no text."""
    try:
        return (value or b"").decode()
    except ValueError:
        return ""


def _number_of(value: bytes) -> int | None:
    """A number as text, or as the 4 or 8 bytes that Java has for it.

    Those of a partition, an offset or a time that exists are not all digits of ASCII.
    """
    if value.removeprefix(b"-").isdigit() and len(value) <= LONGEST_NUMBER:
        return int(value)
    return int.from_bytes(value, "big", signed=True) if len(value) in (4, 8) else None
