"""The pages of connectors, as a worker of Kafka Connect tells of them by REST."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from ottla.clients.connect_rest import ConnectRefusedError, ConnectRest
from ottla.config.known_keys import shown
from ottla.console.frame import link
from ottla.console.masks import HIDDEN_QUOTE
from ottla.console.overview import Attention
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit
from ottla.console.refusals import NotFound, Refused
from ottla.console.row_window import WINDOW, RowWindow
from ottla.network.http_calls import shown_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LIMIT_S: Final = 5
"""A person waits no longer for a worker."""
DEAD_LETTERS: Final = "errors.deadletterqueue.topic.name"
ACTIONS: Final = {
    "pause": ("PUT", "/pause"),
    "resume": ("PUT", "/resume"),
    "stop": ("PUT", "/stop"),
    "restart": ("POST", "/restart?includeTasks=true"),
    "restart failed": ("POST", "/restart?includeTasks=true&onlyFailed=true"),
}
NOT_THERE: Final = 404


class TaskLine(NamedTuple):
    """A task of a connector; the trace is that of its failure."""

    id: int
    state: str
    worker: str
    trace: str


class ConnectorLine(NamedTuple):
    """A connector with its tasks; `error` is the last line of the first failure's trace."""

    name: str
    kind: str
    class_name: str
    state: str
    worker: str
    tasks: Sequence[TaskLine]
    failed: int
    error: str


SORTS: Final[dict[str, Callable[[ConnectorLine], tuple[Any, ...]]]] = {
    "state": lambda each: (not each.failed, each.state != "FAILED", each.state, each.name),
    "name": lambda each: (each.name,),
}


async def ask(visit: Visit, method: str, path: str) -> Any:
    """A worker's answer; Refused with its reason, or because none is there."""
    rest = ConnectRest(visit.settings.connect, LIMIT_S)
    try:
        return await visit.cluster.limits.calls.run(lambda: rest.ask(method, path))
    except ConnectRefusedError as error:
        if error.status == NOT_THERE:
            raise NotFound(error.message) from None
        raise Refused(error.message) from None
    except OSError as error:
        raise Refused(f"No worker answers at {rest.url}: {error}", 502) from None


async def connectors(visit: Visit) -> Data:
    """A window of the connectors, those that have failed first."""
    window = RowWindow(visit, SORTS, "state")
    if not visit.settings.connect:
        return {**window.data(0, 0), "url": "", "rows": [], "failed": 0}
    found = await ask(visit, "GET", "/connectors?expand=status&expand=info")
    every = [connector_line(name, quoting(visit, each)) for name, each in found.items()]
    shown_ones = sorted((e for e in every if window.has(e.name)), key=SORTS[window.sort])
    return {
        **window.data(len(shown_ones), len(every)),
        "url": shown_url(visit.settings.connect),
        "rows": shown_ones[window.first : window.first + WINDOW],
        "failed": sum(bool(each.failed) or each.state == "FAILED" for each in every),
    }


