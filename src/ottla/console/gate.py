"""Who comes in: the checks that each request passes before any page sees it.

In this order: the host and the origin (`HttpGuard`), the session, and for POST the CSRF token of
that session. Each answer has the headers that keep a page from running anything but its own files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ottla.console.http_forms import cookie_of, cookie_text, form_of
from ottla.console.login import LOGIN, LOGOUT
from ottla.console.refusals import Refused
from ottla.security.http_guard import HttpGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.console.console_settings import ConsoleSettings
    from ottla.console.login import LoginDesk
    from ottla.console.sessions import BrowserSession, Sessions

STATIC: Final = "/static/"
CSP: Final = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer a form has no origin
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
BY_ITSELF: Final = "x-refresh"
"""The header with which a page asks for itself again, while nobody does anything."""
FOREVER: Final = "public, max-age=31536000, immutable"


class Gate:
    """The outermost application of the console."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ConsoleSettings,
        sessions: Sessions,
        locked: Callable[[], Response],
        desk: LoginDesk | None = None,
    ) -> None:
        """`locked` makes the answer to a browser that was not let in; a `desk` lets it log in."""
        self._app = app
        self._sessions = sessions
        self._locked = locked
        self._desk = desk
        self._cookie = cookie_of(settings)
        self._guard = HttpGuard(names=settings.names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application of one request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send, is_static=scope["path"].startswith(STATIC))
        answer, cookie = await self._look(scope, receive)
        if answer is not None:
            await answer(scope, receive, send)
            return
        if cookie is not None:
            send = self._giving(send, cookie_text(self._cookie, cookie, HTTPConnection(scope)))
        await self._app(scope, receive, send)

    async def _look(self, scope: Scope, receive: Receive) -> tuple[Response | None, str | None]:
        """The answer to a request that goes no further; or None, and a cookie to be set."""
        headers = Headers(scope=scope)
        refusal = self._guard.refusal(scope["method"], headers, scope["server"][0])
        if refusal is not None:
            return PlainTextResponse(refusal.message + "\n", refusal.status), None
        if scope["path"].startswith(STATIC):
            return None, None
        connection = HTTPConnection(scope)
        given = None
        is_person = BY_ITSELF not in headers
        session = self._sessions.find(connection.cookies.get(self._cookie, ""), is_person)
        if self._desk is not None and (session is None or scope["path"] == LOGIN):
            return await self._at_desk(self._desk, connection, receive, session is not None), None
        if token := connection.query_params.get("token"):
            return self._enter(token, connection, session is not None), None
        if session is None:
            admitted = self._sessions.admit()
            if admitted is None:
                return self._locked(), None
            given, session = admitted
        scope.setdefault("state", {})["session"] = session
        if scope["method"] == "POST":
            try:
                scope["state"]["form"] = await form_of(receive, headers, session.csrf)
            except Refused as error:
                return PlainTextResponse(error.message + "\n", error.status), None
            if self._desk is not None and scope["path"] == LOGOUT:
                return self._leave(session), None
        return None, given

    async def _at_desk(
        self, desk: LoginDesk, asked: HTTPConnection, receive: Receive, is_in: bool
    ) -> Response:
        """The form, or the way in: with the cookie of a session that is new."""
        if is_in:
            return RedirectResponse("/", 303)
        answer, cookie = await desk.answer(asked, receive)
        if cookie:
            answer.headers.append("set-cookie", cookie_text(self._cookie, cookie, asked))
        return answer

    def _leave(self, session: BrowserSession) -> Response:
        self._sessions.end(session)
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(self._cookie)
        return answer

    def _enter(self, token: str, asked: HTTPConnection, is_in: bool) -> Response:
        """The page without the token in its address; a browser that is in may show a used one."""
        cookie = self._sessions.enter(token)
        if cookie is None and not is_in:
            return self._locked()
        query = [pair for pair in asked.query_params.multi_items() if pair[0] != "token"]
        # Two slashes would begin the name of another host.
        path = "/" + asked.scope["path"].lstrip("/\\")
        answer = RedirectResponse(path + (f"?{urlencode(query)}" if query else ""), 303)
        if cookie is not None:
            answer.headers.append("set-cookie", cookie_text(self._cookie, cookie, asked))
        return answer

    def _giving(self, send: Send, text: str) -> Send:
        async def giving(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("set-cookie", text)
            await send(message)

        return giving


def _with_headers(send: Send, is_static: bool) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, text in HEADERS.items():
                headers.setdefault(name, text)
            lasts = is_static and message["status"] < 400
            headers["cache-control"] = FOREVER if lasts else "no-store"
        await send(message)

    return with_headers
