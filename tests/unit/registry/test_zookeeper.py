"""The registry on a real ZooKeeper server: broken connections, sessions that end, ACLs, limits."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.connection import _CONNECTION_DROP

from ottla.config.config_type import Password
from ottla.errors import KafkaError
from ottla.registry.tree import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Registry,
    RegistryError,
    RegistryFailedError,
    SessionEndedError,
    SessionState,
    Set,
)
from ottla.registry.zookeeper import ZooKeeperRegistry
from ottla.registry.zookeeper_session import ZooKeeperSettings
from ottla.runtime import real_runtime

LIMIT_S = 100
SESSION_MS = 10_000  # as long as the server of the tests allows

Scenario = Callable[[ZooKeeperRegistry], Awaitable[None]]


@asynccontextmanager
async def opened(settings: ZooKeeperSettings) -> AsyncIterator[ZooKeeperRegistry]:
    """An open registry for as long as the block lasts, with a limit."""
    runtime = real_runtime(asyncio.get_running_loop())
    registry = ZooKeeperRegistry(runtime, settings)
    await registry.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            yield registry
    finally:
        await registry.close()
        await runtime.close()


@pytest.fixture
def settings(zookeeper, unique) -> ZooKeeperSettings:
    """Those of a chroot that nobody has used."""
    return ZooKeeperSettings(
        (zookeeper.connect,), f"/{unique('unit')}/below", session_timeout_ms=SESSION_MS
    )


@pytest.fixture
def run(settings) -> Callable[[Scenario], None]:
    """Runs a scenario on a loop of its own with an open registry."""

    async def play(scenario: Scenario) -> None:
        async with opened(settings) as registry:
            await scenario(registry)

    return lambda scenario: asyncio.run(play(scenario))


class States:
    """What a watch of the session has told."""

    def __init__(self, registry: Registry) -> None:
        self.told: asyncio.Queue[SessionState] = asyncio.Queue()
        registry.watch_session(self.told.put_nowait)

    async def next_are(self, *states: SessionState) -> None:
        assert [await self.told.get() for _ in states] == list(states)


def drop_connection(registry: ZooKeeperRegistry) -> None:
    """The connection breaks, and kazoo connects again."""
    client = registry.session._client
    client._call(_CONNECTION_DROP, client.handler.async_result())


async def expire(registry: ZooKeeperRegistry) -> None:
    """End the session: another connection takes it over and closes it with one packet."""
    client = registry.session._client
    session_id, password = client._session_id, client._session_passwd
    take = struct.pack(">iqiqi16s?", 0, 0, SESSION_MS, session_id, 16, password, False)
    close = struct.pack(">ii", 1, -11)
    packets = b"".join(struct.pack(">i", len(packet)) + packet for packet in (take, close))
    connect = client.handler.create_connection
    client.handler.create_connection = refuse_connection  # or it would take the session back
    host, _, port = registry.settings.servers[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(packets)
    await reader.read()
    client.handler.create_connection = connect
    writer.close()
    await writer.wait_closed()


def refuse_connection(*arguments: object, **options: object) -> None:
    raise ConnectionRefusedError


def lose_answers(registry: ZooKeeperRegistry, count: int = 1) -> None:
    """The next answers are lost with their connections, though the requests were done."""
    session, request = registry.session, registry.session._request
    left = count

    async def request_and_lose(send):
        nonlocal left
        if left == 0:
            return await request(send)
        left -= 1
        await request(send)
        raise ConnectionLoss

    session._request = request_and_lose


def test_chroot_is_made_and_hides_the_rest(settings, run):
    """Paths begin below it; a second registry with the same chroot sees the same."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        await registry.create("/a", b"1", ephemeral=True)
        async with opened(settings._replace(chroot="")) as root:
            assert await root.children(settings.chroot) == ["a"]
        async with opened(settings) as other:
            data, stat = await other.get("/a")
            assert (data, stat.is_ephemeral, stat.is_own) == (b"1", True, False)

    run(scenario)


@pytest.mark.parametrize(
    "write",
    [
        lambda registry: registry.create("/new", b"1"),
        lambda registry: registry.create("/new", b"1", ephemeral=True),
        lambda registry: registry.set("/a", b"2", 0),
        lambda registry: registry.delete("/b", 0),
        lambda registry: registry.multi(
            [
                Check("/a", 0),
                Create("/new", b"", ephemeral=True),
                Set("/a", b"2", 0),
                Delete("/b"),
            ]
        ),
    ],
)
def test_write_whose_answer_was_lost_is_done_once(run, write):
    """The repetition is refused, but the tree is as the write wanted it: that is a success."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        for path in ("/a", "/b"):
            await registry.create(path, b"")
        lose_answers(registry)
        await write(registry)

        _, stat = await registry.get("/a")
        assert stat.version <= 1

    run(scenario)


def test_answer_after_a_repetition_is_that_of_the_write(run):
    """Path and version are what they would have been."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        lose_answers(registry)
        assert await registry.create("/a", b"") == "/a"
        lose_answers(registry)
        assert (await registry.set("/a", b"1", 0)).version == 1
        lose_answers(registry)
        stats = await registry.multi([Set("/a", b"2", 1), Check("/a", 2)])
        assert [stat and stat.version for stat in stats] == [2, None]

    run(scenario)


