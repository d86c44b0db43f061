"""`python -m ottla.config [file]` writes docs/configuration.md from the tables of settings."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.config_def import REQUIRED, ConfigKey, ConfigTable, Importance
from ottla.config.config_type import DOUBLE_MAX, INT_MAX, LONG_MAX
from ottla.config.connect_config import (
    DistributedConfig,
    SinkConnectorConfig,
    SourceConnectorConfig,
    StandaloneConfig,
)
from ottla.config.legacy_config import LegacyProducerConfig, ZooKeeperConsumerConfig
from ottla.config.mirror_config import MirrorConfig, MirrorFileConfig
from ottla.config.topic_config import TopicConfig

INTRODUCTION: Final = """\
# Configuration

The settings that Ottla acts on, with Kafka's names and meanings. This page is made from the tables
in `src/ottla/config` (`python -m ottla.config`).

A broker reads a properties file (`ottla broker --config server.properties`), and
`--override key=value` wins over it. Clients take keywords with underscores
(`Producer("localhost:9092", linger_ms=5)`) or a dict with Kafka's keys. A value that breaks its
rule is an error that names key, value and rule.

A key that Kafka has and Ottla does not use is accepted with a warning that says why
([without effect](#without-effect)), and so is one that is unknown; of topics, unknown keys are
refused. Two kinds of keys stop the start: a misspelt one (`zookeeper.conect`: did you mean
`zookeeper.connect`?), and one that asks for what would not be done, see
[security.md](security.md); with Kafka's default it passes. The same holds for topic settings
without effect (`preallocate`, `remote.*`, `local.retention.*`). A file for KRaft
(`process.roles`, `node.id`, `controller.quorum.voters`) is refused: set `broker.id` in its place.

Which settings of a broker can be changed while it runs is in
[compatibility.md](compatibility.md#settings-of-a-broker-that-runs).
"""

SECTIONS: Final[tuple[tuple[str, str, type[ConfigTable]], ...]] = (
    ("Broker", "Settings of the properties file of a broker.", BrokerConfig),
    (
        "Topic",
        "Overrides of single topics. Unset, a topic takes the broker's setting that is named with "
        "it, and that one can be changed while the broker runs.",
        TopicConfig,
    ),
    ("Producer", "Settings of `ottla.Producer`.", ProducerConfig),
    ("Consumer", "Settings of `ottla.Consumer`.", ConsumerConfig),
    ("Admin", "Settings of `ottla.Admin`.", AdminConfig),
    (
        "File of a mirror",
        "Settings of `ottla mirror` that mm2.properties has once, beside those of its flows and "
        "of the clusters' clients.",
        MirrorFileConfig,
    ),
    (
        "Mirror",
        "Settings of the flows of `ottla mirror`, in mm2.properties: for all flows, or with "
        "`source->target.` before them for one.",
        MirrorConfig,
    ),
    (
        "Standalone worker of Connect",
        "Settings of `ottla connect-standalone`. Those of its clients follow after `producer.`, "
        "`consumer.` and `admin.`, those of converters after `key.converter.` and the like.",
        StandaloneConfig,
    ),
    (
        "Worker of a group of Connect",
        "Settings of `ottla connect-distributed`.",
        DistributedConfig,
    ),
    (
        "Source of Connect",
        "What every source connector has, beside its own.",
        SourceConnectorConfig,
    ),
    ("Sink of Connect", "What every sink connector has, beside its own.", SinkConnectorConfig),
    (
        "Consumer of the 0.7 design",
        "Settings of `ottla.clients.legacy.ConsumerConnector`. The names that 0.8 has for them "
        "(`group.id`, `zookeeper.connect`, `auto.commit.enable`, ...) are taken as well.",
        ZooKeeperConsumerConfig,
    ),
    (
        "Producer of the 0.7 design",
        "Settings of `ottla.clients.legacy.Producer`.",
        LegacyProducerConfig,
    ),
)

LIMITS: Final[dict[Any, str]] = {
    INT_MAX: "2147483647 (largest int)",
    LONG_MAX: "9223372036854775807 (largest long)",
    DOUBLE_MAX: "largest double",
}

IMPORTANCES: Final = list(Importance)


def configuration_page() -> str:
    """The whole page in Markdown."""
    parts = [INTRODUCTION]
    parts += [_section(title, text, table) for title, text, table in SECTIONS]
    parts.append(_without_effect())
    return "\n".join(parts)


def _without_effect() -> str:
    """The settings that are passed over: a row for each reason and the tables that give it."""
    names: dict[tuple[str, str], list[str]] = {}
    for title, _, table in SECTIONS:
        for name, reason in sorted(table.unused.items()):
            names.setdefault((title, reason), []).append(name)
    rows = (f"| {title} | {_codes(found)} | {reason} |" for (title, reason), found in names.items())
    head = "| of | settings | why |\n|---|---|---|"
    return f"## Without effect\n\nAccepted with a warning.\n\n{head}\n" + "\n".join(rows) + "\n"


def _section(title: str, text: str, table: type[ConfigTable]) -> str:
    rows = sorted(
        table.keys.values(), key=lambda row: (IMPORTANCES.index(row.importance), row.name)
    )
    entries = "\n".join(_entry(row) for row in rows)
    return f"## {title}\n\n{text}\n\n{entries}"


def _entry(row: ConfigKey) -> str:
    facts = [
        f"type {row.type.name.lower()}",
        "required" if row.default is REQUIRED else f"default {_default(row)}",
    ]
    if row.rule is not None:
        facts.append(f"must {row.rule.text}")
    facts.append(f"importance {row.importance.value}")
    if row.broker_keys:
        facts.append(f"default from the broker's {_codes(row.broker_keys)}")
    return f"### `{row.name}`\n\n{row.doc}\n\n*{'; '.join(facts)}*\n"


def _default(row: ConfigKey) -> str:
    text = LIMITS.get(row.default) if isinstance(row.default, int) else None
    if text is None:
        text = row.format(row.default)
    if text is None:
        return "unset"
    return f"`{text}`" if text else "empty"


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else Path("docs/configuration.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(configuration_page(), encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1:])
