"""The interface of the console's pages: a page is a row of a table, `pages.PAGES`.

| part of a `ConsolePage` | meaning |
|---|---|
| `path` | as Starlette has it: `/t/{topic}/{offset:number}`; its JSON twin has `.json` behind it |
| `load` | `async def load(visit: Visit) -> Data`: asks the brokers, and returns the data |
| `template` | a file of `templates/` that extends `frame.html` and finds the data by their names |
| `title` | the title; `{topic}` stands for a part of the path or of the query |
| `rail` | the entry of the left rail that is marked, one of `RAIL`; its path is the page's `home` |
| `command` | the `ottla` command that shows the same, with such parts as in `title` |
| `tab` | its name in the row of a topic's parts; a template that has the row calls `tabs` |
| `table` | the name of the rows among the data: all windows can be had as `.csv` and `.jsonl` |
| `is_there` | whether a console with such settings has the page; all do unless it says so |
| `refresh_s` | seconds after which the page is asked for again while somebody looks; 0: never |

`http_status` among the data is the status of a page that shows an error of what was typed into it.

Data are plain values: str, int, float, bool, None, and dicts, lists and NamedTuples of them. The
JSON twin has the same data as the template, so that no text is made ready for HTML in `load`; the
filters of `formats` do that in the template. Names that may have a slash, such as those of groups,
belong into the query (`/group?id=a%2Fb`), since paths are decoded before they are matched.

A `ConsoleChange` is a form that is sent by POST: `async def run(visit) -> ChangeOutcome`. The frame
checks the CSRF token, writes the line of audit, and sends the browser to the outcome's `location`
with its message. With `--read-only` the paths of changes are not registered; templates ask
`frame.may_change`. Live pages have a `ConsoleStream` of server-sent events.

A feature has its pages, templates and tests in files of its own, and a row in `pages`: of pages,
changes, streams, and of `WATCHERS`, which tell the overview what wants attention.

Errors: `load` and `run` raise `NotFound` (404), `Refused` (400, and 403 where rights are missing)
or any KafkaError (502, 503 where no broker answers, 403 and 404 where it says so); the frame shows
the message on a page.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.config.config_type import LONG_MAX
from ottla.console.refusals import Refused
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.console_settings import ConsoleSettings

Data = dict[str, Any]

RAIL: Final = (
    "Overview",
    "Run",
    "Topics",
    "Groups",
    "Transactions",
    "Brokers",
    "Access",
    "Connectors",
    "Pipelines",
    "Flow",
    "SQL",
    "Mirrors",
    "Registry",
    "Metrics",
    "Alerts",
)
"""The entries of the left rail, in their order; those without a page are left out."""
MOST_DIGITS: Final = 40
SHOWN_OF_A_NUMBER: Final = 60


class Visit(NamedTuple):
    """One request of a browser: the cluster, and the parts of the address and of the form."""

    cluster: ConsoleCluster
    settings: ConsoleSettings
    place: Mapping[str, Any] = {}
    """The parts of the path, as `{topic}`."""
    query: Mapping[str, str] = {}
    form: Mapping[str, str] = {}
    """The fields of a form that was sent by POST."""

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number of the query, between `low` and `high`; Refused for anything else."""
        text = self.query.get(name, "")
        if not text:
            return default
        number = whole_number(text, high)
        if number is None or number < low:
            shown = f"{name}={text[:SHOWN_OF_A_NUMBER]}"
            raise Refused(f"{shown}: must be a whole number from {low} to {high}")
        return number


def whole_number(text: str, most: int = LONG_MAX) -> int | None:
    """The number that a text of decimal digits stands for, up to `most`; None for other text.

    Python reads no integer of more than 4,300 digits: longer texts are not handed to it.
    """
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) > most:
        return None
    return int(text)


def plain(value: Any) -> Any:
    """NamedTuples as objects, all the way down."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value


def utf_8(text: str) -> bytes:
    """A text of a page or a file in UTF-8, with an escape for each surrogate without its pair.

    JSON may name one alone (`"\\ud800"`), and UTF-8 has none; the escape is that of JSON.
    """
    return text.encode("utf-8", "backslashreplace")


class ConsolePage(NamedTuple):
    """A page that is read; see the table above."""

    path: str
    load: Callable[[Visit], Coroutine[Any, Any, Data]]
    template: str
    title: str
    rail: str = ""
    command: str = ""
    refresh_s: int = 0
    home: bool = False
    """Whether the entry of the rail leads here."""
    tab: str = ""
    """The name in the row of a topic's parts, for a page below `/t/{topic}/`."""
    table: str = ""
    """The name of the rows among its data, which can be taken along as CSV and JSON lines."""
    is_there: Callable[[ConsoleSettings], bool] = lambda settings: True


class ChangeOutcome(NamedTuple):
    """The end of a change: its message, where the browser goes, and the line of audit."""

    location: str
    message: str
    action: str
    """The change in the words of its command, as `topics --delete`."""
    subject: str
    """The topic, group or record that was changed."""
    old: Any = None
    new: Any = None


class ConsoleChange(NamedTuple):
    """A form that changes something; see above."""

    path: str
    run: Callable[[Visit], Awaitable[ChangeOutcome]]


class ExportWindow(NamedTuple):
    """Rows of an export that come together, all of one kind, and what is missing among them."""

    rows: Sequence[Any]
    notes: Sequence[str] = ()
    rest: str = ""
    """The field of a query with which the rows behind it begin; empty for the last window."""
    size: int = 0
    """About how many bytes the rows have, where that may be many."""
    types: Mapping[str, str] = {}
    """The columns of a statement, with DuckDB's types; empty for other rows."""


class ConsoleExport(NamedTuple):
    """Rows that can be taken along: below `path`, with `.csv` and the other formats behind it."""

    path: str
    windows: Callable[[Visit], AsyncIterator[ExportWindow]]
    left_out: str = ""
    """The field of a page's query that its link to the export has not."""
    has_parquet: bool = False
    needs: str = ""
    """The field of a query without which there are no rows."""
    columns: Sequence[str] = ()
    """The names of the columns of records; other rows have theirs."""


class StreamEvent(NamedTuple):
    """A server-sent event; htmx swaps the HTML of one without a name into the page."""

    name: str
    data: str
    id: str = ""
    """Comes back as `visit.query["last"]` where a browser connects again."""


class ConsoleStream(NamedTuple):
    """Events for an open page (`text/event-stream`); `render` makes HTML of a template and data."""

    path: str
    events: Callable[[Visit, Callable[[str, Data], str]], AsyncIterator[StreamEvent]]
