"""Connectors that come with Ottla. Those for other systems need a package more: an extra."""

from __future__ import annotations

import importlib
from typing import Any, Final

from ottla.connect.data import Schema
from ottla.connect.json_converter import JsonConverter
from ottla.errors import ConfigError


def needed(module: str, extra: str, connector: type) -> Any:
    """A module that an extra of Ottla's brings; ConfigError says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"connector.class={connector.__name__}: needs the package {error.name}: "
            f"pip install 'ottla[{extra}]'"
        ) from error


_PLAIN: Final = JsonConverter.of({"schemas.enable": "false"})


def json_text(value: Any, schema: Schema | None) -> str:
    """A value as JSON without its schema."""
    data = _PLAIN.from_connect_data("", schema, value)
    return "null" if data is None else data.decode()


def content_of(value: Any, schema: Schema | None) -> bytes:
    """A value for another system: bytes and text as they are, all else as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else json_text(value, schema).encode()
