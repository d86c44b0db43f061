"""Places that the users of a console share."""

from __future__ import annotations

import pytest

from ottla.console.places import Places
from ottla.console.refusals import Refused


def test_nobody_keeps_all_others_out():
    """A user has a share, and all users together have a limit; what ends is free again."""
    places = Places(3, 2, "exports run")
    with places.taken("ann"), places.taken("ann"):
        with (
            pytest.raises(Refused, match=r"^2 exports run already: end one of them\.$"),
            places.taken("ann"),
        ):
            pass
        with (
            places.taken("bob"),
            pytest.raises(Refused, match="3 exports run already: wait"),
            places.taken("eve"),
        ):
            pass
        with places.taken("eve"):
            pass
    with places.taken("ann"):
        pass
