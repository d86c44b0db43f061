"""`ottla users`, by a broker and in the files of one that does not run."""

from __future__ import annotations

import pytest

from ottla.cli.scram_users import scram_changes, scram_stored, without_keys
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.security.scram import ScramCredential
from ottla.testing import InProcessBroker

BOTH = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "secret",
}


@pytest.fixture
def cluster(admin):
    """A cluster with alice in it, whose admin client keeps what it was asked for."""
    admin.describe_user_scram_credentials = lambda: {"alice": {"SCRAM-SHA-512": 8192}}
    admin.alter_user_scram_credentials = admin.changes.extend
    return admin


def test_users_are_listed(tool, cluster):
    """Users are listed with their mechanisms; their credentials stay in the registry."""
    assert tool("users", "list").lines == ["alice: SCRAM-SHA-512 (8192 iterations)"]


@pytest.mark.parametrize(
    ("words", "mechanisms", "iterations"),
    [
        ((), BOTH, 4096),
        (("--mechanism", "SCRAM-SHA-256", "--iterations", "16384"), BOTH[:1], 16384),
    ],
)
def test_user_is_added(ottla, cluster, words, mechanisms, iterations):
    """The password is a line of standard input, and is not printed."""
    ended = ottla("users", "add", "bob", *words, stdin=b"SESAME\n")

    assert ended.out == f"Added user bob ({', '.join(mechanisms)}).\n"
    assert ended.err == ""
    assert cluster.changes == [
        UserScramCredential("bob", each, "SESAME", iterations) for each in mechanisms
    ]


def test_password_is_the_first_line_of_a_file(ottla, cluster, tmp_path):
    """The password ends before the end of the line."""
    (tmp_path / "password").write_text("SESAME \r\nmore\n")

    ottla("users", "add", "bob", "--password-file", tmp_path / "password")

    assert {each.password for each in cluster.changes} == {"SESAME "}


def test_user_is_removed(tool, cluster):
    """All credentials that it has."""
    assert tool("users", "remove", "alice").lines == ["Removed user alice (SCRAM-SHA-512)."]
    assert cluster.changes == [UserScramCredential("alice", "SCRAM-SHA-512", None)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("add", "add takes a USER"),
        ("list alice", "list takes no USER"),
        ("remove bob", "user bob has no credentials"),
        ("remove alice --mechanism SCRAM-SHA-256", "user alice has no credentials"),
        ("add bob --mechanism PLAIN", "--mechanism may be SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("add bob --iterations 100", "--iterations takes a number from 4096 to 16384, not '100'"),
        ("list --zookeeper a:1 --log-dir b", "only one of"),
        ("list --password-file x", "--password-file"),
        ("add bob", "the password must not be empty"),
    ],
)
def test_what_does_not_fit_is_refused(ottla, cluster, words, said):
    """The refusal is one line."""
    ended = ottla("users", *words.split())

    assert ended.status == 1
    assert said in ended.err
    assert not cluster.changes


def test_first_user_is_added_before_the_first_start(ottla, tmp_path):
    """The broker that is started on the directory then knows it."""
    added = ottla("users", "add", "alice", "--log-dir", tmp_path, stdin=b"secret\n")
    again = ottla("users", "add", "bob", "--log-dir", tmp_path, stdin=b"other\n")
    removed = ottla("users", "remove", "bob", "--log-dir", tmp_path)
    listed = ottla("users", "list", "--log-dir", tmp_path)

    assert [each.err for each in (added, again, removed, listed)] == [""] * 4
    assert listed.out == (
        "alice: SCRAM-SHA-256 (4096 iterations), SCRAM-SHA-512 (4096 iterations)\n"
    )
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    with InProcessBroker(tmp_path, **settings) as broker:
        import ottla as clients

        with clients.Admin(broker.bootstrap_servers, LOGIN) as admin:
            assert set(admin.describe_user_scram_credentials()) == {"alice"}
        in_use = ottla("users", "list", "--log-dir", tmp_path)
    assert in_use.status == 1
    assert "in use by another process" in in_use.err


# As `ottla configs` has them


SCRAM = "SCRAM-SHA-256=[iterations=8192,password=SES,AME=1]"


def test_configs_makes_a_credential_as_kafkas_tool_does(ottla, cluster):
    """A comma and an equals sign may be in the password, which is not printed."""
    ended = ottla("configs", "--alter", "--user", "bob", "--add-config", SCRAM)

    assert (ended.out, ended.err) == ("Completed updating config for user bob.\n", "")
    assert cluster.changes == [UserScramCredential("bob", "SCRAM-SHA-256", "SES,AME=1", 8192)]


def test_configs_removes_a_credential(ottla, cluster):
    """A credential is removed by its mechanism."""
    ottla("configs", "--alter", "--user", "bob", "--delete-config", "SCRAM-SHA-512")

    assert cluster.changes == [UserScramCredential("bob", "SCRAM-SHA-512", None)]


def test_configs_shows_credentials_by_their_iterations(ottla, cluster):
    """After the quotas of users."""
    cluster.describe_client_quotas = lambda components, strict: {}
    cluster.describe_user_scram_credentials = lambda users: {"alice": {"SCRAM-SHA-512": 8192}}

    ended = ottla("configs", "--describe", "--entity-type", "users")

    assert ended.out == (
        "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-512=iterations=8192\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--user", "a", "--add-config", "SCRAM-SHA-256=x"), "takes [iterations=COUNT,password="),
        (("--user", "a", "--add-config", "SCRAM-SHA-256=[iterations=1,password=x]"), "4096 to"),
        (("--user", "a", "--add-config", f"{SCRAM},producer_byte_rate=1"), "Cannot alter both"),
        (("--user-defaults", "--add-config", SCRAM), "each by its own --entity-name"),
    ],
)
def test_configs_refuses_what_is_no_credential(ottla, cluster, words, said):
    """The refusal is one line, without the password."""
    ended = ottla("configs", "--alter", *words)

    assert ended.status == 1
    assert said in ended.err
    assert "AME" not in ended.err
    assert not cluster.changes


def test_stored_credential_lets_the_password_in():
    """The credential is that of Kafka 2.3's tool in ZooKeeper; shown, it has no key."""
    changes = scram_changes({"SCRAM-SHA-256": "password=secret"}, [])

    after = scram_stored(changes, {"producer_byte_rate": "1"})

    credential = ScramCredential.parse(after["SCRAM-SHA-256"])
    assert credential == ScramCredential.of_password(
        "SCRAM-SHA-256", "secret", 4096, credential.salt
    )
    assert without_keys(after) == {"producer_byte_rate": "1", "SCRAM-SHA-256": "iterations=4096"}
    assert "secret" not in repr(changes)
    assert scram_stored(scram_changes({}, ["SCRAM-SHA-256"]), after) == {"producer_byte_rate": "1"}
