"""Regular expressions of subscriptions: which are refused, and what the others find."""

from __future__ import annotations

import contextlib
import random
import re

import pytest
from consumer_group_world import CLIENT, ConsumerWorld
from group_world import Reply

from ottla.coordinator.group.consumer import name_pattern, topic_matches
from ottla.coordinator.group.consumer.name_pattern import (
    MAX_PLACES,
    MAX_STEPS,
    NamePattern,
    compile_regex,
)
from ottla.coordinator.group.consumer.topic_matches import TopicMatches
from ottla.coordinator.group.member_metadata import ClientContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.consumer_group import ConsumerGroupHeartbeatRequest
from ottla.runtime.scheduler import at_once

LONG = "a" * 32_000
HARD = [
    *("(a+)+", "(a|aa)+[xy]", "(?:a*)*b", "(a|a)*b", ".*.*.*[xy]", "(.*a){20}", "(?:a?){20}a{20}"),
    *("(-[a-z]+)*", "(aa|aa){30}", "a?" * 30 + "a" * 30, ".*" * 200 + "[xy]", "(?:(?:a?){9}){9}"),
    *("(?:a?){900}", "(?:a|b|ab)*" * 100, "[ab]*a[ab]{12}", "(?i:A*)*c", r"(?:\b|a)*b", "(^|a$)*"),
]


@pytest.mark.parametrize(
    "text",
    ["orders", "^a.*|^b.*", "(ab)*", "(?i)x+", "[a-z]+-[0-9]{2,}", ".*a.*b.*", "(a|b)?x", "x{100}"],
)
def test_expression_of_the_usual_kind_is_taken(text):
    """Literals, sets, alternatives, repeats, anchors."""
    assert compile_regex(text).pattern == text


@pytest.mark.parametrize(
    "text",
    [
        *("(", "*", "x" * 5000, "x{1001}", "(x{100}){100}", "x{99999999999}", "(" * 4000),
        *("x{1001,}", "x{0,1001}", "(?:){1001}"),
        *(r"(x)\1", "(?=a)b", "(?<!a)b", "(?>a)", "a++"),
    ],
)
def test_expression_that_is_none_or_too_large_is_refused(text):
    """Syntax that RE2 lacks is refused as well: look-around, references, atomic groups."""
    with pytest.raises(KafkaError) as refused:
        compile_regex(text)

    assert refused.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("body", ["a?", "", "a", "(?:b|)", "[ab]"])
@pytest.mark.parametrize("count", ["{32}", "{0,32}", "{1000}", "{32,}", "*", "+"])
@pytest.mark.parametrize("depth", [3, 6, 60, 400])
def test_nested_repeats_take_no_more_places_than_an_automaton_may_have(
    monkeypatch, body, count, depth
):
    """No power is computed: the places are counted as they are made."""
    made = []
    place = name_pattern.Automaton._place
    monkeypatch.setattr(
        name_pattern.Automaton,
        "_place",
        lambda *arguments: (made.append(1), place(*arguments))[1],
    )
    text = body
    for _ in range(depth):
        text = f"(?:{text}){count}"

    with contextlib.suppress(KafkaError):
        compile_regex.__wrapped__(text)
    assert len(made) <= MAX_PLACES + 1


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("name", [LONG, LONG[:249], "ab" * 16_000, LONG + "!"], ids=len)
def test_no_name_takes_more_steps_than_a_search_may(monkeypatch, text, name):
    """However long it is: each character is read once, and the sets of places are limited."""
    spent = []
    spend = NamePattern._spend
    monkeypatch.setattr(
        NamePattern, "_spend", lambda self, steps: (spent.append(steps), spend(self, steps))
    )
    pattern = NamePattern(text)
    with contextlib.suppress(KafkaError):
        pattern.fullmatch(name)
    assert sum(spent[:-1]) <= MAX_STEPS


@pytest.mark.parametrize("seed", range(8))
def test_names_are_matched_as_by_pythons_own_matcher(seed):
    """Any expression that both take, on any short name: they say the same."""
    chance = random.Random(seed)
    for _ in range(150):
        text = chance.choice(["", "", "(?i)", "(?s)"]) + expression(chance, 4)
        wanted = re.compile(text, re.ASCII)
        pattern = compile_regex(text)
        for _ in range(8):
            name = "".join(chance.choices("abAB1.-_", k=chance.randrange(1, 7)))
            assert pattern.fullmatch(name) == bool(wanted.fullmatch(name)), (text, name)


