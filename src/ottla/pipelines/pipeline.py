"""The parts of a pipeline: topics in, pure functions, topics out, feeds, and the tables of its
report.

`build` is given a DataFrame for each input and returns one for each output. It does not know
whether they are streams or batches: tests run it over the sample files, `execution` over topics.

A pipeline is found by a name or by a file: `word_count` is one of Ottla's own (`PIPELINES`),
`orders` an entry point of an installed package, in the group ENTRY_POINTS, and
`orders/pipeline.py` the pipeline in that file (`file.py:NAME` where it has several).
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from importlib import import_module, metadata, util
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from zlib import crc32

from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.site_traffic import START
from ottla.structs import is_topic_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.pipelines.tables import ResultTable

KEY_SEPARATOR = "|"
"""Between the columns that become the key of a record."""

SAMPLE_FEED: Final = "sample"
"""The feed of a first run: made-up events, or the files that come with a pipeline."""
DEFAULT_EVENTS: Final = 20_000
"""How many events a feed makes up where no number is given."""
DEFAULT_RATE: Final = 1000.0
"""How many events a second a run that does not end publishes where no rate is given."""

Frames = Mapping[str, "DataFrame"]
Parameters = Mapping[str, str]


class Event(NamedTuple):
    """A record to publish; without a value it says that the thing its key names is gone."""

    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """The order to a feed; a feed that makes its events up uses the number and the seed."""

    events: int
    seed: int
    log: AccessLog | None = None


Feed = Callable[[FeedRequest], Iterable[Event]]


@dataclass(frozen=True, slots=True)
class Input:
    """A topic to read: JSON objects of `schema` (DDL), or records as they are where it is empty.

    A table is not a stream: it is the newest value of every key when a run begins. Its topic is
    compacted, as are others that say so. Of records as they are, `left_out` gives the reason why
    one cannot be used, and null for the others. `key` are the columns that become the key of a
    record where rows of a file are published. A record without one of the columns `needed` is left
    out, as one that does not fit the schema is.
    """

    topic: str
    schema: str = ""
    is_table: bool = False
    partitions: int = 3
    is_compacted: bool = False
    left_out: Callable[[], Column] | None = None
    key: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """A topic to write. `key` are the columns that become the key of a record.

    `identity` are the columns that identify a row: a record replaces earlier ones of the same
    identity. Without any, every record is a row. `as_records` says that the columns are those of
    the sink already (key, value, headers). Stage 2 reads the output of stage 1, and so on.

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
    """A pipeline by its name; parameters have defaults and can be set on the command line.

    `samples` are files of rows for its topics, CSV or JSON, for a first run. `file` is where
    a pipeline was found that is none of Ottla's own; one that is not installed is sent to workers.
    """

    name: str
    summary: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    build: Callable[[Frames, Parameters], Frames]
    feeds: Mapping[str, Feed] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    parameters: Parameters = field(default_factory=dict)
    samples: Mapping[str, Path] = field(default_factory=dict)
    file: Path | None = None
    is_installed: bool = False

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

    @property
    def feed_names(self) -> list[str]:
        """The feeds that can be asked for; samples in files are one of them."""
        return list(dict.fromkeys([*([SAMPLE_FEED] if self.samples else []), *self.feeds]))

    def reading(self, topics: Mapping[str, str]) -> Pipeline:
        """The same pipeline over other topics: by the name of each of its inputs there.

        Raises ValueError for a name that is none of its inputs, and for a topic that two inputs
        would have, that is an output, or that has no topic's name.
        """
        names = {each.topic for each in self.inputs}
        made = {each.topic for each in self.outputs}
        for name, topic in topics.items():
            if name not in names:
                known = ", ".join(sorted(names))
                raise ValueError(f"{self.name} has no input '{name}' (there is: {known})")
            if not is_topic_name(topic):
                raise ValueError(f"{name}={topic}: '{topic}' is no topic's name")
            others = names - {name}
            if topic in {*made, *(topics.get(each, each) for each in others)} - {name}:
                raise ValueError(f"{name}={topic}: the pipeline has another use for this topic")
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
            samples={},
            sections=tuple(over(section) for section in self.sections),
        )

    def built(self, frames: Frames, parameters: Parameters) -> Frames:
        """The results of `build` for the inputs; PipelineError where an output is missing."""
        made = self.build(frames, parameters)
        for each in self.outputs:
            if each.topic not in (made or ()):
                there = ", ".join(made or ()) or "nothing"
                raise PipelineError(
                    f"{self.name}: build has to return a DataFrame for the output '{each.topic}' "
                    f"(it returns: {there})"
                )
        return made

    def with_parameters(self, changes: Parameters) -> Parameters:
        """The parameters of a run.

        Raises ValueError for one that does not exist, or is not of the kind of its default.
        """
        for name, value in changes.items():
            if name not in self.parameters:
                known = ", ".join(self.parameters) or "it has none"
                raise ValueError(f"{self.name} has no parameter '{name}' (there is: {known})")
            default = self.parameters[name]
            for kind, form in PARAMETER_KINDS.items():
                if form.fullmatch(default) and not form.fullmatch(value.strip()):
                    raise ValueError(f"{name}={value}: must be {kind}, such as {default}")
        return {**self.parameters, **changes}


