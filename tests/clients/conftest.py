"""Puts this folder on the path, so that the client tests can share `records`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
