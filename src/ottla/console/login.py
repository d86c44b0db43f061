"""The form by which a user of the cluster logs in, and the way out.

A browser that is not logged in gets the form at any address, and after the login the page of that
address. The form has a token that belongs to a cookie of its own: another site can make a browser
send neither. The cookie of a session is new with each login.
"""

from __future__ import annotations

import hmac
import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from ottla.console.http_forms import TWIN, cookie_of, cookie_text, form_of, own_path, wants_json
from ottla.console.refusals import Refused
from ottla.console.sessions import TOKEN_BYTES
from ottla.errors import KafkaError, KafkaTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import HTTPConnection
    from starlette.types import Receive

    from ottla.console.console_settings import ConsoleSettings
    from ottla.console.user_sessions import UserSessions

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
NONCE: Final = re.compile(r"[\w-]{32}")
MOST_LOGIN_BYTES: Final = 16 * 1024


class LoginDesk:
    """Answers all browsers that are not logged in; `render` makes HTML of a template and data."""

    def __init__(
        self,
        sessions: UserSessions,
        settings: ConsoleSettings,
        render: Callable[[str, dict[str, Any]], str],
    ) -> None:
        self._sessions = sessions
        self._cluster = settings.shown_name
        self._form_cookie = f"{cookie_of(settings)}-form"
        self._render = render
        self._key = secrets.token_bytes(TOKEN_BYTES)

    async def answer(self, asked: HTTPConnection, receive: Receive) -> tuple[Response, str]:
        """The form, or the end of a login with the cookie of the new session."""
        if asked.scope["method"] != "POST" or asked.scope["path"] != LOGIN:
            return self._form(asked, path_of(asked), "", 401), ""
        try:
            form = await form_of(receive, asked.headers, self._csrf_of(asked), MOST_LOGIN_BYTES)
        except Refused as error:
            return self._form(asked, "/", f"Not logged in: {error.message}.", error.status), ""
        back = own_path(form.get("back", "/"))
        address = asked.client.host if asked.client is not None else ""
        try:
            name, password = form.get("name", ""), form.get("password", "")
            cookie = await self._sessions.log_in(name, password, address)
        except Refused as error:
            return self._form(asked, back, error.message, error.status, form.get("name", "")), ""
        except KafkaError as error:
            status = 503 if isinstance(error, KafkaTimeoutError) else 502
            return self._form(asked, back, error.message, status, form.get("name", "")), ""
        return RedirectResponse(back, 303), cookie

    def _csrf_of(self, asked: HTTPConnection) -> str:
        nonce = asked.cookies.get(self._form_cookie, "")
        return self._signed(nonce) if nonce else secrets.token_hex()  # which nobody has

    def _signed(self, nonce: str) -> str:
        return hmac.digest(self._key, nonce.encode(), "sha256").hex()

    def _form(
        self, asked: HTTPConnection, back: str, message: str, status: int, name: str = ""
    ) -> Response:
        if wants_json(asked) or asked.scope["path"].endswith(TWIN):
            words = message or f"Log in first: {LOGIN} has the form."
            return JSONResponse({"error": words}, status)
        nonce = asked.cookies.get(self._form_cookie, "")  # other tabs have a form with it
        if not NONCE.fullmatch(nonce):
            nonce = secrets.token_urlsafe(TOKEN_BYTES)
        data = {"csrf": self._signed(nonce), "back": back, "message": message, "name": name}
        data["cluster"] = self._cluster
        answer = HTMLResponse(self._render("login.html", data), status)
        answer.headers.append("set-cookie", cookie_text(self._form_cookie, nonce, asked))
        return answer


def path_of(asked: HTTPConnection) -> str:
    """The address to which a browser comes back after the login."""
    path, query = asked.scope["raw_path"].decode("latin-1"), asked.url.query
    is_page = asked.scope["method"] == "GET" and path not in (LOGIN, LOGOUT)
    return own_path(path + (f"?{query}" if query else "")) if is_page else "/"
