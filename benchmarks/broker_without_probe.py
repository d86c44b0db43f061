"""`ottla`, with a broker that sends files without asking whether the page cache has them."""

from __future__ import annotations

import sys

from ottla.cli.main import main
from ottla.runtime import LocalFile

if __name__ == "__main__":
    LocalFile.is_cached = lambda self, length, position: True
    sys.exit(main())
