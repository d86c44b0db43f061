"""Options as a user gave them: names in any case, client settings apart, checked at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

CLIENT_PREFIX: Final = "kafka."
BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"
UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class OptionError(ValueError):
    """An invalid option; the text names option, value and rule."""


class Given:
    """The options of one side, source or sink, under the names that the documentation uses.

    `decided` are client settings that cannot be given, and why.
    """

    def __init__(
        self, options: Mapping[str, str], names: Iterable[str], decided: Mapping[str, str]
    ) -> None:
        canonical = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        self._client: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in decided:
                raise OptionError(f"{name}={value}: cannot be set; {decided[lower]}")
            if lower.startswith(CLIENT_PREFIX):
                self._client[lower.removeprefix(CLIENT_PREFIX)] = value
            elif lower in canonical:
                self._values[canonical[lower]] = value
            else:
                raise OptionError(
                    f"{name}={value}: there is no such option{_similar(lower, canonical)}"
                )
        if not self._client.get("bootstrap.servers", "").strip():
            raise OptionError(f"option {BOOTSTRAP_SERVERS} is missing: the brokers, as host:port")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def shown(self, name: str) -> str:
        """An option as errors name it."""
        return f"{name}={self._values[name]}"

    def client_settings(self) -> dict[str, str]:
        return dict(self._client)

    def positive(self, name: str) -> int | None:
        """A whole number above 0, or None where the option is not used."""
        if name not in self:
            return None
        text = self[name].strip()
        if not re.fullmatch(r"[0-9]+", text) or int(text) == 0:
            raise OptionError(f"{self.shown(name)}: must be a whole number greater than 0")
        return int(text)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """A time span as Spark writes it: `15m`, `30s`, `500ms`; a bare number is milliseconds."""
        if name not in self:
            return default_ms
        match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", self[name].strip().lower())
        if match is None or (match[2] or "ms") not in UNITS_MS:
            raise OptionError(f"{self.shown(name)}: must be a time span like 15m, 30s or 500ms")
        return int(match[1]) * UNITS_MS[match[2] or "ms"]

    def flag(self, name: str, default: bool) -> bool:
        if name not in self:
            return default
        text = self[name].strip().lower()
        if text not in ("true", "false"):
            raise OptionError(f"{self.shown(name)}: must be true or false")
        return text == "true"

    def timestamp(self, name: str) -> int:
        text = self[name].strip()
        if not re.fullmatch(r"[0-9]+", text):
            raise OptionError(f"{self.shown(name)}: must be milliseconds since 1970")
        return int(text)


def _similar(name: str, canonical: Mapping[str, str]) -> str:
    """The option that was probably meant."""
    near = get_close_matches(name, canonical, n=1)
    return f"; did you mean {canonical[near[0]]}?" if near else ""
