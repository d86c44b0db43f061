"""The transforms of a connector, in order, each with its predicate.

    transforms=route,mask                       predicates=noisy
    transforms.route.type=...RegexRouter        predicates.noisy.type=...TopicNameMatches
    transforms.route.regex=...                  predicates.noisy.pattern=debug-.*
    transforms.route.predicate=noisy            transforms.route.negate=true

A transform is a class with `of(settings)` and `apply(record)`, which returns the record that goes
on, or None to drop it; a predicate has `of(settings)` and `test(record)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.config.config_type import BOOLEAN
from ottla.config.connect_config import ConnectorConfig
from ottla.connect.plugins import PREDICATES, TRANSFORMS, Plugins
from ottla.connect.worker_clients import with_prefix
from ottla.errors import ConfigError

OF_CHAIN: Final = ("type", "predicate", "negate")


def make_transforms(
    plugins: Plugins, config: ConnectorConfig, properties: Mapping[str, str]
) -> list[tuple[str, Callable[[Any], Any]]]:
    """Each transform as a function, with the name of its class; ConfigError for a wrong one."""
    predicates = {
        name: _part(plugins, PREDICATES, f"predicates.{name}.", properties)
        for name in config.predicates
    }
    found = []
    for name in config.transforms:
        prefix = f"transforms.{name}."
        transform = _part(plugins, TRANSFORMS, prefix, properties)
        apply = transform.apply
        wanted = properties.get(f"{prefix}predicate")
        if wanted is not None:
            if wanted not in predicates:
                raise ConfigError(f"{prefix}predicate={wanted}: must be one of predicates")
            negate = BOOLEAN.parse(f"{prefix}negate", properties.get(f"{prefix}negate", "false"))
            apply = _where(predicates[wanted].test, negate, apply)
        found.append((type(transform).__name__, apply))
    return found


def _where(
    test: Callable[[Any], bool], negate: bool, apply: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """The transform for records for which the predicate holds; others pass as they are."""

    def apply_if(record: Any) -> Any:
        return apply(record) if test(record) != negate else record

    return apply_if


def _part(plugins: Plugins, group: str, prefix: str, properties: Mapping[str, str]) -> Any:
    word = properties.get(f"{prefix}type")
    if not word:
        raise ConfigError(f"{prefix}type: must be set")
    settings = with_prefix(properties, prefix)
    own = {key: value for key, value in settings.items() if key not in OF_CHAIN}
    try:
        return plugins.find(group, word).of(own)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error.message}") from error
