"""Videos in, frame by frame, and lossless ones (FFV1 in Matroska) out.

PyAV, the package of FFmpeg, is imported when a video is read or written. The container is the one
that the first bytes of a file say, so that playlists, and what they name, are never opened.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files import image_file, input_checks
from napari_gpu_denoise.files.image_file import FileBlocks, Format, ImageFile, PixelMetadata

SUFFIXES = (".mkv", ".avi", ".mp4", ".m4v", ".mov", ".webm", ".wmv", ".mpg", ".mpeg")
_EBML, _SEGMENT = b"\x1aE\xdf\xa3", b"\x18\x53\x80\x67\x01"  # of Matroska
_ASF_PROPERTIES = bytes.fromhex("a1dcab8c47a9cf118ee400c00c205365")
_HEAD_BYTES = 1 << 16
# Containers by bytes at a place near the start of a file.
_CONTAINERS = {
    **{(8, b"AVI "): "avi", (0, _EBML): "matroska", (0, b"0&\xb2u"): "asf"},
    **{(4, word): "mov" for word in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip")},
    (0, b"\0\0\1\xba"): "mpeg",
}
_RECORDS = "NAPARI-GPU-DENOISE"  # tag of the records
_SAMPLED = 8  # frames that are looked at for colours
_NEUTRAL = 4  # levels of 256 that chroma of grey pixels may differ from the middle
_UNEVEN = 0.02  # of the time between frames, by which it may differ
_KEPT = 4  # frames in memory, of FFmpeg's too
_PIXEL_BYTES = 3
_AHEAD = 32  # frames that are rather decoded than jumped over


def is_video(path: str | os.PathLike) -> bool:
    """Return whether a file starts like a video; False also if it cannot be opened."""
    return _container_of(input_checks.start_of(path, 12)) is not None


def _container_of(start: bytes) -> str | None:
    found = (name for (at, word), name in _CONTAINERS.items() if start[at:].startswith(word))
    return next(found, None)


def open_image(
    path: Path, held: contextlib.ExitStack, companions_anywhere: bool = False
) -> ImageFile:
    """Open the first video stream of a file, to decode its frames on demand."""
    with _decoding(path):
        return _picture(path, held.enter_context(input_checks.open_image(path)))


def _picture(path: Path, file: BinaryIO) -> ImageFile:
    container = _opened(path, file)
    if not container.streams:
        raise input_checks.cut_short(path)
    if not container.streams.video:
        raise ImageError(f"{path} holds no video, such as sound alone: choose another file.")
    stream, notes = container.streams.video[0], []
    context, base = stream.codec_context, stream.time_base
    if context is None or not context.width or context.pix_fmt is None:
        raise FileError(
            f"{path} is damaged, or has a codec that FFmpeg lacks "
            f"({context.name if context else 'unknown'}): convert it, for example with "
            f"ffmpeg -i {path.name} -c:v ffv1 new.mkv."
        )
    pixels = context.width * context.height
    size = os.fstat(file.fileno()).st_size
    input_checks.check_declared(_PIXEL_BYTES * pixels, size, path, "FFmpeg")
    input_checks.check_memory(8 * _KEPT * pixels, path)
    # The packets themselves are not kept: they are the whole file.
    demuxed = (each for each in container.demux(stream) if each.size)
    packets = [(each.is_discard, each.is_corrupt, each.pts, each.is_keyframe) for each in demuxed]
    shown = [(pts, is_key) for is_discard, _, pts, is_key in packets if not is_discard]
    if not shown:
        raise input_checks.cut_short(path)
    times = sorted({pts for pts, _ in shown if pts is not None})
    if len(times) < len(shown):
        times = []  # frames are counted
    keys = sorted(pts for pts, is_key in shown if times and is_key) or times[:1]
    step = _time_step(times, stream, notes)
    end = float((times[-1] * base if times else (len(shown) - 1) * step) + step)
    missing = [_missing_frames(file, container, len(packets), end, float(step))]
    if damaged := sum(is_corrupt for _, is_corrupt, *_ in packets):
        missing.append(f"{damaged} frames are cut short or damaged, and read as they are.")
    notes += filter(None, missing)
    if len(container.streams) > 1:
        notes.append("Sound, subtitles and other streams of the video are not kept.")
    data = VideoFrames(path, file, len(shown), times, keys, notes)
    metadata = {"times": times, "base": base, "rate": 1 / step, "bits": data.bits}
    history = image_file.records_in(container.metadata.get(_RECORDS, ""))
    told = PixelMetadata({"T": (float(step), "second")})
    axes = "TYX" + "S" * (data.ndim - 3)
    kept = (path, (path,), tuple(notes), history)
    return ImageFile(data, axes, "video", metadata, *kept, pixel_metadata=told)


def _time_step(times: list[int], stream: Any, notes: list[str]) -> Fraction:
    """Return the mean time between frames, in seconds, with a note if it varies or is unknown."""
    rate, base = stream.average_rate or stream.guessed_rate or Fraction(25), stream.time_base
    if not times:
        notes.append("The frames have no times: the rate that the file tells is taken.")
    if len(times) < 2:
        return 1 / rate
    apart = np.diff(times) * float(base)
    mean = float(apart.mean())
    if np.ptp(apart) > max(1.5 * float(base), _UNEVEN * mean):
        lost = int(np.rint(apart / np.median(apart)).sum()) - len(apart)
        notes.append(
            f"The time between frames varies from {1000 * apart.min():.4g} to "
            f"{1000 * apart.max():.4g} ms{f', as if {lost} were lost' * (lost > 0)}: a video "
            "keeps it, other formats its mean."
        )
    if abs(mean * rate - 1) > _UNEVEN / 2:
        return Fraction(times[-1] - times[0], len(times) - 1) * base
    return 1 / rate


def _missing_frames(file: BinaryIO, container: Any, count: int, end: float, step: float) -> str:
    """Return a note on frames that a file declares and lacks; empty if it lacks none."""
    stream = container.streams.video[0]
    declared, lasts, whole = stream.frames, 0.0, _declared_bytes(file)
    if whole is not None:  # other containers repeat there what is left of the file
        lasts = (container.duration or 0) / 1e6 * (len(container.streams) == 1)
        with contextlib.suppress(KeyError, ValueError):
            parts = map(float, stream.metadata["DURATION"].split(":"))
            lasts = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=True))
    size = os.fstat(file.fileno()).st_size
    if declared > count:
        lacks = f"{declared} frames and lacks {declared - count} of them"
    elif lasts > end + step / 2:
        lacks = f"{lasts:.4g} s and lacks {round((lasts - end) / step)} frames after {end:.4g} s"
    elif whole and whole > size:
        lacks = f"{whole} bytes and lacks {whole - size} of them, which may be frames"
    elif declared or lasts or whole:
        return ""
    else:
        return "The file does not declare its number of frames: it may be cut short unnoticed."
    return f"The file declares {lacks}: it is cut short or damaged."


def _declared_bytes(file: BinaryIO) -> int | None:
    """Return the size that a Matroska or ASF file declares, 0 for unknown; None for others."""
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    if (at := head.find(_ASF_PROPERTIES)) >= 0:
        return int.from_bytes(head[at + 40 : at + 48], "little")
    if not head.startswith(_EBML):
        return None
    at = head.find(_SEGMENT) + len(_SEGMENT)
    told = int.from_bytes(head[at : at + 7], "big")
    return at + 7 + told if at >= len(_SEGMENT) and told < (1 << 56) - 1 else 0


@contextlib.contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn what is raised while a video is read into a `FileError`."""
    with input_checks.reading(path):
        from av.error import FFmpegError

        try:
            yield
        except FFmpegError as error:
            raise input_checks.cut_short(path) from error


