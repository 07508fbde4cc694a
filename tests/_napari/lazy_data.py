"""Data that are read from elsewhere, and a generator driven by hand."""


class Sliced:
    """An array that can only be sliced, as a file's; it counts what is read of it."""

    def __init__(self, array, chunks=None):
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.read = []
        if chunks is not None:
            self.chunks = chunks

    def __getitem__(self, index):
        self.read.append(index)
        return self.array[index]


def drive(running):
    stages = []
    while True:
        try:
            stages.append(next(running))
        except StopIteration as end:
            return stages, end.value
