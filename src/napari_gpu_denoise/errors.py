"""Everything that can go wrong, each with a name and a sentence that says what to do next."""


class DenoiseError(Exception):
    """Base of every error this package raises on purpose."""


class NoDeviceError(DenoiseError, RuntimeError):
    """No OpenCL device was found, or none is the one asked for."""


class DeviceMemoryError(DenoiseError, MemoryError):
    """The device cannot hold even the smallest tile of the work."""


class KernelError(DenoiseError, RuntimeError):
    """A device refused to build or to run a kernel."""


class AxesError(DenoiseError, ValueError):
    """The axes named do not fit the array."""


class ImageError(DenoiseError, ValueError):
    """The array cannot be filtered: it is empty, or of an unsupported type."""


class NonFiniteError(ImageError):
    """The array holds NaN or infinity and the caller did not say how to treat them."""


class SettingsError(DenoiseError, ValueError):
    """A setting of a filter is out of its bounds, or unknown."""


class SigmaError(DenoiseError, ValueError):
    """The noise standard deviation is negative, not finite, or of the wrong length."""


class Cancelled(DenoiseError, RuntimeError):
    """The caller asked for a stop; nothing was returned or written."""


class FileError(DenoiseError, OSError):
    """A file cannot be read as an image."""


class OutputError(DenoiseError, OSError):
    """A result cannot be written where it was asked for."""


class LayerError(DenoiseError, TypeError):
    """A napari layer is not one that can be filtered."""


class SaturationWarning(UserWarning):
    """Some results fell outside the range of the output type and were clipped to it."""
