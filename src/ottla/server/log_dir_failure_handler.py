"""A failure of one of the broker's log directories, at start or later, and its consequences.

The directory's partitions go offline, the controller is informed, and the others stay in service.
Where a log could not be made on a full disk, the controller is asked for its orders again.
The broker stops when none is left, and when the embedded registry was in the directory, as a
broker of Kafka stops that has lost its metadata log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.controller.controller import Controller
from ottla.errors import ConfigError
from ottla.log.log_dir import LogDir
from ottla.log.log_manager import LogManager
from ottla.replication.replica_manager import ReplicaManager
from ottla.runtime import Runtime

logger = logging.getLogger(__name__)

LOG_RETRY_MS: Final = 5_000


class LogDirFailureHandler:
    """Is called by the logs about failed directories, in the middle of their operations.

    Nothing is done before the loop's next callback, when no append or read is under way.
    `on_fatal` is called once when the broker cannot continue; `is_fatal` says so from then on.
    """

    def __init__(self, runtime: Runtime, config: BrokerConfig) -> None:
        self._runtime = runtime
        self._paths = config.log_dirs
        self._has_registry = config.zookeeper_connect is None
        self._failed: list[LogDir] = []
        self._replica_manager: ReplicaManager | None = None
        self._controller: Controller | None = None
        self.on_fatal: Callable[[], object] = lambda: None
        self.is_fatal = False

    def check_registry_dir(self, log_manager: LogManager) -> None:
        """ConfigError if the registry would have to be in a directory that cannot be used."""
        first = log_manager.dirs[0]
        if self._has_registry and first.is_offline:
            raise ConfigError(
                f"log.dirs={first.path}: the first of them keeps the registry, and it cannot be "
                "used: repair it; the others alone do not know the topics"
            )

    def on_failure(self, log_dir: LogDir) -> None:
        """A directory has failed; it is offline already."""
        self._failed.append(log_dir)
        self._runtime.scheduler.call_soon(partial(self._handle, log_dir))

    def serve(self, replica_manager: ReplicaManager, controller: Controller) -> None:
        """Handle failures from now on: the partitions and the controller are there."""
        self._replica_manager = replica_manager
        self._controller = controller
        for log_dir in self._failed:
            self._handle(log_dir)
        self._runtime.scheduler.call_every(LOG_RETRY_MS, self._ask_for_orders)

    def _ask_for_orders(self) -> None:
        """Have the controller send its orders again where logs could not be made.

        No directory has failed, so that the disk has no room, or had none.
        """
        assert self._replica_manager is not None
        logs, offline = self._replica_manager.log_manager, self._replica_manager.offline_partitions
        if not self.is_fatal and any(not logs.may_be_on_disk(each) for each in offline):
            self._tell_controller("of logs that could not be made")

    def _tell_controller(self, what: str) -> None:
        """Have the controller send LeaderAndIsr: its answer says which logs are offline."""
        assert self._controller is not None
        assert self._replica_manager is not None
        event = self._controller.on_log_dir_event(self._replica_manager.broker_id)
        self._runtime.scheduler.spawn(event, f"tell the controller {what}")

    def _handle(self, log_dir: LogDir) -> None:
        if self._replica_manager is None or self._controller is None or self.is_fatal:
            return  # before the broker serves: offline from the first request on
        offline = self._replica_manager.on_log_dir_failure(log_dir)
        reason = self._why_fatal()
        if reason is not None:
            self.is_fatal = True
            logger.critical("The broker stops: %s", reason)
            self.on_fatal()
        elif offline:
            names = ", ".join(map(str, offline))
            logger.error("%s is offline, and with it %s", log_dir.path, names)
            self._tell_controller(f"of {log_dir.path}")

    def _why_fatal(self) -> str | None:
        if len(self._failed) == len(self._paths):
            return f"every log directory has failed: {', '.join(self._paths)}"
        first = self._paths[0].rstrip("/") or "/"
        if self._has_registry and any(log_dir.path == first for log_dir in self._failed):
            return f"the registry was in the log directory {first}, which has failed"
        return None
