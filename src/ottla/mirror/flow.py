"""mm2.properties: clusters, the flows between them, and the settings of each flow and client.

clusters = lisbon, porto
lisbon.bootstrap.servers = ...            a client's setting, for all clients of the cluster
lisbon.producer.acks = all                the same for one kind of client
lisbon->porto.enabled = true              a flow's setting, which wins over
topics = pages, clicks                    that of all flows
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.config_def import ConfigTable
from ottla.config.metrics_config import MetricsEndPoint
from ottla.config.mirror_config import SOURCE, MirrorConfig, MirrorFileConfig
from ottla.errors import ConfigError
from ottla.mirror.name_filter import NameFilter, is_mirrored_topic
from ottla.mirror.replication_policy import ReplicationPolicy, policy_named

MBEANS: Final = "kafka.connect.mirror"
"""The domain of a mirror's metrics."""

LARGEST_REQUEST: Final = 16 << 20
"""The largest request of a mirror, and so the largest record that it copies."""
CLUSTERS: Final = "clusters"
ARROW: Final = "->"
ALIAS: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
CLIENTS: Final[Mapping[str, type[ConfigTable]]] = {
    "admin": AdminConfig,
    "consumer": ConsumerConfig,
    "producer": ProducerConfig,
}
PLUGIN_PREFIX: Final = "config.providers"


class MirrorCluster(NamedTuple):
    """A cluster by its alias, and the settings of the mirror's clients there, by their kind."""

    alias: str
    clients: Mapping[str, dict[str, str]]

    def settings(self, kind: str, **own: Any) -> dict[str, Any]:
        """The settings of an admin, consumer or producer; the mirror's own win."""
        return {
            "client.id": f"mirror-{self.alias}",
            **self.clients[kind],
            **{name.replace("_", "."): value for name, value in own.items()},
        }


class Flow(NamedTuple):
    """One direction between two clusters; `config.enabled` says whether it copies."""

    source: MirrorCluster
    target: MirrorCluster
    config: MirrorConfig

    @property
    def name(self) -> str:
        return f"{self.source.alias}{ARROW}{self.target.alias}"

    @property
    def tags(self) -> tuple[tuple[str, str], ...]:
        """What the names of all its MBeans begin with, as in Kafka 4."""
        return ("source", self.source.alias), ("target", self.target.alias)

    @property
    def group_id(self) -> str:
        """The name that Kafka's mirror has for the workers of this flow."""
        return f"{self.source.alias}-mm2"

    @property
    def policy(self) -> ReplicationPolicy:
        return policy_named(
            self.config.replication_policy_class,
            self.config.replication_policy_separator,
            self.config.replication_policy_internal_topic_separator_enabled,
            self.source.alias,
        )

    @property
    def offsets_topic(self) -> str:
        """Where the target keeps how far each partition was copied."""
        return f"mm2-offsets.{self.source.alias}.internal"

    @property
    def sync_cluster(self) -> MirrorCluster:
        """The cluster that keeps the offset syncs."""
        return self.source if self.config.offset_syncs_topic_location == SOURCE else self.target

    @property
    def syncs_topic(self) -> str:
        other = self.target if self.sync_cluster is self.source else self.source
        return self.policy.offset_syncs_topic(other.alias)

    @property
    def checkpoints_topic(self) -> str:
        return self.policy.checkpoints_topic(self.source.alias)

    @property
    def is_exactly_once(self) -> bool:
        return self.config.exactly_once_source_support == "enabled"

    @property
    def keeps_codec(self) -> bool:
        """Whether batches stay in their codec: unless the target's producer is given one."""
        return "compression.type" not in self.target.clients["producer"]

    def topic_filter(self) -> NameFilter:
        return NameFilter("topics", self.config.topics, self.config.topics_exclude)

    def group_filter(self) -> NameFilter:
        return NameFilter("groups", self.config.groups, self.config.groups_exclude)

    def config_filter(self) -> NameFilter:
        excluded = self.config.config_properties_exclude
        return NameFilter("config.properties", [".*"], excluded)

    def wanted_topics(self, topics: Iterable[str]) -> list[str]:
        """Those of the source's topics that are copied."""
        policy, wanted = self.policy, self.topic_filter()
        ends = (self.source.alias, self.target.alias)
        copies_heartbeats = self.config.heartbeats_replication_enabled
        return sorted(
            topic
            for topic in topics
            if is_mirrored_topic(topic, policy, wanted, ends)
            and (copies_heartbeats or not policy.is_heartbeats_topic(topic))
        )

    def named_circles(self, topics: Iterable[str]) -> list[str]:
        """Topics that the patterns take and that are left out, as Kafka's mirror does.

        Their names say that they have been at one of the flow's ends: `prod.orders` at `prod`.
        """
        policy, wanted = self.policy, self.topic_filter()
        ends = (self.source.alias, self.target.alias)
        return sorted(
            topic
            for topic in topics
            if wanted.takes(topic)
            and policy.is_cycle(topic, ends)
            and not (policy.is_internal_topic(topic) or policy.is_heartbeats_topic(topic))
        )

    def remote(self, topic: str) -> str:
        """What a topic of the source is called at the target."""
        return self.policy.format_remote_topic(self.source.alias, topic)


