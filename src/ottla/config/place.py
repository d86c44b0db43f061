"""Places of classes and functions that are imported where they are wanted, as `module:name`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ottla.errors import ConfigError


def found_at(place: str) -> Any:
    """The class or function of a place; its module is imported now."""
    module_name, _, name = place.partition(":")
    return getattr(import_module(module_name), name)


def is_there(place: str) -> bool:
    """Whether the folder of a place is there; the folder alone is imported."""
    return find_spec(place.rpartition(".")[0]) is not None


def wanted_by(who: str, place: str) -> Any:
    """The class or function of a place that the broker's settings want.

    Raises:
        ConfigError: its folder is not there.
    """
    try:
        return found_at(place)
    except ModuleNotFoundError as error:
        module_name = place.partition(":")[0]
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"{who} needs {module_name}, which is not installed") from None
