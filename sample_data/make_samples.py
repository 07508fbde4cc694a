"""Make the sample stacks of this folder again: seeded, with NumPy, and with the truth known.

    python sample_data/make_samples.py            # writes the four samples beside this file
    python sample_data/make_samples.py --truth    # and the clean stack of each as NAME_truth.tif

Each function below returns the clean stack (float32, grey levels of the sample) and the noisy one,
so that a result can be scored: ``clean, noisy = fluorescence()``.
"""

from __future__ import annotations

import argparse
import gzip
import uuid
from pathlib import Path

import nibabel
import numpy as np
import tifffile
from scipy import ndimage

HERE = Path(__file__).resolve().parent

# Camera of the time-lapse: a cooled sCMOS at low light.
OFFSET = 100.0  # grey levels with the shutter closed
HAZE = 16.0  # photoelectrons from out of focus, everywhere
GAIN = 2.2  # grey levels per photoelectron
READ_NOISE = 2.4  # photoelectrons, standard deviation

# Fixed, so that the same file is written each time.
OME_UUID = uuid.uuid5(uuid.NAMESPACE_DNS, "mri.napari-gpu-denoise")

RICIAN_SIGMA = 36.0  # standard deviation of the real and of the imaginary part, grey levels

# Diffusion series: the same kind of noise; volumes without and with weighting, s/mm².
DIFFUSION_SIGMA = 10.0
UNWEIGHTED, WEIGHTED, B_VALUE = 3, 30, 1000


def bell(shape, sigma_y, sigma_x):
    """Gaussian of sum 1 around the first pixel of a periodic grid; sampled, so nowhere negative."""
    dy = np.fft.fftfreq(shape[0], 1 / shape[0])[:, None]
    dx = np.fft.fftfreq(shape[1], 1 / shape[1])[None, :]
    kernel = np.exp(-0.5 * ((dy / sigma_y) ** 2 + (dx / sigma_x) ** 2))
    return kernel / kernel.sum()


def blur(image, sigma_y, sigma_x=None):
    """Gaussian blur of a plane, periodic at its borders."""
    kernel = bell(image.shape, sigma_y, sigma_y if sigma_x is None else sigma_x)
    result = np.fft.ifft2(np.fft.fft2(image) * np.fft.fft2(kernel))
    return result if np.iscomplexobj(image) else result.real


def deposit(shape, y, x, weights):
    """Add weighted points at sub-pixel places to a grid, by bilinear shares."""
    ny, nx = shape
    y0, x0 = np.floor(y).astype(int), np.floor(x).astype(int)
    fy, fx = y - y0, x - x0
    grid = np.zeros(shape, dtype=np.result_type(weights, np.float64))
    for dy, wy in ((0, 1 - fy), (1, fy)):
        for dx, wx in ((0, 1 - fx), (1, fx)):
            inside = (y0 + dy >= 0) & (y0 + dy < ny) & (x0 + dx >= 0) & (x0 + dx < nx)
            index = (y0 + dy)[inside], (x0 + dx)[inside]
            np.add.at(grid, index, (weights * wy * wx)[inside])
    return grid


def smooth_field(rng, shape, sigma):
    """A random field of mean 0 and standard deviation 1 with structures of width sigma."""
    field = blur(rng.standard_normal(shape), sigma)
    return (field - field.mean()) / field.std()


def filaments(rng, centre, count, length, reach):
    """Points along curved filaments that start near a cell's centre: arrays y, x."""
    ys, xs = [], []
    for _ in range(count):
        angle = rng.uniform(0, 2 * np.pi)
        turn = rng.normal(0, 0.012) + np.cumsum(rng.normal(0, 0.0025, length))
        heading = angle + np.cumsum(turn) * 0.5
        start = np.asarray(centre) + rng.normal(0, reach, 2)
        ys.append(start[0] + 0.5 * np.cumsum(np.sin(heading)))
        xs.append(start[1] + 0.5 * np.cumsum(np.cos(heading)))
    return np.concatenate(ys), np.concatenate(xs)


