"""What administrators see of groups."""

import pytest
from group_world import World

from ottla.errors import ErrorCode
from ottla.protocol.group import ListGroupsRequest
from ottla.runtime.scheduler import at_once


@pytest.fixture
def world():
    """A coordinator whose partition is loaded."""
    return World()


def describe(world, group_id="g"):
    """The description of one group."""
    (described,) = at_once(world.coordinator.describe_groups([group_id]))
    return described


def test_stable_group_is_described_with_subscriptions_and_assignments(world):
    """Everything about the members is shown."""
    leader, _ = world.stable_group("one", None)
    described = describe(world)

    assert (described.error_code, described.group_state) == (0, "Stable")
    assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
    first = described.members[0]
    assert (first.member_id, first.group_instance_id) == (leader, "one")
    assert (first.client_id, first.client_host) == ("app", "/10.0.0.1")
    assert (first.member_metadata, first.member_assignment) == (b"meta", leader.encode())


def test_group_in_a_rebalance_is_described_without_assignments(world):
    """What members had no longer holds, what they get is not known yet."""
    leader, _ = world.stable_group(None, None)
    world.join(leader)
    described = describe(world)

    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert [m.member_metadata + m.member_assignment for m in described.members] == [b"", b""]


def test_unknown_group_is_described_as_dead(world):
    """A group that does not exist is not an error."""
    described = describe(world, "nobody")

    assert (described.error_code, described.group_state, described.members) == (0, "Dead", [])


def test_group_with_an_invalid_name_is_an_error(world):
    """A name that no group can have is refused."""
    assert describe(world, "x" * 40_000).error_code == ErrorCode.INVALID_GROUP_ID


def test_groups_are_listed_by_state_and_type(world):
    """Filters do not mind upper case; an empty filter lets all pass (KIP-518)."""
    world.stable_group(None)
    world.commit(5, group="simple")

    assert world.listed() == ["g", "simple"]
    assert world.listed(states=["stable"]) == ["g"]
    assert world.listed(states=["Empty", "Dead"]) == ["simple"]
    assert world.listed(states=["nonsense"]) == []
    assert world.listed(types=["Classic"]) == ["g", "simple"]
    assert world.listed(types=["consumer"]) == []


def test_listed_group_has_type_state_and_protocol_type(world):
    """A group that only keeps offsets has no protocol type."""
    world.stable_group(None)
    world.commit(5, group="simple")
    groups = at_once(world.coordinator.list_groups(ListGroupsRequest())).groups

    assert [(g.protocol_type, g.group_state, g.group_type) for g in groups] == [
        ("consumer", "Stable", "classic"),
        ("", "Empty", "classic"),
    ]


def test_list_during_loading_says_that_it_is_incomplete(world):
    """Groups of the partition that is being loaded are missing."""
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0)
    loading = at_once(world.coordinator.list_groups(ListGroupsRequest()))

    assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_deleting_no_groups_is_answered(world):
    """An empty request has an empty answer."""
    assert world.delete() == {}
