"""A MariaDB of one test run: Debian's, in a folder of its own, on a free port of loopback."""

from __future__ import annotations

import getpass
import shutil
import subprocess

import pymysql
import pytest

from ottla.runtime.free_port import free_port
from ottla.testing import wait_until

HINT = "MariaDB is missing: install Debian's mariadb-server"


def binary(name):
    """A program of the server; or a skipped test."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if found is None:
        pytest.skip(f"{HINT} ({name} is not there)")
    return found


class MariaDb:
    """Makes a database `shop`, starts and kills its server."""

    def __init__(self, folder):
        self._folder, self.port = folder, free_port("127.0.0.1")
        self._server = None
        same = ["--no-defaults", f"--datadir={folder / 'data'}", f"--user={getpass.getuser()}"]
        self._command = [
            binary("mariadbd"),
            *same,
            f"--socket={folder / 'socket'}",
            f"--pid-file={folder / 'pid'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=2",
            "--character-set-server=utf8mb4",
        ]
        made = [binary("mariadb-install-db"), *same, "--auth-root-authentication-method=normal"]
        done = subprocess.run(made, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.start()
        self.execute("CREATE DATABASE shop", database=None)

    @property
    def url(self):
        return f"mysql+pymysql://root@127.0.0.1:{self.port}/shop"

    def start(self):
        """Start the server, and wait for it."""
        with (self._folder / "log").open("a") as log:
            self._server = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._answers, "MariaDB", seen=(self._folder / "log").read_text)

    def stop(self):
        """Kill the server: it recovers."""
        self._server.kill()
        self._server.wait()

    def execute(self, *statements, database="shop", zone="+00:00"):
        """Run statements, each committed; the rows of the last one."""
        with self._connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = %s", [zone])
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def _connect(self, database):
        address = {"host": "127.0.0.1", "port": self.port, "user": "root"}
        return pymysql.connect(**address, database=database, autocommit=True, charset="utf8mb4")

    def _answers(self):
        try:
            self.execute("SELECT 1", database=None)
        except pymysql.err.OperationalError:
            return False
        return True
