"""Values of settings that stand elsewhere: `${file:/run/secrets/db.properties:password}`.

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider

A connector's properties are kept and shown with such a reference in them; only what runs sees the
value. `file`, `dir` and `env` are Kafka's three providers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from ottla.config.config_type import LIST
from ottla.config.properties import parse_properties
from ottla.errors import ConfigError

REFERENCE: Final = re.compile(r"\$\{([^}:]+):(?:([^}:]*):)?([^}]*)\}")
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
Provider = Callable[[str, str], str]


def _of_file(path: str, key: str) -> str:
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))[key]
    except OSError as error:
        raise ConfigError(f"${{file:{path}:{key}}}: cannot be read: {error.strerror}") from error
    except KeyError:
        raise ConfigError(f"${{file:{path}:{key}}}: the file has no such key") from None


def _of_folder(path: str, key: str) -> str:
    try:
        return (Path(path) / key).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"${{dir:{path}:{key}}}: cannot be read: {error.strerror}") from error


def _of_environment(path: str, key: str) -> str:
    try:
        return os.environ[key]
    except KeyError:
        raise ConfigError(f"${{env:{key}}}: the environment has no such variable") from None


PROVIDERS: Final[Mapping[str, Provider]] = {
    f"{_PACKAGE}FileConfigProvider": _of_file,
    f"{_PACKAGE}DirectoryConfigProvider": _of_folder,
    f"{_PACKAGE}EnvVarConfigProvider": _of_environment,
}


def resolve(worker: Mapping[str, str], properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with the values that the worker's providers have for their references."""
    named = {
        name: _provider(name, worker)
        for name in LIST.parse("config.providers", worker.get("config.providers", ""))
    }
    if not named:
        return dict(properties)

    def value_of(match: re.Match[str]) -> str:
        provider = named.get(match[1])
        return match[0] if provider is None else provider(match[2] or "", match[3])

    return {key: REFERENCE.sub(value_of, str(value)) for key, value in properties.items()}


def _provider(name: str, worker: Mapping[str, str]) -> Provider:
    key = f"config.providers.{name}.class"
    found = PROVIDERS.get(worker.get(key, ""))
    if found is None:
        raise ConfigError(f"{key}={worker.get(key)}: must be one of {', '.join(PROVIDERS)}")
    return found