def quoting(visit: Visit, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """A connector of Connect's list; with a sentence for its traces where records are hidden.

    Traces often quote the record with which a task has failed. They do not say which topic it is
    of, and transforms rename topics: so a mask of any topic hides them.
    """
    if visit.settings.shows_all_of_records:
        return found
    status = found.get("status", {})
    own, tasks = status.get("connector", {}), status.get("tasks", ())
    return {
        **found,
        "status": {
            **status,
            "connector": without_trace(own),
            "tasks": [without_trace(each) for each in tasks],
        },
    }


def without_trace(found: Mapping[str, Any]) -> dict[str, Any]:
    """A connector or a task of a status, whose trace, if it has one, is a sentence."""
    return {**found, "trace": HIDDEN_QUOTE if found.get("trace") else ""}


def connector_line(name: str, found: Mapping[str, Any]) -> ConnectorLine:
    """A connector of Connect's list, in which each has its status and its info."""
    status, info = found.get("status", {}), found.get("info", {})
    own = status.get("connector", {})
    tasks = [task_line(each) for each in status.get("tasks", ())]
    failed = [each for each in tasks if each.state == "FAILED"]
    traces = [own.get("trace") or "", *(each.trace for each in failed)]
    return ConnectorLine(
        name,
        str(status.get("type") or info.get("type") or ""),
        str(info.get("config", {}).get("connector.class", "")),
        str(own.get("state", "UNKNOWN")),
        str(own.get("worker_id", "")),
        tasks,
        len(failed),
        next((first_line(each) for each in traces if each), ""),
    )


def task_line(found: Mapping[str, Any]) -> TaskLine:
    """A task of a status."""
    return TaskLine(
        int(found.get("id", 0)),
        str(found.get("state", "UNKNOWN")),
        str(found.get("worker_id", "")),
        str(found.get("trace") or ""),
    )


def first_line(trace: str) -> str:
    """The line of a trace that says what is wrong: Java's first one, Python's last one."""
    lines = trace.strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


async def connector(visit: Visit) -> Data:
    """One connector: its tasks with their traces, its settings, topics and offsets."""
    name = name_of(visit)
    path = f"/connectors/{quote(name, safe='')}"
    status, info = await asyncio.gather(
        ask(visit, "GET", f"{path}/status"), ask(visit, "GET", path)
    )
    seen = quoting(visit, {"status": status, "info": info})
    line, status = connector_line(name, seen), seen["status"]
    config = info.get("config", {})
    topics = await _or_nothing(visit, f"{path}/topics")
    offsets = await _or_nothing(visit, f"{path}/offsets")
    return {
        **line._asdict(),
        "trace": str(status.get("connector", {}).get("trace") or ""),
        "config": {key: shown(key, value) for key, value in sorted(config.items())},
        "topics": sorted(topics.get(name, {}).get("topics", ())),
        "offsets": offsets.get("offsets", ()),
        "group": f"connect-{name}" if line.kind == "sink" else "",
        "dead_letters": config.get(DEAD_LETTERS, ""),
        "actions": list(ACTIONS),
    }


async def _or_nothing(visit: Visit, path: str) -> Any:
    """An answer that older workers do not have, or nothing."""
    try:
        return await ask(visit, "GET", path)
    except (NotFound, Refused):
        return {}


def name_of(visit: Visit) -> str:
    """The connector that the address or the form names."""
    if not visit.settings.connect:
        raise Refused("This console was started without --connect URL: it knows no connectors.")
    name = visit.query.get("name", "") or visit.form.get("name", "")
    if not name:
        raise Refused("name: the address must name a connector, as in /connector?name=orders")
    return name


async def act(visit: Visit) -> ChangeOutcome:
    """Pause, resume, stop or restart a connector."""
    name, action = name_of(visit), visit.form.get("action", "")
    if action not in ACTIONS:
        raise Refused(f"action={action}: must be one of {', '.join(ACTIONS)}")
    method, path = ACTIONS[action]
    await ask(visit, method, f"/connectors/{quote(name, safe='')}{path}")
    return ChangeOutcome(
        connector_path(name),
        f"Connector {name}: {action} is asked for.",
        f"connect {action}",
        name,
    )


async def connectors_failed(visit: Visit) -> list[Attention]:
    """For the overview: connectors with a failure; none where no worker answers."""
    if not visit.settings.connect:
        return []
    try:
        found = await ask(visit, "GET", "/connectors?expand=status")
    except (NotFound, Refused) as error:
        return [Attention(error.message, "/connectors", is_bad=False)]
    lines = [connector_line(name, quoting(visit, each)) for name, each in found.items()]
    failed = [each for each in lines if each.failed or each.state == "FAILED"]
    return [
        Attention(f"connector {each.name} has failed: {each.error}", connector_path(each.name))
        for each in failed
    ]


def connector_path(name: str) -> str:
    """The path of a connector's page."""
    return link("/connector", name=name)


CONNECTOR_PAGES: Final = (
    ConsolePage(
        "/connectors",
        connectors,
        "connectors.html",
        "Connectors",
        rail="Connectors",
        command="ottla connect list",
        refresh_s=10,
        home=True,
        table="rows",
    ),
    ConsolePage(
        "/connector",
        connector,
        "connector.html",
        "Connector {name}",
        rail="Connectors",
        command="ottla connect status {name}",
        refresh_s=10,
    ),
)
CONNECTOR_CHANGES: Final = (ConsoleChange("/connector/do", act),)
