"""A thread beside the story that does one thing again and again."""

from __future__ import annotations

import threading


class Worker:
    """A thread that does one thing again and again until it is told to stop."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def tell_to_stop(self) -> None:
        self._stop.set()

    def join(self, limit_s: float) -> None:
        self.tell_to_stop()
        self._thread.join(limit_s)
        if self._thread.is_alive():
            self.problems.append(f"{self} has not ended within {limit_s:.0f} s")

    def rest(self, seconds: float) -> bool:
        """Wait; whether to go on."""
        return not self._stop.wait(seconds)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
        except Exception as error:  # it must not end unnoticed
            self.problems.append(f"{self}: {error!r}")
        finally:
            self.close()

    def step(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called when it ends, in its thread."""
