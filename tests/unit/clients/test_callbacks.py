"""What applications are told by: what they raise stops nobody else."""

from __future__ import annotations

import asyncio

import pytest

from ottla.clients.callbacks import tell

ENDS = [SystemExit(3), KeyboardInterrupt()]
OTHERS = [ValueError("v"), asyncio.CancelledError(), GeneratorExit(), StopIteration()]


def raising(error):
    """A callback that raises."""

    def call_back(*_arguments):
        raise error

    return call_back


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_error_is_logged_and_goes_no_further(error, caplog):
    """With the owner of the callback."""
    tell("the callback %r", "mine", raising(error))
    assert "the callback 'mine' raised" in caplog.text


@pytest.mark.parametrize("error", ENDS, ids=repr)
def test_end_of_a_program_comes_after_the_work_of_the_client(error, caplog):
    """The loop of the program raises it."""
    done = []

    async def work() -> None:
        tell("the callback %r", "mine", raising(error))
        done.append("work")
        await asyncio.Event().wait()

    loop = asyncio.new_event_loop()
    working = loop.create_task(work())
    with pytest.raises(type(error)):
        loop.run_forever()
    working.cancel()
    loop.run_until_complete(asyncio.wait([working]))
    loop.close()
    assert done == ["work"]


@pytest.mark.parametrize("error", ENDS, ids=repr)
def test_end_of_a_program_is_raised_where_the_program_itself_called(error):
    """As with the future of a record that is delivered already."""
    with pytest.raises(type(error)):
        tell("the callback %r", "mine", raising(error))


def test_callback_gets_its_arguments():
    """And its result is of no use."""
    heard = []
    assert tell("%r", None, lambda *arguments: heard.append(arguments) or 5, 1, 2) is None
    assert heard == [(1, 2)]
