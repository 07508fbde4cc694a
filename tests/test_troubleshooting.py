"""The guide to errors quotes messages as the program words them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
_PAGE = ROOT / "docs" / "guide" / "troubleshooting.md"
_OF_OTHERS = "CommandLine Error"  # of LLVM
# What stands in a quotation for a value: an ellipsis, a word with a digit, the letter of an axis.
_VALUE = re.compile(r"…|\S*\d\S*|\b[A-Z]\b")


def quotations():
    """Return the messages that the tables quote in their first column."""
    cells = (line.split("|")[1] for line in _PAGE.read_text("utf-8").splitlines() if "|" in line)
    return [quoted for cell in cells for quoted in re.findall(r'"([^"]+)"', cell)]


@pytest.fixture(scope="module")
def texts():
    """All strings of the source, with an ellipsis where a value is inserted."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                )
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@pytest.mark.parametrize("quoted", quotations())
def test_messages_are_quoted_as_they_are(quoted, texts):
    if quoted.startswith(_OF_OTHERS):
        return
    longest = max((part.strip(" ,:") for part in _VALUE.split(quoted)), key=len)
    assert any(longest in text for text in texts), f"nothing says {longest!r}"
