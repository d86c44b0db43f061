"""Each default that differs from Kafka 2.3's has a reason in docs/concepts/compatibility.md.

`kafka_2_3_defaults.txt` has a line for each setting of Kafka 2.3: scope, name, default.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import ConsumerConfig, ProducerConfig
from ottla.config.topic_config import TopicConfig

TABLES = {
    "broker": BrokerConfig,
    "topic": TopicConfig,
    "producer": ProducerConfig,
    "consumer": ConsumerConfig,
}
PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "compatibility.md"
KAFKA = [
    line.split(" ", 2)
    for line in Path(__file__)
    .with_name("kafka_2_3_defaults.txt")
    .read_text(encoding="utf-8")
    .splitlines()
]


def default_of(scope: str, name: str) -> str:
    """Ottla's default as the page writes it."""
    row = TABLES[scope].keys[name]
    if row.default is None:
        return "(unset)"
    return row.format(row.default) or "(empty)"


def rows_of_the_page() -> dict[tuple[str, str], tuple[str, str]]:
    """Scope and name, with Kafka's default and Ottla's, of each row that gives a reason."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("## Defaults that differ")
    rows = re.findall(
        r"^\| (\w+) \| `([\w.]+)` \| (\S+) \| (\S+) \| .{10,} \|$", section, re.MULTILINE
    )
    return {(scope, name): (kafka, ottla) for scope, name, kafka, ottla in rows}


def test_defaults_that_differ_are_listed_with_the_reason():
    """No other default differs, and none that is listed is Kafka's after all."""
    differing = {
        (scope, name): (kafka, default_of(scope, name))
        for scope, name, kafka in KAFKA
        if name in TABLES[scope].keys and default_of(scope, name) != kafka
    }

    assert differing == rows_of_the_page()


@pytest.mark.parametrize("scope", TABLES)
def test_most_settings_of_kafka_are_compared(scope):
    """The comparison is one: in each scope more than twenty of Kafka's settings have a row here."""
    compared = [name for kafka_scope, name, _ in KAFKA if kafka_scope == scope]

    assert len([name for name in compared if name in TABLES[scope].keys]) > 20
