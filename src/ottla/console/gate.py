"""Who comes in: the checks that each request passes before any page sees it.

In this order: the host and the origin (`HttpGuard`), the session, and for POST the CSRF token of
that session. Each answer has the headers that keep a page from running anything but its own files.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ottla.console.refusals import Refused
from ottla.security.http_guard import HttpGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ottla.console.console_settings import ConsoleSettings
    from ottla.console.sessions import Sessions

STATIC: Final = "/static/"
MOST_FORM_BYTES: Final = 2 * 1024 * 1024
MOST_FIELDS: Final = 200
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
FOREVER: Final = "public, max-age=31536000, immutable"


class Gate:
    """The outermost application of the console."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ConsoleSettings,
        sessions: Sessions,
        locked: Callable[[], Response],
    ) -> None:
        """`locked` makes the answer to a browser that was not let in."""
        self._app = app
        self._sessions = sessions
        self._locked = locked
        self._cookie = f"ottla-console-{settings.port}"  # cookies know no ports
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
            send = self._giving(send, self._setting(cookie, scope))
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
        session = self._sessions.find(connection.cookies.get(self._cookie, ""))
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
        return None, given

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
            answer.headers.append("set-cookie", self._setting(cookie, asked.scope))
        return answer

    def _setting(self, cookie: str, scope: Scope) -> str:
        secure = "; Secure" if scope["scheme"] == "https" else ""
        return f"{self._cookie}={cookie}; HttpOnly; Path=/; SameSite=strict{secure}"

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
                headers[name] = text
            lasts = is_static and message["status"] < 400
            headers["cache-control"] = FOREVER if lasts else "no-store"
        await send(message)

    return with_headers


async def form_of(receive: Receive, headers: Mapping[str, str], csrf: str) -> dict[str, str]:
    """The fields of a form; Refused without the session's CSRF token, or where it is too large."""
    body = bytearray()
    while True:
        message: dict[str, Any] = dict(await receive())
        if message["type"] == "http.disconnect":
            raise Refused("the browser has gone")
        body += message.get("body", b"")
        if len(body) > MOST_FORM_BYTES:
            raise Refused(f"a form may have {MOST_FORM_BYTES:,} bytes", 413)
        if not message.get("more_body"):
            break
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Refused("the form cannot be read: it is no UTF-8, or has too many fields") from error
    form = dict(pairs)
    given = headers.get("x-csrf-token") or form.pop("csrf", "")
    if not hmac.compare_digest(given.encode(), csrf.encode()):
        raise Refused("the form is not from a page of this console, or that page is too old", 403)
    return form
