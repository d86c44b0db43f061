"""`python -m ottla.config [folder]` writes docs/operate/configuration from the tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
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
from ottla.structs import NamedTuple

FOLDER: Final = Path("docs/operate/configuration")
INDEX: Final = "README"
INTRODUCTION: Final = """\
# Configuration

The settings that Ottla acts on, with Kafka's names and meanings. These pages are made from the
tables in `src/ottla/config` (`python -m ottla.config`).

{pages}

A broker reads a properties file (`ottla broker --config server.properties`), and
`--override key=value` wins over it. Clients take keywords with underscores
(`Producer("localhost:9092", linger_ms=5)`) or a dict with Kafka's keys. A value that breaks its
rule is an error that names key, value and rule.

A key that Kafka has and Ottla does not use is accepted with a warning that says why
([without effect](#without-effect)), and so is one that is unknown; of topics, unknown keys are
refused. Two kinds of keys stop the start: a misspelt one (`zookeeper.conect`: did you mean
`zookeeper.connect`?), and one that asks for what would not be done, see
[security.md](../security.md); with Kafka's default it passes. The same holds for topic settings
without effect (`preallocate`, `remote.*`, `local.retention.*`). A file for KRaft
(`process.roles`, `node.id`, `controller.quorum.voters`) is refused: set `broker.id` in its place.

Which settings of a broker can be changed while it runs is in
[compatibility.md](../../concepts/compatibility.md#settings-of-a-broker-that-runs).
"""


class SettingsOf(NamedTuple):
    """The settings of one table."""

    title: str
    text: str
    table: type[ConfigTable]


PAGES: Final[Mapping[str, tuple[SettingsOf, ...]]] = {
    "broker": (SettingsOf("Broker", "Settings of the properties file of a broker.", BrokerConfig),),
    "topic": (
        SettingsOf(
            "Topic",
            "Overrides of single topics. Unset, a topic takes the broker's setting that is named "
            "with it, and that one can be changed while the broker runs.",
            TopicConfig,
        ),
    ),
    "clients": (
        SettingsOf("Producer", "Settings of `ottla.Producer`.", ProducerConfig),
        SettingsOf("Consumer", "Settings of `ottla.Consumer`.", ConsumerConfig),
        SettingsOf("Admin", "Settings of `ottla.Admin`.", AdminConfig),
    ),
    "connect": (
        SettingsOf(
            "Standalone worker of Connect",
            "Settings of `ottla connect-standalone`. Those of its clients follow after "
            "`producer.`, `consumer.` and `admin.`, those of converters after `key.converter.` and "
            "the like.",
            StandaloneConfig,
        ),
        SettingsOf(
            "Worker of a group of Connect",
            "Settings of `ottla connect-distributed`.",
            DistributedConfig,
        ),
        SettingsOf(
            "Source of Connect",
            "What every source connector has, beside its own.",
            SourceConnectorConfig,
        ),
        SettingsOf(
            "Sink of Connect",
            "What every sink connector has, beside its own.",
            SinkConnectorConfig,
        ),
    ),
    "mirror": (
        SettingsOf(
            "File of a mirror",
            "Settings of `ottla mirror` that mm2.properties has once, beside those of its flows "
            "and of the clusters' clients.",
            MirrorFileConfig,
        ),
        SettingsOf(
            "Mirror",
            "Settings of the flows of `ottla mirror`, in mm2.properties: for all flows, or with "
            "`source->target.` before them for one.",
            MirrorConfig,
        ),
    ),
    "legacy": (
        SettingsOf(
            "Consumer of the 0.7 design",
            "Settings of `ottla.clients.legacy.ConsumerConnector`. The names that 0.8 has for them "
            "(`group.id`, `zookeeper.connect`, `auto.commit.enable`, ...) are taken as well.",
            ZooKeeperConsumerConfig,
        ),
        SettingsOf(
            "Producer of the 0.7 design",
            "Settings of `ottla.clients.legacy.Producer`.",
            LegacyProducerConfig,
        ),
    ),
}
"""The pages by the names of their files."""

SECTIONS: Final = tuple(section for sections in PAGES.values() for section in sections)

LIMITS: Final[dict[Any, str]] = {
    INT_MAX: "2147483647 (largest int)",
    LONG_MAX: "9223372036854775807 (largest long)",
    DOUBLE_MAX: "largest double",
}

IMPORTANCES: Final = list(Importance)


def configuration_pages() -> dict[str, str]:
    """The pages in Markdown, by name; the index has the settings without effect."""
    pages = {
        name: f"# Configuration: {_titles(sections)}\n\n" + "\n".join(map(_section, sections))
        for name, sections in PAGES.items()
    }
    rows = "\n".join(f"- [{name}.md]({name}.md): {_titles(of)}" for name, of in PAGES.items())
    return {INDEX: INTRODUCTION.format(pages=rows) + "\n" + _without_effect(), **pages}


def _titles(sections: Iterable[SettingsOf]) -> str:
    return ", ".join(section.title for section in sections)


def _without_effect() -> str:
    """The settings that are passed over: a row for each reason and the tables that give it."""
    names: dict[tuple[str, str], list[str]] = {}
    for title, _, table in SECTIONS:
        for name, reason in sorted(table.unused.items()):
            names.setdefault((title, reason), []).append(name)
    rows = (f"| {title} | {_codes(found)} | {reason} |" for (title, reason), found in names.items())
    head = "| of | settings | why |\n|---|---|---|"
    return f"## Without effect\n\nAccepted with a warning.\n\n{head}\n" + "\n".join(rows) + "\n"


def _section(section: SettingsOf) -> str:
    rows = sorted(
        section.table.keys.values(), key=lambda row: (IMPORTANCES.index(row.importance), row.name)
    )
    entries = "\n".join(_entry(row) for row in rows)
    return f"## {section.title}\n\n{section.text}\n\n{entries}"


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
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in configuration_pages().items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    print(f"wrote {folder}")


if __name__ == "__main__":
    main(sys.argv[1:])
