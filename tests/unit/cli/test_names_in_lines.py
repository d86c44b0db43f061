"""Names that clients have made up begin no line of their own, and act on no terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import StringIO

import pytest

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.config.jaas import SCRAM_SHA_256
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.structs import ClientEntity, TopicPartition
from ottla.testing import InProcessBroker

NAME = "x\x1b[1m\x1b]0;owned\x07\r\nfake line\u202e\u2028"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]|^fake", re.MULTILINE)
GUARDED = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}
COMMANDS = [
    "consumer-groups --list",
    "consumer-groups --list --state",
    "consumer-groups --describe --all-groups",
    "consumer-groups --describe --all-groups --members",
    "consumer-groups --describe --all-groups --state",
    "consumer-groups --all-groups --reset-offsets --to-earliest --all-topics",
    "configs --describe --entity-type users",
    "configs --describe --entity-type groups",
    "acls --list",
    "users list",
    "lag",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker where a group, a user, a quota and a rule of rights have such a name."""
    pattern = ResourcePattern(ResourceType.GROUP, NAME, PatternType.LITERAL)
    entry = AccessControlEntry(f"User:{NAME}", NAME, AclOperation.READ, AclPermissionType.ALLOW)
    with InProcessBroker(**GUARDED) as broker:
        broker.create_topic("t")
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.alter_group_offsets(NAME, {TopicPartition("t", 0): 0})
            admin.create_acls([AclBinding(pattern, entry)])
            admin.alter_client_quotas({ClientEntity(NAME): {"producer_byte_rate": 1e6}})
            admin.alter_user_scram_credentials([UserScramCredential(NAME, SCRAM_SHA_256, "pw")])
        yield broker


@pytest.mark.parametrize("command", COMMANDS)
def test_names_stay_in_their_lines(broker, command):
    out, err = StringIO(), StringIO()
    words = [*command.split(), "--bootstrap-server", broker.bootstrap_servers]

    main(words, Terminal(out=out, err=err))

    assert "owned" in out.getvalue() + err.getvalue()
    assert RAW.findall(out.getvalue() + err.getvalue()) == []
