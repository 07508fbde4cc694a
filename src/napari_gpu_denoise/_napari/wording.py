"""Sentences that are written for scripts, as a panel says them: its controls, not arguments."""

from __future__ import annotations

import re

# What the sentence says, and what stands for it in a panel.
_SAID = (
    (r"noise='auto'", "choose Automatic"),
    (
        r"pass nonfinite='keep' \(--nonfinite keep\) to leave them",
        "choose Leave them in place at Result and device > NaN, infinity, to keep them",
    ),
    (r"they can be left in place", "choose so at Result and device > NaN, infinity"),
    (r", or None to estimate it", ", or choose Automatic"),
    (r"(, \(\d[\d, ]*\) for one a plane)?, or a map of shape \(\d[\d, ]*\)", ""),
    (r", axes '\w+' of lengths \(\d[\d, ]*\)", ""),
    (r"give one number, one for each channel", "give one number, or one for each channel"),
    (r"\bas axes='(\w+)'", r"as \1"),
)


def in_panel(sentence: str) -> str:
    """Return a note or an error as a panel says it.

    Parameters
    ----------
    sentence : str
        One that names arguments of Python, or options of the command line.

    Returns
    -------
    str
        The same where there is nothing to say otherwise.
    """
    for pattern, said in _SAID:
        sentence = re.sub(pattern, said, sentence)
    return sentence
