"""`python -m ottla` is the same as `ottla`."""

import sys

from ottla.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
