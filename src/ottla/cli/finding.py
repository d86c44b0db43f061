"""A finding of `ottla doctor`: what is wrong, what it should be, why, and how to mend it."""

from __future__ import annotations

from typing import NamedTuple

ERROR, WARNING = "error", "warning"


class Finding(NamedTuple):
    """Something that will hurt: what was found, what it should be, why, and what mends it."""

    check: str
    severity: str
    found: str
    threshold: str
    why: str
    mend: str
