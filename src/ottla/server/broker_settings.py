"""The parts of a broker that follow its settings while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.server.membership import BrokerState

if TYPE_CHECKING:
    from ottla.network.broker_tls import BrokerTls
    from ottla.server.broker_listeners import BrokerListeners
    from ottla.server.parts import Parts


class BrokerSettings:
    """Hands changed settings to logs, replicas, listeners, keys and the controller."""

    def __init__(self, parts: Parts, listeners: BrokerListeners, tls: BrokerTls) -> None:
        self.parts = parts
        self.listeners = listeners
        self.tls = tls

    def follow(self) -> None:
        """Subscribe each part to the settings that concern it."""
        dynamic = self.parts.dynamic_config
        dynamic.on_topic_change(self.parts.log_manager.update_topic_config)
        dynamic.on_topic_change(self._on_topic_change)
        dynamic.on_broker_change(self._on_broker_change)
        dynamic.on_broker_change(self._on_default_change)
        dynamic.on_key_store_change(self._on_key_store_change)
        self.parts.controller.update_config(dynamic.broker_config)
        if dynamic.broker_config is not dynamic.static_config:  # overrides from before the start
            self._on_broker_change()
            self.listeners.follow(dynamic.broker_config)  # it is not registered yet
            self.tls.update(dynamic.broker_config, keeps_rules=False)

    def _on_topic_change(self, topic: str) -> None:
        """If the topic now allows unclean leaders, elect them where it has no leader."""
        if self.parts.dynamic_config.allows_unclean_election(topic):
            self._elect_leaders(topic)

    def _on_default_change(self) -> None:
        """The same for all topics without a setting of their own."""
        config = self.parts.dynamic_config.broker_config
        self.parts.controller.update_config(config)
        if config.unclean_leader_election_enable:
            self._elect_leaders("all topics")

    def _elect_leaders(self, of_which: str) -> None:
        if self.parts.controller.is_active:
            elections = self.parts.controller.on_unclean_election_allowed()
            self.parts.runtime.scheduler.spawn(elections, f"elect leaders of {of_which}")

    def _on_broker_change(self) -> None:
        """Logs, replication and connections follow changed settings."""
        config = self.parts.dynamic_config.broker_config
        self.parts.log_manager.update_all_configs(config)
        self.parts.replica_manager.update_config(config)
        # Later: a turn of the processor may be under way, from which no connection can be closed.
        self.parts.runtime.scheduler.call_soon(self._follow_listeners)

    def _follow_listeners(self) -> None:
        is_leaving = self.parts.state >= BrokerState.PENDING_CONTROLLED_SHUTDOWN
        if not is_leaving and self.listeners.follow(self.parts.dynamic_config.broker_config):
            self.parts.runtime.scheduler.spawn(
                self.parts.membership.tell_end_points(), "tell of changed listeners"
            )

    def _on_key_store_change(self) -> None:
        """New connections get the keys in the files now; if those are unusable, the former ones."""
        self.tls.update(self.parts.dynamic_config.broker_config)
