"""The work of a flow on the topics of its target: it makes them, adds partitions, settings, ACLs.

`changes` compares both clusters and touches nothing: `--plan` prints its result, and `apply` makes
it so. Partition counts only grow, and a topic that is gone from the source stays at the target.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.clients.admin.admin import Admin
from ottla.clients.admin.admin_client import BulkError
from ottla.clients.admin.descriptions import (
    AlterConfigOp,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    TopicDescription,
)
from ottla.config.mirror_config import SOURCE
from ottla.connect.tolerance import FOR_LETTERS
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.mirror.flow import Flow, MirrorCluster, MirrorPlan
from ottla.mirror.replication_policy import IdentityReplicationPolicy
from ottla.protocol.configs import ConfigOperation
from ottla.security.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from ottla.structs import ConfigSource

logger = logging.getLogger(__name__)

COMPACT: Final = {"cleanup.policy": "compact"}
SETTLED: Final = (ErrorCode.TOPIC_ALREADY_EXISTS,)
NO_ACLS: Final = (ErrorCode.SECURITY_DISABLED, ErrorCode.UNSUPPORTED_VERSION)


class MissingParts(NamedTuple):
    """The parts missing at the target, by the target's names."""

    create: Sequence[NewTopic] = ()
    grow: Mapping[str, int] = {}
    settings: Mapping[ConfigResource, Sequence[AlterConfigOp]] = {}
    acls: Sequence[AclBinding] = ()

    def lines(self) -> list[str]:
        """One for each change, for a person."""
        found = [
            f"create topic {new.name} with {new.num_partitions} partitions" for new in self.create
        ]
        found += [f"raise topic {name} to {count} partitions" for name, count in self.grow.items()]
        for resource, changes in self.settings.items():
            for each in changes:
                is_set = each.op == ConfigOperation.SET
                found.append(
                    f"set {each.name}={each.value} of {resource}"
                    if is_set
                    else f"take {each.name} away from {resource}"
                )
        found += [f"add ACL {acl}" for acl in self.acls]
        return found


class MirroredTopics(NamedTuple):
    """The topics of a flow: those of the source, and their copies by the target's names."""

    sources: Mapping[str, TopicDescription]
    targets: Mapping[str, TopicDescription]


