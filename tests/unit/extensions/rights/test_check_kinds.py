"""Each kind of check: the right that it asks for, and the part of a request that it takes out."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from some_rights import asking

from ottla.errors import ErrorCode, KafkaError
from ottla.extensions.rights import check_kinds as kinds
from ottla.extensions.rights.asking import NAMES_IN_A_SLICE
from ottla.protocol.configs import ConfigResourceType, DescribeConfigsResult
from ottla.protocol.produce import TopicProduceData
from ottla.runtime.scheduler import at_once
from ottla.security.acls import CLUSTER, AclOperation, ResourceType

DESCRIBE, ALTER, READ = AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.READ
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def named(*names):
    return [SimpleNamespace(name=name) for name in names]


def error_of(check, asked, body):
    """The error with which the check ends; NONE where the request is served."""
    try:
        check(asked, body)
    except KafkaError as error:
        return error.error
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("check", "right", "error"),
    [
        (kinds.of_cluster(DESCRIBE), (DESCRIBE, *CLUSTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (
            kinds.of_cluster(ALTER, DESCRIBE),
            (ALTER, *CLUSTER),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        (
            kinds.of_cluster(ALTER, DESCRIBE),
            (DESCRIBE, *CLUSTER),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        (kinds.of_group(READ), (READ, GROUP, "mine"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
def test_request_without_the_right_fails_as_a_whole(check, right, error):
    """One of several rights to the cluster is enough; a right to another group is none."""
    body = SimpleNamespace(group_id="mine")

    assert error_of(check, asking(right), body) is ErrorCode.NONE
    assert error_of(check, asking(), body) is error
    assert error_of(check, asking((READ, GROUP, "other")), body) is error


def test_only_a_broker_passes_for_one():
    """The authorizer of this test knows no brokers."""
    error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert error_of(kinds.of_brokers, asking((ALTER, *CLUSTER)), None) is error
    assert kinds.free(asking(), None) is None


def test_each_entry_has_the_error_where_the_right_is_one_to_the_cluster():
    """The answer is that of the request, and no handler sees it."""
    check = kinds.to_cluster(ALTER, lambda body: ("refused", body))

    assert check(asking((ALTER, *CLUSTER)), "request") is None
    assert check(asking(), "request") == ("refused", "request")


@pytest.mark.parametrize("count", [1, NAMES_IN_A_SLICE, NAMES_IN_A_SLICE + 1])
def test_entries_that_are_denied_are_left_out_of_the_request(count):
    """Their lines are behind the others in the answer; a long list is gone through in slices."""
    asked = asking((DESCRIBE, TOPIC, "mine"))
    others = [f"other{number}" for number in range(count)]
    body = SimpleNamespace(topics=named("mine", *others), response_class=None)
    check = kinds.of_topics(DESCRIBE, lambda topic: f"no {topic.name}")
    outcome = check(asked, body)
    denied = outcome if count < NAMES_IN_A_SLICE else at_once(outcome)

    assert denied is None
    assert [each.name for each in body.topics] == ["mine"]
    answer = SimpleNamespace(topics=["mine"])
    at_once(asked.context.amend(answer))
    assert answer.topics == ["mine", *(f"no {name}" for name in others)]


def test_request_of_which_nothing_is_left_is_answered():
    """The lines are those of the denied entries, in the order of the request."""
    body = SimpleNamespace(
        groups=["one", "two"], response_class=lambda: SimpleNamespace(results=[])
    )
    check = kinds.of_groups(DESCRIBE, "groups", "results", lambda name: f"no {name}")
    answer = check(asking(), body)

    assert answer.results == ["no one", "no two"]


def test_list_of_all_has_the_entries_in_sight():
    """Who may see the whole cluster sees all of them."""
    check = kinds.shown(DESCRIBE, GROUP, "groups", "group_id", whole=True)
    for rights, left in (
        [((DESCRIBE, GROUP, "mine"),), ["mine"]],
        [((DESCRIBE, *CLUSTER),), ["mine", "other"]],
    ):
        asked = asking(*rights)
        answer = SimpleNamespace(
            groups=[SimpleNamespace(group_id=name) for name in ("mine", "other")]
        )
        check(asked, None)
        if asked.context.amend is not None:
            at_once(asked.context.amend(answer))
        assert [group.group_id for group in answer.groups] == left


@pytest.mark.parametrize(
    ("type_", "right", "error"),
    [
        (ConfigResourceType.TOPIC, (DESCRIBE, TOPIC, "x"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ConfigResourceType.GROUP, (DESCRIBE, GROUP, "x"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ConfigResourceType.BROKER, (DESCRIBE, *CLUSTER), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (
            ConfigResourceType.CLIENT_METRICS,
            (DESCRIBE, *CLUSTER),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_settings_ask_for_a_right_to_their_owner(type_, right, error):
    """Topics and groups own theirs; those of brokers and of clients' metrics are the cluster's."""
    check = kinds.of_configs(DESCRIBE, "results", DescribeConfigsResult)

    def body():
        resource = SimpleNamespace(resource_type=int(type_), resource_name="x")
        return SimpleNamespace(
            resources=[resource], response_class=lambda: SimpleNamespace(results=[])
        )

    assert check(asking(right), body()) is None
    (line,) = check(asking(), body()).results
    assert (line.error_code, line.resource_name) == (error, "x")


def test_topic_whose_id_is_unknown_is_left_to_the_handler():
    """It has no name to ask about; the handler refuses it by its id."""
    asked = asking((READ, TOPIC, "mine"))
    unknown = kinds.UNRESOLVED
    may = kinds.may_by_id(asked, READ)
    by_name = kinds.may_on_topic(asked, READ)

    topics = [TopicProduceData(name=name) for name in ("mine", "other", unknown)]
    assert [may(topic) for topic in topics] == [True, False, True]
    assert [by_name(topic) for topic in topics] == [True, False, False]
