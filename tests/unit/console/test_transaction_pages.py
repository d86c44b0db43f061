"""The page of transactions: open ones are seen and ended, by the way that fits."""

from __future__ import annotations

import pytest
from lag_world import LagWorld
from users_of_console import at_login, client, logged_in, right, users_broker
from visitor import Visitor, visit

from ottla import Admin, Producer, TopicPartition
from ottla.clients.admin.transactions import TransactionAdmin
from ottla.console import transaction_pages
from ottla.errors import ErrorCode, KafkaError
from ottla.security.acls import AclOperation, ResourceType


@pytest.fixture
def opened(world: LagWorld):
    """Producer `shop` has an open transaction at offset 5 of topic ledger; two records follow."""
    (ledger,) = world.add_topic("ledger")
    world.write(ledger, 5)
    producer = Producer(world.servers, transactional_id="shop")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("ledger", b"open").result(30)
    world.write(ledger, 2)
    yield world
    world.admin.fence_producers(["shop"])
    with pytest.raises(KafkaError):
        producer.commit_transaction()
    producer.close()
    world.admin.delete_topics(["ledger"])


@pytest.fixture
def lost(opened: LagWorld, monkeypatch):
    """The coordinators know no transactional id, as after a loss of their log."""

    async def nothing(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(TransactionAdmin, "list_transactions", nothing)
    return opened


def stable(world: LagWorld) -> int:
    """Up to where readers of committed records get."""
    (found,) = world.admin.list_offsets(
        {TopicPartition("ledger", 0): -1}, "read_committed"
    ).values()
    return found.offset


def test_open_transaction_is_shown_with_its_id(opened):
    """Where it begins, how much it holds back, and the command that ends it."""

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/transactions.json")).json
        (line,) = data["open"]
        assert (line["topic"], line["partition"], line["start_offset"]) == ("ledger", 0, 5)
        assert (line["held_back"], line["transactional_id"]) == (3, "shop")
        assert line["is_hanging"] is False
        assert line["command"] == "ottla transactions force-terminate --transactional-id shop"
        row = next(each for each in data["rows"] if each["transactional_id"] == "shop")
        assert (row["state"], row["partitions"]) == ("Ongoing", ["ledger-0"])
        page = (await visitor.get("/transactions")).text
        assert 'action="/transactions/terminate"' in page
        assert 'action="/transactions/abort"' not in page
        assert (await visitor.get("/transactions.json?q=nothing")).json["found"] == 0

    visit(opened.servers, walk)


def test_id_is_terminated(opened):
    """The transaction is aborted, and readers get to the end."""

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.post("/transactions/terminate", id="shop")
        assert answer.status == 303
        page = (await visitor.get("/transactions")).text
        assert "The transaction of shop is aborted" in page
        assert "No transaction is open." in page
        assert (await visitor.post("/transactions/terminate")).status == 400

    assert stable(opened) == 5
    visit(opened.servers, walk)
    assert stable(opened) > 7


def test_transaction_that_its_coordinator_has_lost_hangs_and_is_aborted(lost, monkeypatch):
    """It comes first, and is aborted in its partition."""
    monkeypatch.setattr(transaction_pages, "HANGS_AFTER_MS", -1)

    async def walk(visitor: Visitor) -> None:
        (line,) = (await visitor.get("/transactions.json")).json["open"]
        assert (line["is_hanging"], line["transactional_id"]) == (True, None)
        assert line["command"] == (
            "ottla transactions abort --topic ledger --partition 0 --start-offset 5"
        )
        place = {"topic": "ledger", "partition": "0"}
        wrong = await visitor.post("/transactions/abort", **place, start_offset="4")
        assert "No open transaction begins at offset 4 of ledger-0" in wrong.text
        assert (await visitor.post("/transactions/abort", **place)).status == 400
        done = await visitor.post("/transactions/abort", **place, start_offset="5")
        assert done.status == 303
        assert (await visitor.get("/transactions.json")).json["open"] == []

    visit(lost.servers, walk)
    assert stable(lost) > 7


def test_transaction_whose_coordinator_does_not_answer_does_not_hang(opened, monkeypatch):
    """It cannot be aborted as one that hangs."""
    monkeypatch.setattr(transaction_pages, "HANGS_AFTER_MS", -1)
    form = {"topic": "ledger", "partition": "0", "start_offset": "5"}

    async def refuse(_: object, names: list[str]) -> dict[str, KafkaError]:
        return {each: KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now") for each in names}

    monkeypatch.setattr(TransactionAdmin, "describe_transactions", refuse)

    async def walk(visitor: Visitor) -> None:
        (line,) = (await visitor.get("/transactions.json")).json["open"]
        assert (line["is_hanging"], line["transactional_id"]) == (False, None)
        assert line["command"] == ""  # that of one that hangs would end another's
        page = (await visitor.get("/transactions")).text
        assert "not known whose it is" in page
        assert 'action="/transactions/abort"' not in page
        answer = await visitor.post("/transactions/abort", **form)
        assert answer.status == 400
        assert "may not hang: its coordinator does not describe it: not now" in answer.text

    visit(opened.servers, walk)
    assert stable(opened) == 5


def test_transaction_of_a_coordinator_is_not_aborted_behind_its_back(opened):
    """Its id is to be terminated; and a read-only console ends none."""
    form = {"topic": "ledger", "partition": "0", "start_offset": "5"}

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.post("/transactions/abort", **form)
        assert answer.status == 400
        assert "is known to its coordinator" in answer.text

    async def look(visitor: Visitor) -> None:
        assert (await visitor.post("/transactions/abort", **form)).status == 404
        assert (await visitor.post("/transactions/terminate", id="shop")).status == 404
        assert "Terminate" not in (await visitor.get("/transactions")).text

    visit(opened.servers, walk)
    visit(opened.servers, look, read_only=True)
    assert stable(opened) == 5


def test_broker_that_lists_no_transactions_says_so(world, monkeypatch):
    """In one sentence, and not as an error."""

    async def refuse(*_: object) -> list[object]:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "it has no ListTransactions")

    monkeypatch.setattr(TransactionAdmin, "list_transactions", refuse)

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/transactions")
        assert answer.status == 200
        assert "These brokers do not list transactions" in answer.text

    visit(world.servers, walk)


def test_transaction_of_an_id_that_a_user_may_not_see_does_not_hang(monkeypatch):
    """No broker lists it to them: it was shown as hanging, with the command that aborts it."""
    monkeypatch.setattr(transaction_pages, "HANGS_AFTER_MS", -1)

    async def walk(visitor: Visitor) -> None:
        found = []
        for name in ("admin", "carol"):
            browser = await logged_in(visitor, name)
            (line,) = (await browser.get("/transactions.json")).json["open"]
            found.append((line["transactional_id"], line["is_hanging"], line["doubt"]))
        assert found == [
            ("shop", False, ""),
            (None, False, "it may be of a transactional id that this user may not see"),
        ]

    with users_broker() as broker:
        servers, admin = broker.bootstrap_servers, client("admin")
        with Admin(servers, admin) as rights:
            rights.create_acls([right("carol", "alice", ResourceType.TOPIC, AclOperation.READ)])
        with Producer(servers, admin, transactional_id="shop") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("alice-orders", b"open").result(30)
            at_login(broker, walk)
            producer.abort_transaction()
