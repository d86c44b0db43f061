"""Dead letters of a topic go back to the topics that they are from: a dry run first, then a click.

Both are the work of `ottla connect redrive`, whose group remembers the letters that were sent: each
goes once, however often somebody clicks, and by whichever of the two. A plan has the id of the
topic and a checksum of each letter: no letter goes that was not in the dry run.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.clients.dead_letter_headers import LARGEST_LETTER
from ottla.console.decoding import beginning
from ottla.console.masks import HIDDEN_QUOTE, masks_of
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit
from ottla.console.producing import PRODUCER, checksum_of, producer_settings
from ottla.console.refusals import REMADE, Refused
from ottla.errors import KafkaError
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ottla.connect.redrive import Choice, DeadLetter

MOST_LETTERS: Final = 1_000
"""So many go at once at most; all of them are in the dry run."""
SHOWN: Final = 200
SHOWN_OF_NO_NAME: Final = 60
LIMIT_MS: Final = 20_000
LETTER: Final = re.compile(r"(\d{1,9}):(\d{1,18})(?::([0-9a-f]{16}))?", re.ASCII)
CHOSEN: Final = "at."
"""A field `at.2:57` of the form chooses the letter at partition 2, offset 57."""
BUSY: Final = 409

Places = dict[tuple[int, int], str]
"""Letters by partition and offset, with their checksums; an empty one where any letter will do."""


class LetterLine(NamedTuple):
    """A letter that would go, or stays."""

    partition: int
    offset: int
    origin: str
    """The topic of the record that failed, and its partition and offset if they are known."""
    origin_path: str
    to: str
    left: str
    """Why it stays; empty where it goes."""
    error: str
    message: str
    tries: int

    @property
    def place(self) -> str:
        """The partition and the offset."""
        return f"{self.partition}:{self.offset}"


class Enough(Exception):
    """A run has looked at letters for long enough, or nobody waits for it."""


class LetterRun:
    """One redrive or dry run, on a thread that may wait; `is_over` ends it at its next letter."""

    def __init__(self, visit: Visit, queue: str, places: Places | None, topic_id: str = "") -> None:
        """`places` are the letters that are wanted, all of them for None; `send` needs the id."""
        self.topic_id = topic_id
        self.lines: list[LetterLine] = []
        self.sent: Counter[str] = Counter()
        """The letters that go, by topic."""
        self.left: Counter[str] = Counter()
        """The letters that stay, by reason."""
        self.places: list[str] = []
        """The places of the letters that go, as a plan has them."""
        self.problem = ""
        """The first error of a topic that does not take a letter, or of the brokers."""
        self.is_cut = False
        """Whether the time was over before all letters were looked at."""
        self.is_over = False
        self._queue = queue
        self._wanted = places
        self._visit = visit
        self._settings = dict(visit.cluster.client_settings)
        self._clock = visit.cluster.runtime.clock
        self._end_ms = 0

    def preview(self) -> None:
        """Find out what `send` would do."""
        self._run(sends=False)

    def send(self) -> None:
        """Send the letters; an error, once some are sent, is a problem.

        Refused where the topic, or a letter, is another one than in the plan.
        """
        try:
            self._run(sends=True)
        except (KafkaError, Refused) as error:
            if not self.sent:
                raise
            self.problem = error.message

    def _run(self, *, sends: bool) -> None:
        from ottla.clients.consumer.consumer import Consumer  # most consoles only look
        from ottla.clients.producer.producer import Producer
        from ottla.connect.redrive import READING, Redrive, group_of, topic_id_of, writing

        self._end_ms = self._clock.monotonic_ms() + LIMIT_MS
        reading = self._settings | READING | {"group.id": group_of(self._queue)}
        with Consumer(reading) as consumer:
            redrive = Redrive(consumer, self._queue, self._choice(), self._note)
            topic_id = topic_id_of(consumer, self._queue)
            try:
                if not sends:
                    self.topic_id = topic_id
                    redrive.preview()
                    return
                if topic_id != self.topic_id:
                    raise Refused(f"topic {self._queue} {REMADE}")
                room = {"max.request.size": str(LARGEST_LETTER)}
                own = producer_settings(self._settings) | PRODUCER | room | writing(self._queue)
                with Producer(own) as producer:
                    redrive.send(producer)
            except Enough:
                self.is_cut = True

    def _choice(self) -> Choice:
        from ottla.connect.redrive import MOST_TRIES, Choice

        at_most = MOST_LETTERS if self._wanted is None else len(self._wanted)
        return Choice(is_wanted=self._is_wanted, max_tries=MOST_TRIES, at_most=at_most)

    def _is_wanted(self, letter: DeadLetter) -> bool:
        if self.is_over or self._clock.monotonic_ms() >= self._end_ms:
            raise Enough
        place = (letter.record.partition, letter.record.offset)
        checksum = self._wanted.get(place) if self._wanted is not None else ""
        if checksum and checksum != checksum_of(letter.record):
            raise Refused(f"letter {place[0]}:{place[1]} is another one than the plan has shown")
        return checksum is not None

    def _note(self, letter: DeadLetter, verdict: str, error: str) -> None:
        """A letter with the topic to which it goes, or with the reason for which it is left."""
        from ottla.connect.redrive import Left

        place = (letter.record.partition, letter.record.offset)
        is_asked = self._wanted is None or place in self._wanted
        if not is_asked:
            return
        is_left = isinstance(verdict, Left)
        if is_left:
            self.left[verdict] += 1
            self.problem = self.problem or error
        else:
            self.sent[verdict] += 1
            self.places.append(f"{place[0]}:{place[1]}:{checksum_of(letter.record)}")
        if len(self.lines) < SHOWN and verdict is not Left.SENT_BEFORE:
            self.lines.append(self._line(letter, "" if is_left else verdict, verdict * is_left))

    def _line(self, letter: DeadLetter, to: str, left: str) -> LetterLine:
        topic, partition, offset = letter.topic, letter.partition, letter.offset
        is_known = bool(topic) and None not in (partition, offset)
        origin = topic + f", partition {partition}, offset {offset}" * is_known
        hides = self._visit.settings.hide_records or any(
            masks_of(self._visit.settings.masks, each) for each in (topic, self._queue)
        )
        no_name, error, message = (
            HIDDEN_QUOTE if hides and text else text
            for text in (letter.bad_topic, letter.error, letter.message)
        )
        if no_name:
            origin = f"{beginning(no_name, SHOWN_OF_NO_NAME)} (no name of a topic)"
        return LetterLine(
            letter.record.partition,
            letter.record.offset,
            origin,
            f"/t/{topic}/{partition}/{offset}" if is_known else "",
            to,
            left,
            beginning(error),
            beginning(message),
            letter.tries,
        )


async def letters(visit: Visit) -> Data:
    """The letters that were not sent back yet, and where they would go; or the chosen ones."""
    queue = (await visit.cluster.topic(str(visit.place["topic"]))).name
    chosen = places_of(name.removeprefix(CHOSEN) for name in visit.query if name.startswith(CHOSEN))
    run = LetterRun(visit, queue, chosen or None)
    await finished(visit, run, sends=False)
    return {
        "topic": queue,
        "lines": run.lines,
        "count": len(run.places),
        "most": MOST_LETTERS,
        "sent": dict(run.sent),
        "left": dict(run.left),
        "chosen": len(chosen),
        "is_cut": run.is_cut,
        "plan": f"{run.topic_id};{' '.join(run.places)}",
    }


async def send_back(visit: Visit) -> ChangeOutcome:
    """Send the letters of a dry run; those that were sent meanwhile stay where they are."""
    queue = (await visit.cluster.topic(str(visit.place["topic"]))).name
    topic_id, letters = planned_letters(visit.form.get("plan", ""))
    run = LetterRun(visit, queue, letters, topic_id)
    await finished(visit, run, sends=True)
    count = run.sent.total()
    where = ", ".join(f"{number:,} to {topic}" for topic, number in run.sent.most_common())
    words = [f"{count:,} record{'' if count == 1 else 's'} sent back{': ' * bool(where)}{where}."]
    words += [f"{number:,} left: {reason}." for reason, number in run.left.items()]
    words += [run.problem] * bool(run.problem)
    words += ["The time was over before the others were sent."] * run.is_cut
    places = " ".join(each.rpartition(":")[0] for each in run.places)
    sent = {"sent": dict(run.sent), "letters": places}
    return ChangeOutcome(f"/t/{queue}/redrive", " ".join(words), "connect redrive", queue, new=sent)


async def finished(visit: Visit, run: LetterRun, *, sends: bool) -> None:
    """A run to its end; one at once, as brokers end a transaction where another begins."""
    limits = visit.cluster.limits
    if sends and limits.redrives.locked():
        raise Refused("Other letters are being sent, or looked at: try again in a moment.", BUSY)
    async with limits.redrives:
        try:
            await visit.cluster.runtime.background.run(run.send if sends else run.preview)
        finally:
            run.is_over = True  # it ends at its next letter where nobody waits


def places_of(texts: Iterable[str]) -> Places:
    """The letters that are written as `2:57`, or `2:57:CHECKSUM`; Refused for another text."""
    found = {}
    for text in texts:
        match = LETTER.fullmatch(text)
        if match is None:
            raise Refused(f"{text[:40]}: a letter is named by PARTITION:OFFSET")
        found[int(match[1]), int(match[2])] = match[3] or ""
    if len(found) > MOST_LETTERS:
        raise Refused(f"at most {MOST_LETTERS:,} letters are sent at once")
    return found


def planned_letters(plan: str) -> tuple[str, Places]:
    """The id of the topic and the letters of a plan as the form carries it; Refused for others."""
    topic_id, _, letters = plan.partition(";")
    found = places_of(letters.split())
    if not all(found.values()) or not found:
        raise Refused(f"plan={plan[:40]}: must have ID;PARTITION:OFFSET:CHECKSUM")
    return topic_id, found


REDRIVE_PAGES: Final = (
    ConsolePage(
        "/t/{topic}/redrive",
        letters,
        "redrive.html",
        "{topic}: dead letters",
        "Topics",
        "ottla connect redrive {topic} --dry-run",
        table="lines",
    ),
)
REDRIVE_CHANGES: Final = (ConsoleChange("/t/{topic}/redrive", send_back),)
