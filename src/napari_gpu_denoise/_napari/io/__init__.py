"""Files as layers, and layers as files: the reader and the writer of the plugin."""
