"""The panel "Compare": a result beside its source, across a line, by turns, or subtracted."""
