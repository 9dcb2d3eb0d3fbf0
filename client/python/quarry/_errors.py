"""One exception for each of the engine's codes, all below `Error`, each also the built-in that fits."""

from __future__ import annotations


class Error(Exception):
    """What the engine refused or could not do; the message says what, and what would help."""

    def __str__(self) -> str:  # KeyError's would show it in quotes
        return str(self.args[0]) if self.args else ""


class UsageError(Error, ValueError):
    """A call with an argument that makes no sense."""


class InvalidArgument(Error, ValueError):
    """Data that cannot be taken: the message names file, row or id."""


class NotFound(Error, KeyError):
    """Nothing has this name; the message lists what there is."""


class AlreadyExists(Error, FileExistsError):
    """What was to be made is there."""


class Busy(Error, BlockingIOError):
    """Another process, or another call, has it."""


class IoError(Error, OSError):
    """The operating system refused, or a server does not answer."""


class NoSpace(IoError):
    """The disk has too little room."""


class OutOfBudget(Error, MemoryError):
    """The memory given to `open` cannot hold it; the message names the least that would do."""


class Corruption(Error, OSError):
    """A checksum or a cross-reference does not hold."""


class Unsupported(Error, NotImplementedError):
    """Well-formed, but not by this version, or not over a server."""


class Cancelled(Error, InterruptedError):
    """The caller asked to stop."""


class InternalError(Error, RuntimeError):
    """A bug of Quarry's."""


class TimedOut(Error, TimeoutError):
    """No batch came in time; the next call goes on waiting for it."""


class Forked(Error, RuntimeError):
    """The database was opened before this process was forked."""


class BatchesHeld(Error, RuntimeError):
    """Arrays of earlier batches are still used, and the stream has memory for no more."""


_CLASSES: dict[int, type[Error]] = {
    1: UsageError,
    2: InvalidArgument,
    3: NotFound,
    4: AlreadyExists,
    5: Busy,
    6: IoError,
    7: NoSpace,
    8: OutOfBudget,
    9: Corruption,
    10: Unsupported,
    11: Cancelled,
    12: InternalError,
    64: TimedOut,
    -1: Forked,
    -2: BatchesHeld,
}


def make(code: int, message: str) -> Error:
    return _CLASSES.get(code, Error)(message)
