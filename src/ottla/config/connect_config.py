"""The settings of Connect's workers, and those that every connector has.

A worker's file holds settings for others as well: `producer.`, `consumer.` and `admin.` before
those of the clients of connectors, `key.converter.` and its like before those of converters. They
are not rows here, but the worker hands them on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final

from ottla.config.client_config import ClientConfig
from ottla.config.config_def import HIGH, LOW, MEDIUM, REQUIRED, ConfigTable, Importance, config_key
from ottla.config.config_type import LONG, SHORT, Password
from ottla.config.java_regex import java_pattern
from ottla.config.known_keys import ADMIN_UNUSED
from ottla.config.rule import Rule, at_least, between, not_empty, one_of
from ottla.config.ssl_config import ClientAuthConfig
from ottla.errors import ConfigError

SIMPLE_HEADER_CONVERTER: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
HANDED_ON: Final = (
    "producer.",
    "consumer.",
    "admin.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "internal.key.converter",
    "internal.value.converter",
    "config.providers",
)
SPARK_CONF: Final = "OTTLA_SPARK_CONF"
"""The variable of the environment by which a sink hands settings of Spark on, a line for each."""


class WorkerConfig(ClientConfig, ClientAuthConfig, group=True):
    """The settings that a standalone worker and one of a group both have."""

    handed_on: ClassVar[tuple[str, ...]] = HANDED_ON
    unused: ClassVar[Mapping[str, str]] = ADMIN_UNUSED | {
        "plugin.discovery": "plug-ins are found by entry points, names and files",
        "rest.extension.classes": "extensions of Java cannot be run",
    }

    bootstrap_servers: tuple[str, ...] = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="Some brokers of the cluster, as host:port with commas between.",
    )
    key_converter: str = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc="What makes bytes of keys, and reads them: Kafka's name of a converter or one of ours. "
        "Its own settings follow after `key.converter.`.",
    )
    value_converter: str = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc="The same for values; its own settings follow after `value.converter.`.",
    )
    header_converter: str = config_key(
        default=SIMPLE_HEADER_CONVERTER,
        importance=LOW,
        doc="The same for headers; its own settings follow after `header.converter.`.",
    )
    offset_flush_interval_ms: int = config_key(
        default=60000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="How often tasks store their offsets.",
    )
    offset_flush_timeout_ms: int = config_key(
        default=5000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="How long storing offsets may take before it is given up until the next time.",
    )
    task_shutdown_graceful_timeout_ms: int = config_key(
        default=5000,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="How long all tasks together have to stop; then their clients are closed under them.",
    )
    plugin_call_warn_ms: int = config_key(
        default=30_000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="A call of a connector that has not returned for so long is told in the log and in the "
        "status of the connector or task, with the place in its code. The setting is Ottla's own.",
    )
    listeners: tuple[str, ...] = config_key(
        default=("http://127.0.0.1:8083",),
        rule=not_empty(),
        importance=LOW,
        doc="Where the REST API listens: http://host:port or https://host:port, commas between. "
        "Without a host (`http://:8083`, Kafka's default) it is every interface of the machine: "
        "who reaches it can run code on the worker.",
    )
    rest_advertised_host_name: str | None = config_key(
        default=None,
        importance=LOW,
        doc="The host under which other workers reach this one.",
    )
    rest_advertised_port: int | None = config_key(
        default=None,
        importance=LOW,
        doc="The port under which other workers reach this one.",
    )
    rest_advertised_listener: str | None = config_key(
        default=None,
        rule=one_of("http", "https"),
        importance=LOW,
        doc="Which listener other workers are to use; the first one if it is not set.",
    )
    admin_listeners: tuple[str, ...] | None = config_key(
        default=None,
        importance=LOW,
        doc="Where `/admin/loggers` is served; by default on `listeners`. Left empty it is off.",
    )
    access_control_allow_origin: str = config_key(
        default="",
        importance=LOW,
        doc="The pages that may ask from a browser: origins with commas between, `*` in one for "
        "any text. Left empty none may.",
    )
    access_control_allow_methods: str = config_key(
        default="",
        importance=LOW,
        doc="With which methods they may; GET, POST and HEAD if it is left empty.",
    )
    rest_basic_auth_username: str | None = config_key(
        default=None,
        doc="With it the REST API asks for this user and rest.basic.auth.password. The setting is "
        "Ottla's own.",
    )
    rest_basic_auth_password: Password | None = config_key(
        default=None,
        doc="The password of rest.basic.auth.username.",
    )
    plugin_path: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Folders with connectors in files ending in .py, which may be imported from as well.",
    )
    connector_client_config_override_policy: str = config_key(
        default="All",
        rule=one_of("All", "None", "Principal"),
        importance=LOW,
        doc="Which settings of their clients connectors may change by `producer.override.` and its "
        "like: All, None, or Principal, those that say who they are.",
    )
    topic_tracking_enable: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether the topics that a connector has used are remembered (KIP-558).",
    )
    topic_tracking_allow_reset: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether what is remembered may be forgotten by request.",
    )
    topic_creation_enable: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether the `topic.creation.` settings of sources create topics (KIP-158).",
    )
    exactly_once_source_support: str = config_key(
        default="disabled",
        rule=one_of("disabled"),
        importance=HIGH,
        doc="Exactly-once sources need a group of workers; this worker has none.",
    )

    @classmethod
    def pass_over(cls, name: str, value: Any) -> None:
        """Settings that the worker hands on are no rows here."""
        if not name.startswith(cls.handed_on):
            super().pass_over(name, value)

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        for key in ("listeners", "admin_listeners"):
            for listener in values[key] or ():
                parse_listener(listener, key.replace("_", "."))
        user, password = values["rest_basic_auth_username"], values["rest_basic_auth_password"]
        if (user is None) != (password is None):
            raise ConfigError(
                "rest.basic.auth.username and rest.basic.auth.password: must be set together"
            )


_LISTENER: Final = re.compile(r"(https?)://(\[[0-9a-fA-F:]+\]|[^:/\[\]]*):(\d+)/?")


def parse_listener(text: str, key: str = "listeners") -> tuple[str, str, int]:
    """Scheme, host (empty: every interface) and port of a listener of the REST API."""
    found = _LISTENER.fullmatch(text.strip())
    if found is None or int(found[3]) > 65535:
        raise ConfigError(f"{key}={text}: must be http://host:port or https://host:port")
    return found[1], found[2].strip("[]"), int(found[3])


class StandaloneConfig(WorkerConfig):
    """A worker of its own, `connect-standalone`: its offsets are in a file."""

    offset_storage_file_filename: str = config_key(
        default=REQUIRED,
        importance=HIGH,
        doc="The file that keeps the offsets of sources over restarts.",
    )


def _topic_keys(what: str) -> str:
    return (
        f"Other settings that begin like this one are those of the topic with {what}, when it is "
        "created; it is compacted."
    )


def _partitions(default: int) -> Any:
    return config_key(
        default=default,
        rule=at_least(-1),
        importance=LOW,
        doc="With how many partitions it is created; -1 is the broker's default.",
    )


def _replicas() -> Any:
    return config_key(
        default=3,
        type=SHORT,
        rule=between(-1, 32767),
        importance=LOW,
        doc="With how many replicas it is created; -1 is the broker's default.",
    )


class DistributedConfig(WorkerConfig):
    """A worker of a group, `connect-distributed`: its memory is in three topics."""

    handed_on: ClassVar[tuple[str, ...]] = (
        *HANDED_ON,
        "config.storage.",
        "offset.storage.",
        "status.storage.",
    )

    group_id: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The group of workers; no consumer may have a group of this name.",
    )
    config_storage_topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic with connectors and their tasks, of one partition. "
        + _topic_keys("connectors"),
    )
    config_storage_replication_factor: int = _replicas()
    offset_storage_topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic with the offsets of sources. " + _topic_keys("offsets"),
    )
    offset_storage_partitions: int = _partitions(25)
    offset_storage_replication_factor: int = _replicas()
    status_storage_topic: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="The topic with what connectors and tasks do. " + _topic_keys("statuses"),
    )
    status_storage_partitions: int = _partitions(5)
    status_storage_replication_factor: int = _replicas()
    session_timeout_ms: int = config_key(
        default=10000,
        rule=at_least(1),
        importance=HIGH,
        doc="A worker that is not heard of for so long is taken to be gone.",
    )
    heartbeat_interval_ms: int = config_key(
        default=3000,
        rule=at_least(1),
        importance=HIGH,
        doc="How often a worker says that it is there.",
    )
    rebalance_timeout_ms: int = config_key(
        default=60000,
        rule=at_least(1),
        importance=HIGH,
        doc="How long workers have to join again when the group changes.",
    )
    exactly_once_source_support: str = config_key(
        default="disabled",
        rule=one_of("disabled", "preparing", "enabled"),
        importance=HIGH,
        doc="`enabled` has sources write records and offsets in transactions, and fences what "
        "tasks of before may still write (KIP-618). A group that runs is first restarted, worker "
        "by worker, with `preparing`, then with `enabled`.",
    )
    connect_protocol: str = config_key(
        default="sessioned",
        rule=one_of("eager", "compatible", "sessioned"),
        importance=LOW,
        doc="How work moves when the group changes: eager gives all of it up, compatible moves "
        "only what must move (KIP-415), and sessioned also has workers sign what they ask of "
        "each other (KIP-507). The group takes the best that all of its workers have.",
    )
    scheduled_rebalance_max_delay_ms: int = config_key(
        default=300000,
        rule=at_least(0),
        importance=LOW,
        doc="How long the work of a worker that has gone waits for it to come back.",
    )
    inter_worker_key_generation_algorithm: str = config_key(
        default="HmacSHA256",
        rule=one_of("HmacSHA1", "HmacSHA256", "HmacSHA384", "HmacSHA512"),
        importance=LOW,
        doc="With what requests between workers are signed.",
    )
    inter_worker_key_ttl_ms: int = config_key(
        default=3600000,
        rule=at_least(0),
        importance=LOW,
        doc="After how long the leader makes another key.",
    )
    inter_worker_verification_algorithms: tuple[str, ...] = config_key(
        default=("HmacSHA256",),
        rule=not_empty(),
        importance=LOW,
        doc="Which algorithms a signature may have.",
    )

    @property
    def is_exactly_once(self) -> bool:
        """Whether sources write in transactions."""
        return self.exactly_once_source_support == "enabled"

    @property
    def has_transactional_leader(self) -> bool:
        """Whether the leader writes the config topic in transactions, so that it can be fenced."""
        return self.exactly_once_source_support != "disabled"

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if values["heartbeat_interval_ms"] >= values["session_timeout_ms"]:
            raise ConfigError(
                f"heartbeat.interval.ms={values['heartbeat_interval_ms']}: must be less than "
                f"session.timeout.ms, {values['session_timeout_ms']}"
            )
        topics = [values[f"{kind}_storage_topic"] for kind in ("config", "offset", "status")]
        if len(set(topics)) < len(topics):
            raise ConfigError(
                "config.storage.topic, offset.storage.topic, status.storage.topic: must be three "
                f"topics, not {', '.join(topics)}"
            )


NAME_BYTES: Final = 2000
"""A name has to fit into a line of HTTP, of 8190 bytes, with each of its bytes as %XX."""


def _name_of_connector() -> Rule:
    return Rule(
        "have no control characters, nothing that UTF-8 cannot hold, not be empty, and have at "
        f"most {NAME_BYTES} bytes",
        lambda value: (
            bool(value.strip())
            and not re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", value)
            and len(value.encode()) <= NAME_BYTES
        ),
    )


def _version_of(part: str, importance: Importance = MEDIUM) -> Any:
    return config_key(
        default=None,
        importance=importance,
        doc=f"The version of the {part} that is installed; of each package there is one.",
    )


class ConnectorConfig(ConfigTable, group=True):
    """The settings of every connector, beside its own."""

    name: str = config_key(
        default=REQUIRED,
        rule=_name_of_connector(),
        importance=HIGH,
        doc="The connector's name, under which its offsets are stored.",
    )
    connector_class: str = config_key(
        default=REQUIRED,
        rule=not_empty(),
        importance=HIGH,
        doc="What it does: Kafka's name of a connector, an entry point, package.module.Class or a "
        "file ending in .py.",
    )
    connector_plugin_version: str | None = _version_of("connector")
    tasks_max: int = config_key(
        default=1,
        rule=at_least(1),
        importance=HIGH,
        doc="Into how many tasks its work may be split.",
    )
    tasks_max_enforce: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether a connector that splits its work into more tasks fails (KIP-1004).",
    )
    key_converter: str | None = config_key(
        default=None, importance=LOW, doc="In the place of the worker's."
    )
    key_converter_plugin_version: str | None = _version_of("converter", LOW)
    value_converter: str | None = config_key(
        default=None, importance=LOW, doc="In the place of the worker's."
    )
    value_converter_plugin_version: str | None = _version_of("converter", LOW)
    header_converter: str | None = config_key(
        default=None, importance=LOW, doc="In the place of the worker's."
    )
    header_converter_plugin_version: str | None = _version_of("converter", LOW)
    transforms: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Names of transforms, in the order in which records pass them; what each is follows "
        "after `transforms.<name>.`.",
    )
    predicates: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Names of predicates, which say for which records a transform is asked.",
    )
    config_action_reload: str = config_key(
        default="restart",
        rule=one_of("none", "restart"),
        importance=LOW,
        doc="What to do when a value of a config provider changes. Providers are asked when a "
        "connector or a task starts, and do not say that a value has changed.",
    )
    errors_retry_timeout: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(-1),
        doc="For how many ms what failed and may succeed later is tried again; -1 without end.",
    )
    errors_retry_delay_max_ms: int = config_key(
        default=60000,
        type=LONG,
        rule=at_least(0),
        doc="The longest pause between two attempts; they begin with 300 ms and double.",
    )
    errors_tolerance: str = config_key(
        default="none",
        rule=one_of("none", "all"),
        doc="`all` leaves out records that cannot be read, converted, transformed or written; with "
        "`none` the task fails at the first one, and says which it is.",
    )
    errors_log_enable: bool = config_key(
        default=False,
        doc="Whether each failed operation is logged.",
    )
    errors_log_include_messages: bool = config_key(
        default=False,
        doc="Whether the log says which record it was.",
    )

    @classmethod
    def refuse_misspelt(cls, name: str, value: Any, prefix: str = "") -> None:
        """The connector's own settings are in another table."""

    @classmethod
    def warn_of_unknown(cls, name: str) -> None:
        """The connector's own settings are in another table."""