def _opened(path: Path, file: BinaryIO) -> Any:
    import av

    container = _container_of(file.read(12))
    file.seek(0)
    if container is None:
        raise FileError(f"{path} is not a video that can be read: convert it to MKV or MP4.")
    # Frames may be larger than the file declares.
    most = input_checks.most_declared(os.fstat(file.fileno()).st_size) // _PIXEL_BYTES
    options = {"max_pixels": str(min(most, 2**31 - 1))}
    opened = av.open(file, format=container, options=options)
    for each in opened.streams.video:
        if each.codec_context is not None:
            each.codec_context.options = options
    return opened


class VideoFrames(FileBlocks):
    """The frames of a video: grey levels if none has colours, else RGB.

    Frames are best read in order: others are decoded from the frame before them that is stored as a
    whole. `bits` are those of a grey level or colour.
    """

    def __init__(
        self, path: Path, file: BinaryIO, count: int, times: list[int], keys: list[int], notes: list
    ) -> None:
        self._path, self._file, self._times, self._keys = path, file, times, keys
        self._places = {time: k for k, time in enumerate(times)}
        self._restart()
        first = self._frame(0)
        layout = first.format
        self.bits = max(8, *(each.bits for each in layout.components))
        if self.bits > 16:
            raise ImageError(
                f"{path} has pixels of the format {layout.name}, which is not read: convert it, "
                f"for example with ffmpeg -i {path.name} -pix_fmt gray16le -c:v ffv1 new.mkv."
            )
        self._damage_noted = any("damaged" in each for each in notes)
        if any(each.is_alpha for each in layout.components):
            notes.append("The transparency of the video is not read.")
        if first.interlaced_frame:
            notes.append("The frames are interlaced, and filtered as they are.")
        dtype = np.dtype(np.uint8 if self.bits <= 8 else np.uint16)
        self._size = (first.height, first.width)
        numbers = sorted({k * (count - 1) // (_SAMPLED - 1) for k in range(_SAMPLED)})
        self._colours = any(_grey_levels(self._frame(k), self.bits) is None for k in numbers)
        shape = (count, *self._size, *[3] * self._colours)
        super().__init__(path, shape, dtype, 1, reading=_decoding)
        if not self._colours and _may_have_colours(layout):
            notes.append("The frames have no colours: they are read as grey levels (luma).")

    def close(self) -> None:
        super().close()
        self._frames = iter(())

    def _read(self, number: int) -> np.ndarray:
        frame = self._frame(number)
        if (frame.height, frame.width) != self._size:
            raise FileError(f"Frame {number} of {self._path} has another size: cut it off.")
        if frame.is_corrupt and not self._damage_noted:
            raise FileError(f"Frame {number} of {self._path} is damaged: cut it off.")
        if self._colours:
            return frame.to_ndarray(format="rgb24" if self.bits <= 8 else "rgb48le")
        if (levels := _grey_levels(frame, self.bits)) is None:
            raise FileError(
                f"Frame {number} of {self._path} has colours, which those looked at have not: "
                "convert it, for example with ffmpeg -pix_fmt bgr0 -c:v ffv1."
            )
        return levels.astype(self.dtype)

    def _restart(self) -> None:
        """Go to the first frame."""
        self._file.seek(0)
        self._container = _opened(self._path, self._file)
        self._stream = self._container.streams.video[0]
        self._stream.thread_type = "AUTO"
        self._frames, self._next = self._container.decode(self._stream), 0

    def _frame(self, number: int) -> Any:
        """Decode a frame."""
        if not self._next <= number < self._next + _AHEAD:
            key = bisect_right(self._keys, self._times[number]) - 1 if self._times else -1
            if key > 0:
                self._container.seek(self._keys[key], stream=self._stream)
                self._frames = self._container.decode(self._stream)
            else:
                self._restart()
        for frame in self._frames:
            place = self._places.get(frame.pts, self._next)
            self._next = place + 1
            if place == number:
                return frame
            if place > number:
                break
        raise FileError(f"Frame {number} of {self._path} cannot be decoded: the video is damaged.")


def _plane(frame: Any, k: int) -> np.ndarray:
    """Return a plane of a frame as it is stored, without padding."""
    plane, layout = frame.planes[k], frame.format
    wide = layout.components[0].bits > 8
    dtype = np.dtype((">u2" if layout.is_big_endian else "<u2") if wide else "u1")
    rows = np.frombuffer(plane, dtype).reshape(-1, plane.line_size // dtype.itemsize)
    return rows[: plane.height, : plane.width]


def _may_have_colours(layout: Any) -> bool:
    return layout.has_palette or sum(not each.is_alpha for each in layout.components) > 1


def _grey_levels(frame: Any, bits: int) -> np.ndarray | None:
    """Return the grey levels of a frame; None if it has colours, or is RGB."""
    layout, deep = frame.format, f"{bits}le" if bits > 8 else ""
    if layout.has_palette:
        colours = frame.to_ndarray(format="rgb24")
        return colours[..., 0] if (colours == colours[..., :1]).all() else None
    if layout.is_rgb:
        return None
    has_chroma = _may_have_colours(layout)
    if not layout.name.startswith(("yuv", "gray")):  # such as NV12, YUYV, one bit, with alpha
        frame = frame.reformat(format=f"yuv444p{deep}" if has_chroma else f"gray{deep}")
    if has_chroma:
        middle = 1 << (frame.format.components[0].bits - 1)
        planes = (_plane(frame, k).astype(np.int32) for k in (1, 2))
        if any(np.abs(each - middle).max() > _NEUTRAL * middle // 128 for each in planes):
            return None
    return _plane(frame, 0)


def write(
    file: BinaryIO, path: Path, data: Any, like: ImageFile, records: Sequence[dict]
) -> tuple[str, ...]:
    """Write frames as a lossless video with the times of another, as `formats.write` does.

    They are rounded to the bits of those of the input. The record is a tag of the file.
    """
    import av

    told, clipped = like.metadata, 0
    dtype, most = like.data.dtype, 2 ** told["bits"] - 1
    wide, colours = dtype.itemsize > 1, like.axes.endswith("S")
    layout = ("rgb48le" if wide else "bgr0") if colours else "gray16le" if wide else "gray"
    given = ("rgb48le" if wide else "rgb24") if colours else layout
    if colours:
        most = 2 ** (8 * dtype.itemsize) - 1
    with av.open(file, "w", format="matroska") as container:
        lines = [image_file.record_line(each) for each in (*like.history, *records)]
        container.metadata[_RECORDS] = "\n".join(lines)
        stream = container.add_stream("ffv1", rate=told["rate"].limit_denominator(2**30))
        stream.height, stream.width = like.data.shape[1:3]
        stream.pix_fmt, stream.options = layout, {"level": "3", "slicecrc": "1"}
        base = told["base"] if told["times"] else 1 / told["rate"]
        stream.time_base = stream.codec_context.time_base = base
        for number, time in enumerate(told["times"] or range(len(data))):
            pixels, beyond = image_file.rounded(data[number], dtype, 0, most)
            clipped += beyond
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format=given)
            frame.pts, frame.time_base = time, base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    if not clipped:
        return ()
    return (f"{clipped} values are beyond the range of the video, and became its ends.",)


FORMAT = Format(
    name="video",
    suffixes=SUFFIXES,
    kinds=("video",),
    is_format=is_video,
    open_image=open_image,
    write=write,
    written=(".mkv",),
    becomes=("TIFF", "OME-Zarr"),
)
