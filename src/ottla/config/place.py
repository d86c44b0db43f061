"""Places of classes and functions that are imported where they are wanted, as `module:name`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

Kind = TypeVar("Kind")


def found_at(place: str) -> Any:
    """The class or function of a place; its module is imported now."""
    module_name, _, name = place.partition(":")
    # Python's importtime shows this import, and none of `import_module`.
    return getattr(__import__(module_name, fromlist=(name,)), name)


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


def installed(group: str) -> dict[str, str]:
    """The entry points of a group that packages have installed, by name, as module:Class."""
    from importlib.metadata import entry_points

    return {each.name: each.value for each in entry_points(group=group)}


def class_named(setting: str, word: str, group: str, base: type[Kind]) -> type[Kind]:
    """The class that a setting names; nothing but its module is run.

    The word is an entry point of the group, `package.module:Class`, or a file and the class in it,
    `names.py:Class`. A class that is no `base` is not called: it might end the broker.

    Raises:
        ConfigError: there is no such class.
    """
    from pathlib import Path  # a broker begins without it

    found = installed(group)
    module, _, name = found.get(word, word).partition(":")
    if not name:
        raise ConfigError(
            f"{setting}={word}: must be module:Class, file.py:Class, or one of the entry points "
            f"of {group}: {', '.join(sorted(found)) or 'none is installed'}"
        )
    try:
        is_file = module.endswith(".py")
        kind = getattr(load_file(setting, Path(module)) if is_file else import_module(module), name)
    except ConfigError:
        raise
    except Exception as error:  # whatever a stranger's module does when it is imported
        raise ConfigError(f"{setting}={word}: cannot be imported: {error!r}") from error
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError(f"{setting}={word}: must be a subclass of {base.__name__}")
    return kind


def made(setting: str, word: str, group: str, base: type[Kind]) -> Kind:
    """An object of the class that a setting names, which is made without arguments.

    Raises:
        ConfigError: there is no such class, or it cannot be made.
    """
    kind = class_named(setting, word, group, base)
    try:
        return kind()
    except Exception as error:  # whatever a stranger's constructor does
        raise ConfigError(f"{setting}={word}: cannot be made: {error!r}") from error


def load_file(setting: str, file: Path) -> ModuleType:
    """The module in a file, which need not be importable by a name.

    Raises:
        ConfigError: there is no such file, or it cannot be imported.
    """
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ConfigError(f"{setting}={file}: there is no such file")
    module = module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses and pickles look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a stranger's file does when it is run
        raise ConfigError(f"{setting}={file}: cannot be imported: {error!r}") from error
    return module