def columns_of(schema: str) -> dict[str, str]:
    """The columns of a schema (DDL) and their types, in small letters."""
    found, depth, part = [], 0, ""
    for letter in f"{schema},":
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            found.append(part.strip())
            part = ""
        else:
            part += letter
    pairs = (COLUMN.fullmatch(each) for each in found if each)
    return {each[1] or each[2]: each[3].lower() for each in pairs if each is not None}


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


UNIT = "(?:(?:micro|milli)?second|minute|hour|day|week)s?"
INTERVAL: Final = re.compile(rf"(?:interval +)?[0-9]+(?:\.[0-9]+)? +{UNIT}(?: +[0-9]+ +{UNIT})*")
"""A length of time as Spark reads it."""
PARAMETER_KINDS: Final = {"a whole number": re.compile(r"-?[0-9]+"), "a length of time": INTERVAL}
"""What a parameter is by its default; others are any text."""
ENTRY_POINTS: Final = "ottla.pipelines"
"""The group in which a package names its pipelines: `orders = "shop.orders:PIPELINE"`."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""The name of a pipeline, or of a section, is a folder's, too."""
COLUMN: Final = re.compile(r"(?:`([^`]+)`|([^\s:`]+))(?:\s*:\s*|\s+)(.+)", re.DOTALL)
"""The name and the type of a column in DDL."""
NO_FILE: Final = re.compile("<frozen importlib|.*/importlib/").match
"""Python's own import, in a traceback."""
RESERVED: Final = frozenset(("broker", "checkpoints", "tables", "made", "read", "log", "file"))
"""What else a run's folder and its report have under a name."""
EXAMPLE: Final = Path(__file__).with_name("new")
"""The pipeline that `write_pipeline` writes under another name."""
EXAMPLE_NAME: Final = "orders"


class PipelineError(Exception):
    """A pipeline cannot be had; the text says why. `trace` are the lines of its code that failed.

    The trace ends with the error itself, as Python shows it.
    """

    def __init__(self, text: str, trace: str = "") -> None:
        super().__init__(text)
        self.trace = trace


class OutputGoneError(PipelineError):
    """An output was deleted, and the queries go on behind what they had written to it."""


def load_pipeline(word: str | Path) -> Pipeline:
    """The pipeline of this name, or in this file; its module, and PySpark with it, are imported."""
    path, _, name = str(word).partition(":")
    if path.endswith(".py"):
        return _in_file(Path(path), name)
    if path in PIPELINES:
        return _checked(import_module(f"ottla.pipelines.{path}").PIPELINE, path)
    found = installed_pipelines()
    if path in found:
        return load_installed(path, found[path])
    raise PipelineError(f"there is no pipeline '{word}'{_hint(path, [*PIPELINES, *found])}")


def installed_pipelines() -> dict[str, list[metadata.EntryPoint]]:
    """The pipelines that installed packages name, by name; each should be there once."""
    found: dict[str, list[metadata.EntryPoint]] = {}
    for each in metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(each.name, []).append(each)
    return dict(sorted(found.items()))


def _hint(word: str, known: Iterable[str]) -> str:
    inside = Path(word) / "pipeline.py"
    near = [str(inside)] if inside.is_file() else get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else "; 'ottla pipeline list' shows them all."


def load_installed(name: str, points: list[metadata.EntryPoint]) -> Pipeline:
    """The pipeline that these entry points name, which has to be one, and none of Ottla's own."""
    places = ", ".join(each.value for each in points)
    if name in PIPELINES:
        raise PipelineError(f"{places}: {name} is the name of one of Ottla's own pipelines")
    if len(points) > 1:
        raise PipelineError(f"several packages have a pipeline {name}: {places}")
    (point,) = points
    try:
        found = point.load()
    except (Exception, SystemExit) as error:  # whatever a stranger's module does as it is imported
        raise PipelineError(
            f"{point.value}: cannot be imported: {_last_line(error)}", _trace(error, None)
        ) from error
    if not isinstance(found, Pipeline):
        raise PipelineError(f"{point.value}: must be a Pipeline, not {type(found).__name__}")
    if found.name != name:
        raise PipelineError(
            f"{point.value}: the entry point is named {name}, and its pipeline {found.name}; both "
            "need the same name"
        )
    module = sys.modules.get(point.module)
    file = Path(module.__file__) if module is not None and module.__file__ else None
    return replace(_checked(found, point.value), file=file, is_installed=True)


