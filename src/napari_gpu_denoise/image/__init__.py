"""Images as arrays: named axes, grey levels, brightness over time."""
