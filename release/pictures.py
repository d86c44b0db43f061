"""Makes the pictures of the README again: a report, and the page of a site while it runs.

    .venv/bin/python release/pictures.py

It needs Java, for Spark, and Chromium (Debian's `chromium`); it takes about three minutes. The
pictures go to docs/pictures.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 1150
SECONDS = 90
SEEN_AFTER_S = 75
LIMIT_S = 600


def main() -> int:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        print("pictures: there is no chromium on this machine", file=sys.stderr)
        return 1
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ottla-pictures-") as name:
        folder = Path(name)
        report = folder / "report"
        ottla("demo", "--events", "20000", "--output", str(report)).wait(LIMIT_S)
        take(browser, report / "report.html", PICTURES / "report.png")
        site = ottla("site", "--duration", str(SECONDS), "--output", str(folder / "site"))
        time.sleep(SEEN_AFTER_S)
        take(browser, folder / "site" / "site.html", PICTURES / "site.png")
        site.wait(LIMIT_S)
    return 0


def ottla(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "ottla", *words])


def take(browser: str, page: Path, picture: Path) -> None:
    """A picture of what one sees first; a page that reloads itself is copied without that."""
    still = page.with_name("still.html")
    text = page.read_text(encoding="utf-8")
    still.write_text(text.replace("location.reload()", "null"), encoding="utf-8")
    subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}", still.as_uri()),
        ],
        check=True,
        timeout=LIMIT_S,
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    sys.exit(main())
