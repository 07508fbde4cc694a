"""What hostile files try to have executed: it notes that it ran."""

from __future__ import annotations

import pickle

RAN: list[str] = []


def run(how: str) -> str:
    """Note a call; return a text."""
    RAN.append(how)
    return how


class Payload:
    """An object whose pickle calls `run` when it is loaded."""

    def __reduce__(self) -> tuple:
        return run, ("pickle",)


PICKLE = pickle.dumps(Payload())
#: Source text for `eval`, in names and values.
EXPRESSION = "__import__('fuzz.payload').payload.run('eval')"
