"""`python -m ottla.config [file]` rewrites docs/configuration.md from the tables."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.config.documentation import configuration_page


def main(arguments: list[str]) -> None:
    path = Path(arguments[0]) if arguments else Path("docs/configuration.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(configuration_page(), encoding="utf-8")
    print(f"wrote {path}")


main(sys.argv[1:])