def fluorescence(seed=20261, frames=16, shape=(192, 208)):
    """Live-cell fluorescence: two cells, filaments, vesicles that run along them; TYX, uint16."""
    rng = np.random.default_rng(seed)
    ny, nx = shape
    yy, xx = np.mgrid[:ny, :nx].astype(float)
    edge = smooth_field(rng, shape, 14) * 7
    texture = np.exp(0.25 * smooth_field(rng, shape, 3))
    cells = ((78.0, 74.0, 66.0, 56.0, 0.5), (138.0, 150.0, 44.0, 48.0, -0.4))
    body = np.zeros(shape)
    fibres = np.zeros(shape)
    tracks = []
    for cy, cx, ry, rx, tilt in cells:
        v = (yy - cy) * np.cos(tilt) + (xx - cx) * np.sin(tilt)
        u = (xx - cx) * np.cos(tilt) - (yy - cy) * np.sin(tilt)
        radius = np.hypot(v / ry, u / rx) + edge / 60
        inside = 1 / (1 + np.exp((radius - 1) * 16))
        nucleus = 1 / (1 + np.exp((np.hypot(v / (0.3 * ry), u / (0.34 * rx)) - 1) * 8))
        body += 14.0 * inside * texture * (1 - 0.75 * nucleus)
        y, x = filaments(rng, (cy, cx), 26, 190, 9.0)
        keep = inside[np.clip(y, 0, ny - 1).astype(int), np.clip(x, 0, nx - 1).astype(int)] > 0.5
        fibres += deposit(shape, y, x, 26.0 * keep)
        tracks.append((y.reshape(26, 190), x.reshape(26, 190), keep.reshape(26, 190)))
    still = HAZE + blur(body, 1.5) + blur(fibres, 1.15)

    clean = np.empty((frames, ny, nx))
    vesicles = [
        (
            cell,
            int(rng.integers(26)),
            rng.uniform(10, 150),
            rng.normal(0, 2.2),
            rng.uniform(500, 1100),
        )
        for cell in (0, 1)
        for _ in range(22)
    ]
    for t in range(frames):
        # slow drift of the cells; the vesicles run along the filaments, forth or back
        shift = 0.25 * t
        py, px, pw = [], [], []
        for cell, fibre, start, speed, light in vesicles:
            y, x, keep = (part[fibre] for part in tracks[cell])
            place = np.clip(start + speed * t, 0, y.size - 1)
            if keep[int(place)]:
                py.append(np.interp(place, np.arange(y.size), y))
                px.append(np.interp(place, np.arange(x.size), x))
                pw.append(light)
        spots = blur(deposit(shape, np.array(py), np.array(px), np.array(pw)), 1.35)
        fx = np.exp(-2j * np.pi * np.fft.fftfreq(nx) * shift)
        moved = np.fft.ifft(np.fft.fft(still + spots, axis=1) * fx, axis=1).real
        clean[t] = np.maximum(moved, 0) * np.exp(-0.012 * t)  # bleaching
    electrons = rng.poisson(clean) + rng.normal(0, READ_NOISE, clean.shape)
    noisy = np.clip(np.rint(OFFSET + GAIN * electrons), 0, 65535).astype(np.uint16)
    return (OFFSET + GAIN * clean).astype(np.float32), noisy


def mri(seed=20262):
    """Measured brain slices with Rician noise added; ZYX, uint16."""
    rng = np.random.default_rng(seed)
    clean = tifffile.imread(HERE / "mri_truth.tif").astype(np.float32)
    real = clean + rng.normal(0, RICIAN_SIGMA, clean.shape)
    imaginary = rng.normal(0, RICIAN_SIGMA, clean.shape)
    return clean, np.rint(np.hypot(real, imaginary)).astype(np.uint16)


