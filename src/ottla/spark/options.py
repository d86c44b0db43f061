"""The options of the source and of the sink: Spark's names and rules, each mistake one sentence.

Names are case-insensitive, as everywhere in Spark. An option of the name `kafka.<key>` is the
client's setting `<key>`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from ottla.config.config_type import LONG_MAX, UNITS_MS
from ottla.record.columnar import COLUMNS, HEADERS
from ottla.spark.offsets import (
    Bound,
    ByOffset,
    ByTimestamp,
    Earliest,
    GlobalTimestamp,
    Latest,
    OffsetsError,
    parse_assignment,
    parse_offsets,
    parse_reach,
)
from ottla.spark.task_sizes import TaskSizes

CLIENT_PREFIX: Final = "kafka."
BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"


class OptionError(ValueError):
    """An invalid option; the text names option, value and rule."""


class Given:
    """The options of one side, source or sink, under the names that the documentation uses.

    `decided` are client settings that cannot be given, and why.
    """

    def __init__(
        self, options: Mapping[str, str], names: Iterable[str], decided: Mapping[str, str]
    ) -> None:
        canonical = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        self._client: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in decided:
                raise OptionError(f"{name}={value}: cannot be set; {decided[lower]}")
            if lower.startswith(CLIENT_PREFIX):
                self._client[lower.removeprefix(CLIENT_PREFIX)] = value
            elif lower in canonical:
                self._values[canonical[lower]] = value
            else:
                raise OptionError(
                    f"{name}={value}: there is no such option{_similar(lower, canonical)}"
                )
        if not self._client.get("bootstrap.servers", "").strip():
            raise OptionError(f"option {BOOTSTRAP_SERVERS} is missing: the brokers, as host:port")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def shown(self, name: str) -> str:
        """An option as errors name it."""
        return f"{name}={self._values[name]}"

    def client_settings(self) -> dict[str, str]:
        return dict(self._client)

    def check_settings(self, kind: Literal["consumer", "producer"], **more: str) -> None:
        """Raise ConfigError if a client of this kind cannot have the settings, and `more`."""
        from ottla.config import client_config

        settings = self._client | more
        if kind == "consumer":
            client_config.ConsumerConfig.parse(settings)
        else:
            client_config.ProducerConfig.parse(settings)

    def positive(self, name: str) -> int | None:
        """A whole number above 0, or None where the option is not used."""
        if name not in self:
            return None
        text = self[name].strip()
        if not re.fullmatch(r"[0-9]*[1-9][0-9]*", text):
            raise OptionError(f"{self.shown(name)}: must be a whole number greater than 0")
        return self._long(name, text)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A time span as Spark writes it: `15m`, `30s`, `500ms`; a bare number is milliseconds."""
        if name not in self:
            return default_ms
        match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", self[name].strip().lower())
        if match is None or (match[2] or "ms") not in UNITS_MS:
            raise OptionError(f"{self.shown(name)}: must be a time span like 15m, 30s or 500ms")
        return self._long(name, match[1]) * UNITS_MS[match[2] or "ms"]

    def flag(self, name: str, default: bool) -> bool:
        if name not in self:
            return default
        text = self[name].strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"{self.shown(name)}: must be true or false")
        return text == "true"

    def timestamp(self, name: str) -> int:
        text = self[name].strip()
        if not re.fullmatch(r"[0-9]+", text):
            raise OptionError(f"{self.shown(name)}: must be milliseconds since 1970")
        return self._long(name, text)

    def _long(self, name: str, digits: str) -> int:
        """The number, which Spark and the brokers keep in 64 bits."""
        if len(digits.lstrip("0")) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise OptionError(f"{self.shown(name)}: must be at most {LONG_MAX}")
        return int(digits)


def _similar(name: str, canonical: Mapping[str, str]) -> str:
    """The option that was probably meant."""
    near = get_close_matches(name, canonical, n=1)
    return f"; did you mean {canonical[near[0]]}?" if near else ""


STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")

OPTIONS: Final[dict[str, str]] = {
    "subscribe": "Topics to read, separated by commas.",
    "subscribePattern": (
        "Regular expression; the topics in whose names it is found are read, as by Spark's own "
        "source: `pages` takes `old-pages` as well, and `^pages$` does not."
    ),
    "assign": 'Partitions to read, as JSON: `{"pages":[0,1]}`.',
    "startingOffsets": (
        "Where to begin: `earliest`, `latest` (streams only), or JSON with an offset for each "
        'partition, -2 being the earliest and -1 the latest: `{"pages":{"0":23,"1":-2}}`.'
    ),
    "endingOffsets": (
        "Where a batch ends: `latest`, or JSON as for startingOffsets; the record at "
        "the offset itself is not read."
    ),
    "startingTimestamp": (
        "Begin at the first record of each partition with this timestamp (ms) or a later one."
    ),
    "endingTimestamp": "A batch ends before the first record with this timestamp (ms) or later.",
    "startingOffsetsByTimestamp": (
        'A timestamp (ms) for each partition to begin at, as JSON: `{"pages":{"0":1600000000000}}`.'
    ),
    "endingOffsetsByTimestamp": "A timestamp (ms) for each partition where a batch ends, as JSON.",
    "startingOffsetsByTimestampStrategy": (
        "What to do where no record is that young: `error` or `latest`."
    ),
    "minPartitions": "Split the offsets among at least so many tasks.",
    "maxOffsetsPerTrigger": (
        "A micro-batch reads at most so many offsets, shared out by how much each partition holds."
    ),
    "minOffsetsPerTrigger": (
        "A micro-batch waits until there are so many offsets to read, but no longer than "
        "maxTriggerDelay; `availableNow` does not wait."
    ),
    "maxTriggerDelay": "How long a micro-batch waits for minOffsetsPerTrigger: `15m`, `30s`.",
    "maxRecordsPerPartition": (
        "Split the offsets so that no task has more; minPartitions may split them further."
    ),
    "maxPartitions": (
        "Share the offsets out to at most so many tasks, each with several partitions if need be "
        "(Spark's own source has no such option)."
    ),
    "failOnDataLoss": (
        "Whether records that are gone before they were read fail the query (`true`) or are "
        "warned about in the log (`false`)."
    ),
    "includeHeaders": "Whether there is a column `headers`.",
    "columns": (
        "Which columns there are, in this order, separated by commas: `value,offset`. Spark asks a "
        "Python source for all of its columns, and most of a row's time is theirs (Spark's own "
        "source has no such option)."
    ),
    "groupIdPrefix": (
        "A stream tells a group how far it has come, so that `kafka-consumer-groups` shows its "
        "lag; the group's name begins with this. `kafka.group.id` says the whole name."
    ),
}
DEFAULTS: Final[dict[str, str]] = {
    "startingOffsets": "earliest for batches, latest for streams",
    "endingOffsets": "latest",
    "startingOffsetsByTimestampStrategy": "error",
    "maxTriggerDelay": "15m",
    "failOnDataLoss": "true",
    "includeHeaders": "false",
    "columns": "all, headers with includeHeaders",
}
# Spark's Kafka source acts on these; the clients here have timeouts and retries of their own.
WITHOUT_EFFECT: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
# Client settings that the source decides itself, and the options to write instead.
DECIDED_BY_SOURCE: Final[dict[str, str]] = {
    "kafka.auto.offset.reset": "use the option startingOffsets instead",
    "kafka.key.deserializer": "keys are always read as binary",
    "kafka.value.deserializer": "values are always read as binary",
    "kafka.enable.auto.commit": "the source keeps offsets in Spark's checkpoint, not in a group",
    "kafka.interceptor.classes": "the source reads whole batches, not single records",
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options as a reader needs them; offsets are not looked up yet.

    `strategy` is one of STRATEGIES, `topics` its value; exactly one of them was given.
    """

    strategy: str
    topics: str
    starting: Bound
    ending: Bound
    task_sizes: TaskSizes
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    group_id: str | None
    client: Mapping[str, str]
    is_stream: bool

    @property
    def isolation(self) -> str:
        """Whether records of open and aborted transactions are read."""
        return self.client.get("isolation.level", "read_uncommitted")

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options of `spark.read`."""
        given = given_of(options)
        starting = _bound(given, "starting", Earliest())
        ending = _bound(given, "ending", Latest())
        _check_batch(given, starting, ending)
        return cls._of(given, starting, ending, is_stream=False)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options of `spark.readStream`."""
        given = given_of(options)
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name in given:
                raise OptionError(f"{given.shown(name)}: a stream has no end; read a batch instead")
        return cls._of(given, _bound(given, "starting", Latest()), Latest(), is_stream=True)

    @classmethod
    def _of(cls, given: Given, starting: Bound, ending: Bound, *, is_stream: bool) -> SourceOptions:
        strategy = strategy_of(given)
        _check_trigger(given)
        # Invalid settings raise here, before anything is read.
        given.check_settings("consumer")
        return cls(
            strategy,
            given[strategy],
            starting,
            ending,
            _task_sizes(given),
            given.positive("maxOffsetsPerTrigger"),
            given.positive("minOffsetsPerTrigger"),
            given.duration_ms("maxTriggerDelay", 15 * UNITS_MS["m"]),
            given.flag("failOnDataLoss", True),
            columns_of(given),
            _group_id(given),
            given.client_settings(),
            is_stream,
        )


def given_of(options: Mapping[str, str]) -> Given:
    """The options of the source."""
    return Given(options, (*OPTIONS, *WITHOUT_EFFECT), DECIDED_BY_SOURCE)


def strategy_of(given: Given) -> str:
    """The one option that names the topics to read; its value is checked."""
    used = [name for name in STRATEGIES if name in given]
    if len(used) != 1:
        found = f"found {' and '.join(map(given.shown, used))}" if used else "found none"
        raise OptionError(f"exactly one of {', '.join(STRATEGIES)} must be given; {found}")
    _CHECKS[used[0]](given)
    return used[0]


def whole_name(pattern: str) -> str:
    """The pattern for subscribePattern that takes names which this one matches from end to end."""
    try:
        re.compile(pattern)
    except re.error:
        return pattern  # refused as it was given
    flags = re.match(r"(\(\?[a-zA-Z]+\))?", pattern)
    assert flags is not None, "it may be empty"
    return f"{flags[0]}^(?:{pattern[flags.end() :]})$"


def all_columns(with_headers: bool) -> tuple[str, ...]:
    """The columns of Spark's Kafka source; `headers` is among them only when asked for."""
    return COLUMNS if with_headers else COLUMNS[:-1]


def columns_of(given: Given) -> tuple[str, ...]:
    """The columns of a row, in their order."""
    with_headers = given.flag("includeHeaders", False)
    if "columns" not in given:
        return all_columns(with_headers)
    known = {name.lower(): name for name in COLUMNS}
    chosen = [name.strip() for name in given["columns"].split(",")]
    for name in chosen:
        if name.lower() not in known:
            raise OptionError(f"{given.shown('columns')}: {name!r} is none of {', '.join(COLUMNS)}")
    columns = tuple(known[name.lower()] for name in chosen)
    if len(set(columns)) < len(columns):
        raise OptionError(f"{given.shown('columns')}: must name each column once")
    if with_headers and HEADERS not in columns:
        shown = given.shown("columns")
        raise OptionError(f"{given.shown('includeHeaders')}: headers are left out by {shown}")
    return columns


def _task_sizes(given: Given) -> TaskSizes:
    least, most = given.positive("minPartitions"), given.positive("maxPartitions")
    if most is not None and least is not None and least > most:
        shown = given.shown("minPartitions")
        raise OptionError(f"{shown}: must not be more than {given.shown('maxPartitions')}")
    records = given.positive("maxRecordsPerPartition")
    if most is not None and records is not None:
        shown = given.shown("maxRecordsPerPartition")
        raise OptionError(f"{shown}: cannot be given together with {given.shown('maxPartitions')}")
    return TaskSizes(least, most, records)


def _group_id(given: Given) -> str | None:
    """The group that progress is committed to: one name for the same topics, over all restarts."""
    group_id = given.client_settings().get("group.id")
    if group_id is not None or "groupIdPrefix" not in given:
        return group_id
    strategy = strategy_of(given)
    read = f"{strategy}={given[strategy]}"
    return f"{given['groupIdPrefix']}-{zlib.crc32(read.encode()):08x}"


def _check_trigger(given: Given) -> None:
    most, least = given.positive("maxOffsetsPerTrigger"), given.positive("minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        shown = given.shown("minOffsetsPerTrigger")
        raise OptionError(f"{shown}: must not be more than {given.shown('maxOffsetsPerTrigger')}")


def _check_subscribe(given: Given) -> None:
    if not any(topic.strip() for topic in given["subscribe"].split(",")):
        raise OptionError(f"{given.shown('subscribe')}: must name at least one topic")


def _check_pattern(given: Given) -> None:
    try:
        re.compile(given["subscribePattern"])
    except re.error as error:
        shown = given.shown("subscribePattern")
        raise OptionError(f"{shown}: is not a regular expression ({error})") from None
    if not given["subscribePattern"].strip():
        raise OptionError(f"{given.shown('subscribePattern')}: must not be empty")


def _check_assign(given: Given) -> None:
    try:
        parse_assignment(given["assign"])
    except OffsetsError as error:
        raise OptionError(f"{given.shown('assign')}: must be {error}") from None


_CHECKS: Final = {
    "subscribe": _check_subscribe,
    "subscribePattern": _check_pattern,
    "assign": _check_assign,
}


def _bound(given: Given, side: str, default: Bound) -> Bound:
    """Where to start or end. Of several options the first in Spark's order counts."""
    # A batch that ends at a time still to come ends at the latest offset.
    strategy = _timestamp_strategy(given) if side == "starting" else "latest"
    if f"{side}Timestamp" in given:
        return GlobalTimestamp(given.timestamp(f"{side}Timestamp"), strategy)
    for name, kind in ((f"{side}OffsetsByTimestamp", "timestamp"), (f"{side}Offsets", "offset")):
        if name not in given:
            continue
        word = given[name].strip().lower()
        if kind == "offset" and word in ("earliest", "latest"):
            return Earliest() if word == "earliest" else Latest()
        try:
            if kind == "offset":
                return ByOffset(name, *parse_reach(given[name]))
            return ByTimestamp(name, parse_offsets(given[name], lowest=0), strategy)
        except OffsetsError as error:
            rule = "earliest, latest or " if kind == "offset" else ""
            raise OptionError(f"{given.shown(name)}: must be {rule}{error}") from None
    return default


def _timestamp_strategy(given: Given) -> str:
    name = "startingOffsetsByTimestampStrategy"
    strategy = given[name].strip().lower() if name in given else DEFAULTS[name]
    if strategy not in ("error", "latest"):
        raise OptionError(f"{given.shown(name)}: must be error or latest")
    return strategy


def _check_batch(given: Given, starting: Bound, ending: Bound) -> None:
    if isinstance(starting, Latest) or (
        isinstance(starting, ByOffset) and -1 in starting.offsets.values()
    ):
        shown = given.shown("startingOffsets")
        raise OptionError(f"{shown}: a batch cannot begin at the latest offset (-1)")
    if isinstance(ending, Earliest) or (
        isinstance(ending, ByOffset) and -2 in ending.offsets.values()
    ):
        shown = given.shown("endingOffsets")
        raise OptionError(f"{shown}: a batch cannot end at the earliest offset (-2)")
