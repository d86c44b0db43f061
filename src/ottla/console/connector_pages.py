"""The pages of connectors, as a worker of Kafka Connect tells of them by REST."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from ottla.clients.connect_rest import (
    ConnectRefusedError,
    ConnectRest,
    TaskStatus,
    offsets_of,
    status_of,
)
from ottla.clients.json_answers import OddAnswerError, part, text_of, texts_of
from ottla.config.known_keys import shown
from ottla.console.frame import link
from ottla.console.masks import HIDDEN_QUOTE
from ottla.console.overview import Attention
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit
from ottla.console.refusals import NotFound, Refused
from ottla.console.row_window import WINDOW, RowWindow
from ottla.runtime.http_calls import shown_url
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
ODD: Final = "ODD ANSWER"
"""The state of a connector of which a worker does not answer as Connect does."""
LONGEST_ERROR: Final = 1_000
LINES_IN_A_TURN: Final = 500


class ConnectorLine(NamedTuple):
    """A connector with its tasks; `error` is the last line of the first failure's trace."""

    name: str
    kind: str
    class_name: str
    state: str
    worker: str
    tasks: Sequence[TaskStatus]
    failed: int
    error: str


SORTS: Final[dict[str, Callable[[ConnectorLine], tuple[Any, ...]]]] = {
    "state": lambda each: (not each.failed, each.state != "FAILED", each.state, each.name),
    "name": lambda each: (each.name,),
}


async def ask(visit: Visit, path: str, method: str = "GET") -> dict[str, Any]:
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
    except OddAnswerError as error:
        raise Refused(odd_answer(visit, error), 502) from None


def odd_answer(visit: Visit, error: OddAnswerError) -> str:
    """The sentence for an answer that is not Connect's."""
    where = shown_url(visit.settings.connect)
    return f"The worker at {where} does not answer as Connect does: {error}"


async def connectors(visit: Visit) -> Data:
    """A window of the connectors, those that have failed first."""
    window = RowWindow(visit, SORTS, "state")
    if not visit.settings.connect:
        return {**window.data(0, 0), "url": "", "rows": [], "failed": 0}
    every = await connector_lines(visit, "/connectors?expand=status&expand=info")
    shown_ones = sorted((e for e in every if window.has(e.name)), key=SORTS[window.sort])
    return {
        **window.data(len(shown_ones), len(every)),
        "url": shown_url(visit.settings.connect),
        "rows": shown_ones[window.first : window.first + WINDOW],
        "failed": sum(bool(each.failed) or each.state == "FAILED" for each in every),
    }


async def connector_lines(visit: Visit, path: str) -> list[ConnectorLine]:
    """The connectors of Connect's list; others have their turn on the loop in between."""
    lines: list[ConnectorLine] = []
    for name, found in (await ask(visit, path)).items():
        lines.append(line_or_fault(visit, name, found))
        if len(lines) % LINES_IN_A_TURN == 0:
            await asyncio.sleep(0)
    return lines


def line_or_fault(visit: Visit, name: str, found: Any) -> ConnectorLine:
    """A connector; its error is the fault of the answer where that is not as Connect's."""
    try:
        return connector_line(name, found, hides_traces(visit))
    except OddAnswerError as error:
        return ConnectorLine(name, "", "", ODD, "", (), 0, odd_answer(visit, error))


def hides_traces(visit: Visit) -> bool:
    """Whether a sentence stands for each trace.

    Traces often quote the record with which a task has failed. They do not say which topic it is
    of, and transforms rename topics: so a mask of any topic hides them.
    """
    return not visit.settings.shows_all_of_records


def connector_line(name: str, found: Any, hides: bool = False) -> ConnectorLine:
    """A connector of Connect's list, in which each has its status and its info."""
    whole = {name: found}
    status, info = (part(part(whole, name, dict), each, dict) for each in ("status", "info"))
    own = status_of(status)
    tasks = [each._replace(trace=trace_or_quote(each.trace, hides)) for each in own.tasks]
    failed = [each for each in tasks if each.state == "FAILED"]
    traces = [trace_or_quote(own.trace, hides), *(each.trace for each in failed)]
    return ConnectorLine(
        name,
        own.type or text_of(info, "type"),
        text_of(part(info, "config", dict), "connector.class"),
        own.state,
        own.worker,
        tasks,
        len(failed),
        next((first_line(each) for each in traces if each), "")[:LONGEST_ERROR],
    )


def trace_or_quote(trace: str, hides: bool) -> str:
    """The trace of a connector or a task, or the sentence for it."""
    return HIDDEN_QUOTE if hides and trace else trace


def first_line(trace: str) -> str:
    """The line of a trace that says what is wrong: Java's first one, Python's last one."""
    lines = trace.strip().splitlines() or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


async def connector(visit: Visit) -> Data:
    """One connector: its tasks with their traces, its settings, topics and offsets."""
    name = name_of(visit)
    path = f"/connectors/{quote(name, safe='')}"
    answers = await asyncio.gather(
        ask(visit, f"{path}/status"),
        ask(visit, path),
        _or_nothing(visit, f"{path}/topics"),
        _or_nothing(visit, f"{path}/offsets"),
    )
    try:
        return connector_data(name, *answers, hides_traces(visit))
    except OddAnswerError as error:
        raise Refused(odd_answer(visit, error), 502) from None


def connector_data(
    name: str,
    status: dict[str, Any],
    info: dict[str, Any],
    topics: dict[str, Any],
    offsets: dict[str, Any],
    hides: bool,
) -> Data:
    """The page of a connector, of a worker's answers; OddAnswerError for one that is no such."""
    line = connector_line(name, {"status": status, "info": info}, hides)
    config = part(info, "config", dict)
    return {
        **line._asdict(),
        "trace": trace_or_quote(status_of(status).trace, hides),
        "config": {key: shown(key, text_of(config, key)) for key in sorted(config)},
        "topics": sorted(texts_of(part(topics, name, dict), "topics")),
        "offsets": offsets_of(offsets),
        "group": f"connect-{name}" if line.kind == "sink" else "",
        "dead_letters": text_of(config, DEAD_LETTERS),
        "actions": list(ACTIONS),
    }


async def _or_nothing(visit: Visit, path: str) -> dict[str, Any]:
    """An answer that older workers do not have, or nothing."""
    try:
        return await ask(visit, path)
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
    await ask(visit, f"/connectors/{quote(name, safe='')}{path}", method)
    return ChangeOutcome(
        connector_path(name),
        f"Connector {name}: {action} is asked for.",
        f"connect {action}",
        name,
    )


async def connectors_failed(visit: Visit) -> list[Attention]:
    """The connectors with a failure, for the overview; none where no worker answers."""
    if not visit.settings.connect:
        return []
    try:
        lines = await connector_lines(visit, "/connectors?expand=status")
    except (NotFound, Refused) as error:
        return [Attention(error.message, "/connectors", is_bad=False)]
    failed = [each for each in lines if each.failed or each.state in ("FAILED", ODD)]
    return [attention_of(each) for each in failed]


def attention_of(line: ConnectorLine) -> Attention:
    """The sentence of a connector that has failed, or whose worker's answer makes no sense."""
    is_odd = line.state == ODD
    verb = "is not known" if is_odd else "has failed"
    text = f"connector {line.name} {verb}: {line.error}"
    return Attention(text, connector_path(line.name), is_bad=not is_odd)


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
