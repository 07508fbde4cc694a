"""The isoline filter."""
