"""Journeys through the console's pages, over a broker of Ottla."""

from __future__ import annotations

import pytest
from console_journeys import Journeys

# A page is opened by a browser that a busy machine starves.
pytestmark = pytest.mark.timeout(1200)


class TestJourneys(Journeys):
    """All of them; most are `wide`."""
