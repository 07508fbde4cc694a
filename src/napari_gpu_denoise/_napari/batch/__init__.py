"""The panel "Batch": many files, filtered as the command line filters them."""
