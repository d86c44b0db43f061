"""The frame around all pages: it finds the page of a path, and makes HTML or JSON of its data."""

from __future__ import annotations

import json
import logging
import re
import shlex
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlencode
from zlib import crc32

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ottla.console.abandoned import BrowserGone, unless_gone
from ottla.console.asked import PageRequests, current
from ottla.console.decoding import LONGEST_INDENTED
from ottla.console.export_formats import NAMES, PARQUET, formats
from ottla.console.exporting import export_answer
from ottla.console.formats import FILTERS, printable
from ottla.console.gate import STATIC, Gate
from ottla.console.http_forms import TWIN, own_path, wants_json
from ottla.console.login import LoginDesk, path_of
from ottla.console.page import (
    RAIL,
    ConsoleChange,
    ConsoleExport,
    ConsolePage,
    ConsoleStream,
    Data,
    StreamEvent,
    Visit,
    plain,
    utf_8,
)
from ottla.console.refusals import NotFound, Refused
from ottla.console.run_pages import REPORT_PATH, report_file
from ottla.console.sessions import BrowserSession, Sessions
from ottla.console.user_sessions import UserSessions
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError, SaslAuthenticationError
from ottla.structs import NamedTuple
from ottla.version import __version__

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Collection,
        Iterable,
        Mapping,
        Sequence,
    )

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.console_settings import ConsoleSettings

logger = logging.getLogger(__name__)
audit = logging.getLogger("ottla.console.audit")

HERE: Final = Path(__file__).parent
PLACE: Final = re.compile(r"\{(\w+)\}")
THEMES: Final = ("light", "dark", "auto")
THEME_COOKIE: Final = "ottla-theme"
LONGEST_NAME: Final = 100
A_YEAR_S: Final = 31_536_000
NOBODY_WAITS: Final = 499
"""The status that nginx has for it; it goes nowhere."""
DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
GONE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)
"""Errors of things that were deleted a moment ago: the console's metadata still has them."""


class NumberOfPath(IntegerConvertor):
    """A number in a path, `{offset:number}`; Python would fail with one of thousands of digits."""

    regex = "[0-9]{1,18}"


register_url_convertor("number", NumberOfPath())


class RailEntry(NamedTuple):
    """A link of the left rail."""

    name: str
    path: str
    is_here: bool


class FrameData(NamedTuple):
    """The parts of a page that do not come from its own data; `frame` in the templates."""

    title: str
    cluster: str
    rail: list[RailEntry]
    session: BrowserSession
    messages: list[str]
    theme: str
    path: str
    query: str
    twin: str
    command: str
    asked: PageRequests | None
    refresh_s: int
    may_change: bool
    shows_records: bool
    tabs: Sequence[tuple[str, str]]
    """The parts of a topic: their names, and their paths with `{topic}`."""
    paths: Collection[str]
    """The paths of all pages and streams that there are."""
    exports: Sequence[tuple[str, str]]
    """The formats in which the page can be taken along, and their addresses."""
    user: str
    """The name of the user who is logged in; empty where nobody logs in."""
    version: str = __version__

    @property
    def csrf(self) -> str:
        """The token that each form sends along."""
        return self.session.csrf


