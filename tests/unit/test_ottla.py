"""What `import ottla` offers, and what it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import pytest

import ottla
from ottla.clients.client_settings import merge_settings
from ottla.record import kernel


def test_everything_that_is_announced_can_be_imported():
    """`__all__`, `dir()` and the attributes agree."""
    assert sorted(ottla.__all__) == dir(ottla)
    assert all(getattr(ottla, name) is not None for name in ottla.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = ottla.Nothing


def test_importing_ottla_imports_no_client():
    """Clients come with their first use, so that the command line starts quickly."""
    code = "import ottla, sys; print([m for m in sys.modules if m.startswith('ottla.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "['ottla.late_names', 'ottla.version']"


OTHER_ROOMS = re.compile(
    r"ottla\.(clients|pipelines|spark|streams\.(?!naming)|testing|warehouse)|"
    r"ottla\.registry\.zookeeper"
)


def imported_modules(log):
    """What Python's `importtime` has written."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", log, re.MULTILINE))


def installed_packages(modules):
    """Those that pip has installed, except what Python itself imports as it starts."""
    bare = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", ""], capture_output=True, text=True, check=True
    )
    own = modules - imported_modules(bare.stderr)  # setuptools may hook into each start
    return packages_distributions().keys() & {name.partition(".")[0] for name in own}


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_no_other_package(option):
    """They answer at once: neither a client nor a broker is imported, nor what those need."""
    words = [sys.executable, "-X", "importtime", "-m", "ottla", option]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    modules = imported_modules(done.stderr)

    assert "ottla.cli.main" in modules
    assert installed_packages(modules) == {"ottla"}
    assert "secrets" not in modules  # OpenSSL
    assert not [name for name in modules if OTHER_ROOMS.match(name) or "server." in name]


def test_broker_with_the_embedded_registry_imports_only_what_it_uses(start_broker, monkeypatch):
    """Nothing of ZooKeeper, of the optional packages, of codecs that no batch asked for."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    broker = start_broker()
    broker.stop()
    modules = imported_modules(broker.log)

    assert "ottla.server.broker" in modules
    assert installed_packages(modules) == {"ottla"}
    assert not [name for name in modules if OTHER_ROOMS.match(name)]


NOT_AT_THE_START = re.compile(
    # what the broker is not set up for
    r"ottla\.(metrics|registry\.(zookeeper|acl_store))"
    r"|ottla\.security\.(acls|sasl|scram|kerberos|oauthbearer|certificate|delegation_tokens)"
    r"|ottla\.security\.(password_encoder|ssl_principal_mapper)|ottla\.network\.tls_"
    r"|ottla\.extensions\.(?!(cleaner(\.(cleaner|log_cleaner|log_to_clean))?|quotas(\.quotas)?"
    r"|measures(\.(measures|request_log))?|moves(\.(moves|reassignment|replica_moves?"
    r"|segment_copy))?)$)"
    r"|ottla\.server\.(cluster_link|message_set_fetch|\w+_metrics|remote_\w+)"
    # what nobody has asked it for
    r"|ottla\.coordinator\.(group|transaction\.transaction_coordinator)"
    r"|ottla\.record\.(conversion|\w+_compaction)"
    r"|ottla\.protocol\.(acls|consumer_\w+|group|log_dirs|sasl|telemetry|topics|transactions)"
    r"|ottla\.server\.handlers\.(?!(api_versions|fetch|metadata|named_topics"
    r"|(transactional_)?produce)$)"
    # what other libraries do as well, and takes longer to import
    r"|(dataclasses|datetime|decimal|difflib|hashlib|lzma|pathlib|shlex|shutil|tempfile|urllib)\b"
)


def test_a_start_imports_nothing_that_can_wait(start_broker, monkeypatch):
    """Start-up is imports: what no setting and no client has asked for is not among them."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    broker = start_broker()
    modules = imported_modules(broker.log)

    assert "ottla.server.broker" in modules
    plain = {name for name in modules if name.startswith("ottla.record.plain_")}
    assert not (plain and kernel.COMPILED)  # they are for records that the compiled ones leave
    assert [name for name in modules if NOT_AT_THE_START.match(name)] == []


def test_a_start_with_rights_imports_no_coordinator(start_broker, monkeypatch):
    """The checks of a request need nothing of those that carry it out."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    broker = start_broker(authorizer_class_name=authorizer, super_users="User:ANONYMOUS")
    modules = imported_modules(broker.log)

    assert "ottla.extensions.rights.access_checks" in modules
    others = re.compile(r"ottla\.coordinator\.(group|transaction\.transaction_coordinator)")
    assert [name for name in modules if others.match(name)] == []


def test_a_tool_imports_the_parts_of_the_client_that_it_uses(start_broker):
    """The list of topics needs nothing that is known of groups, of rights or of transactions."""
    command = ["topics", "--bootstrap-server", start_broker().bootstrap_servers, "--list"]
    words = [sys.executable, "-X", "importtime", "-m", "ottla", *command]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    modules = imported_modules(done.stderr)

    assert "ottla.clients.admin.topics" in modules
    others = re.compile(
        r"ottla\.clients\.admin\.(acls|configs|groups|transactions)|ottla\.security\.(acls|sasl)"
        r"|ottla\.protocol\.(acls|log_dirs|sasl|telemetry|transactions)|(dataclasses|shutil)$"
    )
    assert [name for name in modules if others.match(name)] == []


def test_settings_come_as_addresses_mapping_and_keywords():
    """Keywords win over the mapping, which may also come first."""
    expected = {"bootstrap.servers": "a:1", "linger.ms": 5, "acks": "1"}

    assert merge_settings("a:1", {"linger.ms": 3, "acks": "1"}, {"linger_ms": 5}) == expected
    assert merge_settings({"bootstrap.servers": "a:1", "acks": "1"}, None, {"linger_ms": 5}) == (
        expected
    )
