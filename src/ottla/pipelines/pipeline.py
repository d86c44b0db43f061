"""What a pipeline is: topics in, pure functions, topics out, feeds, and the tables of its report.

`build` is given a DataFrame for each input and returns one for each output. It does not know
whether they are streams or batches: tests run it over the sample files, `execution` over topics.
A new pipeline is a module with a `PIPELINE`, and a name in `PIPELINES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from ottla.pipelines.access_log import START, AccessLog

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.pipelines.tables import ResultTable

Frames = Mapping[str, "DataFrame"]
Parameters = Mapping[str, str]


class Event(NamedTuple):
    """A record to publish; without a value it says that the thing its key names is gone."""

    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """What is asked of a feed; a feed that makes its events up uses the number and the seed."""

    events: int
    seed: int
    log: AccessLog | None = None


Feed = Callable[[FeedRequest], Iterable[Event]]


@dataclass(frozen=True, slots=True)
class Input:
    """A topic to read: JSON objects of `schema` (DDL), or records as they are where it is empty.

    A table is not a stream: it is the newest value of every key when a run begins. Its topic is
    compacted, as are others that say so. Of records as they are, `left_out` gives the reason why
    one cannot be used, and null for the others.
    """

    topic: str
    schema: str = ""
    is_table: bool = False
    partitions: int = 3
    is_compacted: bool = False
    left_out: Callable[[], Column] | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """A topic to write. `key` are the columns that become the key of a record.

    `identity` are the columns that identify a row: a record replaces earlier ones of the same
    identity. Without any, every record is a row. `as_records` says that the columns are those of
    the sink already (key, value, headers). Stage 2 reads what stage 1 writes, and so on.

    A table is a Delta table in the folder of the run, and no topic. With an identity its rows are
    merged: the newest by `_timestamp`, `_partition` and `_offset` of its record stays, and one that
    is `_deleted` removes its row.
    """

    topic: str
    key: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    mode: Literal["append", "update"] = "append"
    stage: int = 1
    partitions: int = 3
    as_records: bool = False
    is_table: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """The settings of its topic: compacted where records replace each other."""
        return {"cleanup.policy": "compact"} if self.identity == self.key != () else {}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: a table made of the topics, and a plot of the table.

    `faults` are columns of its only row that should be 0: the page begins with them. `unparsed` is
    a column of it that counts records whose rows were kept although they did not parse.
    `lists_unparsed` says that its rows are these records.
    """

    name: str
    title: str
    note: str
    table: Callable[[Frames, Parameters], DataFrame]
    plot: Callable[[ResultTable, Parameters], str] | None = None
    faults: tuple[str, ...] = ()
    unparsed: str = ""
    lists_unparsed: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline by its name; parameters have defaults and can be set on the command line."""

    name: str
    summary: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    build: Callable[[Frames, Parameters], Frames]
    feeds: Mapping[str, Feed]
    sections: tuple[Section, ...]
    parameters: Parameters = field(default_factory=dict)

    @property
    def stages(self) -> list[list[Output]]:
        """The outputs that can be made side by side, stage by stage."""
        numbers = sorted({output.stage for output in self.outputs})
        return [[each for each in self.outputs if each.stage == number] for number in numbers]

    @property
    def fed_topics(self) -> list[Input]:
        """The inputs that come from outside, and not from an earlier stage."""
        made = {output.topic for output in self.outputs}
        return [each for each in self.inputs if each.topic not in made]

    def reading(self, topics: Mapping[str, str]) -> Pipeline:
        """The same pipeline over other topics: what each of its inputs is called there.

        Raises ValueError for a name that is none of its inputs.
        """
        names = {each.topic for each in self.inputs}
        for name in topics:
            if name not in names:
                known = ", ".join(sorted(names))
                raise ValueError(f"{self.name} has no input '{name}' (there is: {known})")
        own = {topics.get(name, name): name for name in names}

        def as_own(frames: Frames) -> Frames:
            return {own.get(topic, topic): frame for topic, frame in frames.items()}

        def over(section: Section) -> Section:
            return replace(
                section, table=lambda frames, given: section.table(as_own(frames), given)
            )

        return replace(
            self,
            inputs=tuple(replace(e, topic=topics.get(e.topic, e.topic)) for e in self.inputs),
            build=lambda frames, given: self.build(as_own(frames), given),
            feeds={},
            sections=tuple(over(section) for section in self.sections),
        )

    def with_parameters(self, changes: Parameters) -> Parameters:
        """The parameters of a run; raises ValueError for one that does not exist."""
        for name in changes:
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "it has none"
                raise ValueError(f"{self.name} has no parameter '{name}' (there is: {known})")
        return {**self.parameters, **changes}


def event(topic: str, key: str, **fields: Any) -> Event:
    """A record whose value is a JSON object; moments become ISO 8601 in UTC."""
    plain = {
        name: iso(value) if isinstance(value, datetime) else value for name, value in fields.items()
    }
    return Event(topic, key.encode(), json.dumps(plain).encode())


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def after(seconds: float) -> datetime:
    """The moment `seconds` after the beginning of the made-up events."""
    return START + timedelta(seconds=round(seconds, 3))


def moments(chance: Random, count: int, mean_pause_s: float) -> Iterator[datetime]:
    """The times of made-up events, in order, at random, `mean_pause_s` apart on average.

    Each is drawn on demand, between other draws from `chance`.
    """
    now_s = 0.0
    for _ in range(count):
        now_s += chance.expovariate(1 / mean_pause_s)
        yield after(now_s)


PIPELINES: Final = (
    "web_traffic",
    "news_feed",
    "ranking",
    "crawlers",
    "monitoring",
    "profile_visits",
    "articles",
    "event_sourcing",
    "retail",
    "change_capture",
    "word_count",
)


class UnknownPipelineError(Exception):
    """No pipeline has this name; the text suggests one."""


def load_pipeline(name: str) -> Pipeline:
    """The pipeline of this name; its module, and PySpark with it, are imported now."""
    if name not in PIPELINES:
        near = get_close_matches(name, PIPELINES, n=1)
        hint = f"did you mean {near[0]}?" if near else "'ottla pipeline list' shows them all."
        raise UnknownPipelineError(f"there is no pipeline '{name}'; {hint}")
    pipeline = import_module(f"ottla.pipelines.{name}").PIPELINE
    assert isinstance(pipeline, Pipeline)
    return pipeline
