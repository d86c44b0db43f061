"""Topics and a console for statements, which are run in the process of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from urllib.parse import quote

from topics_of_records import START, interleaved, send
from visitor import Visitor

from ottla.console import sql_worker


class HereWorker:
    """Runs statements in this process, which is quicker to start, and can go on to open files."""

    async def run(self, job: dict, limit_s: float, on_progress: Callable[[dict], object]) -> dict:
        said: list[dict] = []
        await asyncio.to_thread(sql_worker.work, job, said.append)
        for each in said[:-1]:
            on_progress(each)
        return said[-1]


def fill(broker) -> None:
    """Orders, and a topic of values that are no JSON."""
    interleaved(broker)
    broker.create_topic("shop.odd", 1)
    odd = [
        (b"\xff", b'{"a": [{"b": 1.5}], "n": 9007199254740993}', [("h", b"1"), ("h", b"2")]),
        (None, b"no json", []),
        (b"k", None, []),
        (b"k", b'{"a": "text", "n": -1}', []),
    ]
    send(broker, "shop.odd", *[(0, START, *each) for each in odd])


async def result(visitor: Visitor, text: str) -> dict:
    answer = await visitor.get(f"/sql.json?q={quote(text)}")
    assert answer.status == 200, answer.text
    return answer.json["result"]
