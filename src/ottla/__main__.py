"""`ottla`, as its script and as `python -m ottla`."""

import gc
import sys

gc.disable()  # modules stay; `main` enables the collector when the command is loaded

try:
    from ottla.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before there is a command whose end it would be
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
