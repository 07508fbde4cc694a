"""The protocol of filters: their settings, the base class, plans, and tiles."""
