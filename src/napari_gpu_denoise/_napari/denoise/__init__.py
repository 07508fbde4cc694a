"""The panel of a filter: form, run in a worker, results, copied code."""
