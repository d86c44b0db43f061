"""Puts this folder on the path, so that the tidy tests can share `sources`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