def test_write_of_somebody_else_is_not_taken_for_ours(run):
    """The repetition is refused, and the tree is not as the write wanted it."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        await registry.create("/a", b"theirs")
        refusals = (
            (registry.create("/a", b"ours"), NodeExistsError),
            (registry.create("/a", b"theirs", ephemeral=True), NodeExistsError),
            (registry.set("/a", b"ours", 7), BadVersionError),
            (registry.delete("/a", 7), BadVersionError),
            (registry.set("/no", b""), NoNodeError),
        )
        for write, error in refusals:
            request, session = registry.session._request, registry.session
            attempts = iter((ConnectionLoss(),))

            async def lose_request(send, request=request, attempts=attempts):
                for failure in attempts:
                    raise failure
                return await request(send)

            session._request = lose_request
            with pytest.raises(error):
                await write
            session._request = request

    run(scenario)


def test_request_that_breaks_every_connection_is_given_up(run):
    """It does not go round for ever."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        lose_answers(registry, 1000)
        with pytest.raises(RegistryFailedError, match="connections to ZooKeeper broke"):
            await registry.exists("/a")

    run(scenario)


def test_request_larger_than_the_server_takes_is_refused(run):
    """It would break the connection, over and over; the limit is named."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        with pytest.raises(RegistryError, match=r"/a: 10\d+ bytes are more than .* \(1048575\)"):
            await registry.create("/a", bytes(1 << 20))
        await registry.create("/a", bytes((1 << 20) - 2000))
        data, stat = await registry.get("/a")
        assert len(data) == stat.data_length == (1 << 20) - 2000

    run(scenario)


def test_broken_connection_does_not_end_the_session(settings, run):
    """Ephemeral nodes stay; a change meanwhile is told of; watches work on."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        states, news, silent = States(registry), asyncio.Event(), asyncio.Event()
        await registry.create("/e", b"", ephemeral=True)
        await registry.create("/a", b"")
        registry.watch_data("/a", news.set)
        registry.watch_data("/e", silent.set)
        await registry.exists("/a")
        drop_connection(registry)
        await states.next_are(SessionState.SUSPENDED, SessionState.RESUMED)
        async with opened(settings) as other:
            await other.set("/a", b"1")
            await news.wait()

        assert await registry.exists("/e") is not None
        assert not silent.is_set()

    run(scenario)


def test_operations_wait_while_no_server_is_there(start_zookeeper, unique):
    """They are done when it is back, in the same session, and watches are called."""
    zookeeper = start_zookeeper()
    settings = ZooKeeperSettings((zookeeper.connect,), "/x", session_timeout_ms=10_000)

    async def play() -> None:
        async with opened(settings) as registry:
            states, news = States(registry), asyncio.Event()
            await registry.create("/e", b"", ephemeral=True)
            registry.watch_children("/", news.set)
            await registry.children("/")
            zookeeper.kill()
            await states.next_are(SessionState.SUSPENDED)
            creations = [asyncio.ensure_future(registry.create(f"/{n}", b"")) for n in range(30)]
            await asyncio.to_thread(zookeeper.start)
            await asyncio.gather(*creations)
            await states.next_are(SessionState.RESUMED)
            await news.wait()
            assert len(await registry.children("/")) == 31

    asyncio.run(play())


def test_new_session_follows_an_expired_one(run):
    """Whoever watches is told, and finds the ephemeral nodes gone; watches work on."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        states, gone = States(registry), asyncio.Event()
        await registry.create("/e", b"", ephemeral=True)
        registry.watch_data("/e", gone.set)
        await registry.exists("/e")
        first = registry.session.session_id
        await expire(registry)
        told = []
        while SessionState.RENEWED not in told:
            told.append(await states.told.get())
        await gone.wait()

        assert told[-2:] == [SessionState.EXPIRED, SessionState.RENEWED]
        assert await registry.exists("/e") is None
        assert registry.session.session_id != first
        gone.clear()
        await registry.create("/e", b"", ephemeral=True)
        await gone.wait()

    run(scenario)


def test_operation_that_waited_for_a_server_is_not_done_in_another_session(run):
    """A controller that was cut off wrote, when it was back, what its successor had overtaken."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        states, handler = States(registry), registry.session._client.handler
        connect, handler.create_connection = handler.create_connection, refuse_connection
        drop_connection(registry)
        await states.next_are(SessionState.SUSPENDED)
        late = asyncio.ensure_future(registry.create("/late", b""))
        await asyncio.wait([late], timeout=0.01)
        await expire(registry)
        handler.create_connection = connect

        with pytest.raises(SessionEndedError):
            await late
        assert await registry.exists("/late") is None

    run(scenario)


