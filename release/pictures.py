"""Makes the pictures of the documentation again: a report, the page of a site, and the console.

    .venv/bin/python release/pictures.py            # all of them
    .venv/bin/python release/pictures.py console    # those of the console, without Spark

It needs Java, for Spark, and Chromium (Debian's `chromium`); it takes about six minutes. The
pictures go to docs/pictures.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ottla import Admin, Producer
from ottla.clients.admin.descriptions import NewTopic

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1280, 1150
SECONDS = 90
CONSOLE_SECONDS = 600
SHOP_TOPICS = (
    ("orders", 6, {}),
    ("page-views", 220, {"retention.ms": "86400000"}),
    ("clicks", 90, {"retention.ms": "3600000"}),
    ("payments", 5, {"retention.ms": "-1"}),
    ("stock", 14, {"cleanup.policy": "compact"}),
    ("orders.dead-letters", 0, {}),
    ("sensors.warehouse-1", 40, {}),
)
"""Their names, records a second, and settings."""
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
        take_console(browser, folder)
        if sys.argv[1:] == ["console"]:
            return 0
        report = folder / "report"
        ottla("demo", "--events", "20000", "--output", str(report)).wait(LIMIT_S)
        take(browser, report / "report.html", PICTURES / "report.png")
        site = ottla("site", "--duration", str(SECONDS), "--output", str(folder / "site"))
        time.sleep(SEEN_AFTER_S)
        take(browser, folder / "site" / "site.html", PICTURES / "site.png")
        site.wait(LIMIT_S)
    return 0


def take_console(browser: str, folder: Path) -> None:
    """Pictures of a console that has seen ten minutes of a shop."""
    settings = ("listeners=PLAINTEXT://127.0.0.1:19292", f"log.dirs={folder / 'log'}")
    broker = ottla("broker", *(word for each in settings for word in ("--override", each)))
    console = ottla(
        *("console", "-b", "127.0.0.1:19292", "--listen", "127.0.0.1:18292"),
        *("--no-token", "--name", "shop"),
    )
    try:
        sell(CONSOLE_SECONDS)
        for page, height, name in (
            ("t/orders/records", 760, "console-records"),
            ("topics", 640, "console-topics"),
        ):
            picture = PICTURES / f"{name}.png"
            shoot(browser, f"http://127.0.0.1:18292/{page}", picture, height)
    finally:
        console.terminate()
        broker.terminate()
        broker.wait(LIMIT_S)


def sell(seconds: int) -> None:
    """Records of a shop, as many as there are customers at that moment."""
    chance = random.Random(7)
    with Admin("127.0.0.1:19292") as admin:
        admin.create_topics(
            NewTopic(name, 3, 1, configs=settings) for name, _, settings in SHOP_TOPICS
        )
    began = time.monotonic()
    with Producer("127.0.0.1:19292") as producer:
        while (at := time.monotonic() - began) < seconds:
            for topic, rate, _ in SHOP_TOPICS:
                wave = 1 + 0.6 * math.sin(at / 47 + rate) + chance.random() * 0.3
                for _ in range(round(rate * wave / 5 + chance.random())):
                    send_sale(producer, topic, chance)
            time.sleep(0.2)


def send_sale(producer: Producer, topic: str, chance: random.Random) -> None:
    user = chance.randrange(400)
    value = {
        "id": 9_007_199_254_740_993 + chance.randrange(10**6),
        "user": f"u{user}",
        "amount": chance.randrange(100, 40_000) / 100,
        "status": chance.choice(("paid", "paid", "paid", "open", "error")),
        "items": [{"sku": f"A-{chance.randrange(90)}", "n": chance.randrange(1, 4)}],
    }
    headers = [("source", b"web")] if user % 3 else []
    producer.send(topic, json.dumps(value).encode(), key=f"u{user}".encode(), headers=headers)


def ottla(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "ottla", *words])


def take(browser: str, page: Path, picture: Path) -> None:
    """A picture of what one sees first; a page that reloads itself is copied without that."""
    still = page.with_name("still.html")
    text = page.read_text(encoding="utf-8")
    still.write_text(text.replace("location.reload()", "null"), encoding="utf-8")
    shoot(browser, still.as_uri(), picture, HEIGHT)


def shoot(browser: str, url: str, picture: Path, height: int) -> None:
    """A picture of a page in a window of that height."""
    subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={WIDTH},{height}", f"--screenshot={picture}", url),
        ],
        check=True,
        timeout=LIMIT_S,
        stderr=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    sys.exit(main())