class TopicSync:
    """The topics of one flow; asks both clusters, by admin clients that it does not own."""

    def __init__(self, flow: Flow, source: Admin, target: Admin) -> None:
        self.flow = flow
        self.source = source
        self.target = target
        self.notices: list[str] = []
        """Notices for the operator, each once: settings of which a small cluster has less."""

    def check_clusters(self) -> None:
        """ConfigError if both aliases stand for one cluster: it would copy to itself endlessly."""
        ids = [admin.describe_cluster().cluster_id for admin in (self.source, self.target)]
        if ids[0] is not None and ids[0] == ids[1]:
            raise ConfigError(
                f"{self.flow.name}: {self.flow.source.alias} and {self.flow.target.alias} are the "
                f"same cluster, {ids[0]}: a flow must lead to another one"
            )

    def topics(self, refused: Iterable[str] = ()) -> MirroredTopics:
        """The present state of both ends."""
        listed = set(self.flow.wanted_topics(self.source.list_topics())) - set(refused)
        sources = self.source.describe_topics(sorted(listed)) if listed else {}
        names = {self.flow.remote(name) for name in sources} & self.target.list_topics()
        targets = self.target.describe_topics(sorted(names)) if names else {}
        return MirroredTopics(sources, targets)

    def changes(
        self, topics: MirroredTopics, *, configs: bool = True, acls: bool = True
    ) -> MissingParts:
        """The changes by which the target has them all."""
        config = self.flow.config
        create, grow = [], {}
        copies = self._copies(self.target, "replication.factor")
        wanted = self._wanted_settings(topics.sources) if topics.sources else {}
        for name, description in sorted(topics.sources.items()):
            remote, count = self.flow.remote(name), len(description.partitions)
            there = topics.targets.get(remote)
            if there is None and name in wanted:
                settings = {k: e.value for k, e in wanted[name].items() if e.value is not None}
                create.append(NewTopic(remote, count, copies, configs=settings))
            elif there is not None and len(there.partitions) < count:
                grow[remote] = count
        settings_changes = {}
        if configs and config.sync_topic_configs_enabled:
            settings_changes = self._settings_changes(topics, wanted)
        missing: Sequence[AclBinding] = ()
        if acls and config.sync_topic_acls_enabled:
            missing = self._missing_acls(topics.sources)
        return MissingParts(create, grow, settings_changes, missing)

    def apply(self, changes: MissingParts) -> None:
        """Do it; a change that another mirror made first is no error.

        One that the target refuses is a notice, and holds up no other topic, as in Kafka's mirror.
        """
        for line in changes.lines():
            logger.info("%s: %s", self.flow.name, line)
        for new in changes.create:
            with self.noted("a topic is not created, and so not copied"):
                create_topic(self.target, new)
        if changes.grow:
            with self.noted("partitions are not added"):
                self.target.create_partitions(changes.grow)
        if changes.settings:
            with self.noted("settings are not copied"):
                self.target.incremental_alter_configs(changes.settings)
        if changes.acls:
            with self.noted("ACLs are not copied"):
                self.target.create_acls(changes.acls)

    @contextmanager
    def noted(self, outcome: str) -> Iterator[None]:
        """Around a call whose refusals become notices."""
        try:
            yield
        except KafkaError as error:
            self._note_refusals(outcome, error)

    def _note_refusals(self, outcome: str, error: KafkaError) -> None:
        """Make notices of an error, or raise it if only time mends it."""
        found = error.results if isinstance(error, BulkError) else {"": error}
        refused = {k: each for k, each in found.items() if isinstance(each, KafkaError)}
        if any(each.retriable for each in refused.values()):
            raise error
        for key, each in refused.items():
            self._note(f"{outcome}: {key}: {each}" if key else f"{outcome}: {each}")

    def _note(self, text: str) -> None:
        if text not in self.notices:
            logger.warning("%s: %s", self.flow.name, text)
            self.notices.append(text)

    def create_internal_topics(self, syncs: Admin) -> None:
        """The topics that a flow itself writes to; `syncs` is the cluster with the offset syncs."""
        flow, config = self.flow, self.flow.config
        if config.enabled:
            key = "offset.storage.replication.factor"
            self._create(self.target, flow.offsets_topic, key, COMPACT, 25)
            if config.emit_offset_syncs_enabled:
                key = "offset-syncs.topic.replication.factor"
                self._create(syncs, flow.syncs_topic, key, COMPACT)
            letters = config.errors_deadletterqueue_topic_name
            if letters:
                key = "errors.deadletterqueue.topic.replication.factor"
                self._create(self.target, letters, key, FOR_LETTERS)
            if config.emit_checkpoints_enabled:
                key = "checkpoints.topic.replication.factor"
                self._create(self.target, flow.checkpoints_topic, key, COMPACT)
        if config.emit_heartbeats_enabled:
            key = "heartbeats.topic.replication.factor"
            self._create(self.target, flow.policy.heartbeats_topic(), key, COMPACT)

    def _create(
        self,
        admin: Admin,
        topic: str,
        key: str,
        configs: Mapping[str, str],
        partitions: int = 1,
    ) -> None:
        """Create one with the replicas that a setting says; an error names the setting."""
        if topic in admin.list_topics():
            return
        try:
            create_topic(
                admin, NewTopic(topic, partitions, self._copies(admin, key), configs=configs)
            )
        except KafkaError as error:
            if error.error is not ErrorCode.INVALID_REPLICATION_FACTOR:
                raise
            raise KafkaError(error.error, f"{key}: {error.message}") from error

    def _copies(self, admin: Admin, key: str) -> int:
        """How many replicas a setting says; a default is no more than there are brokers."""
        config = self.flow.config
        wanted: int = getattr(config, type(config).keys[key].attribute)
        if config.is_given(key):
            return wanted
        brokers = len(admin.describe_cluster().nodes)
        if brokers >= wanted:
            return wanted
        alias = (self.flow.source if admin is self.source else self.flow.target).alias
        logger.info("%s: %s=%d, and %s has %d brokers", self.flow.name, key, wanted, alias, brokers)
        copies = "one copy" if brokers == 1 else f"{brokers} copies"
        self._note(f"topics get {copies} at {alias}, which has no more brokers")
        return brokers

    # Settings

    def _wanted_settings(
        self, sources: Mapping[str, TopicDescription]
    ) -> dict[str, dict[str, ConfigEntry]]:
        """The settings that the copy of each topic is to have of its own."""
        wanted = self.flow.config_filter()
        with_defaults = self.flow.config.use_defaults_from == SOURCE
        described = self._describe(self.source, "its copy stays as it is", sources)
        return {
            resource.name: {
                name: entry
                for name, entry in entries.items()
                if wanted.takes(name)
                and not (entry.is_sensitive or entry.is_read_only)
                and (is_own(entry) or (with_defaults and entry.is_default))
            }
            for resource, entries in described.items()
        }

    def _describe(
        self, admin: Admin, outcome: str, topics: Iterable[str]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The settings of topics, but of those that the mirror may not look at."""
        try:
            return admin.describe_configs([ConfigResource.topic(name) for name in topics])
        except BulkError as error:
            self._note_refusals(outcome, error)
            return {k: each for k, each in error.results.items() if isinstance(each, dict)}

    def _settings_changes(
        self, topics: MirroredTopics, wanted: Mapping[str, Mapping[str, ConfigEntry]]
    ) -> dict[ConfigResource, Sequence[AlterConfigOp]]:
        copies = {self.flow.remote(name): name for name in topics.sources}
        there = [name for name in copies if name in topics.targets and copies[name] in wanted]
        if not there:
            return {}
        described = self._describe(self.target, "settings are not copied", there)
        takes = self.flow.config_filter().takes
        found: dict[ConfigResource, Sequence[AlterConfigOp]] = {}
        for resource, entries in described.items():
            mine = wanted[copies[resource.name]]
            own = {name: e for name, e in entries.items() if is_own(e) and takes(name)}
            changes = [
                AlterConfigOp(name, entry.value)
                for name, entry in sorted(mine.items())
                if name not in entries or entries[name].value != entry.value
            ]
            changes += [
                AlterConfigOp(name, None, ConfigOperation.DELETE)
                for name in sorted(own.keys() - mine)
            ]
            if changes:
                found[resource] = changes
        return found

    # ACLs

    def _missing_acls(self, sources: Mapping[str, TopicDescription]) -> list[AclBinding]:
        """The ACLs of the copies that are not there; none where a cluster has no authorizer."""
        theirs, ours = list[AclBinding](), set[AclBinding]()
        with self.noted("ACLs are not copied"):
            try:
                ours = set(self.target.describe_acls())
                theirs = self.source.describe_acls()
            except KafkaError as error:
                if error.error not in NO_ACLS:
                    raise
        wanted = {
            mirrored_acl(acl, self.flow.remote(acl.pattern.name))
            for acl in theirs
            if acl.pattern.name in sources and is_mirrored_acl(acl)
        }
        return sorted(wanted - ours)


def is_own(entry: ConfigEntry) -> bool:
    """Whether a topic has the setting itself, not from a broker."""
    return entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG


def is_mirrored_acl(acl: AclBinding) -> bool:
    """ACLs of single topics, but for rights to write: only the mirror writes to a copy."""
    return (
        acl.pattern.type is ResourceType.TOPIC
        and acl.pattern.pattern_type is PatternType.LITERAL
        and acl.entry.operation is not AclOperation.WRITE
    )


def mirrored_acl(acl: AclBinding, topic: str) -> AclBinding:
    """The same for the copy; a right to all includes to read."""
    entry = acl.entry
    if entry.operation is AclOperation.ALL and entry.permission is AclPermissionType.ALLOW:
        entry = entry._replace(operation=AclOperation.READ)
    return AclBinding(acl.pattern._replace(name=topic), entry)


def create_topic(admin: Admin, topic: NewTopic) -> None:
    """Create a topic unless it is there."""
    try:
        admin.create_topics([topic])
    except KafkaError as error:
        if error.error not in SETTLED:
            raise


def circle_of(topic: str, flow: Flow, plan: MirrorPlan) -> list[str] | None:
    """The clusters that a topic would go round by flows that do not rename it; None if it ends."""
    if not isinstance(flow.policy, IdentityReplicationPolicy):
        return None
    ways: list[list[MirrorCluster]] = [[flow.source, flow.target]]
    while ways:
        way = ways.pop()
        for each in plan.ways():
            if each.source.alias != way[-1].alias or not _keeps(each, topic):
                continue
            if each.target.alias == flow.source.alias:
                return [cluster.alias for cluster in (*way, each.target)]
            if each.target.alias not in {cluster.alias for cluster in way}:
                ways.append([*way, each.target])
    return None


def _keeps(flow: Flow, topic: str) -> bool:
    is_same = isinstance(flow.policy, IdentityReplicationPolicy)
    return is_same and bool(flow.wanted_topics([topic])) and flow.remote(topic) == topic


def refused_topics(flow: Flow, plan: MirrorPlan, topics: Iterable[str]) -> dict[str, str]:
    """The topics that would go in a circle, each with the way."""
    found = {}
    for topic in flow.wanted_topics(topics):
        circle = circle_of(topic, flow, plan)
        if circle is not None:
            found[topic] = " -> ".join(circle)
    return found
