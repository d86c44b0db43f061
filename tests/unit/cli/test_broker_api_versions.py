"""`ottla broker-api-versions`."""

from ottla.cli.broker_api_versions import api_text
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.message import request_class
from ottla.structs import Node


def test_each_broker_is_a_block(tool, admin):
    """The broker, then its APIs in the order of their keys, those that it lacks included."""
    outcome = tool("broker-api-versions")

    assert outcome.status == 0
    assert outcome.lines[0] == "localhost:9092 (id: 0 rack: null) -> ("
    assert outcome.lines[1].startswith("\tProduce(0): 0 to 7 [usable: 7],")
    assert "\tListOffsets(2): UNSUPPORTED," in outcome.lines
    assert outcome.lines[-2:] == ["\tUNKNOWN(99): 1", ")"]


def test_broker_that_does_not_answer_is_named(tool, admin):
    """The others are shown."""
    admin.nodes = [Node(1, "b", 9092, "r1"), Node(0, "a", 9092)]
    admin.failures[1] = KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone")

    outcome = tool("broker-api-versions")

    assert outcome.status == 1
    assert outcome.lines[0].startswith("a:9092 (id: 0 rack: null)")
    assert outcome.lines[-1] == "b:9092 (id: 1 rack: r1) -> ERROR: NETWORK_EXCEPTION: gone"


def test_versions_that_do_not_meet_are_unusable():
    """The range is compared with what Ottla's own client speaks."""
    produce = request_class(0)

    assert api_text(0, (99, 99)) == "Produce(0): 99 [unusable: node too new]"
    assert api_text(0, (0, produce.min_version - 1)).endswith("[unusable: node too old]")
    assert api_text(0, (0, 99)) == f"Produce(0): 0 to 99 [usable: {produce.max_version}]"


def test_api_without_words_here_has_no_usable_version():
    """It is named where its name is known."""
    assert api_text(52, (0, 2)) == "Vote(52): 0 to 2"