class SourceConnectorConfig(ConnectorConfig):
    """The settings of every source."""

    topic_creation_groups: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Groups of topics that are created with settings of their own (KIP-158); what they are "
        "follows after `topic.creation.<group>.`. The group `default` is always there.",
    )
    exactly_once_support: str = config_key(
        default="requested",
        rule=one_of("requested", "required"),
        doc="`required` refuses the connector where it would not be exactly once (KIP-618).",
    )
    transaction_boundary: str = config_key(
        default="poll",
        rule=one_of("poll", "interval", "connector"),
        doc="Where transactions of an exactly-once source end: with each batch that it returns "
        "(poll), at intervals, or where it says so (connector).",
    )
    transaction_boundary_interval_ms: int | None = config_key(
        default=None,
        type=LONG,
        rule=at_least(0),
        importance=LOW,
        doc="With transaction.boundary=interval how long a transaction is; by default as long as "
        "the worker's offset.flush.interval.ms.",
    )
    offsets_storage_topic: str | None = config_key(
        default=None,
        rule=not_empty(),
        importance=LOW,
        doc="A topic for the offsets of this source; they are copied to the worker's. By default "
        "the worker's alone. For groups of workers.",
    )


class SinkConnectorConfig(ConnectorConfig):
    """The settings of every sink."""

    topics: tuple[str, ...] = config_key(default=(), importance=HIGH, doc="The topics to read.")
    topics_regex: str = config_key(
        default="",
        importance=HIGH,
        doc="In the place of `topics`: every topic whose whole name it matches.",
    )
    errors_deadletterqueue_topic_name: str = config_key(
        default="",
        doc="The topic for records that failed, as their bytes were; with errors.tolerance=all.",
    )
    errors_deadletterqueue_topic_replication_factor: int = config_key(
        default=3,
        type=SHORT,
        rule=between(-1, 32767),
        doc="The replication factor with which that topic is created; -1 is the broker's.",
    )
    errors_deadletterqueue_context_headers_enable: bool = config_key(
        default=False,
        doc="Whether records there have headers that say where they are from and what failed.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        topics, pattern = values["topics"], values["topics_regex"]
        if bool(topics) == bool(pattern):
            raise ConfigError("topics, topics.regex: exactly one of them must be set")
        try:
            compiled = java_pattern(pattern)
        except re.error as error:
            raise ConfigError(
                f"topics.regex={pattern}: must be a regular expression: {error}"
            ) from None
        queue = values["errors_deadletterqueue_topic_name"]
        if queue and (queue in topics or (pattern and compiled.fullmatch(queue))):
            raise ConfigError(
                f"errors.deadletterqueue.topic.name={queue}: must not be a topic that the sink "
                "reads, or what fails would come back without end"
            )
