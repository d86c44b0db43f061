"""The paths to fields (KIP-821)."""

from __future__ import annotations

import re
from typing import Final

from ottla.config.config_def import HIGH, ConfigTable, config_key
from ottla.config.rule import Rule
from ottla.errors import ConfigError

V1: Final = "V1"
V2: Final = "V2"


class PathSettings(ConfigTable, group=True):
    """How a field is named."""

    field_syntax_version: str = config_key(
        default=V1,
        rule=Rule("be V1 or V2", lambda text: text.upper() in (V1, V2)),
        importance=HIGH,
        doc="V1: the name of a field at the top. V2: a path with dots to a field further in; a "
        "name with dots stands between backticks (KIP-821).",
    )


_STEP: Final = re.compile(r"`((?:\\`|`(?!\.|\Z)|[^`])*)`(?:\.|\Z)|([^`.][^.]*|)(?:\.|\Z)")


def path_of(text: str, syntax: str) -> tuple[str, ...]:
    """The names on the way to a field; ConfigError for a backtick without its other."""
    if syntax.upper() == V1:
        return (text,)
    steps, at = [], 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise ConfigError(
                f"field={text}: must have a backtick at the end of the name that begins at "
                f"character {at} with one"
            )
        steps.append(match[2] if match[1] is None else match[1].replace("\\`", "`"))
        at = match.end()
    if text.endswith("."):
        steps.append("")
    return tuple(steps)
