"""Settings of a patch search, and the kernel that suits them and a device."""

from __future__ import annotations

from dataclasses import dataclass

from napari_gpu_denoise.opencl.device import Device

# Local memory of a work-group: more would let fewer groups run on a compute unit at once.
_LOCAL_MEMORY = 48 * 1024
# Rows and vectors of references that a work-item serves on a CPU. More share more, but their lists
# no longer fit the cache, and small images keep fewer cores busy.
_ROWS, _VECTORS = 4, 8
# Most pixels of the reference patches that a work-item holds; of a strip for `search_sliding`, and
# most keys of its lists.
_REGISTERS, _STRIP, _LISTED = 64, 42, 96


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: widths in pixels, numbers of frames and slices.

    With `roots`, distances are between twice the square roots of the values.
    """

    patch: int
    step: int
    window: int
    neighbours: int
    frames: tuple[int, int] = (0, 0)
    slices: int = 0
    roots: bool = False

    @property
    def beyond(self) -> int:
        """How much further than its matches the pixels lie that a reference depends on."""
        return 0

    @property
    def candidates(self) -> int:
        """Number of patches that a reference is compared with."""
        return self.window**2 * (1 + sum(self.frames)) * (1 + 2 * self.slices)


@dataclass(frozen=True)
class Variant:
    """A kernel and the build constants that fit it to a device."""

    kernel: str
    constants: dict[str, int]

    @property
    def split(self) -> int:
        """Number of phases into which rows of the padded image are split."""
        return self.constants.get("SPLIT", 1)

    def served(self, settings: SearchSettings) -> tuple[int, int]:
        """Return how many references a work-group serves along x and y.

        Some items compare only squares, strips or columns that patches of their neighbours reach.
        """
        across, down = self.constants["GROUP_X"], self.constants["GROUP_Y"]
        beside = -(-settings.patch // settings.step) - 1
        if self.kernel == "search_square":
            return across - beside, down - beside
        if self.kernel == "search_strips":
            return across - beside, down
        if self.kernel == "search_sliding":
            each = self.constants["COLUMNS"]
            return (across - -(-beside // each)) * each, down * self.constants["ROWS"]
        return across, down


def choose_variant(settings: SearchSettings, device: Device) -> Variant:
    """Choose the search kernel for a device.

    A CPU compares vectors of squares, whose distances neighbouring patches share. Warps of an
    NVIDIA GPU exchange those of strips if the step is 1 or does not divide the patch. Otherwise, a
    GPU shares them in local memory: of squares, if the step is 2 to 4 and divides the patch, else
    of strips or columns. If patches overlap by half at most, there is little to share, and the
    pixels are all that is in local memory. Where nothing fits, each work-item searches for one
    reference.
    """
    if device.float_lanes >= 4:
        lanes = max(width for width in (4, 8, 16) if width <= device.float_lanes)
        sizes = {"LANES": lanes, "SPLIT": settings.step, "ROWS": _ROWS, "VECTORS": _VECTORS}
        return Variant("search_vectors", sizes)
    plain = Variant("search_plain", {})
    return next(iter(fitting_variants(settings, device)), plain)


def fitting_variants(settings: SearchSettings, device: Device) -> list[Variant]:
    """Return the kernels that keep what they share in local memory and fit a device, best first."""
    limit = min(device.local_memory, _LOCAL_MEMORY)
    sharing = (*_sliding(settings, device), *_squares(settings, device), *_strips(settings))
    others = (*_wholes(settings), *_columns(settings))
    return [
        variant
        for variant, nbytes in (*sharing, *others)
        if nbytes <= limit
        and variant.constants["GROUP_X"] * variant.constants["GROUP_Y"] <= device.max_group
    ]


def _sliding(settings: SearchSettings, device: Device):
    patch, step, neighbours = settings.patch, settings.step, settings.neighbours
    # Other devices than NVIDIA's would exchange sums in local memory: no faster than others.
    if "nvidia" not in device.vendor.lower() or patch > 12 or (step > 1 and not patch % step):
        return
    kinds = ((1, 2, 4), (1, 1, 4))
    if step == 1 and patch <= 6 and neighbours <= 16:
        kinds = ((2, 2, 3), *kinds)  # small patches share more along x
    elif step > 1:
        kinds = ((1, 3, 2), (1, 2, 4)) if neighbours > 16 else ((1, 2, 4),)
    for columns, rows, group_y in kinds:
        height = (rows - 1) * step + patch
        # More code than that of half a turn of the registers takes long to fetch.
        period = height // 2 if rows == 3 and not height % 2 else height
        held = columns * rows * neighbours, step * height * (step > 1)
        if rows > patch or held[0] > _LISTED or held[1] > _STRIP:
            continue
        for band in (settings.window, 8) if step == 1 else (8,):
            yield sliding_variant(settings, columns, rows, group_y, period, band)


def sliding_variant(
    settings: SearchSettings,
    columns: int,
    rows: int,
    group_y: int,
    period: int | None = None,
    band: int | None = None,
    warp: bool = True,
    across: int = 32,
) -> tuple[Variant, int]:
    """Return a search by items that serve `columns` times `rows` references; its local memory.

    Build constants as in kernels/search/search_sliding.cl. Warps hold `across` items: 32, but where
    `warp` is false, without exchanges within warps.
    """
    patch, step, window = settings.patch, settings.step, settings.window
    height = (rows - 1) * step + patch
    period, band = period or height, min(band or window, window)
    width = columns * step
    line = -(-(across * width + band - 1) // width) * width
    tile_y = (group_y * rows - 1) * step + patch + window - 1
    pending = columns * rows * (period + 8 + (0 if warp else 2))
    nbytes = 4 * (line * tile_y + pending * across * group_y)
    constants = {"WINDOW": window, "BAND": band, "COLUMNS": columns, "ROWS": rows}
    constants |= {"PERIOD": period, "GROUP_X": across, "GROUP_Y": group_y, "WARP_ROWS": int(warp)}
    return Variant("search_sliding", constants), nbytes


def _squares(settings: SearchSettings, device: Device):
    patch, step, window = settings.patch, settings.step, settings.window
    if patch % step or step not in (2, 3, 4) or patch // step > 4:
        return
    chunk = 8
    for group_x, group_y in ((16, 8), (8, 8)):
        tile_x = group_x * step + -(-window // chunk) * chunk
        tile_y = group_y * step + window - 1
        nbytes = 4 * (tile_x * tile_y + (2 * chunk + 8) * group_x * group_y)
        constants = {"WINDOW": window, "CHUNK": chunk, "GROUP_X": group_x, "GROUP_Y": group_y}
        constants["WARP_ROWS"] = int("nvidia" in device.vendor.lower() and patch // step in (2, 4))
        yield Variant("search_square", constants), nbytes


def _strips(settings: SearchSettings):
    patch, step, window = settings.patch, settings.step, settings.window
    if not 1 < step < patch:
        return
    for group_x, group_y in ((32, 4), (16, 4)):
        height = (group_y - 1) * step + patch
        if height * step > _REGISTERS:
            continue
        for shifts in (2, 1):
            chunk = group_y * shifts
            tile_x = group_x * step + -(-window // chunk) * chunk
            tile_y = height + window - 1
            items = group_x * group_y
            nbytes = 4 * (tile_x * tile_y + (3 * chunk + 8) * items)
            constants = {"WINDOW": window, "SHIFTS": shifts}
            constants |= {"GROUP_X": group_x, "GROUP_Y": group_y}
            yield Variant("search_strips", constants), nbytes


def _wholes(settings: SearchSettings):
    patch, step, window = settings.patch, settings.step, settings.window
    if patch**2 > _REGISTERS or 2 * step < patch:
        return
    for group_x, group_y in ((16, 4), (8, 4)):
        reached = group_x * step + patch + -(-window // step) * step
        line = -(-reached // step) * step
        if group_x == 16:
            # Two rows of references read from different halves of 32 banks.
            while step * line % 32 != 16:
                line += 1
        tile_y = (group_y - 1) * step + patch + window - 1
        nbytes = 4 * (line * tile_y + (step + 8) * group_x * group_y)
        constants = {"WINDOW": window, "LINE": line, "GROUP_X": group_x, "GROUP_Y": group_y}
        yield Variant("search_whole", constants), nbytes


def _columns(settings: SearchSettings):
    patch, step, window = settings.patch, settings.step, settings.window
    shapes = ((32, 8), (16, 8), (32, 4), (16, 4), (8, 8))
    # Long lists fill the registers: a large work-group then leaves none for a second one.
    for group_x, group_y in shapes if settings.neighbours <= 16 else shapes[1:]:
        columns, height = (group_x - 1) * step + patch, (group_y - 1) * step + patch
        items = group_x * group_y
        if columns > items or height > 40:
            continue
        chunk = min(items // columns, 8, window)
        tile_x = columns + -(-window // chunk) * chunk
        tile_y = height + window - 1
        nbytes = 4 * (tile_x * tile_y + chunk * group_y * columns + (chunk + 8) * items)
        constants = {"WINDOW": window, "CHUNK": chunk, "GROUP_X": group_x, "GROUP_Y": group_y}
        yield Variant("search_column", constants), nbytes
