"""TLS of a broker: which of its listeners have some, and what has changed of it.

Most brokers have none, and never import the modules that speak to OpenSSL.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.place import found_at
from ottla.errors import ConfigError
from ottla.network.listener_security import LAYERS
from ottla.runtime import Runtime, Timer

if TYPE_CHECKING:
    from ottla.config.ssl_config import ListenerSslSettings
    from ottla.network.tls_context import ListenerTls, StoreReading

logger = logging.getLogger(__name__)

LOOK_MS: Final = 5_000
"""How often a broker looks whether files have changed."""


class BrokerTls:
    """TLS of all listeners of a broker: it follows files by a timer, and settings by `update`."""

    def __init__(self, config: BrokerConfig) -> None:
        self.listeners: dict[str, ListenerTls] = {}
        has_others = config.zookeeper_connect is not None
        brokers = config.inter_broker_listener_name if has_others else ""
        self.listeners.update(self._new_listeners(config, brokers))
        self.of_brokers = self.listeners.get(brokers)
        """What this broker connects to others with; None for plaintext, or if it is alone."""

        self._timer: Timer | None = None
        self._is_looking = False

    def _new_listeners(
        self, config: BrokerConfig, brokers: str = ""
    ) -> Iterator[tuple[str, ListenerTls]]:
        """TLS of the listeners that are not there yet; ConfigError where keys cannot be used."""
        for end_point in config.listeners:
            name = end_point.listener_name
            layers = LAYERS[end_point.security_protocol]
            if name in self.listeners or not layers.tls:
                continue
            try:
                yield (
                    name,
                    found_at(layers.tls)(
                        config.ssl_of(name),
                        f"listener {name}",
                        serves_brokers=name == brokers,
                        has_login=bool(layers.login),
                    ),
                )
            except ConfigError as error:
                raise ConfigError(f"listener {end_point}: {error.message}") from None

    def start(self, runtime: Runtime) -> None:
        """Look for changed files, and for certificates that are about to expire."""
        if self.listeners and self._timer is None:
            self._look(runtime)
            self._timer = runtime.scheduler.call_every(LOOK_MS, lambda: self._look(runtime))

    def follow_listeners(self, config: BrokerConfig) -> None:
        """Have TLS for listeners that were added, and no longer for those that were removed."""
        added = dict(self._new_listeners(config))
        names = {each.listener_name for each in config.listeners}
        for name in self.listeners.keys() - names:
            del self.listeners[name]
        self.listeners.update(added)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self, config: BrokerConfig) -> None:
        """ConfigError for settings of key stores that cannot take the place of those in use.

        The files of another listener, which may wait for something else, are no reason; but they
        are where no setting is changed: then all files have to be read again.
        """
        names = {each.listener_name for each in config.listeners}
        found = {name: config.ssl_of(name) for name in self.listeners if name in names}
        changed = {
            name: settings
            for name, settings in found.items()
            if not settings.equals(self.listeners[name].settings)
        }
        for name, settings in (changed or found).items():
            self.listeners[name].try_settings(settings)
        for _ in self._new_listeners(config):
            pass  # it is only whether they can be made

    def update(self, config: BrokerConfig, keeps_rules: bool = True) -> None:
        """Follow changed settings, and read files again whose settings were made again.

        The rules on changes do not hold for settings from before the start.
        """
        names = {each.listener_name for each in config.listeners}
        for name, listener in self.listeners.items():
            if name not in names:  # it is about to be removed
                continue
            listener.follow(config.ssl_of(name), keeps_rules)

    def _look(self, runtime: Runtime) -> None:
        for listener in self.listeners.values():
            listener.warn_of_expiry(runtime.clock.now_ms())
        if not self._is_looking:
            self._is_looking = True
            runtime.background.submit(self._read_changed, self._take, self._fail)

    def _read_changed(self) -> list[tuple[ListenerTls, StoreReading[ListenerSslSettings] | None]]:
        return [(listener, listener.read_changed()) for listener in self.listeners.values()]

    def _take(
        self, readings: list[tuple[ListenerTls, StoreReading[ListenerSslSettings] | None]]
    ) -> None:
        self._is_looking = False
        for listener, reading in readings:
            if reading is not None:
                listener.take(reading)

    def _fail(self, error: BaseException) -> None:
        self._is_looking = False
        logger.error("certificates could not be looked at", exc_info=error)
