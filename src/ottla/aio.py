"""The clients of Ottla for asyncio: on the program's own event loop, without threads of their own.

    async with Consumer("localhost:9092", group_id="report", topics=["pages"]) as consumer:
        async for record in consumer:
            ...

They are the clients that `ottla` has, with the same settings; calls that may wait are coroutines.
"""

from ottla.clients.aio.admin import Admin
from ottla.clients.aio.consumer import AsyncRebalanceListener, Consumer
from ottla.clients.aio.producer import Producer

__all__ = ["Admin", "AsyncRebalanceListener", "Consumer", "Producer"]