def ultrasound(seed=20263, frames=24, shape=(208, 176), dynamic_range=55.0):
    """A vessel that pulses under layered tissue, log-compressed B-mode; TYX, uint8.

    Point scatterers move with the tissue; their echoes, summed as complex numbers over the beam's
    resolution cell, give fully developed speckle that follows the motion.
    """
    rng = np.random.default_rng(seed)
    ny, nx = shape
    scatterers = int(1.6 * ny * nx)
    y0 = rng.uniform(-4, ny + 4, scatterers)
    x0 = rng.uniform(-4, nx + 4, scatterers)
    strength = rng.standard_normal(scatterers) + 1j * rng.standard_normal(scatterers)
    waves = 2 * np.pi / 0.85  # echo phase per pixel of depth: half the wavelength, in pixels
    layer = smooth_field(rng, shape, 16) * 5
    grain = smooth_field(rng, shape, 5)
    vessel_y, vessel_x, rest = 118.0, 90.0, 31.0

    def level(y, x):
        """Echo level in dB of the tissue at rest."""
        iy, ix = np.clip(y, 0, ny - 1).astype(int), np.clip(x, 0, nx - 1).astype(int)
        depth = y + layer[iy, ix]
        db = np.select([depth < 22, depth < 40, depth < 72], [-9.0, -22.0, -14.0], -17.0)
        db = db + 2.0 * grain[iy, ix]
        db = np.where(np.abs(depth - 40) < 1.6, -3.0, db)
        db = np.where(np.abs(depth - 72) < 1.3, -5.0, db)
        radius = np.hypot(y - vessel_y, (x - vessel_x) / 1.15)
        facing = np.abs(y - vessel_y) / np.maximum(
            radius, 1
        )  # walls shine where they face the beam
        db = np.where(np.abs(radius - rest - 2.5) < 2.5, -14 + 11 * facing**3, db)
        db = np.where(radius < rest, -50.0, db)
        mass = np.hypot((y - 178) / 13, (x - 140) / 20)
        return np.where(mass < 1, -29.0, db)

    density = scatterers / ((ny + 8) * (nx + 8))
    amplitude = 10 ** (level(y0, x0) / 20) / np.sqrt(2 * density)  # a level of 0 dB gives power 1
    yy, xx = np.mgrid[:ny, :nx].astype(float)
    receiver = 10 ** ((-58 + 8 * yy / ny) / 20)  # electronic noise, lifted by the gain with depth
    clean = np.empty((frames, ny, nx), np.float32)
    noisy = np.empty((frames, ny, nx), np.uint8)

    beam = bell(shape, 0.8, 1.5)  # response to one point: shorter along the beam than across it
    # Energy of that response to a point that `deposit` has shared among four pixels, on average.
    shares = [(2 + np.cos(2 * np.pi * np.fft.fftfreq(n))) / 3 for n in shape]
    caught = np.mean(np.abs(np.fft.fft2(beam)) ** 2 * np.outer(*shares))

    def grey(power):
        """Log-compressed picture of a power."""
        db = 10 * np.log10(np.maximum(power, 1e-12))
        return np.clip(255 * (1 + db / dynamic_range), 0, 255)

    for t in range(frames):
        phase = t / 24
        swell = 3.0 * np.exp(-(((phase - 0.22) / 0.1) ** 2))
        swell += 1.2 * np.exp(-(((phase - 0.5) / 0.16) ** 2))

        def displace(y, x, sign, swell=swell):
            """Where points go (sign 1) or come from (-1) as the vessel swells; area is kept."""
            dy, dx = y - vessel_y, (x - vessel_x) / 1.15
            radius = np.maximum(np.hypot(dy, dx), 1e-6)
            moved = np.sqrt(np.maximum(radius**2 + sign * 2 * rest * swell, 0.0))
            return vessel_y + dy * moved / radius, vessel_x + 1.15 * dx * moved / radius

        y, x = displace(y0, x0, +1)
        echo = blur(deposit(shape, y, x, strength * amplitude * np.exp(1j * waves * y)), 0.8, 1.5)
        echo /= np.sqrt(caught)
        noise = blur(rng.standard_normal(shape) + 1j * rng.standard_normal(shape), 0.5, 0.8)
        echo += receiver * noise / np.sqrt(2 * (bell(shape, 0.5, 0.8) ** 2).sum())
        noisy[t] = np.rint(grey(np.abs(echo) ** 2))
        expected = 10 ** (level(*displace(yy, xx, -1)) / 10)
        mean_power = np.fft.ifft2(np.fft.fft2(expected) * np.fft.fft2(beam**2 / (beam**2).sum()))
        clean[t] = grey(mean_power.real + receiver**2)
    return clean, noisy


def weighting():
    """b values (33,) and unit vectors (33, 3), evenly spread over half a sphere by a spiral."""
    height = (np.arange(WEIGHTED) + 0.5) / WEIGHTED
    angle = np.pi * (1 + np.sqrt(5)) * WEIGHTED * height
    across = np.sqrt(1 - height**2)
    vectors = np.stack([across * np.cos(angle), across * np.sin(angle), height], axis=1)
    bvals = np.repeat([0, B_VALUE], [UNWEIGHTED, WEIGHTED])
    return bvals, np.concatenate([np.zeros((UNWEIGHTED, 3)), vectors])


