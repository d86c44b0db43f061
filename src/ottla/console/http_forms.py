"""Parts of HTTP that the console's gate, login and frame share: forms, cookies, own paths."""

from __future__ import annotations

import asyncio
import hmac
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from ottla.console.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import HTTPConnection
    from starlette.types import Receive

    from ottla.console.console_settings import ConsoleSettings

TWIN: Final = ".json"
MOST_FORM_BYTES: Final = 2 * 1024 * 1024
FORM_S: Final = 60
"""How long the fields of a form may take to come."""
MOST_FIELDS: Final = 200
LONGEST_PATH: Final = 2_000


async def form_of(
    receive: Receive, headers: Mapping[str, str], csrf: str, most: int = MOST_FORM_BYTES
) -> dict[str, str]:
    """The fields of a form; Refused without the session's CSRF token, or where it is too large."""
    try:
        async with asyncio.timeout(FORM_S):
            body = await _body_of(receive, most)
    except TimeoutError:
        raise Refused(f"the form has not come within {FORM_S} s", 408) from None
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Refused("the form cannot be read: it is no UTF-8, or has too many fields") from error
    form = dict(pairs)
    given = headers.get("x-csrf-token") or form.pop("csrf", "")
    if not hmac.compare_digest(given.encode(), csrf.encode()):
        raise Refused("the form is not from a page of this console, or that page is too old", 403)
    return form


async def _body_of(receive: Receive, most: int) -> bytearray:
    body = bytearray()
    while True:
        message: dict[str, Any] = dict(await receive())
        if message["type"] == "http.disconnect":
            raise Refused("the browser has gone")
        body += message.get("body", b"")
        if len(body) > most:
            raise Refused(f"a form may have {most:,} bytes", 413)
        if not message.get("more_body"):
            return body


def cookie_of(settings: ConsoleSettings) -> str:
    """The name of the cookie of a console's sessions; cookies know no ports."""
    return f"ottla-console-{settings.port}"


def cookie_text(name: str, value: str, asked: HTTPConnection) -> str:
    """A cookie that no script reads and no other site sends, until the browser ends."""
    secure = "; Secure" if asked.scope["scheme"] == "https" else ""
    return f"{name}={value}; HttpOnly; Path=/; SameSite=strict{secure}"


def own_path(text: str) -> str:
    """A path of this console; "/" for the address of another host, or of any that is too long."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_own and text.isprintable() and len(text) <= LONGEST_PATH else "/"


def wants_json(asked: HTTPConnection) -> bool:
    """Whether a program asks, that prefers JSON to HTML."""
    accepted = asked.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted
