"""The panel "Denoise": looks at a layer, recommends a filter, and runs it."""
