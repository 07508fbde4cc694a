"""The panel "Compare": a result beside its source, across a line, or subtracted."""