def _in_file(path: Path, name: str) -> Pipeline:
    if not path.is_file():
        raise PipelineError(f"{path}: there is no such file")
    module = _module_of(path)
    found = {
        variable: value for variable, value in vars(module).items() if isinstance(value, Pipeline)
    }
    wanted = {
        id(value): value
        for variable, value in found.items()
        if not name or name in (variable, value.name)
    }
    if not found:
        raise PipelineError(
            f"{path}: there is no pipeline in it, such as PIPELINE = Pipeline(name=..., ...)"
        )
    if len(wanted) != 1:
        names = ", ".join(found)
        asked = f"has no pipeline {name}" if name and not wanted else "has several pipelines"
        first = next(iter(found))
        raise PipelineError(f"{path}: {asked} (there is: {names}); choose one: {path}:{first}")
    (pipeline,) = wanted.values()
    if pipeline.name in PIPELINES:
        raise PipelineError(
            f"{path}: {pipeline.name} is the name of one of Ottla's own pipelines; give it another"
        )
    return replace(_checked(pipeline, str(path)), file=path.resolve())


def _checked(pipeline: Pipeline, place: str) -> Pipeline:
    """The pipeline itself; raises PipelineError where its parts do not fit each other."""
    if not NAME.fullmatch(pipeline.name):
        raise PipelineError(
            f"{place}: '{pipeline.name}' is no name for a pipeline: letters, digits, '.', '_', '-'"
        )
    names = [each.name for each in pipeline.sections]
    for name in names:
        if not NAME.fullmatch(name) or name in RESERVED or names.count(name) > 1:
            raise PipelineError(
                f"{place}: a section cannot be named '{name}': a folder has its name, which is a "
                "word without blanks that is there once"
            )
    for source in pipeline.inputs:
        for column in source.needed:
            if column not in columns_of(source.schema):
                raise PipelineError(
                    f"{place}: its input {source.topic} needs '{column}', which is no column of it"
                )
    topics = {each.topic for each in pipeline.fed_topics}
    for topic, sample in pipeline.samples.items():
        if topic not in topics:
            known = ", ".join(sorted(topics))
            raise PipelineError(f"{place}: a sample is for '{topic}', no input (there is: {known})")
        if not Path(sample).is_file():
            raise PipelineError(f"{place}: its sample {sample} is missing")
    return pipeline


def _module_of(path: Path) -> ModuleType:
    """The module in a file, which need not be importable by a name.

    Files beside it can be imported by it, as if Python had been given the file. Spark's workers get
    its functions themselves, not their names; `execution` sends the files beside it as well.
    """
    name = f"ottla_pipeline_{path.stem}_{crc32(bytes(path.resolve())):08x}"
    spec = util.spec_from_file_location(name, path.resolve())
    assert spec is not None, "its name ends in .py"
    assert spec.loader is not None, "so there is a loader for it"
    module = util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    is_new = folder not in sys.path
    sys.modules[name] = module  # dataclasses and pickles look their module up
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever a stranger's file does when it is run
        del sys.modules[name]
        raise PipelineError(
            f"{path}: cannot be imported: {_last_line(error)}", _trace(error, path.resolve())
        ) from error
    finally:
        sys.path.remove(folder)
        if is_new:
            sys.path.append(folder)  # for imports within functions, and before nothing of Python's
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(module)  # type: ignore[no-untyped-call] # PySpark has no types there
    return module


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _trace(error: BaseException, file: Path | None) -> str:
    lines = [*own_frames(error, file), *traceback.format_exception_only(error)]
    return "".join(lines).rstrip()


def own_frames(error: BaseException, file: Path | None) -> list[str]:
    """The part of the traceback in the pipeline's file and others beside it.

    Its callers, and calls into Spark, say nothing. Of a package, of which no
    file is known, it is the code that the import has run.
    """
    frames = list(traceback.extract_tb(error.__traceback__))
    if file is not None:
        folder = f"{file.parent}/"
        own = [number for number, each in enumerate(frames) if each.filename.startswith(folder)]
        own = [number for number in own if "site-packages" not in frames[number].filename]
        frames = frames[own[0] : own[-1] + 1] if own else []
    shown = [each for each in frames if each.filename != __file__ and not NO_FILE(each.filename)]
    return traceback.format_list(shown)


def write_pipeline(name: str, folder: Path) -> list[Path]:
    """Write a pipeline with its sample and its test into a new folder; returns the files."""
    if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name) or name[0] == "_":
        raise PipelineError(
            f"'{name}' is no name for a pipeline: letters, digits and '_', a letter first, and no "
            "word of Python's own"
        )
    if name in PIPELINES:
        raise PipelineError(f"{name} is the name of one of Ottla's own pipelines; choose another")
    if folder.exists():
        raise PipelineError(f"{folder}: is there already; nothing was written")
    folder.mkdir(parents=True)
    written = []
    for each in sorted(EXAMPLE.iterdir()):
        path = folder / re.sub(EXAMPLE_NAME, name, each.name.removesuffix(".txt"))
        path.write_text(re.sub(rf"\b{EXAMPLE_NAME}\b", name, each.read_text(encoding="utf-8")))
        written.append(path)
    return written