class MirrorPlan(NamedTuple):
    """All that mm2.properties says: every flow that is enabled or has heartbeats."""

    clusters: Mapping[str, MirrorCluster]
    flows: Sequence[Flow]
    metrics_listener: MetricsEndPoint | None = None
    """Where the metrics of the flows are served."""
    elsewhere: Sequence[Flow] = ()
    """Flows of the file that other processes run: topics go round by these as well."""

    def enabled(self) -> list[Flow]:
        return [flow for flow in self.flows if flow.config.enabled]

    def ways(self) -> list[Flow]:
        """The flows that copy, in whichever process."""
        return [flow for flow in (*self.flows, *self.elsewhere) if flow.config.enabled]

    def into(self, aliases: Sequence[str]) -> MirrorPlan:
        """Only the flows into these clusters, as `--clusters` asks for."""
        unknown = [alias for alias in aliases if alias not in self.clusters]
        if unknown:
            raise ConfigError(f"clusters={', '.join(self.clusters)}: has no {', '.join(unknown)}")
        wanted = [flow for flow in self.flows if flow.target.alias in aliases]
        others = [flow for flow in self.flows if flow.target.alias not in aliases]
        return self._replace(flows=wanted, elsewhere=others)

    def flow(self, name: str) -> Flow:
        """The flow `source->target`; ConfigError with the names that there are."""
        found = next((flow for flow in self.flows if flow.name == name), None)
        if found is None:
            names = ", ".join(flow.name for flow in self.flows)
            raise ConfigError(f"{name}: there is no such flow; there are {names}")
        return found


def parse_plan(properties: Mapping[str, str]) -> MirrorPlan:
    """The clusters and flows of a properties file; ConfigError says what is wrong with it."""
    aliases = [alias.strip() for alias in properties.get(CLUSTERS, "").split(",") if alias.strip()]
    if len(aliases) < 2 or len(set(aliases)) < len(aliases):
        text = properties.get(CLUSTERS, "")
        raise ConfigError(f"{CLUSTERS}={text}: must name two clusters or more, each once")
    for alias in aliases:
        if not ALIAS.fullmatch(alias):
            raise ConfigError(f"{CLUSTERS}={alias}: must be letters, digits and ._-")
    clusters = {alias: parse_cluster(alias, properties) for alias in aliases}
    pairs = [(a, b) for a in aliases for b in aliases if a != b]
    _check_flows(properties, pairs)
    once = MirrorFileConfig.known_of(properties)
    shared = {k: v for k, v in properties.items() if not _is_of_one(k, aliases) and k not in once}
    flows = []
    for source, target in pairs:
        prefix = f"{source}{ARROW}{target}."
        own = dict(_with_prefix(properties, prefix))
        flow = parse_flow(clusters[source], clusters[target], {**shared, **own})
        if flow.config.enabled or flow.config.emit_heartbeats_enabled:
            flows.append(flow)
    return MirrorPlan(clusters, flows, MirrorFileConfig.parse(once).metrics_listener)


def parse_cluster(alias: str, properties: Mapping[str, str]) -> MirrorCluster:
    """The clients' settings of a cluster: those of all clusters, of this one, of this kind."""
    own = dict(_with_prefix(properties, f"{alias}."))
    clients = {}
    for kind, table in CLIENTS.items():
        settings = table.known_of(properties)
        settings |= table.known_of(own)
        settings |= dict(_with_prefix(properties, f"{kind}."))
        settings |= dict(_with_prefix(own, f"{kind}."))
        clients[kind] = settings
    if not own.get("bootstrap.servers"):
        raise ConfigError(f"{alias}.bootstrap.servers: must be set")
    known = {name for table in CLIENTS.values() for name in table.keys}
    for name in own:
        is_client = name.split(".")[0] in CLIENTS
        if not is_client and name not in known:
            AdminConfig.refuse_misspelt(name, own[name], f"{alias}.")
    return MirrorCluster(alias, clients)


def parse_flow(source: MirrorCluster, target: MirrorCluster, settings: Mapping[str, str]) -> Flow:
    """A flow with its settings; those of clients and of the Connect worker are passed over."""
    renamed = {MirrorConfig.renamed.get(name, name): value for name, value in settings.items()}
    known = MirrorConfig.known_names()
    client_keys = {name for table in CLIENTS.values() for name in table.keys}
    for name in renamed.keys() - known - client_keys:
        if name.split(".")[0] not in CLIENTS and not name.startswith(PLUGIN_PREFIX):
            MirrorConfig.refuse_misspelt(name, renamed[name])
    mine = {name: value for name, value in renamed.items() if name in known}
    consumer = source.clients["consumer"] | dict(_with_prefix(settings, "consumer."))
    clients = {**source.clients, "consumer": consumer}
    flow = Flow(source._replace(clients=clients), target, MirrorConfig.parse(mine))
    check_flow(flow)
    return flow


def check_flow(flow: Flow) -> None:
    """ConfigError where settings do not go together."""
    flow.topic_filter(), flow.group_filter(), flow.config_filter(), flow.policy  # each may raise
    level = flow.source.clients["consumer"].get("isolation.level", "read_uncommitted")
    if flow.is_exactly_once and level != "read_committed":
        raise ConfigError(
            f"{flow.name}: exactly.once.source.support=enabled: must have "
            f"consumer.isolation.level=read_committed, not {level}"
        )


def _check_flows(properties: Mapping[str, str], pairs: Sequence[tuple[str, str]]) -> None:
    """Flows between clusters that there are not, and from a cluster into itself."""
    names = {f"{a}{ARROW}{b}" for a, b in pairs}
    for key in properties:
        if ARROW not in key:
            continue
        if not any(key.startswith(f"{name}.") for name in names):
            flow = key.partition(ARROW)[0] + ARROW + key.partition(ARROW)[2].split(".")[0]
            raise ConfigError(f"{key}: {flow} is not a flow between two of the clusters")


def _with_prefix(properties: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    for key, value in properties.items():
        if key.startswith(prefix):
            yield key[len(prefix) :], value


def _is_of_one(key: str, aliases: Sequence[str]) -> bool:
    return ARROW in key or any(key.startswith(f"{alias}.") for alias in aliases)
