"""What tifffile and other readers log and raise, as our notes and errors."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

from napari_gpu_denoise.errors import DenoiseError, FileError


@contextlib.contextmanager
def reading(path: Path, state: str = "cut short or damaged") -> Iterator[None]:
    """Turn what is raised while an image is read into a `FileError`; `state` is what it may be."""
    try:
        yield
    except DenoiseError:
        raise
    except MemoryError as error:
        raise FileError(f"{path} does not fit into the memory of this machine.") from error
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise FileError(f"{path} cannot be read: {error.strerror}.") from error
        reason = brief(str(error).strip() or type(error).__name__)
        if isinstance(error, (ConnectionError, TimeoutError)):
            raise FileError(f"{path} cannot be reached: {reason}.") from error
        if "://" in str(path):  # it may as well be the network
            raise FileError(
                f"{path} could not be read ({reason}): repeat the run, or copy it again from its "
                "source."
            ) from error
        raise FileError(f"{path} is {state} ({reason}): copy it again from its source.") from error


@contextlib.contextmanager
def listening(path: Path) -> Iterator[list[str]]:
    """Yield what tifffile logs, as it comes, and turn what it raises into a `FileError`.

    Much of what is wrong with a file is only logged. A `DenoiseError` passes as it is.
    """
    with _log_of_tifffile() as log:
        try:
            yield log
        except DenoiseError:
            raise
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}.") from error
        except MemoryError as error:
            raise FileError(f"{path} does not fit into the memory of this machine.") from error
        except Exception as error:
            if "requires the 'imagecodecs'" in str(error):
                raise FileError(
                    f"{path} is compressed in a way that needs another package: "
                    "pip install imagecodecs."
                ) from error
            reason = brief(str(error).strip() or type(error).__name__)
            raise FileError(
                f"{path} is cut short or damaged ({reason}): copy it again from its source."
            ) from error


def brief(text: str) -> str:
    """Return the first line of another package's message, short enough for a sentence."""
    return "".join(without_secrets(text).strip().splitlines()[:1])[:160].rstrip(". ")


# Keys of S3 may hold slashes. A number before a slash is that of a port.
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*:(?!\d+/)[^@\s]*(?=@)")
_SIGNATURE = re.compile(
    r"(?<=[?&])(sig|x-amz-[\w-]+|[\w-]*(?:token|password|secret))=[^&\s]*", re.I
)


def without_secrets(text: str) -> str:
    """Return a text without the passwords, keys and signatures of addresses in it."""
    return _SIGNATURE.sub(r"\1=***", _PASSWORD.sub("***", text))


def check_no_secrets(address: str) -> None:
    """Refuse an address with a password or key, which records, logs and messages would repeat."""
    if (masked := without_secrets(address)) != address:
        raise FileError(
            f"{masked} holds a password or key: leave it out and give it as the package for such "
            "addresses wants it, for s3:// in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )


_lock = threading.Lock()
_handlers: list[logging.Handler] = []
_muted: list[tuple[int, bool, bool]] = []


@contextlib.contextmanager
def _log_of_tifffile() -> Iterator[list[str]]:
    """Collect what tifffile logs in this thread, even if a program has muted its logger."""
    logger, thread = logging.getLogger("tifffile"), threading.get_ident()
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    # Two files may be read at once, each in its thread.
    handler.addFilter(lambda record: record.thread == thread)
    handler.emit = lambda record: messages.append(record.getMessage())
    with _lock:
        if not _handlers and not logger.isEnabledFor(logging.WARNING):
            _muted.append((logger.level, logger.disabled, logger.propagate))
            logger.setLevel(logging.WARNING)
            # Messages stay hidden from the program's own handlers.
            logger.disabled, logger.propagate = False, False
        _handlers.append(handler)
        logger.addHandler(handler)
    try:
        yield messages
    finally:
        with _lock:
            _handlers.remove(handler)
            logger.removeHandler(handler)
            if not _handlers and _muted:
                level, logger.disabled, logger.propagate = _muted.pop()
                logger.setLevel(level)
