"""The section "How good is this?" of a filter's panel."""
