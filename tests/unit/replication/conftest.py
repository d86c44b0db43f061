"""Puts this folder on the path, so that the tests can share `replica_world`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
