"""Tables of settings: a typed class body in, a frozen object and its documentation out.

    class BrokerConfig(ConfigTable):
        log_segment_bytes: int = config_key(default=1 << 30, rule=at_least(14), doc="...")

The key of an attribute is its name with dots: `log_segment_bytes` is Kafka's `log.segment.bytes`.
Its type is that of the annotation, where a row does not give another one.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, ClassVar, Final, Self, TypeVar, dataclass_transform

from ottla.config.config_type import PASSWORD, ConfigType, type_of_annotation
from ottla.config.known_keys import Refusal, refuse, refused_names, shown, similar_name
from ottla.config.rule import Rule
from ottla.errors import ConfigError
from ottla.structs import Value

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Importance(Enum):
    """How likely it is that a person has to think about the setting to set up a system."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW


REQUIRED: Final = object()
"""The default of a setting that has none: it must be set."""


class ConfigKey(Value):
    """One row of a table. `attribute`, and `type` and `name` if not given, are from the class body.

    `broker_keys`, for topic settings, are the broker's settings that give the default: the first
    one carries the value, all of them are reported as synonyms. `keeps_all` is the value of a limit
    with which it deletes no record.
    """

    default: Any
    type: ConfigType
    rule: Rule | None
    importance: Importance
    doc: str
    broker_keys: tuple[str, ...]
    keeps_all: Any
    attribute: str = ""
    name: str = ""

    def parse(self, value: Any) -> Any:
        """The typed value of a text or a Python value, or ConfigError."""
        if value is None:
            if self.default is None:
                return None
            raise ConfigError(f"{self.name}=None: must have a value")
        parsed = self.type.parse(self.name, value)
        if self.rule is not None and not self.rule.holds(parsed):
            raise ConfigError(f"{self.name}={value}: must {self.rule.text}")
        return parsed

    def format(self, value: Any) -> str | None:
        return self.type.format(value)


def config_key(
    *,
    default: Any,
    doc: str,
    type: Any = None,
    rule: Rule | None = None,
    importance: Importance = MEDIUM,
    broker_keys: tuple[str, ...] = (),
    keeps_all: Any = None,
    name: str = "",
) -> Any:
    """Declare one setting in the body of a ConfigTable.

    `type` is for a ConfigType that the annotation does not say, as LONG for an int; `name` for a
    name of Kafka's with a dash.
    """
    return ConfigKey(default, type, rule, importance, doc, broker_keys, keeps_all, name=name)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(config_key,))
class ConfigTableType(type):
    """Turns the rows of a class body into slots and collects them, inherited ones first.

    A class made with `group=True` is a part of a larger table: it has rows but no slots, so that
    several of them can be put together by inheritance.
    """

    keys: dict[str, ConfigKey]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], group: bool = False
    ) -> ConfigTableType:
        own = {name: row for name, row in namespace.items() if isinstance(row, ConfigKey)}
        for attribute, row in own.items():
            del namespace[attribute]
            row.attribute = attribute
            row.name = row.name or attribute.replace("_", ".")
        keys: dict[str, ConfigKey] = {}
        for base in reversed(bases):
            keys |= getattr(base, "keys", {})
        keys |= {row.name: row for row in own.values()}
        slots = () if group else tuple(row.attribute for row in keys.values())
        namespace["__slots__"] = (*namespace.get("__slots__", ()), *slots)
        table = super().__new__(mcs, name, bases, namespace)
        table.keys = keys
        for attribute, row in own.items():
            row.type = row.type or type_of_annotation(table.__annotations__[attribute])
        return table


