"""A finding of `ottla doctor`: the fault, the right state, the reason, and the remedy."""

from __future__ import annotations

from ottla.structs import NamedTuple

ERROR, WARNING = "error", "warning"


class Finding(NamedTuple):
    """A fault that will hurt: its state, the right one, the reason why it hurts, and the remedy."""

    check: str
    severity: str
    found: str
    threshold: str
    why: str
    mend: str