class ConsoleApp:
    """The pages, changes and streams of a console as an ASGI application."""

    def __init__(
        self,
        cluster: ConsoleCluster | None,
        settings: ConsoleSettings,
        sessions: Sessions,
        pages: Iterable[ConsolePage],
        changes: Iterable[ConsoleChange] = (),
        streams: Iterable[ConsoleStream] = (),
        exports: Iterable[ConsoleExport] = (),
    ) -> None:
        """`cluster` is that of all browsers; None where each logs in, and its session has one."""
        self._cluster = cluster
        self._sessions = sessions
        self.settings = settings
        self._pages = [each for each in pages if each.is_there(settings)]
        self._tabs = [(each.tab, each.path) for each in self._pages if each.tab]
        self._paths = {each.path for each in self._pages} | {each.path for each in streams}
        self._exports = {each.path: each for each in exports if each.path in self._paths}
        self._templates = environment()
        app = Starlette(
            routes=self._routes(changes, streams),
            exception_handlers={404: self._no_page, 405: self._no_page},
        )
        desk = None
        if isinstance(sessions, UserSessions):
            desk = LoginDesk(sessions, settings, self.render)
        packed = GZipMiddleware(app, 2048, 4)
        self.asgi: ASGIApp = Gate(packed, settings, sessions, self._locked, desk)

    @property
    def cluster(self) -> ConsoleCluster:
        """The cluster of all browsers, where they do not log in."""
        assert self._cluster is not None, "each session has its own"
        return self._cluster

    def _routes(
        self, changes: Iterable[ConsoleChange], streams: Iterable[ConsoleStream]
    ) -> list[Route | Mount]:
        routes: list[Route | Mount] = [Mount("/static", StaticFiles(directory=HERE / "static"))]
        routes += [self._route(each) for each in streams]
        for export in self._exports.values():
            routes += [self._export_route(export, form) for form in formats_of(export)]
        for page in self._pages:
            # The twin first: a path that ends in a name would take it for a name.
            routes += [self._page_route(page, is_twin) for is_twin in (True, False)]
        if not self.settings.read_only:
            routes += [self._change_route(each) for each in changes]
        routes.append(Route("/theme", self._set_theme, methods=["POST"]))
        if self.settings.report:
            routes.append(Route(REPORT_PATH, partial(report_file, self.settings)))
        return routes

    def render(self, template: str, data: Data) -> str:
        """The HTML of a template, every value of the data escaped; UTF-8 has all of it."""
        return utf_8(self._templates.get_template(template).render(data)).decode()

    def _page_route(self, page: ConsolePage, is_twin: bool) -> Route:
        async def show(request: Request) -> Response:
            return await self._show(page, request, is_twin or wants_json(request))

        path = page.path.rstrip("/") or ("/overview" if is_twin else "/")
        return Route(path + (TWIN if is_twin else ""), show)

    def _change_route(self, change: ConsoleChange) -> Route:
        async def run(request: Request) -> Response:
            return await self._change(change, request)

        return Route(change.path, run, methods=["POST"])

    def _route(self, stream: ConsoleStream) -> Route:
        async def begin(request: Request) -> Response:
            visit = self._visit(request)
            if last := request.headers.get("last-event-id"):
                visit = visit._replace(query={**visit.query, "last": last})
            events = stream.events(visit, self.render)
            lasting = until_closed(events, visit.cluster)
            return StreamingResponse(as_text(lasting), media_type="text/event-stream")

        return Route(stream.path, begin)

    def _export_route(self, export: ConsoleExport, form: str) -> Route:
        async def begin(request: Request) -> Response:
            visit = self._visit(request)
            name = file_name(request)
            try:
                work = export_answer(export, visit, form, name)
                return await unless_gone(request.receive, work)
            except BrowserGone:
                return Response(status_code=NOBODY_WAITS)
            except (NotFound, Refused, KafkaError) as error:
                return self._failed(error, request, wants_json(request))

        return Route(f"{export.path}.{form}", begin)

    def _visit(self, request: Request) -> Visit:
        form = getattr(request.state, "form", {})
        query = dict(request.query_params)
        return Visit(self._cluster_of(request), self.settings, request.path_params, query, form)

    def _cluster_of(self, request: Request) -> ConsoleCluster:
        session: BrowserSession = request.state.session
        return self.cluster if session.login is None else session.login.cluster

    async def _show(self, page: ConsolePage, request: Request, as_json: bool) -> Response:
        visit = self._visit(request)
        asked = PageRequests(visit.cluster.network)
        current.set(asked)
        try:
            data = await unless_gone(request.receive, page.load(visit))
        except BrowserGone:
            return Response(status_code=NOBODY_WAITS)
        except (NotFound, Refused, KafkaError) as error:
            return self._failed(error, request, as_json, asked)
        status = data.pop("http_status", 200)
        if as_json:
            requests = [each._asdict() for each in asked.requests]
            return json_answer({**data, "asked": requests}, status)
        title = filled(page.title, places_of(request))
        frame = self._frame(request, title, page, asked)
        html = self.render(page.template, {**data, "frame": frame, "visit": visit})
        return HTMLResponse(html, status)

    async def _change(self, change: ConsoleChange, request: Request) -> Response:
        visit = self._visit(request)
        current.set(PageRequests(visit.cluster.network))
        try:
            outcome = await change.run(visit)
        except (NotFound, Refused, KafkaError) as error:
            return self._failed(error, request, wants_json(request), current.get())
        said = {"by": _peer(request), "subject": outcome.subject}
        line = said | {"old": outcome.old, "new": outcome.new}
        audit.info("%s: %s", outcome.action, json.dumps(line, ensure_ascii=True, default=str))
        await visit.cluster.changed()
        if wants_json(request):
            return json_answer({"message": outcome.message, "location": outcome.location})
        request.state.session.messages.append(outcome.message)
        return RedirectResponse(outcome.location, 303)

    async def _set_theme(self, request: Request) -> Response:
        """Remember the theme; a path of this console follows."""
        form = request.state.form
        theme = form.get("theme", "auto")
        answer = RedirectResponse(own_path(form.get("back", "/")), 303)
        if theme in THEMES:
            answer.set_cookie(THEME_COOKIE, theme, max_age=A_YEAR_S, httponly=True, samesite="lax")
        return answer

    async def _no_page(self, request: Request, _error: Exception) -> Response:
        path = request.url.path
        if path.startswith(STATIC):
            return PlainTextResponse(f"There is no file {path}.\n", 404)
        return self._failed(NotFound(f"There is no page {path}."), request, wants_json(request))

    def _failed(
        self, error: Exception, request: Request, as_json: bool, asked: PageRequests | None = None
    ) -> Response:
        """The page of an error, with its status; the login where brokers refuse that of before."""
        if isinstance(error, SaslAuthenticationError) and request.state.session.login is not None:
            self._sessions.end(request.state.session)
            return RedirectResponse(path_of(request), 303)
        status, message = status_of(error), message_of(error)
        near = getattr(error, "near", {})
        if as_json:
            return json_answer({"error": message, "near": list(near.values())}, status)
        frame = self._frame(request, TITLES.get(status, "This did not work"), None, asked)
        data = {"message": message, "near": near, "status": status, "frame": frame}
        return HTMLResponse(self.render("error.html", data), status)

    def _locked(self) -> Response:
        text = self.render("locked.html", {"command": "ottla console"})
        return HTMLResponse(text, 401)

    def _frame(
        self, request: Request, title: str, page: ConsolePage | None, asked: PageRequests | None
    ) -> FrameData:
        session: BrowserSession = request.state.session
        messages, session.messages = session.messages, []
        rail, path = page.rail if page is not None else "", request.url.path
        query = str(request.url.query)
        theme = request.cookies.get(THEME_COOKIE, "auto")
        return FrameData(
            title,
            self.settings.shown_name,
            self._rail(rail),
            session,
            messages,
            theme if theme in THEMES else "auto",
            path,
            f"?{query}" if query else "",
            ("/overview" if path == "/" else path) + TWIN + (f"?{query}" if query else ""),
            command_of(page, request) if page is not None else "",
            asked,
            page.refresh_s if page is not None else 0,
            not self.settings.read_only,
            not self.settings.hide_records,
            self._tabs,
            self._paths,
            self._exports_of(page, request),
            session.login.name if session.login is not None else "",
        )

    def _exports_of(self, page: ConsolePage | None, request: Request) -> list[tuple[str, str]]:
        export = self._exports.get(page.path) if page is not None else None
        if export is None or (export.needs and not request.query_params.get(export.needs)):
            return []
        query = {**request.query_params, export.left_out: ""}
        path = request.url.path.removesuffix(TWIN)
        return [(NAMES[form], link(f"{path}.{form}", **query)) for form in formats_of(export)]

    def _rail(self, here: str) -> list[RailEntry]:
        homes = {page.rail: page.path for page in self._pages if page.home}
        return [RailEntry(name, homes[name], name == here) for name in RAIL if name in homes]