def test_watch_misses_no_change_while_connections_break(settings, run):
    """Whoever reads after each call has the last state in the end, also of the list of nodes."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        last, data_news, children_news = 40, asyncio.Event(), asyncio.Event()
        await registry.create("/a", b"0")
        registry.watch_data("/a", data_news.set)
        registry.watch_children("/a", children_news.set)

        async def follow(news: asyncio.Event, read: Callable[[], Awaitable[int]]) -> None:
            while await read() < last:
                await news.wait()
                news.clear()

        async def number() -> int:
            return int((await registry.get("/a"))[0])

        async def count() -> int:
            return len(await registry.children("/a"))

        followers = [
            asyncio.ensure_future(follow(data_news, number)),
            asyncio.ensure_future(follow(children_news, count)),
        ]
        async with opened(settings) as other:
            for change in range(1, last + 1):
                await other.set("/a", str(change).encode())
                await other.create(f"/a/{change}", b"")
                if change % 5 == 0:
                    drop_connection(registry)
            await asyncio.gather(*followers)

    run(scenario)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_connection_thread_that_dies_is_followed_by_another(run):
    """A fault in the client library costs a session, not the broker's membership."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        states, news = States(registry), asyncio.Event()
        registry.watch_data("/a", news.set)
        await registry.exists("/a")
        connection = registry.session._client._connection
        read = connection._read_socket

        def fail(timeout):
            connection._read_socket = read
            raise ValueError("planted")

        connection._read_socket = fail
        with pytest.raises(SessionEndedError):
            await registry.create("/b", b"")
        await states.next_are(SessionState.EXPIRED, SessionState.RENEWED)
        await registry.create("/a", b"")
        await news.wait()

    run(scenario)


def test_answer_of_another_session_is_not_believed(run):
    """A write that began in the session before says that it does not know."""

    async def scenario(registry: ZooKeeperRegistry) -> None:
        session, request = registry.session, registry.session._request

        async def expire_first(send):
            session._generation += 1
            return await request(send)

        session._request = expire_first
        with pytest.raises(SessionEndedError, match="not known what was done"):
            await registry.create("/a", b"", ephemeral=True)

    run(scenario)


@pytest.mark.wide
def test_waiting_operations_fail_when_the_registry_is_closed(start_zookeeper):
    """Nobody waits for an answer that cannot come."""
    zookeeper = start_zookeeper()

    async def play() -> None:
        async with opened(ZooKeeperSettings((zookeeper.connect,))) as registry:
            zookeeper.pause()
            operations = [asyncio.ensure_future(registry.exists("/a")) for _ in range(20)]
            await asyncio.wait(operations, timeout=0.01)
            await registry.close()
            results = await asyncio.gather(*operations, return_exceptions=True)
            assert {type(result) for result in results} == {RegistryFailedError}
            zookeeper.resume()

    asyncio.run(play())


def test_list_of_servers_is_tried_until_one_answers(settings):
    """The first two are not there."""

    async def play() -> None:
        servers = ("127.0.0.1:1", "localhost:2", *settings.servers)
        async with opened(settings._replace(servers=servers)) as registry:
            assert await registry.children("/") == []

    asyncio.run(play())


@pytest.mark.parametrize(
    ("servers", "session_timeout_ms", "count"),
    [(1, 2_000, 2), (1, 18_000, 4), (1, 500, 1), (2, 18_000, 4), (3, 6_000, 3)],
)
def test_attempt_to_connect_has_a_second_at_least(servers, session_timeout_ms, count):
    """kazoo gave up after 500 ms of a session of 2 s: on a busy machine it never connected."""
    settings = ZooKeeperSettings(
        tuple(f"host{number}:2181" for number in range(servers)),
        session_timeout_ms=session_timeout_ms,
    )

    assert len(settings.addresses) == count
    assert set(settings.addresses) == set(settings.servers)


def test_no_server_is_an_error_that_names_them():
    """Address and time."""

    async def play() -> None:
        settings = ZooKeeperSettings(("127.0.0.1:1",), "/x", connection_timeout_ms=200)
        with pytest.raises(KafkaError, match=r"connect=127.0.0.1:1/x: no .* within 200 ms"):
            async with opened(settings):
                pass

    asyncio.run(play())


def test_nodes_belong_to_their_user(settings):
    """With ACLs others may read, but not what is private, and write nothing."""
    mine = settings._replace(set_acl=True, digest_username="me", digest_password=Password("mine"))

    async def play() -> None:
        async with opened(mine) as registry, opened(settings) as other:
            for path in ("/a", "/config", "/config/users", "/consumers"):
                await registry.create(path, b"1")
            assert (await other.get("/a"))[0] == b"1"
            await other.create("/consumers/group", b"")
            for refused in (
                other.set("/a", b""),
                other.delete("/a"),
                other.create("/a/b", b""),
                other.get("/config/users"),
                other.multi([Set("/a", b"")]),
            ):
                with pytest.raises(RegistryError, match="ACLs do not permit it"):
                    await refused
            await registry.set("/a", b"2")

    asyncio.run(play())
