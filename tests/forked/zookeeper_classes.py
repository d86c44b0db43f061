"""Keep the classes that a ZooKeeper server reads in a file, for servers that start with it.

`python zookeeper_classes.py FILE`; a JVM of another version, or with other jars, does without them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from kazoo.client import KazooClient

from ottla.testing.processes import ZooKeeperProcess


def keep_classes(path: Path) -> None:
    """Run a server that leaves its classes behind when it ends."""
    unfinished = path.with_suffix(".part")
    os.environ["KAFKA_HEAP_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds*=off"
    with tempfile.TemporaryDirectory() as folder:
        server = ZooKeeperProcess(Path(folder) / "data").start()
        client = KazooClient(server.connect)
        client.start()
        client.create("/place/node", b"data", makepath=True)
        client.get("/place/node")
        client.stop()
        client.close()
        server.stop()
    unfinished.replace(path)


if __name__ == "__main__":
    try:
        keep_classes(Path(sys.argv[1]))
    except (RuntimeError, OSError) as error:
        sys.exit(str(error))
