"""The settings of the listener that speaks the protocol of Kafka's first design (0.7)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from ottla.config.config_def import LOW, ConfigTable, config_key
from ottla.config.config_type import LONG, STRING
from ottla.config.metrics_config import LOOPBACK
from ottla.config.rule import at_least
from ottla.config.whole_number import number_of
from ottla.errors import ConfigError
from ottla.structs import INTERNAL_TOPICS, NamedTuple

ALL_TOPICS: Final = "*"
BESIDE: Final = ".first-design"
"""Behind the name of the first log directory: where the logs are, unless another place is set."""


class Address(NamedTuple):
    """Where a listener listens; port 0 is any free one."""

    host: str
    port: int


class FirstDesignConfig(ConfigTable, group=True):
    """Topics as Kafka 0.7 kept them, beside those of today."""

    first_design_listener: Address | None = config_key(
        default=None,
        type=STRING,
        importance=LOW,
        doc="Where producers and consumers of Kafka 0.7 are served, as 127.0.0.1:9091; :9091 is "
        "this machine alone, 0.0.0.0:9091 every address. That protocol knows neither logins nor "
        "rights nor quotas. Unset: nowhere. Ottla's own.",
    )
    first_design_log_dir: str = config_key(
        default=None,
        importance=LOW,
        doc="The directory of these topics, none of log.dirs. Unset: the first of log.dirs with "
        ".first-design behind its name. Ottla's own.",
    )
    first_design_flush_interval_messages: int = config_key(
        default=500,
        rule=at_least(1),
        importance=LOW,
        doc="After so many messages a log of the first design is forced to disk; a crash loses no "
        "more, and consumers see messages only then (log.flush.interval of 0.7). Ottla's own.",
    )
    first_design_flush_interval_ms: int = config_key(
        default=3000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="Messages of such a log are forced to disk at this age "
        "(log.default.flush.interval.ms of 0.7). Ottla's own.",
    )
    first_design_zookeeper_chroot: str = config_key(
        default="/first_design",
        importance=LOW,
        doc="The node below which /brokers/ids and /brokers/topics of 0.7 are; its clients have it "
        "at the end of zk.connect. The nodes of today have the same names and other contents. "
        "Ottla's own.",
    )

    first_design_copied_topics: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="The topics whose messages are copied into topics of today and followed there, with "
        "commas between, as pages, or as pages:name_of_today; * is all of them. Ottla's own.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        text = values["first_design_listener"]
        values["first_design_listener"] = parse_address(text) if text else None
        log_dirs = [path.rstrip("/") for path in values["log_dirs"]]
        if values["first_design_log_dir"] is None:
            values["first_design_log_dir"] = f"{log_dirs[0]}{BESIDE}"
        path = values["first_design_log_dir"].rstrip("/")
        if path in log_dirs and values["first_design_listener"] is not None:
            raise ConfigError(f"first.design.log.dir={path}: must be none of log.dirs")
        chroot = values["first_design_zookeeper_chroot"]
        if not chroot.startswith("/") or chroot.endswith("/") or "//" in chroot:
            raise ConfigError(
                f"first.design.zookeeper.chroot={chroot}: must be a path such as /first_design"
            )
        parse_copies(values["first_design_copied_topics"])


def parse_address(text: str) -> Address:
    """`127.0.0.1:9091` as host and port; without a host it is this machine alone."""
    host, colon, port = text.rpartition(":")
    if not colon or number_of(port, 0, 65535) is None:
        raise ConfigError(f"first.design.listener={text}: must be host:port")
    return Address(host.strip("[]") or LOOPBACK, int(port))


def parse_copies(settings: Iterable[str]) -> dict[str, str]:
    """The name of today by that of the first design; * stands for each that has no other."""
    found: dict[str, str] = {}
    for setting in settings:
        topic, colon, target = setting.partition(":")
        if not topic or (colon and not target) or (topic == ALL_TOPICS and colon):
            raise ConfigError(
                f"first.design.copied.topics={setting}: must be a topic, topic:name_of_today, or *"
            )
        if (target or topic) in INTERNAL_TOPICS:
            raise ConfigError(
                f"first.design.copied.topics={setting}: the broker alone writes {target or topic}"
            )
        if (target or topic) in found.values():
            raise ConfigError(f"first.design.copied.topics={setting}: two topics become one")
        found[topic] = target or topic
    return found
