"""`ottla.aio.Admin`: the API of the administrative client for the coroutines of one event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ottla.clients.admin.admin_calls import AdminCalls
from ottla.clients.admin.admin_client import AdminClient
from ottla.clients.aio.loop_client import LoopClient
from ottla.clients.client_settings import Servers, merge_settings
from ottla.config.client_config import AdminConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.runtime import Runtime


class Admin(AdminCalls, LoopClient):
    """Reads and changes a cluster's topics, settings, groups, offsets and transactions.

        async with ottla.aio.Admin("localhost:9092") as admin:
            await admin.create_topics([NewTopic("pages", num_partitions=3)])

    Its calls are those of `ottla.Admin`, as coroutines; several may be under way. A change whose
    call is cancelled may have been made.
    """

    title: ClassVar[str] = "admin client"
    _core: AdminClient

    def __init__(
        self,
        bootstrap_servers: Servers = None,
        settings: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> None:
        LoopClient.__init__(self)
        AdminCalls.__init__(self, self._opened)
        self._config = AdminConfig.parse(merge_settings(bootstrap_servers, settings, keywords))

    async def close(self) -> None:
        """Close the connections. Closing twice does nothing."""
        await self._close(None)

    def _open(self, runtime: Runtime) -> None:
        self._core = AdminClient(runtime, self._config)

    def _opened(self) -> AdminClient:
        self._here()
        return self._core

    async def _finish(self, timeout_ms: int | None) -> None:
        self._core.close()
