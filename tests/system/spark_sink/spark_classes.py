"""Keep the classes that a session of Spark reads in a file, for JVMs that start with it.

`python spark_classes.py FILE`; a JVM of another version does without them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ottla.pipelines.runner import spark_session
from ottla.runtime.java import JavaMissingError


def keep_classes(path: Path) -> None:
    """Run a session whose JVM leaves its classes behind when it ends."""
    unfinished = path.with_suffix(".part")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds*=off"
    session = spark_session("classes", short_run=True)
    session.range(10).selectExpr("id % 2 AS half").groupBy("half").count().collect()
    jvm = session.sparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()  # this ends it
    jvm.wait()
    unfinished.replace(path)


if __name__ == "__main__":
    try:
        keep_classes(Path(sys.argv[1]))
    except (JavaMissingError, OSError) as error:
        sys.exit(str(error))
