"""The listeners of a broker as its registration names them, and a change of their addresses."""

from __future__ import annotations

import logging

from ottla.config.broker_config import BrokerConfig
from ottla.network.broker_tls import BrokerTls
from ottla.network.listener_security import BrokerLogins
from ottla.network.processor import Processor
from ottla.network.socket_config import SocketConfig, connection_limits
from ottla.runtime import Runtime
from ottla.runtime.host_name import canonical_host_name
from ottla.structs import EndPoint, replace

logger = logging.getLogger(__name__)


class BrokerListeners:
    """The listeners of a broker, which can come and go while it runs, and the addresses it
    advertises.

    Invariant: a listener keeps its address and its security protocol as long as it is there.
    """

    def __init__(
        self,
        runtime: Runtime,
        processor: Processor,
        network: SocketConfig,
        tls: BrokerTls,
        logins: BrokerLogins,
    ) -> None:
        self.end_points: list[EndPoint] = []
        """What is advertised, with real hosts and ports; the same list all the time."""
        self._runtime, self._processor = runtime, processor
        self._network, self._tls, self._logins = network, tls, logins
        self._ports: dict[str, int] = {}

    def open(self, config: BrokerConfig) -> None:
        """Open the listeners; OSError where an address cannot be had."""
        for each in config.listeners:
            self._open(each)
        self._advertise(config)

    def follow(self, config: BrokerConfig) -> bool:
        """Follow changed settings; returns whether an advertised address has changed."""
        before = list(self.end_points)
        self._network = replace(self._network, **connection_limits(config))
        wanted = {each.listener_name: each for each in config.listeners}
        removed = self._ports.keys() - wanted.keys()
        added = wanted.keys() - self._ports.keys()
        if removed or added:
            for layer in (self._tls, self._logins):
                layer.follow_listeners(config)
                layer.start(self._runtime)
        self._processor.update_config(self._network)
        for name in removed:
            del self._ports[name]
            self._processor.stop_listening(name)
            for each in self._processor.connections:
                if each.listener_name == name:
                    each.close("its listener was removed")
            logger.info("listener %s was removed, and its connections closed", name)
        for name in added:
            try:
                self._open(wanted[name])
            except OSError as error:
                logger.error("listener %s cannot be opened: %s", wanted[name], error.strerror)
            else:
                logger.info("listener %s was added", wanted[name])
        self._advertise(config)
        return self.end_points != before

    def _open(self, end_point: EndPoint) -> None:
        name = end_point.listener_name
        self._ports[name] = self._processor.listen(name, end_point.host, end_point.port).port

    def _advertise(self, config: BrokerConfig) -> None:
        """Real ports in place of 0, and the name of this machine in place of none."""
        self.end_points[:] = [
            each._replace(
                host=each.host or canonical_host_name(),
                port=each.port or self._ports[each.listener_name],
            )
            for each in config.advertised_listeners
            if each.listener_name in self._ports
        ]
