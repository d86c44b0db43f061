"""The predicates that come with Kafka, and the transform that makes sense with one only."""

from __future__ import annotations

from ottla.config.config_def import REQUIRED, ConfigTable, config_key
from ottla.config.java_regex import is_java_pattern, java_pattern
from ottla.config.rule import Rule, not_empty
from ottla.connect.data import ConnectRecord
from ottla.connect.transform import PACKAGE, Predicate, Transform


class TopicNameSettings(ConfigTable):
    """The settings of TopicNameMatches."""

    pattern: str = config_key(
        default=REQUIRED,
        rule=Rule(
            "be a regular expression that is not empty",
            lambda text: bool(text) and is_java_pattern(text),
        ),
        doc="A regular expression for the whole name of the topic.",
    )


class TopicNameMatches(Predicate):
    """Records of topics whose whole name matches a regular expression."""

    Settings = TopicNameSettings
    kafka_class = f"{PACKAGE}.predicates.TopicNameMatches"

    def __init__(self, settings: ConfigTable) -> None:
        super().__init__(settings)
        self._matches = java_pattern(self.settings.pattern).fullmatch

    def test(self, record: ConnectRecord) -> bool:
        return self._matches(record.topic) is not None


class HeaderKeySettings(ConfigTable):
    """The settings of HasHeaderKey."""

    name: str = config_key(default=REQUIRED, rule=not_empty(), doc="The name of the header.")


class HasHeaderKey(Predicate):
    """Records that have a header of a name."""

    Settings = HeaderKeySettings
    kafka_class = f"{PACKAGE}.predicates.HasHeaderKey"

    def test(self, record: ConnectRecord) -> bool:
        return record.header(self.settings.name) is not None


class RecordIsTombstone(Predicate):
    """Records without a value."""

    kafka_class = f"{PACKAGE}.predicates.RecordIsTombstone"

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None


class Filter(Transform):
    """Drops records: all of them, or with a predicate those for which it holds."""

    kafka_class = f"{PACKAGE}.Filter"

    def apply(self, record: ConnectRecord) -> None:
        return None
