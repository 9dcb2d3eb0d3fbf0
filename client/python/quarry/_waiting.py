"""Long calls: on a thread of their own, so that Ctrl-C ends them and progress is shown meanwhile."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Callable, TypeVar

from . import _quarry

T = TypeVar("T")
ProgressCallable = Callable[[str, int, int], Any]

_POLL_SECONDS = 0.05
_SHOWN_AFTER_SECONDS = 2.0


class _Bar:
    """One line on stderr, where that is a terminal or a notebook's, for what takes longer than two seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._length = 0  # of the line that is shown

    def show(self, phase: str, done: int, total: int) -> None:
        if not phase or time.monotonic() - self._start < _SHOWN_AFTER_SECONDS or not _seen():
            return
        text = phase + (f" {100 * done // total:3d}%" if total else "")
        # With blanks over what was longer: notebooks know no control sequences.
        self._write(text.ljust(self._length))
        self._length = len(text)

    def clear(self) -> None:
        if self._length > 0:
            self._write(" " * self._length + "\r")
            self._length = 0

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write("\r" + text)
        sys.stderr.flush()


def _seen() -> bool:
    """Whether somebody looks at stderr as it is written."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def run(call: Callable[[], T], cancel: Callable[[], Any], poll: Callable[[], Any] | None = None) -> T:
    """call() on a thread, and poll() here meanwhile. What is raised here (Ctrl-C) cancels and waits for the call."""
    results: list[T] = []
    failures: list[BaseException] = []
    ended = threading.Event()

    def body() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001: given to the caller below
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=body, name="quarry", daemon=True)
    try:
        thread.start()
        while not ended.wait(_POLL_SECONDS):
            if poll is not None:
                poll()
    except BaseException:
        while thread.is_alive():
            cancel()  # which does nothing where the call has not begun yet
            thread.join(_POLL_SECONDS)
        raise
    thread.join()
    if failures:
        raise failures[0].with_traceback(None)
    return results[0]


def run_with_progress(call: Callable[[_quarry.Progress], T], shown: ProgressCallable | bool | None) -> T:
    """`shown`: a callable of phase, done and total (0: unknown); None: a line on stderr; False: nothing."""
    progress = _quarry.Progress()
    bar = _Bar()

    def poll() -> None:
        phase, done, total = progress.read()
        if callable(shown):
            if phase:
                shown(phase, done, total)
        elif shown is not False:
            bar.show(phase, done, total)

    try:
        result = run(lambda: call(progress), progress.cancel, poll)
        if callable(shown):
            poll()
        return result
    finally:
        bar.clear()
