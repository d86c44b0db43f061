"""Finds plug-ins: connectors, converters, transforms and predicates, by the names they are given.

A property file may name a plug-in in any of these ways:

    FileStreamSource, FileStreamSourceConnector        the last part of Kafka's name
    org.apache.kafka.connect.file.FileStreamSourceConnector
    ticks                                              an entry point, of the group ottla.connectors
    mine.connectors.Ticks                              an import path
    mine.py, /opt/plugins/mine.py:Ticks                a file, and a class in it

Entry points have the groups `ottla.connectors`, `ottla.converters`, `ottla.header_converters`,
`ottla.transforms` and `ottla.predicates`. Folders of `plugin.path` are searched for files whose
names end in .py, and may be imported from. A plug-in that cannot be imported is named in the log,
and stops no other.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from ottla.config.place import load_file
from ottla.connect.connector import Connector
from ottla.errors import ConfigError
from ottla.version import __version__

logger = logging.getLogger(__name__)

CONNECTORS: Final = "connectors"
CONVERTERS: Final = "converters"
HEADER_CONVERTERS: Final = "header_converters"
TRANSFORMS: Final = "transforms"
PREDICATES: Final = "predicates"
SETTING: Final = {
    CONNECTORS: "connector.class",
    CONVERTERS: "converter",
    HEADER_CONVERTERS: "header.converter",
    TRANSFORMS: "transforms type",
    PREDICATES: "predicates type",
}

_FILE: Final = "org.apache.kafka.connect.file."
_SIMPLE: Final = "ottla.connect.converters:"
_KAFKAS_CONVERTERS: Final = {
    "org.apache.kafka.connect.json.JsonConverter": "ottla.connect.json_converter:JsonConverter",
    "org.apache.kafka.connect.storage.StringConverter": f"{_SIMPLE}StringConverter",
} | {
    f"org.apache.kafka.connect.converters.{name}Converter": f"{_SIMPLE}{name}Converter"
    for name in ("ByteArray", "Short", "Integer", "Long", "Float", "Double", "Boolean")
}
_TRANSFORMS: Final = "org.apache.kafka.connect.transforms."


def _for_key_and_value(*names: str) -> list[str]:
    """The transforms of keys and of values."""
    return [f"{name}${part}" for name in names for part in ("Key", "Value")]


_PLACES_OF_TRANSFORMS: Final = {
    "predicates": ["Filter"],
    "transforms.envelope": [
        "DropHeaders",
        "InsertHeader",
        "RegexRouter",
        *_for_key_and_value("HeaderFrom"),
    ],
    "transforms.fields": [
        "ValueToKey",
        *_for_key_and_value("ExtractField", "Flatten", "HoistField", "InsertField", "ReplaceField"),
    ],
    "transforms.types": [
        "TimestampRouter",
        *_for_key_and_value("Cast", "MaskField", "SetSchemaMetadata", "TimestampConverter"),
    ],
}
OWN: Final = "ottla.connect.connectors."
_OUR_CONNECTORS: Final = {
    "http": ["HttpSource", "HttpSink"],
    "log_folder": ["LogFolderSource"],
    "mqtt": ["MqttSource", "MqttSink"],
    "objects": ["FilesSink"],
    "postgres": ["PostgresSource"],
    "sql": ["SqlSource"],
    "sql_sink": ["SqlSink"],
    "warehouse": ["WarehouseSink"],
}
BUILT_IN: Final[Mapping[str, Mapping[str, str]]] = {
    CONNECTORS: {
        f"{_FILE}FileStreamSourceConnector": "ottla.connect.connectors.files:FileStreamSource",
        f"{_FILE}FileStreamSinkConnector": "ottla.connect.connectors.files:FileStreamSink",
    }
    | {
        f"org.apache.kafka.connect.mirror.{name}": f"ottla.mirror.connectors:{name}"
        for name in (
            "MirrorCheckpointConnector",
            "MirrorHeartbeatConnector",
            "MirrorSourceConnector",
        )
    }
    | {
        f"{OWN}{module}.{name}": f"{OWN}{module}:{name}"
        for module, names in _OUR_CONNECTORS.items()
        for name in names
    },
    CONVERTERS: _KAFKAS_CONVERTERS,
    HEADER_CONVERTERS: _KAFKAS_CONVERTERS
    | {
        "org.apache.kafka.connect.storage.SimpleHeaderConverter": (
            "ottla.connect.converters:SimpleHeaderConverter"
        ),
    },
    TRANSFORMS: {
        f"{_TRANSFORMS}{name}": f"ottla.connect.{place}:{name.replace('$', '')}"
        for place, names in _PLACES_OF_TRANSFORMS.items()
        for name in names
    },
    PREDICATES: {
        f"{_TRANSFORMS}predicates.{name}": f"ottla.connect.predicates:{name}"
        for name in ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
    },
}
"""What comes with Ottla: Kafka's name, or one of ours, and where the class is."""


class Plugin(NamedTuple):
    """A class that a worker may use, and what it is called."""

    name: str
    """As `/connector-plugins` has it: the name of Kafka's class, or the import path of ours."""
    plugin: Any
    version: str