class ConfigTable(metaclass=ConfigTableType):
    """A frozen set of values, one per row of the table.

    Invariant: each attribute has the type of its row and keeps its rule. `text_of` gives the value
    as it was set or, when it was not, the default of the row: `complete` may have made more of it.
    """

    _given: ClassVar[frozenset[str]]  # both are slots; ClassVar keeps them out of the constructor
    _raw: ClassVar[dict[str, Any]]

    __slots__ = ("_given", "_raw")

    unused: ClassVar[Mapping[str, str]] = {}
    """Names that Kafka has and Ottla does nothing with, and why: accepted with a warning."""

    refused: ClassVar[Mapping[str, Refusal]] = {}
    """Names that Kafka has and that must not be set, as Ottla would not do as they say."""

    def __init__(self, **given: Any) -> None:
        rows = type(self).keys
        values = {row.attribute: row.default for row in rows.values()}
        unknown = given.keys() - values.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        names = [row for row in rows.values() if row.attribute in given]
        for row in names:
            values[row.attribute] = row.parse(given[row.attribute])
        missing = [row.name for row in rows.values() if values[row.attribute] is REQUIRED]
        if missing:
            raise ConfigError(f"{missing[0]}: must be set")
        self._freeze(values, frozenset(row.name for row in names))

    def _freeze(self, values: dict[str, Any], given: frozenset[str]) -> None:
        raw = dict(values)
        self.complete(values, given)
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_raw", raw)
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        """Rules and fallbacks across several settings; changes `values` (by attribute) in place."""

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None = None, **keywords: Any) -> Self:
        """Read dotted keys, or keywords with underscores, which win."""
        known = {}
        for name, value in dotted(settings, keywords).items():
            row = cls.keys.get(name)
            if row is None:
                cls.pass_over(name, value)
            else:
                known[row.attribute] = value
        return cls(**known)

    @classmethod
    def known_of(cls, settings: Mapping[str, T]) -> dict[str, T]:
        """The settings that the table has a row for, to be parsed without a warning."""
        return {name: value for name, value in settings.items() if name in cls.keys}

    @classmethod
    def pass_over(cls, name: str, value: Any) -> None:
        """Warn of a setting without a row; ConfigError if it is refused, or a misspelt name."""
        if refuse(name, value, cls.refused):
            return
        if name not in cls.unused:
            cls.refuse_misspelt(name, value)
        cls.warn_of_unknown(name)

    @classmethod
    def known_names(cls) -> set[str]:
        """Every name that a misspelt one may stand for."""
        return {*cls.keys, *cls.unused, *refused_names(cls.refused)}

    @classmethod
    def refuse_misspelt(cls, name: str, value: Any, prefix: str = "") -> None:
        """ConfigError for a name that is nearly a name of the table."""
        meant = similar_name(name, cls.known_names())
        if meant is not None:
            text = shown(meant, shown(name, value))
            raise ConfigError(
                f"{prefix}{name}={text}: there is no such setting; did you mean {prefix}{meant}?"
            )

    @classmethod
    def warn_of_unknown(cls, name: str) -> None:
        """Say once per process that the setting `name` has no effect."""
        if (cls.__name__, name) in _warned:
            return
        _warned.add((cls.__name__, name))
        why = cls.unused.get(name)
        reason = f"has no effect in Ottla: {why}" if why else "not a setting that is known"
        logger.warning("%s: %s (%s)", name, reason, cls.__name__)

    def is_given(self, name: str) -> bool:
        """Whether the setting was set, not left at its default."""
        return name in self._given

    def text_of(self, name: str) -> str | None:
        """The setting as a properties file would hold it; None where it has no value."""
        row = type(self).keys[name]
        return row.format(self._raw[row.attribute])

    def open_texts(self) -> dict[str, str]:
        """The settings that have a value, as a properties file would hold them; no secrets."""
        names = [name for name, row in type(self).keys.items() if row.type is not PASSWORD]
        return {name: text for name in names if (text := self.text_of(name)) is not None}

    def equals(self, other: Self) -> bool:
        """Whether all settings have the same values, be they set or defaults."""
        return all(
            getattr(self, row.attribute) == getattr(other, row.attribute)
            for row in type(self).keys.values()
        )

    def replace(self, **changes: Any) -> Self:
        """The same settings but for `changes` (by attribute)."""
        given = [type(self).keys[name].attribute for name in self._given]
        return type(self)(**{attribute: self._raw[attribute] for attribute in given} | changes)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name} cannot be set")

    def __repr__(self) -> str:
        rows = [type(self).keys[name] for name in sorted(self._given)]
        given = ", ".join(f"{row.name}={self._raw[row.attribute]}" for row in rows)
        return f"{type(self).__name__}({given})"


_warned: set[tuple[str, str]] = set()


def dotted(settings: Mapping[str, Any] | None, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Settings and keywords, which win and have underscores for dots, under their keys."""
    return dict(settings or {}) | {key.replace("_", "."): keywords[key] for key in keywords}
