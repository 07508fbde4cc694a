"""The command line ``gpu-denoise``; its filter commands are generated from `FILTERS`."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence


def main(argv: Sequence[str] | None = None, build_parser: Callable | None = None) -> int:
    """Run the command line, by default with the arguments of the process; return the exit code.

    `build_parser` makes the parser of another program, such as those in tools/.
    """
    try:
        # Within, so that Ctrl-C at any moment ends in the sentence below.
        from napari_gpu_denoise.cli.failures import complain, exit_code, lost
        from napari_gpu_denoise.errors import OutputError

        if argv is None:
            _open_streams()
        code = _run(list(sys.argv[1:] if argv is None else argv), build_parser)
        sys.stdout.flush()
        reason = lost()
        if code or reason is None or isinstance(reason, BrokenPipeError):  # `head` has enough
            return code
        error = OutputError(f"What is printed cannot be written: {reason.strerror}.")
        complain(error)
        return exit_code(error)
    except KeyboardInterrupt:
        print("gpu-denoise: Interrupted; no partial output was left.", file=sys.stderr)
        return 130


def _run(argv: list[str], build_parser: Callable | None) -> int:
    from napari_gpu_denoise.cli.failures import complain, exit_code
    from napari_gpu_denoise.version import package_version

    if argv == ["--version"]:  # before anything is imported
        print(f"gpu-denoise {package_version()}")
        return 0
    try:
        if build_parser is None:
            from napari_gpu_denoise.cli.arguments import build_parser

        for address in (word for word in argv if ":/" in word):
            from napari_gpu_denoise.files.input_checks import check_no_secrets

            check_no_secrets(address)  # argparse repeats what it does not expect
        args = build_parser(argv).parse_args(argv)
        with _remarks(getattr(args, "quiet", False)):
            return args.run(args)
    except SystemExit as end:  # argparse has said what is wrong
        return int(end.code or 0)
    except Exception as error:
        complain(error)
        return exit_code(error)
    finally:
        if read := sys.modules.get("napari_gpu_denoise.files.input_checks"):
            read.read_files.clear()


@contextlib.contextmanager
def _remarks(quiet: bool) -> Iterator[None]:
    """Print on a terminal a step that happens only once, such as the test of a device."""
    log, handler = logging.getLogger("napari_gpu_denoise"), logging.StreamHandler()
    quiet |= sys.stderr is None or not sys.stderr.isatty()
    handler.setFormatter(logging.Formatter("gpu-denoise: %(message)s"))
    level = log.level
    log.setLevel(logging.WARNING if quiet else logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _Printed(io.FileIO):
    """A stream of the process: `lost` is why something could not be written there, if so."""

    lost: OSError | None = None

    def write(self, data, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost = error
            return len(data)


def _open_streams() -> None:
    """Let no print fail: closed or full streams, and signs that an encoding lacks, end no run."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is None:  # closed
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
            continue
        stream.reconfigure(errors="backslashreplace")
        if not stream.isatty():
            raw = io.BufferedWriter(_Printed(stream.fileno(), "w", closefd=False))
            options = {"errors": stream.errors, "line_buffering": stream.line_buffering}
            setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, **options))