class Plugins:
    """All plug-ins that a worker can reach. Only the ones that are asked for are imported."""

    def __init__(self, plugin_path: Sequence[str] = ()) -> None:
        self._folders = [Path(folder) for folder in plugin_path]
        self._files: dict[str, ModuleType] = {}
        for folder in self._folders:
            if not folder.is_dir():
                raise ConfigError(f"plugin.path={folder}: must be a folder")
            if str(folder) not in sys.path:
                sys.path.append(str(folder))

    def connector(self, word: str) -> type[Connector]:
        """The connector that `connector.class` names."""
        found = self.find(CONNECTORS, word)
        if not (isinstance(found, type) and issubclass(found, Connector)):
            raise ConfigError(f"connector.class={word}: must be a SourceConnector or SinkConnector")
        return found

    def find(self, group: str, word: Any) -> Any:
        """The class of this name; a class is taken as it is. ConfigError if there is none."""
        if not isinstance(word, str):
            return word
        word = word.strip()
        known = self._places(group)
        place = known.get(word)
        if place is None and word.startswith(OWN):
            place = known.get(word.rpartition(".")[2])  # its file has another name by now
        if place is not None:
            return self._load(group, word, place)
        path, _, name = word.partition(":")
        if path.endswith(".py"):
            return self._only_class(word, self._module_of(Path(path)), name)
        for file in self._python_files():
            found = _classes(self._module_of(file)).get(word)
            if found is not None:
                return found
        if "." in word:
            return self._load(group, word, ":".join(word.rsplit(".", 1)))
        raise self._unknown(group, word)

    def list(self, group: str) -> list[Plugin]:
        """All of a group that can be imported, by name."""
        places = [*BUILT_IN[group].items(), *_entry_points(group).items()]
        found: dict[str, Plugin] = {}
        for word, place in places:
            try:
                plugin = self._load(group, word, place)
            except ConfigError as error:
                logger.warning("%s", error)
                continue
            name = word if word in BUILT_IN[group] else name_of(plugin)
            found[name] = Plugin(name, plugin, version_of(plugin))
        if group == CONNECTORS:
            for file in self._python_files():
                for each in _classes(self._module_of(file)).values():
                    found[name_of(each)] = Plugin(name_of(each), each, version_of(each))
        return [found[name] for name in sorted(found)]

    # Where they are

    def _places(self, group: str) -> dict[str, str]:
        """Every word that stands for a built-in plug-in or an entry point, and its place."""
        known: dict[str, str] = {}
        for name, place in BUILT_IN[group].items():
            for word in aliases(name):
                known[word] = place
        return known | _entry_points(group)

    def _load(self, group: str, word: str, place: str) -> Any:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except AttributeError:
            raise self._unknown(group, word) from None
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(f"{error.name}.")):
                raise self._unknown(group, word) from None
            raise ConfigError(
                f"{SETTING[group]}={word}: needs the package {error.name}, which is not installed"
            ) from error
        except Exception as error:  # the plug-in's own code, at its import
            raise ConfigError(f"{SETTING[group]}={word}: cannot be imported: {error!r}") from error

    def _unknown(self, group: str, word: str) -> ConfigError:
        known = sorted(self._places(group))
        near = get_close_matches(word, known, n=3)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        return ConfigError(
            f"{SETTING[group]}={word}: must be a class that Ottla has, the name of an entry point "
            f"of ottla.{group}, package.module.Class or a file ending in .py{hint}"
        )

    def _python_files(self) -> Iterator[Path]:
        for folder in self._folders:
            yield from sorted(folder.glob("*.py"))

    def _module_of(self, file: Path) -> ModuleType:
        path = str(file.resolve())
        if path not in self._files:
            self._files[path] = load_file(SETTING[CONNECTORS], file)
        return self._files[path]

    @staticmethod
    def _only_class(word: str, module: ModuleType, name: str) -> type[Connector]:
        found = _classes(module)
        if name:
            if name not in found:
                raise ConfigError(f"connector.class={word}: there is no connector {name} in it")
            return found[name]
        if len(found) != 1:
            names = ", ".join(sorted(found)) or "none"
            raise ConfigError(
                f"connector.class={word}: must have one connector (it has {names}); "
                f"name one with {word}:<class>"
            )
        return next(iter(found.values()))


def _classes(module: ModuleType) -> dict[str, type[Connector]]:
    """The connectors that a module defines itself."""
    return {
        name: each
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, Connector)
        and each.__module__ == module.__name__
    }


@cache
def _entry_points(group: str) -> dict[str, str]:
    """They are read once: packages are installed where no worker runs on them."""
    return {each.name: each.value for each in metadata.entry_points(group=f"ottla.{group}")}


def aliases(name: str) -> list[str]:
    """A class's name, its last part, and that without the word for its kind."""
    last = name.rpartition(".")[2]
    found = [name, last]
    for suffix in ("Connector", "Converter"):
        if last.endswith(suffix) and last != suffix:
            found.append(last.removesuffix(suffix))
    return found


def name_of(plugin: Any) -> str:
    """The name of a plug-in over REST."""
    kafka_class = getattr(plugin, "kafka_class", "")
    return kafka_class or f"{plugin.__module__}.{plugin.__qualname__}"


def version_of(plugin: Any) -> str:
    """The version of a plug-in: what it says itself, else that of the package it is from."""
    version: str = getattr(plugin, "version", "")
    if version:
        return version
    package = plugin.__module__.partition(".")[0]
    if package == "ottla":
        return __version__
    return _version_of_package(package)


@cache
def _version_of_package(package: str) -> str:
    """The version; the search goes through all installed files, which takes a second."""
    for distribution in metadata.packages_distributions().get(package, ()):
        return metadata.version(distribution)
    return "undefined"