def environment() -> Environment:
    """The templates, which escape every value."""
    found = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters.update(FILTERS)
    found.globals.update(link=link, static=static_paths())
    return found


TITLES: Final = {404: "Not there", 403: "Not allowed", 503: "No broker answers"}


def status_of(error: Exception) -> int:
    """The HTTP status of a page that failed."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, KafkaTimeoutError):
        return 503
    code = error.error if isinstance(error, KafkaError) else None
    return 403 if code in DENIED else 404 if code in GONE else 502


def message_of(error: Exception) -> str:
    """The sentence of a page that failed; it says so where a right was missing."""
    message: str = getattr(error, "message", str(error))
    if isinstance(error, KafkaError) and error.error in DENIED:
        sentence = error.error.sentence
        return message if sentence.rstrip(".") in message else f"{sentence} ({message})"
    return message


def json_answer(data: Mapping[str, Any], status: int = 200) -> Response:
    """Data as JSON; numbers of any size as they are.

    Up to 256 KB it has indents: they would be many times as long as lists of lists.
    """
    shown = plain(data)
    text = json.dumps(shown, ensure_ascii=False)
    if len(text) <= LONGEST_INDENTED:
        text = json.dumps(shown, ensure_ascii=False, indent=1)
    return Response(utf_8(text), status, media_type="application/json")


def file_name(request: Request) -> str:
    """The name of an export's file, of letters that every system has."""
    words = request.url.path.rpartition(".")[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-.")[:LONGEST_NAME] or "export"


def formats_of(export: ConsoleExport) -> list[str]:
    """The formats of an export; few rows have types for Parquet."""
    return [each for each in formats() if each != PARQUET or export.has_parquet]


def places_of(request: Request) -> dict[str, Any]:
    """The parts of the path and of the query, for titles and commands."""
    return {**request.query_params, **request.path_params}


def command_of(page: ConsolePage, request: Request) -> str:
    """The command of a page, in which each name is one word of a shell."""
    words = {name: shlex.quote(str(text)) for name, text in places_of(request).items()}
    return filled(page.command, words)


def filled(text: str, place: Mapping[str, Any]) -> str:
    """A text in which `{topic}` is the part of the path or of the query."""
    return PLACE.sub(lambda found: str(place.get(found[1], found[0])), text)


def link(path: str, /, **query: object) -> str:
    """A path of the console with a query; fields that are empty or None are left out."""
    given = {name: text for name, text in query.items() if text not in (None, "")}
    words = urlencode(given, errors="backslashreplace")
    return quote(path, errors="backslashreplace") + (f"?{words}" if given else "")


def static_paths() -> Callable[[str], str]:
    """A function from a file of `static/` to its path, which changes when a file does."""
    files = sorted(each for each in (HERE / "static").rglob("*") if each.is_file())
    sums = {str(each.relative_to(HERE / "static")): crc32(each.read_bytes()) for each in files}
    return lambda name: f"/static/{name}?{sums[name]:08x}"


async def until_closed(
    events: AsyncIterator[StreamEvent], cluster: ConsoleCluster
) -> AsyncIterator[StreamEvent]:
    """The events of a stream, as long as the session lasts that has this view of the cluster."""
    async with aclosing(cast("AsyncGenerator[StreamEvent]", events)) as found:
        async for event in found:
            if cluster.is_closed:
                yield StreamEvent("end", "You are not logged in any more.")
                return
            yield event


async def as_text(events: AsyncIterator[StreamEvent]) -> AsyncIterator[str]:
    """Events in the format of `text/event-stream`."""
    async for event in events:
        lines = [f"data: {line}" for line in event.data.splitlines()]
        if event.name:
            lines.insert(0, f"event: {event.name}")
        if event.id:
            lines.append(f"id: {event.id}")
        yield "\n".join(lines) + "\n\n"


def _peer(request: Request) -> str:
    """The user, if there are logins, and the address."""
    address = request.client.host if request.client is not None else "unknown"
    login = request.state.session.login
    return address if login is None else f"{login.name} at {address}"
