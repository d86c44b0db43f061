"""`ottla`, as its script and as `python -m ottla`."""

import gc
import sys

gc.disable()  # modules stay; `main` enables the collector when the command is loaded

from ottla.cli.main import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
