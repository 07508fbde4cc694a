"""Write the middle planes of two TIFFs side by side as a PNG that any viewer shows.

    python scripts/picture.py NOISY.tif DENOISED.tif PICTURE.png

Both are stretched alike, from the darkest to the brightest 0.2 % of the denoised one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tifffile
from imagecodecs import png_encode


def main(noisy: str, denoised: str, picture: str) -> None:
    """Write the picture."""
    planes = []
    for path in (noisy, denoised):
        stack = tifffile.imread(path)
        stack = stack.reshape(-1, *stack.shape[-2:])
        planes.append(stack[len(stack) // 2])
    low, high = np.percentile(planes[1], (0.2, 99.8))
    pixels = (np.hstack(planes).astype(np.float32) - low) / max(high - low, 1e-9)
    Path(picture).write_bytes(png_encode((255 * pixels.clip(0, 1)).astype(np.uint8)))


if __name__ == "__main__":
    main(*sys.argv[1:])
