"""The command line ``gpu-denoise``; its filter commands are generated from `FILTERS`."""

from __future__ import annotations

import contextlib
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
        from napari_gpu_denoise.cli.failures import complain, exit_code
        from napari_gpu_denoise.version import package_version

        if build_parser is None:
            from napari_gpu_denoise.cli.arguments import build_parser

        argv = list(sys.argv[1:] if argv is None else argv)
        if argv == ["--version"]:  # before anything is imported
            print(f"gpu-denoise {package_version()}")
            return 0
        try:
            for address in (word for word in argv if ":/" in word):
                from napari_gpu_denoise.files.input_checks import check_no_secrets

                check_no_secrets(address)  # argparse repeats what it does not expect
            args = build_parser(argv).parse_args(argv)
            with _remarks(getattr(args, "quiet", False)):
                return args.run(args)
        except SystemExit as end:  # argparse has said what is wrong
            return int(end.code or 0)
        except BrokenPipeError:
            return 0
        except Exception as error:
            complain(error)
            return exit_code(error)
        finally:
            if read := sys.modules.get("napari_gpu_denoise.files.input_checks"):
                read.read_files.clear()
            try:
                sys.stdout.flush()
            except BrokenPipeError:  # whoever reads it, such as head, has closed the pipe
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("gpu-denoise: Interrupted; no partial output was left.", file=sys.stderr)
        return 130


@contextlib.contextmanager
def _remarks(quiet: bool) -> Iterator[None]:
    """Print, on a terminal, what is done only once, such as the test of a device."""
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