def expression(chance: random.Random, depth: int) -> str:
    """One made at random of what is supported."""
    kind = chance.randrange(10 if depth else 5)
    if kind < 2:
        return chance.choice("abA")
    if kind == 2:
        return chance.choice([".", "[ab]", "[^a]", r"\w", r"\d", r"\W", r"[a-c\d]", r"[\D]", r"\."])
    if kind == 3:
        return chance.choice(["^", "$", r"\b", r"\B", r"\A", r"\Z"])
    if kind == 4:
        return ""
    inner = expression(chance, depth - 1)
    if kind < 7:
        return inner + expression(chance, depth - 1)
    if kind == 7:
        return f"(?:{inner}|{expression(chance, depth - 1)})"
    if kind == 8:
        return f"(?:{inner})" + chance.choice(["*", "+", "?", "{2}", "{1,3}", "*?", "{0,2}?"])
    return f"({chance.choice(['', '?i:', '?s:', '?-i:'])}{inner})"


@pytest.mark.parametrize(
    ("text", "name", "steps"),
    [
        ("a", "a", 5),
        ("[a-c]", "a", 6),
        ("[a-cx-z]", "a", 7),
        ("ab", "ab", 8),
        ("a|b", "b", 5),
        ("[ab]*c", "aabc", 12),
    ],
)
def test_step_is_a_place_or_a_range_that_is_looked_at(monkeypatch, text, name, steps):
    """Each place, range and set of places is a step: a search that needs one more is refused."""
    monkeypatch.setattr(name_pattern, "MAX_STEPS", steps)
    assert NamePattern(text).fullmatch(name)
    monkeypatch.setattr(name_pattern, "MAX_STEPS", steps - 1)
    pattern = NamePattern(text)
    for _ in range(2):
        with pytest.raises(KafkaError, match="too long to match"):
            pattern.fullmatch(name)
        pattern = NamePattern(text)


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("(?m)a\n^b", "a\nb", True),
        ("(?m)a$\nb", "a\nb", True),
        ("(?m)a-^b", "a-b", False),
        (r"(?m)a\n\Ab", "a\nb", False),
        (r"a\n^b", "a\nb", False),
        (r"(?m)a\Z\nb", "a\nb", False),
        (r"a$\nb", "a\nb", False),
        (r"a\n\bb", "a\nb", True),
        (r"[\D]", "a", True),
        (r"[\D]", "1", False),
        (r"[\d]", "1", True),
        (r"[^\D]", "a", False),
        ("a", "A", False),
        ("[^a]", "A", True),
        ("(?i)[^a]", "A", False),
    ],
)
def test_case_and_ends_of_lines_are_those_of_the_expression(text, name, matches):
    """Case and ends of lines count as written, also where a name could not have them."""
    assert NamePattern(text).fullmatch(name) is matches is bool(re.fullmatch(text, name))


def test_sets_of_an_expression_are_forgotten_when_they_are_many():
    """What stays of a search is limited, for as long as the expression is known."""
    pattern = NamePattern("[ab]*a[ab]{7}")
    chance = random.Random(1)
    for _ in range(30):
        pattern.matching(["".join(chance.choices("ab", k=40)) for _ in range(20)])

    assert pattern._kept_steps <= name_pattern.MAX_KEPT_STEPS + MAX_STEPS
    assert len(pattern._sets) < 1000


def test_sets_are_kept_until_they_have_taken_many_steps(monkeypatch):
    """Then the next search begins without any, and its own are kept again."""

    def most_steps(count: int) -> None:
        monkeypatch.setattr(name_pattern, "MAX_STEPS", count)

    pattern = NamePattern("aaabbb")
    monkeypatch.setattr(name_pattern, "MAX_KEPT_STEPS", 20)
    assert pattern.fullmatch("aaabbb")
    most_steps(0)
    assert pattern.fullmatch("aaabbb")
    monkeypatch.setattr(name_pattern, "MAX_KEPT_STEPS", 19)
    most_steps(3)
    with pytest.raises(KafkaError):
        pattern.fullmatch("x")
    most_steps(4)
    assert not pattern.fullmatch("x")
    most_steps(0)
    assert not pattern.fullmatch("x")


