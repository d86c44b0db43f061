"""An application that counts, as its users write it: python spark_counter.py SERVERS FOLDER

It says "running" when it has counted something, and goes on until it is killed.
"""

from __future__ import annotations

import sys

from ottla.streams import Streams

APPLICATION = "counter"


def counter(servers, folder, **settings):
    """Counts the records of each key of `numbers` into `counts`."""
    app = Streams(APPLICATION, servers, state_dir=folder, changelog=True, **settings)
    app.stream("numbers").group_by_key().count().to("counts")
    return app


def main(servers, folder):
    app = counter(servers, folder, group_instance_id="one", trigger="100 milliseconds")
    app.start()
    while not any(query.current.lastProgress for query in app.queries):
        app.await_termination(1)
    print("running", flush=True)
    app.await_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