def diffusion(seed=20264, shape=(20, 48, 48)):
    """A head with fibres that cross, without and with diffusion weighting; DZYX, uint8.

    White matter has tensors of 1.7 and 0.3 µm²/ms along one fibre or two, grey matter diffuses by
    0.8 and fluid by 3 in all directions.
    """
    rng = np.random.default_rng(seed)
    half = np.array(shape)[:, None, None, None] / 2
    z, y, x = (np.indices(shape) + 0.5 - half) / half
    radius = np.sqrt((0.75 * z) ** 2 + (y / 0.92) ** 2 + (x / 0.78) ** 2)

    def soft(depth, width):
        return 1 / (1 + np.exp(-depth / width))

    def field(width):
        smooth = ndimage.gaussian_filter(rng.standard_normal(shape), width)
        return smooth / smooth.std()

    def fibre():
        vector = np.stack([field(7) for _ in range(3)], axis=-1)
        return vector / np.linalg.norm(vector, axis=-1, keepdims=True)

    folds = 0.09 * field(2.2)
    ventricles = np.hypot((np.abs(x) - 0.16) / 0.1, np.hypot(y / 0.4, z / 0.6))
    inside, fluid = soft(1 - radius, 0.015), soft(1 - ventricles, 0.08)
    fluid = np.maximum(fluid, soft(radius - 0.93, 0.015))
    white = (1 - fluid) * soft(0.68 + folds - radius, 0.02)
    grey = 1 - fluid - white
    first, second = fibre(), fibre()
    crossing = 0.5 * soft(field(5) - 0.4, 0.1)  # share of the second fibre
    clean = np.empty((UNWEIGHTED + WEIGHTED, *shape), np.float32)
    for number, (b, vector) in enumerate(zip(*weighting(), strict=True)):
        along = [np.exp(-1e-3 * b * (0.3 + 1.4 * (axis @ vector) ** 2)) for axis in (first, second)]
        told = white * ((1 - crossing) * along[0] + crossing * along[1])
        told += 1.3 * grey * np.exp(-0.8e-3 * b) + 2.2 * fluid * np.exp(-3e-3 * b)
        clean[number] = 100 * inside * told
    real, imaginary = DIFFUSION_SIGMA * rng.standard_normal((2, *clean.shape))
    return clean, np.rint(np.hypot(clean + real, imaginary)).clip(0, 255).astype(np.uint8)


def write_imagej(path, stack, pixel, unit, interval):
    """Write a TYX stack as an ImageJ hyperstack with pixel size (y, x) and frame interval."""
    tifffile.imwrite(
        path,
        stack,
        imagej=True,
        compression="zlib",
        compressionargs={"level": 12},
        predictor=stack.dtype == "u1",
        resolution=(1 / pixel[1], 1 / pixel[0]),
        metadata={"axes": "TYX", "unit": unit, "finterval": interval, "fps": 1 / interval},
    )


def write_ome(path, stack, voxel, unit):
    """Write a ZYX stack as OME-TIFF with voxel size (z, y, x)."""
    sizes = {f"PhysicalSize{axis}": size for axis, size in zip("ZYX", voxel, strict=True)}
    units = {f"PhysicalSize{axis}Unit": unit for axis in "ZYX"}
    tifffile.imwrite(
        path,
        stack,
        ome=True,
        compression="zlib",
        compressionargs={"level": 12},
        photometric="minisblack",
        metadata={"axes": "ZYX", "UUID": "urn:uuid:" + str(OME_UUID), **sizes, **units},
    )


def write_nifti(path, series, voxel):
    """Write a DZYX series as NIfTI with voxel size (z, y, x) in mm, and its tables beside it."""
    image = nibabel.Nifti1Image(series.T, np.diag([*voxel[::-1], 1]))
    image.header.set_xyzt_units("mm")
    path.write_bytes(gzip.compress(image.to_bytes(), 9, mtime=0))
    bvals, vectors = weighting()
    stem = path.name.partition(".")[0]
    np.savetxt(path.with_name(f"{stem}.bval"), bvals[None], "%d")
    np.savetxt(path.with_name(f"{stem}.bvec"), vectors.T, "%.6f")


def main():
    """Write the samples, and the truth of each if asked."""
    parser = argparse.ArgumentParser(description="Make the sample stacks again.")
    parser.add_argument("--truth", action="store_true", help="write the clean stacks too")
    parser.add_argument("--folder", type=Path, default=HERE, help="where to write")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)

    clean, noisy = fluorescence()
    write_imagej(given.folder / "fluorescence.tif", noisy, (0.108, 0.108), "um", 2.0)
    if given.truth:
        write_imagej(given.folder / "fluorescence_truth.tif", clean, (0.108, 0.108), "um", 2.0)
    clean, noisy = ultrasound()
    write_imagej(given.folder / "ultrasound.tif", noisy, (0.18, 0.2), "mm", 0.04)
    if given.truth:
        write_imagej(given.folder / "ultrasound_truth.tif", clean, (0.18, 0.2), "mm", 0.04)
    write_ome(given.folder / "mri.ome.tif", mri()[1], (2.2, 2.0, 2.0), "mm")
    clean, noisy = diffusion()
    write_nifti(given.folder / "diffusion.nii.gz", noisy, (2.5, 2.5, 2.5))
    if given.truth:
        write_nifti(given.folder / "diffusion_truth.nii.gz", clean, (2.5, 2.5, 2.5))


if __name__ == "__main__":
    main()