def test_expression_may_be_as_long_as_the_limit():
    """One character more is too long."""
    longest = "[" + "a" * (name_pattern.MAX_LENGTH - 2) + "]"
    assert compile_regex(longest).fullmatch("a")
    with pytest.raises(KafkaError, match="it is longer than"):
        compile_regex(longest + "a")


def test_whole_names_are_matched():
    """As RE2's full match does."""
    world = ConsumerWorld({"a": 1, "ab": 1, "ba": 1})

    assert at_once(TopicMatches(world.topics).matching("ab?")) == {"a", "ab"}


def test_matches_are_remembered_until_the_topics_change():
    """So that each member of a group does not search for itself."""
    world = ConsumerWorld({"a": 1, "ab": 1})
    matches = TopicMatches(world.topics)
    found = at_once(matches.matching("a.*"))

    assert at_once(matches.matching("a.*")) is found
    world.create("ac", 1)
    assert at_once(matches.matching("a.*")) == {"a", "ab", "ac"}


def test_matches_that_are_too_many_are_forgotten(monkeypatch):
    """Many expressions do not hold the names of all topics each."""
    monkeypatch.setattr(topic_matches, "MAX_KEPT_NAMES", 5)
    matches = TopicMatches(ConsumerWorld({"a": 1, "ab": 1}).topics)
    first = at_once(matches.matching("a.*"))
    at_once(matches.matching("a?b?"))

    again = at_once(matches.matching("a.*"))
    assert again == first
    assert again is not first


GUARDED = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}


def sees(*names: str) -> ClientContext:
    """A client that may see just these topics."""
    return CLIENT._replace(in_sight=lambda name: name in names)


def beat(world: ConsumerWorld, client: ClientContext, member_id: str, epoch: int = 0) -> Reply:
    """A member with an expression that all topics match joins, or says that it lives."""
    reply = Reply()
    joins = {"subscribed_topic_names": [], "subscribed_topic_regex": ".*"} if not epoch else {}
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rebalance_timeout_ms=1000,
        topic_partitions=[],
        **joins,
    )
    world.coordinator.consumer_group_heartbeat(request, client, reply)
    return reply


def names_found(world: ConsumerWorld) -> set[str]:
    return set(world.consumers.regexes[".*"])


def test_expression_finds_no_topic_out_of_sight():
    """Whether it is there when the member joins or comes later, by what the client may see then."""
    world = ConsumerWorld({"pay": 1, "t": 1, "u": 1}, **GUARDED)
    beat(world, sees("t", "v"), "a")

    assert names_found(world) == {"t"}
    world.create("v", 1)
    world.create("w", 1)
    beat(world, sees("t", "v"), "a", 1)
    assert names_found(world) == {"t", "v"}


def test_members_with_one_expression_share_what_all_of_them_may_see():
    """A member never learns of a topic from another one's rights."""
    world = ConsumerWorld({"pay": 1, "t": 1, "u": 1}, **GUARDED)
    beat(world, sees("pay", "t"), "a")
    assert names_found(world) == {"pay", "t"}
    beat(world, sees("t", "u"), "b")

    assert names_found(world) == {"t"}


def test_expression_of_members_not_heard_of_yet_finds_nothing_new():
    """A coordinator that has read the group from the log does not know who its members are."""
    world = ConsumerWorld({"t": 1, "u": 1}, **GUARDED)
    beat(world, sees("t"), "a")
    for member in world.consumers.members.values():
        member.in_sight = None
    world.create("v", 1)
    world.drop("u")
    world.coordinator._consumers._rebalancer.notice_topics(world.consumers)

    assert names_found(world) == {"t"}


def test_expression_that_becomes_too_hard_keeps_what_it_has(monkeypatch):
    """Nobody's heartbeat fails for it; one who brings it anew is refused, and changes nothing."""
    world = ConsumerWorld({"t": 1})
    beat(world, CLIENT, "a")
    monkeypatch.setattr(name_pattern, "MAX_STEPS", 0)
    compile_regex.cache_clear()
    world.create("u", 1)

    assert beat(world, CLIENT, "a", 1).error is ErrorCode.NONE
    assert names_found(world) == {"t"}
    assert beat(world, CLIENT, "b").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert list(world.consumers.members) == ["a"]
