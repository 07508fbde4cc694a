"""The napari plugin: a panel for each filter, and the sample stacks."""
