"""A PostgreSQL of one test run: Debian's, in a folder of its own, on a free port of loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psycopg
import pytest

from ottla.runtime.free_port import free_port

HINT = "PostgreSQL is missing: install Debian's postgresql"


def binary(name):
    """A program of the server, which Debian keeps off the path; or a skipped test."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        pytest.skip(HINT)
    return found


class Postgres:
    """Makes a database, starts and kills its server."""

    def __init__(self, folder):
        self._folder, self.port = folder, free_port("127.0.0.1")
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(folder, "postgres")
        self._run(binary("initdb"), "-D", folder / "data", "-A", "trust", "-U", "ottla", "-N")
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(
                f"port={self.port}\nlisten_addresses='127.0.0.1'\nwal_level=logical\n"
                f"unix_socket_directories='{folder}'\nfsync=off\n"
            )
        self.start()

    @property
    def connection(self):
        return f"host=127.0.0.1 port={self.port} dbname=postgres user=ottla"

    def start(self):
        """Start the server, and wait for it."""
        log = self._folder / "log"
        self._run(binary("pg_ctl"), "-D", self._folder / "data", "-l", log, "-w", "start")

    def stop(self, mode="immediate"):
        """End the server: `immediate` is a kill, of which it recovers."""
        self._run(binary("pg_ctl"), "-D", self._folder / "data", "-m", mode, "-w", "stop")

    def execute(self, statement, *values):
        """Run statements in a transaction of their own; the rows, if there are some."""
        with psycopg.connect(self.connection) as connection:
            cursor = connection.execute(statement, *values)
            return cursor.fetchall() if cursor.description else []

    def _run(self, *command):
        done = subprocess.run(
            [*self._as, *map(str, command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
