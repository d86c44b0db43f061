"""Java properties files, as `server.properties` is one: comments, escapes, continued lines.

It is alone because the command line reads such files, and so do the config providers of Connect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ottla.errors import ConfigError

_LINE_END: Final = r"\r\n|\r|\n"
_ESCAPE: Final = r"(?s)\\(u[0-9a-fA-F]{4}|.)"
_KEY: Final = r"(?s)((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)"
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The settings of a properties file; of a key that is there twice the last one counts."""
    settings = {}
    for line in _logical_lines(text):
        match = re.fullmatch(_KEY, line)
        assert match is not None, "the pattern takes every text"
        settings[_unescape(match[1])] = _unescape(match[2]).rstrip()
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; an odd backslash at the end continues a line."""
    continued = ""
    for natural in re.split(_LINE_END, text):
        line = natural.lstrip(" \t\f")
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            continued += line[:-1]
            continue
        yield continued + line
        continued = ""
    if continued:
        yield continued


def _unescape(text: str) -> str:
    return re.sub(_ESCAPE, _unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "u":
        if len(code) != 5:
            raise ConfigError(f"{match.string}: \\u must be followed by four hexadecimal digits")
        return chr(int(code[1:], 16))
    return _CONTROL.get(code, code)
