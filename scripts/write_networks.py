"""Write the sorting networks of the Shapiro-Wilk test into kernels/swnlm/sorting_networks.h.

    python scripts/write_networks.py

They sort the 9, 25 or 49 differences of two patches: halves of the wires are sorted, and merged by
Batcher's odd-even merge (Knuth, The Art of Computer Programming 3, section 5.3.4).
"""

from __future__ import annotations

from pathlib import Path

HEADER = Path(__file__).parents[1] / "kernels" / "swnlm" / "sorting_networks.h"
PATCHES = (3, 5, 7)
HEAD = """\
// Sorting networks for the PATCH * PATCH differences of two patches: C(i, j) must leave the
// smaller value in i, the larger in j.
// Written by scripts/write_networks.py.
//
// Constants: PATCH (3, 5 or 7).
"""

Pairs = list[tuple[int, int]]


def merge(first: list[int], second: list[int]) -> tuple[Pairs, list[int]]:
    """Return the pairs that merge two sorted lists of wires, and all wires in sorted order."""
    if not first or not second:
        return [], first + second
    if len(first) == len(second) == 1:
        return [(first[0], second[0])], first + second
    pairs, even = merge(first[::2], second[::2])
    more, odd = merge(first[1::2], second[1::2])
    pairs = pairs + more
    order = even[:1]
    for i in range(max(len(odd), len(even) - 1)):
        both = [*odd[i : i + 1], *even[i + 1 : i + 2]]
        if len(both) == 2:
            pairs.append((both[0], both[1]))
        order += both
    return pairs, order


def sort(wires: list[int]) -> tuple[Pairs, list[int]]:
    """Return the pairs that sort wires, and the wires in sorted order."""
    if len(wires) < 2:
        return [], wires
    half = len(wires) // 2
    (left, first), (right, second) = sort(wires[:half]), sort(wires[half:])
    pairs, order = merge(first, second)
    return left + right + pairs, order


def network(count: int) -> Pairs:
    """Return a network whose wires end in their order; a pair has the wire of the minimum first."""
    pairs, order = sort(list(range(count)))
    place = {wire: k for k, wire in enumerate(order)}
    return [(place[a], place[b]) for a, b in pairs]


def header() -> str:
    """Return the text of the header."""
    lines = [HEAD.rstrip(), ""]
    for number, patch in enumerate(PATCHES):
        lines.append(f"#{'el' if number else ''}if PATCH == {patch}")
        lines.append("#define SORTING_NETWORK \\")
        words = [f"C({a}, {b})" for a, b in network(patch**2)]
        rows = [" ".join(words[k : k + 12]) for k in range(0, len(words), 12)]
        lines += [f"    {row} \\" for row in rows[:-1]] + [f"    {rows[-1]}"]
    return "\n".join([*lines, "#endif"]) + "\n"


if __name__ == "__main__":
    HEADER.write_text(header())
