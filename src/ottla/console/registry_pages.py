"""The tree of the registry, a node at a time: from a broker's `metrics.listener`, or ZooKeeper."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from ottla.clients.json_answers import OddAnswerError, json_object, part, text_of, texts_of
from ottla.console.page import ConsolePage, Data, Visit
from ottla.console.refusals import NotFound, Refused
from ottla.runtime.http_calls import (
    CALL_LIMIT_S,
    SUCCESS,
    CallError,
    HttpAnswer,
    HttpRequest,
    exchange,
    shown_url,
)
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from ottla.console.console_settings import ConsoleSettings

MOST_BYTES: Final = 1024 * 1024
MOST_ASKED: Final = 3
"""Brokers that are asked, one after another, until one shows the node."""
FACTS: Final[dict[str, type[Any]]] = {
    "path": str,
    "data": str,
    "is_hidden": bool,
    **dict.fromkeys(("version", "children_version", "children_count", "data_length"), int),
    **dict.fromkeys(("created_id", "modified_id", "created_ms", "modified_ms"), int),
    "is_ephemeral": bool,
    "number_of_children": int,
}
"""The facts of a node, in the order of a broker's answer."""
NOT_OTTLA: Final = "has no registry: a broker of Ottla shows it, and no JMX exporter"


class PathPart(NamedTuple):
    """A node on the way to another, or below it."""

    name: str
    path: str


def is_there(settings: ConsoleSettings) -> bool:
    """Users with rights of their own do not see it, as nothing in it is any user's alone."""
    return bool(settings.metrics or settings.zookeeper) and not settings.has_login


async def registry(visit: Visit) -> Data:
    """One node, the way to it, and its children."""
    path = visit.query.get("path", "") or "/"
    if connect := visit.settings.zookeeper:
        # kazoo takes a third of the console's start, and few consoles ask a ZooKeeper.
        from ottla.console.zookeeper_node import zookeeper_node

        ask = partial(zookeeper_node, connect, path)
        source, node = f"ZooKeeper at {connect}", await visit.cluster.limits.calls.run(ask)
    else:
        url, node = await first_node(visit, path)
        source = shown_url(url)
    base = path.rstrip("/")
    return {
        "path": path,
        "way": way_to(path),
        "node": {name: value for name, value in node.items() if name != "children"},
        "children": [PathPart(each, f"{base}/{each}") for each in node["children"]],
        "broker": source,
    }


async def first_node(visit: Visit, path: str) -> tuple[str, dict[str, Any]]:
    """A node, and the first address of metrics that has shown it; NotFound or Refused for none."""
    reasons: list[Refused] = []
    for url in visit.settings.metrics[:MOST_ASKED]:
        ask = partial(exchange, visit.cluster.runtime.clock, request_of(url, path))
        try:
            answer = await visit.cluster.limits.calls.run(partial(ask, MOST_BYTES, CALL_LIMIT_S))
            return url, node_of(answer, url)
        except CallError as error:
            reasons.append(Refused(f"{shown_url(url)}: {error}", 502))
        except Refused as error:
            if error.status == 400:  # it is the path that is wrong
                raise
            reasons.append(error)
    raise reasons[0]


def request_of(metrics: str, path: str) -> HttpRequest:
    """The request for a node at the address of a broker's metrics."""
    parts = urlsplit(metrics)
    return HttpRequest(
        urlunsplit(parts._replace(path="/registry", query=f"path={quote(path)}", fragment=""))
    )


def node_of(answer: HttpAnswer, url: str) -> dict[str, Any]:
    """The node of an answer; NotFound or Refused, with the broker's reason, where there is none."""
    try:
        found = json_object(answer.body)
        if answer.status in SUCCESS and "children" in found:
            facts = {name: part(found, name, kind) for name, kind in FACTS.items()}
            return facts | {"children": texts_of(found, "children")}
        reason = text_of(found, "error")
    except OddAnswerError:
        reason = ""
    if not reason or answer.status in SUCCESS:
        raise Refused(f"{shown_url(url)} {NOT_OTTLA}", 502)
    raise NotFound(reason) if answer.status == 404 else Refused(reason, answer.status)


def way_to(path: str) -> list[PathPart]:
    """The nodes from the root to a node."""
    names = [each for each in path.split("/") if each]
    paths = ["/" + "/".join(names[:count]) for count in range(1, len(names) + 1)]
    return [PathPart("/", "/"), *map(PathPart, names, paths)]


REGISTRY_PAGES: Final = (
    ConsolePage(
        "/registry",
        registry,
        "registry.html",
        "Registry",
        "Registry",
        home=True,
        table="children",
        is_there=is_there,
    ),
)
