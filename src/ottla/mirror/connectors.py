"""The flows of a mirror as connectors, under the names of Kafka's: source, checkpoint, heartbeat.

They share the parts of `ottla mirror`: a `Keeper`, with only that switched on which the connector
is for, and for the source a `SourceTask`. These write to the target themselves and keep their own
offsets there, so that whole batches pass as they are, whatever the worker's converters are; a
worker's transforms see nothing of them, and are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from ottla.config.config_def import ConfigTable
from ottla.config.mirror_config import MirrorConfig, MirrorConnectorConfig
from ottla.connect.connector import Place, SourceConnector
from ottla.connect.data import SourceRecord
from ottla.errors import ConfigError
from ottla.mirror.flow import CLIENTS, Flow, MirrorCluster, MirrorPlan, check_flow
from ottla.mirror.mirror import FlowRunner, FlowTask, Keeper
from ottla.runtime.io_thread import Event

PACKAGE: Final = "org.apache.kafka.connect.mirror."
IDLE_BETWEEN_TURNS_S: Final = 0.2
SOURCE_PREFIX, TARGET_PREFIX = "source.cluster.", "target.cluster."


def cluster_of(alias: str, prefix: str, properties: Mapping[str, str]) -> MirrorCluster:
    """A cluster by the settings of its clients: `source.cluster.bootstrap.servers` and its like."""
    own = {k[len(prefix) :]: v for k, v in properties.items() if k.startswith(prefix)}
    clients = {
        kind: table.known_of(own)
        | {k[len(kind) + 1 :]: v for k, v in own.items() if k.startswith(f"{kind}.")}
        for kind, table in CLIENTS.items()
    }
    return MirrorCluster(alias, clients)


def flow_of(properties: Mapping[str, str], **switches: bool) -> Flow:
    """The flow of a connector's properties, with only that switched on which it is for."""
    settings = MirrorConnectorConfig.parse(MirrorConnectorConfig.known_of(properties))
    known = MirrorConfig.known_of(properties)
    config = MirrorConfig.parse(known).replace(tasks_max=1, **switches)  # a worker deals tasks
    flow = Flow(
        cluster_of(settings.source_cluster_alias, SOURCE_PREFIX, properties),
        cluster_of(settings.target_cluster_alias, TARGET_PREFIX, properties),
        config,
    )
    check_flow(flow)
    return flow


class MirrorConnector(SourceConnector):
    """What the three have in common: one task, with a keeper that does what is due."""

    Settings: ClassVar[type[ConfigTable]] = MirrorConnectorConfig
    no_preview: ClassVar[str] = "it writes to its target itself; see ottla mirror --plan"
    switches: ClassVar[Mapping[str, bool]]
    """What of the flow's settings is on and off, whatever the properties say."""

    _keeper: Keeper | None = None

    @classmethod
    def validate(cls, settings: ConfigTable) -> Mapping[str, str]:
        source = settings.text_of("source.cluster.alias")
        if source == settings.text_of("target.cluster.alias"):
            return {"target.cluster.alias": f"{source}: must be another cluster than the source"}
        return {}

    def start(self) -> None:
        """Open the clients; ConfigError where both clusters are the same one."""
        if self.context.properties.get("transforms"):
            raise ConfigError("transforms: a mirror copies batches as they are, and has none")
        self.flow = flow_of(self.context.properties, **self.switches)
        self.plan = MirrorPlan({}, [self.flow])
        self.open()

    def open(self) -> None:
        """Open the clients."""
        self._keeper = Keeper(self.flow, self.plan, self.context.beans)
        self._keeper.open()

    def poll(self) -> list[SourceRecord]:
        """Do what is due; the records are at the target already.

        After an error all begins again with other clients, from what is written at the target.
        """
        try:
            if self._keeper is None:
                self.open()
            self.turn()
        except BaseException:
            self.close()
            raise
        return []

    def turn(self) -> None:
        """Do what is due."""
        assert self._keeper is not None, "open"
        self._keeper.turn()
        self.context.wait(IDLE_BETWEEN_TURNS_S)

    @classmethod
    def alter_offsets(
        cls, settings: ConfigTable, offsets: Sequence[tuple[Place, Place | None]]
    ) -> bool:
        """Refuse: nobody would read them."""
        if offsets:
            alias = settings.text_of("source.cluster.alias")
            topic = f"mm2-offsets.{alias}.internal"
            raise ConfigError(f"the offsets of a mirror are in the topic {topic} at its target")
        return False

    def close(self) -> None:
        """Close the clients."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.close()

    def stop(self) -> None:
        self.close()


class MirrorHeartbeatConnector(MirrorConnector):
    """Writes a heartbeat of the flow to the target every so often."""

    kafka_class = f"{PACKAGE}MirrorHeartbeatConnector"
    switches: ClassVar[Mapping[str, bool]] = {"enabled": False, "emit_heartbeats_enabled": True}


class MirrorCheckpointConnector(MirrorConnector):
    """Translates the offsets of the source's groups."""

    kafka_class = f"{PACKAGE}MirrorCheckpointConnector"
    switches: ClassVar[Mapping[str, bool]] = {"enabled": True, "emit_heartbeats_enabled": False}


class MirrorSourceConnector(MirrorConnector):
    """Copies the topics of the source, with settings and ACLs."""

    kafka_class = f"{PACKAGE}MirrorSourceConnector"
    switches: ClassVar[Mapping[str, bool]] = {
        "enabled": True,
        "emit_heartbeats_enabled": False,
        "emit_checkpoints_enabled": False,
    }

    _copier: FlowTask | None = None

    def open(self) -> None:
        super().open()
        self._runner = FlowRunner(self.flow, self.plan, self.context.beans, Event())
        self._copier = FlowTask(self._runner, 0)

    def turn(self) -> None:
        assert self._keeper is not None, "open"
        assert self._copier is not None, "open"
        topics = self._keeper.turn()
        if topics is not None:
            self._runner.on_topics(topics)
            self._runner.on_circles(self._keeper.circles)
        if not self._copier.turn():
            self.context.wait(IDLE_BETWEEN_TURNS_S)

    def close(self) -> None:
        copier, self._copier = self._copier, None
        try:
            if copier is not None:
                copier.close(0)
        finally:
            super().close()

    def stop(self) -> None:
        try:
            if self._copier is not None:
                self._copier.finish()
        finally:
            self.close()
