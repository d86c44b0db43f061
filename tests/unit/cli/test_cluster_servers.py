"""The folder and the servers of `ottla cluster`."""

from __future__ import annotations

import os
import stat

import pytest

from ottla.cli.cluster_servers import CLUSTER_LOCK, Server, lock
from ottla.cli.command_error import CommandError


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_cluster_does_not_write_into_a_folder_of_another_user(tmp_path):
    """Its files could be links to those of the user who starts the cluster."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    folder = tmp_path / "ottla-cluster"
    folder.mkdir()
    (folder / CLUSTER_LOCK).symlink_to(precious)
    os.chown(folder, 65534, 65534)
    with pytest.raises(CommandError, match="belongs to the user with id 65534"):
        lock(folder)

    assert precious.read_text() == "precious"


@pytest.mark.parametrize("mode", [None, 0o644, 0o666])
def test_property_files_are_for_this_user_alone(tmp_path, mode):
    """--override may give passwords; the folder may be one that others read, with an older file."""
    settings = {"ssl.keystore.password": "secret"}
    server = Server("broker 0", "broker", 9092, tmp_path / "server-0.properties", settings)
    if mode is not None:
        server.properties.touch()
        server.properties.chmod(mode)
    server.write()

    assert stat.S_IMODE(server.properties.stat().st_mode) == 0o600
    assert server.properties.read_text() == "ssl.keystore.password=secret\n"
