"""Whole numbers as people write them: digits of ASCII, with a sign or without.

`int` takes more: `1_000`, blanks, the digits of all scripts; and it refuses very long numbers.
"""

from __future__ import annotations

import re
from typing import Final

LARGEST: Final = 2**63 - 1
_NUMBER: Final = r"[+-]?[0-9]{1,40}"


def number_of(text: str, least: int = -LARGEST - 1, most: int = LARGEST) -> int | None:
    """The number that a text is; None where it is none, or not within the limits."""
    number = int(text) if re.fullmatch(_NUMBER, text) else None
    return number if number is not None and least <= number <= most else None
