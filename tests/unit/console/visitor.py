"""A browser without a screen: it asks a console's application, and keeps its cookies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from ottla.console.console_cluster import ConsoleCluster
from ottla.console.console_settings import ConsoleSettings
from ottla.console.frame import ConsoleApp
from ottla.console.pages import CHANGES, EXPORTS, PAGES, STREAMS
from ottla.console.sessions import Sessions
from ottla.console.user_sessions import UserSessions
from ottla.runtime.runtime import real_runtime

HOST = "127.0.0.1:8090"
LIMIT_S = 60


class Answer:
    """A whole answer: status, headers by their names in small letters, and text."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        start = messages[0]
        self.status: int = start["status"]
        self.headers = [(name.decode(), text.decode()) for name, text in start["headers"]]
        self.body = b"".join(each.get("body", b"") for each in messages[1:])

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str:
        return dict(self.headers).get(name, "")

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Visitor:
    """One browser; it was let in with the token of the console unless `enter` was not called."""

    def __init__(self, app: ConsoleApp, sessions: Sessions) -> None:
        self.app = app
        self.sessions = sessions
        self.cookies: dict[str, str] = {}

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, csrf: str | None = None, **form: str) -> Answer:
        """Send a form, with the CSRF token of the session unless another one is given."""
        token = await self.csrf() if csrf is None else csrf
        body = urlencode({**form, "csrf": token}).encode()
        return await self.ask("POST", path, body, {"origin": f"http://{HOST}"})

    async def csrf(self) -> str:
        found = re.search('name="csrf" content="([^"]+)"', (await self.get("/")).text)
        return found[1] if found else ""

    async def enter(self) -> Answer:
        return await self.get(f"/?token={self.sessions.token}")

    async def log_in(self, name: str, password: str, back: str = "/", **headers: str) -> Answer:
        """Fill in the form that a browser without a session gets."""
        found = re.search('name="csrf" value="([^"]+)"', (await self.get("/")).text)
        fields = {"csrf": found[1] if found else "", "name": name, "password": password}
        body = urlencode({**fields, "back": back}).encode()
        return await self.ask("POST", "/login", body, {"origin": f"http://{HOST}", **headers})

    def another(self) -> Visitor:
        """Another browser at the same console."""
        return Visitor(self.app, self.sessions)

    async def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        messages: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            messages.append(dict(message))

        scope = self.scope(method, path, headers)
        await asyncio.wait_for(self.app.asgi(scope, received(body), send), LIMIT_S)
        answer = Answer(messages)
        for name, text in answer.headers:
            if name == "set-cookie":
                key, _, rest = text.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return answer

    def scope(self, method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
        place, _, query = path.partition("?")
        cookie = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        sent = {"host": HOST, "accept": "text/html", "cookie": cookie, **headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": place,
            "raw_path": place.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), text.encode()) for name, text in sent.items()],
            "client": ("127.0.0.1", 40_000),
            "server": ("127.0.0.1", 8090),
        }


def received(body: bytes) -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
    """The body as ASGI hands it out; then nothing comes, as the browser waits."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    return receive


@asynccontextmanager
async def visited(servers: str, *, is_in: bool = True, **settings: Any) -> AsyncIterator[Visitor]:
    """A console of a cluster, and a browser that was let in."""
    runtime = real_runtime(asyncio.get_running_loop(), 1)
    own = ConsoleSettings(servers, port=8090, **settings)
    cluster = None if own.has_login else ConsoleCluster(runtime, own)
    sessions = (
        UserSessions(runtime, own) if own.has_login else Sessions(own.has_token, lambda token: None)
    )
    visitor = Visitor(
        ConsoleApp(cluster, own, sessions, PAGES, CHANGES, STREAMS, EXPORTS), sessions
    )
    try:
        if is_in and not own.has_login:
            await visitor.enter()
        yield visitor
    finally:
        sessions.close()
        if cluster is not None:
            cluster.close()
        await runtime.close()


def visit(
    servers: str, walk: Callable[[Visitor], Coroutine[Any, Any, Any]], **settings: Any
) -> Any:
    """Run a walk through a console's pages, and return its result."""

    async def run() -> Any:
        async with visited(servers, **settings) as visitor:
            return await walk(visitor)

    return asyncio.run(run())
