"""What a feature is that attaches to the broker, and the table of all of them.

Each feature is a folder of `ottla.extensions`, which can be deleted: nothing outside imports from
it, and the core serves without it. It is imported where the broker's settings want it, and nowhere
else. To add one: write an `Extension` in a folder of its own, and give it a row
in `EXTENSIONS`. The table is static, as a scan of entry points takes longer than the start of a
broker.

The hooks are called in the order in which they stand here, each for all features before the next
one, and for the features in the order of the table.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.config.broker_config import BrokerConfig
    from ottla.server.parts import Parts

EXTENSIONS: Final[dict[str, str]] = {
    "ottla.audit.topic": "ottla.extensions.audit.audit:Audit",
}
"""The setting that wants a feature, and its class."""


class Extension:
    """A feature of one broker; every hook does nothing by default."""

    def __init__(self, broker: Parts) -> None:
        self.broker = broker

    def wrap(self) -> None:
        """Put checks or watches around handlers.

        All APIs are in the table, with what keeps some of them to brokers; no client is served yet.
        """

    async def leave(self) -> None:
        """The broker has handed its leaders over and stops; the cluster still serves it."""


Kind = TypeVar("Kind", bound=Extension)


class Extensions:
    """The features that the settings of a broker want."""

    def __init__(self, broker: Parts) -> None:
        self._all = [load(setting)(broker) for setting in wanted(broker.config)]

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._all)

    def find(self, cls: type[Kind]) -> Kind | None:
        """The feature of this class; None where it is not wanted."""
        return next((each for each in self._all if isinstance(each, cls)), None)


def wanted(config: BrokerConfig) -> list[str]:
    """The settings of the table that have a value."""
    return [
        setting for setting in EXTENSIONS if getattr(config, type(config).keys[setting].attribute)
    ]


def load(setting: str) -> type[Extension]:
    """The class of the feature that a setting wants; its module is imported now.

    Raises:
        ConfigError: the folder of the feature is not there.
    """
    module_name, class_name = EXTENSIONS[setting].split(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{setting} needs {module_name}, which is not installed") from None
    cls: type[Extension] = getattr(module, class_name)
    return cls
