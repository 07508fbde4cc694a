"""What tifffile logs and raises, as notes and errors of ours."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

from napari_gpu_denoise.errors import DenoiseError, FileError


@contextlib.contextmanager
def listening(path: Path) -> Iterator[list[str]]:
    """Read a file by tifffile: hear what it logs, and say what it raises in a sentence.

    Parameters
    ----------
    path : Path
        The file, named in every error.

    Yields
    ------
    list of str
        What tifffile logs, much of what is wrong with a file, as it comes.

    Raises
    ------
    FileError
        For whatever but a `DenoiseError` is raised in the block.
    """
    with _log_of_tifffile() as log:
        try:
            yield log
        except DenoiseError:
            raise
        except OSError as error:
            reason = error.strerror or error
            raise FileError(f"{path} cannot be read: {reason}.") from error
        except MemoryError as error:
            raise FileError(f"{path} does not fit into the memory of this machine.") from error
        except Exception as error:
            if "requires the 'imagecodecs'" in str(error):
                raise FileError(
                    f"{path} is compressed in a way that needs another package: "
                    "pip install imagecodecs."
                ) from error
            raise FileError(
                f"{path} is cut short or damaged ({brief(error)}): copy it again from its source."
            ) from error


def brief(error: BaseException) -> str:
    """First line of a foreign message, short enough for a sentence."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160].rstrip(". ")


class _Collect(logging.Handler):
    """Keeps the messages of this thread, so that two files read at once do not mix."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.messages.append(record.getMessage())


@contextlib.contextmanager
def _log_of_tifffile() -> Iterator[list[str]]:
    """Collect what tifffile only logs."""
    logger, handler = logging.getLogger("tifffile"), _Collect()
    with _heard(logger):
        logger.addHandler(handler)
        try:
            yield handler.messages
        finally:
            logger.removeHandler(handler)


_hearing = threading.Lock()
_muted: list[tuple[int, bool, bool]] = []
_listeners = 0


@contextlib.contextmanager
def _heard(logger: logging.Logger) -> Iterator[None]:
    """Undo the muting of a logger while it is listened to: a program may have muted tifffile's."""
    global _listeners
    with _hearing:
        _listeners += 1
        if _listeners == 1 and not logger.isEnabledFor(logging.WARNING):
            _muted.append((logger.level, logger.disabled, logger.propagate))
            logger.setLevel(logging.WARNING)
            # The messages of others stay hidden.
            logger.disabled, logger.propagate = False, False
    try:
        yield
    finally:
        with _hearing:
            _listeners -= 1
            if _listeners == 0 and _muted:
                level, logger.disabled, logger.propagate = _muted.pop()
                logger.setLevel(level)
