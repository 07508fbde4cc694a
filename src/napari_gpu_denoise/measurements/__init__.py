"""Series of measurements of one object, along an axis that is neither time nor place."""
