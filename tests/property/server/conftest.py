"""Puts this folder, and those whose worlds and tables it shares, on the path."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[2]
for folder in ("unit/record", "unit/server/handlers", "property/server"):
    sys.path.insert(0, str(TESTS / folder))
