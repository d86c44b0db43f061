"""Connectors that come with Ottla. Those for other systems need a package more: an extra."""

from __future__ import annotations

import importlib
from typing import Any

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
