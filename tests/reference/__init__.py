"""Each method once more in slow NumPy, written to be read, and the pictures to try them on."""
