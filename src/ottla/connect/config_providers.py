"""Values of settings that stand elsewhere, and the providers that fetch them from there.

A value may stand elsewhere: `${file:/run/secrets/db.properties:password}`, with

    config.providers=file,env,dir
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider

in the worker's file. The properties of a connector and of its tasks are kept and shown with such a
reference in them; only running code sees the value, which is put back in what this says of an
error. `file`, `dir` and `env` are Kafka's three
providers; `param.allowed.paths` and `param.allowlist.pattern` limit their values.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final

from ottla.config.config_type import LIST
from ottla.config.java_regex import java_pattern
from ottla.config.properties import parse_properties
from ottla.connect.worker_clients import with_prefix
from ottla.errors import ConfigError
from ottla.runtime.regular_file import read_regular

REFERENCE: Final = re.compile(r"\$\{([^}:]+):(?:([^}:]*):)?([^}]*)\}")
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
PARAM: Final = "param."
WHOLE_VALUE: Final = 6
"""Texts of fewer letters are recognized as a secret only where they are a whole value, and in
traces and the log not at all."""


class ConfigProviders:
    """The providers of a worker; ConfigError for settings of them that cannot be honoured."""

    def __init__(self, worker: Mapping[str, str]) -> None:
        names = LIST.parse("config.providers", worker.get("config.providers", ""))
        self._providers = {name: _provider(name, worker) for name in names}
        self._given_out: dict[str, str] = {}
        """The references by the values that code has got for them."""

    def resolve(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The properties with the values that their references stand for."""
        return {key: REFERENCE.sub(self._give_out, str(text)) for key, text in properties.items()}

    def hide(self, text: str) -> str:
        """A text of code, such as a trace, with references in the place of what it has got."""
        known = [each for each in [*self._given_out.items()] if each[0] in text]
        for value, reference in sorted(known, key=lambda each: len(each[0]), reverse=True):
            text = text.replace(value, reference)
        return text

    def put_back(
        self, given: Mapping[str, str], resolved: Mapping[str, str], planned: Mapping[str, str]
    ) -> dict[str, str]:
        """A task's properties as they may be kept and shown: with references for secrets.

        `given` are the connector's properties with references, `resolved` the same with values. A
        connector may hand a secret on under another key, or as a part of another text.
        """
        references = self._references(given)
        long = sorted((each for each in references if len(each) >= WHOLE_VALUE), key=len)
        parts = re.compile("|".join(map(re.escape, reversed(long))) or "(?!)")

        def shown(key: str, text: str) -> str:
            if text == resolved.get(key):
                return str(given.get(key, text))
            return references.get(text) or parts.sub(lambda match: references[match[0]], text)

        return {key: shown(key, str(value)) for key, value in planned.items()}

    def _references(self, given: Mapping[str, str]) -> dict[str, str]:
        """The references to providers of the worker, each by its value."""
        return {
            self._value(match): match[0]
            for text in given.values()
            for match in REFERENCE.finditer(str(text))
            if match[1] in self._providers
        }

    def _give_out(self, match: re.Match[str]) -> str:
        value = self._value(match)
        if match[1] in self._providers and len(value) >= WHOLE_VALUE:
            self._given_out[value] = match[0]
        return value

    def _value(self, match: re.Match[str]) -> str:
        provider = self._providers.get(match[1])
        return match[0] if provider is None else provider.get(match[2] or "", match[3])


class ConfigProvider(ABC):
    """Gives the values that references to it stand for.

    `params` are its settings, `config.providers.<name>.param.*` without this prefix. One that it
    does not know is refused: it would ask for a protection that is not there.
    """

    known: ClassVar[Collection[str]] = ()

    def __init__(self, name: str, params: Mapping[str, str]) -> None:
        self.name = name
        unknown = params.keys() - set(self.known)
        if unknown:
            key = f"config.providers.{name}.{PARAM}{min(unknown)}"
            raise ConfigError(f"{key}: must be one of {', '.join(self.known)}")

    @abstractmethod
    def get(self, path: str, key: str) -> str:
        """The value; ConfigError where there is none, or it is not allowed."""

    def refuse(self, path: str, key: str, rule: str) -> ConfigError:
        place = f"{path}:{key}" if path else key
        return ConfigError(f"${{{self.name}:{place}}}: {rule}")


class PathProvider(ConfigProvider):
    """A provider of files, below the folders of `allowed.paths` alone where it is set (KIP-993)."""

    known = ("allowed.paths",)

    def __init__(self, name: str, params: Mapping[str, str]) -> None:
        super().__init__(name, params)
        paths = LIST.parse("allowed.paths", params.get("allowed.paths", ""))
        self._allowed = [Path(each).resolve() for each in paths]

    def read(self, path: str, key: str, file: Path) -> str:
        """The text of a file, wherever symbolic links lead, if that is allowed."""
        found = file.resolve()
        if self._allowed and not any(found.is_relative_to(each) for each in self._allowed):
            raise self.refuse(path, key, "is outside of the provider's param.allowed.paths")
        try:
            return read_regular(found).decode("utf-8")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self.refuse(path, key, f"cannot be read: {reason}") from error


class FileConfigProvider(PathProvider):
    """`${file:<property file>:<key>}`."""

    def get(self, path: str, key: str) -> str:
        found = parse_properties(self.read(path, key, Path(path)))
        if key not in found:
            raise self.refuse(path, key, "the file has no such key")
        return found[key]


class DirectoryConfigProvider(PathProvider):
    """`${dir:<folder>:<name of a file in it>}`."""

    def get(self, path: str, key: str) -> str:
        if not key or key in (".", "..") or Path(key).name != key:
            raise self.refuse(path, key, "must be the name of a file in the folder")
        return self.read(path, key, Path(path) / key)


class EnvVarConfigProvider(ConfigProvider):
    """`${env:<variable>}`, of those that match `allowlist.pattern` where it is set (KIP-887)."""

    known = ("allowlist.pattern",)

    def __init__(self, name: str, params: Mapping[str, str]) -> None:
        super().__init__(name, params)
        text = params.get("allowlist.pattern", ".*")
        try:
            self._allowed = java_pattern(text)
        except re.error as error:
            key = f"config.providers.{name}.{PARAM}allowlist.pattern"
            raise ConfigError(f"{key}={text}: is no regular expression: {error}") from None

    def get(self, path: str, key: str) -> str:
        if self._allowed.fullmatch(key) is None:
            raise self.refuse("", key, "does not match the provider's param.allowlist.pattern")
        if key not in os.environ:
            raise self.refuse("", key, "the environment has no such variable")
        return os.environ[key]


PROVIDERS: Final[Mapping[str, type[ConfigProvider]]] = {
    f"{_PACKAGE}{each.__name__}": each
    for each in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)
}


def _provider(name: str, worker: Mapping[str, str]) -> ConfigProvider:
    prefix = f"config.providers.{name}."
    text = worker.get(f"{prefix}class")
    found = PROVIDERS.get(text or "")
    if found is None:
        raise ConfigError(f"{prefix}class={text}: must be one of {', '.join(PROVIDERS)}")
    return found(name, with_prefix(worker, f"{prefix}{PARAM}"))
