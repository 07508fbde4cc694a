"""Videos in, frame by frame, and lossless ones out: frames, times, the record."""

from __future__ import annotations

import contextlib
import struct
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

import napari_gpu_denoise as gd
from files.contract import FormatContract, SameWriter, apart
from files.tiffs import RECORD
from napari_gpu_denoise.errors import FileError, ImageError
from napari_gpu_denoise.files import formats
from scenes import noisy, small

SMALL = small(gd.NLMeans)
SIZE = 48, 64


def frames(count: int = 20, *, coloured: bool = False) -> np.ndarray:
    """Return frames as RGB, of which colours are those of a Doppler image, from the fifth on."""
    grey = np.clip(noisy(count, *SIZE), 0, 255).astype(np.uint8)
    image = np.repeat(grey[..., None], 3, axis=-1)
    if coloured:
        image[4:, :16, :16, :2] = 200, 0
    return image


def saved(
    path: Path, image: np.ndarray, codec: str, layout: str, times=None, sound=False, **options
) -> Path:
    """Write a video of 25 frames in a second, or with these times in ms."""
    base = Fraction(1, 25) if times is None else Fraction(1, 1000)
    coding = {"preset": options.pop("preset", "medium")} if codec == "libx264" else {}
    with av.open(path, "w", options=options) as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width, stream.pix_fmt = *image.shape[1:3], layout
        stream.codec_context.time_base = base
        stream.options = coding
        if codec in ("libx264", "mpeg4"):
            stream.gop_size = 6
        if sound:
            container.add_stream("aac", rate=44100)
        given = "rgb24" if image.ndim > 3 else "gray" if image.itemsize == 1 else "gray16le"
        for k, pixels in enumerate(image):
            frame = av.VideoFrame.from_ndarray(pixels, format=given)
            frame.pts, frame.time_base = k if times is None else times[k], base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def decoded(path: Path) -> list:
    """Return the frames of a video as av decodes them in order."""
    with av.open(path) as container:
        return list(container.decode(video=0))


def enlarged_mkv(path: Path) -> None:
    """Declare larger frames in the header of the track."""
    small, large = b"\xb0\x81\x20\xba\x81\x18\x54\xb2\x81\x04", b"\xb0\x83\1\0\0\xba\x83\1\0\0"
    path.write_bytes(path.read_bytes().replace(small, large))


def enlarged_avi(path: Path) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<2I", data, data.index(b"strf") + 12, 1 << 16, 1 << 16)
    path.write_bytes(data)


class TestMatroska(FormatContract):
    ending, results, others = ".mkv", (".mkv",), (".ome.tif", ".ome.zarr")
    axes, types = ("TYXS", "TYX"), ("uint8", "uint16")
    steps = apart(T=0.04)
    modules, rounding = ("av",), 0.5
    lies = (("is damaged", enlarged_mkv),)

    def write(self, path, image, axes):
        grey = "gray" if image.itemsize == 1 else "gray16le"
        saved(path, image, "ffv1", "bgr0" if axes.endswith("S") else grey)

    def check_kept(self, before, after):
        with av.open(after) as container:
            stream = container.streams.video[0]
            assert (stream.codec_context.name, stream.average_rate) == ("ffv1", 25)


class TestAvi(SameWriter, TestMatroska):
    """The same frames in another container, whose result is a Matroska file."""

    ending = ".avi"
    lies = (("is damaged", enlarged_avi),)


@pytest.mark.parametrize(
    ("name", "codec", "layout"),
    [
        ("a.mp4", "libx264", "yuv420p"),  # with frames that depend on later ones
        ("a.avi", "mpeg4", "yuv420p"),
        ("b.avi", "mjpeg", "yuvj422p"),
        ("c.mkv", "ffv1", "gray"),
        ("d.mov", "png", "gray16be"),
    ],
)
def test_grey_videos(tmp_path, name, codec, layout):
    if codec not in av.codecs_available:
        pytest.skip(f"this FFmpeg has no {codec}")
    path = saved(tmp_path / name, frames(), codec, layout)
    stored = np.dtype(">u2" if layout == "gray16be" else "u1")
    levels = [
        np.frombuffer(f.planes[0], stored).reshape(SIZE[0], -1)[:, : SIZE[1]] for f in decoded(path)
    ]
    with formats.open_stack(path) as image:
        assert (image.axes, image.data.shape) == ("TYX", (20, *SIZE))
        assert image.data.dtype == stored.newbyteorder("=")
        for k in (19, 3, 11, 10, 0, 12):
            np.testing.assert_array_equal(image.data[k], levels[k])
        np.testing.assert_array_equal(image.data, levels)
        assert image.pixel_metadata.steps == {"T": (0.04, "second")}
        said = ("The frames have no colours: they are read as grey levels (luma).",)
        assert image.notes == (said if layout.startswith("yuv") else ())


def test_varying_times_are_kept_and_told(tmp_path):
    times = [40 * k + 15 * (k % 3) for k in range(20)]
    path = saved(tmp_path / "a.mkv", frames(), "ffv1", "gray", times)
    image = formats.read(path)
    (note,) = image.notes
    assert note.startswith("The time between frames varies from 10 to 55 ms")
    assert image.pixel_metadata.steps["T"][0] == pytest.approx(times[-1] / 19000)
    notes = formats.write(tmp_path / "b.mkv", image.data + np.float32(300), image, RECORD)
    assert notes == (
        f"{image.data.size} values are beyond the range of the video, and became its ends.",
        "Fractions, if any, are rounded to uint8, as the input holds.",
    )
    assert [round(1000 * float(f.time)) for f in decoded(tmp_path / "b.mkv")] == times
    assert formats.read(tmp_path / "b.mkv").history == (RECORD.as_dict(),)


def test_odd_videos(tmp_path):
    path = saved(tmp_path / "a.mkv", frames(5), "ffv1", "yuva420p", sound=True)
    notes = formats.read(path).notes
    assert notes[:2] == (
        "Sound, subtitles and other streams of the video are not kept.",
        "The transparency of the video is not read.",
    )
    if "grayf32le" in {each.name for each in av.codec.Codec("ffv1", "w").video_formats}:
        saved(path, frames(5), "ffv1", "grayf32le")
        with pytest.raises(ImageError, match="pixels of the format grayf32le"):
            formats.read(path)
    odd = saved(tmp_path / "c.mkv", frames(5), "ffv1", "yuv422p10le")
    assert formats.read(odd).data.dtype == np.uint16
    # Colours in frames between those that are looked at.
    image = frames(100)
    image[7, :16, :16, :2] = 200, 0
    saved(path, image, "ffv1", "yuv444p")
    with formats.open_stack(path) as opened:
        assert opened.axes == "TYX"
        opened.data[6]
        with pytest.raises(FileError, match=r"Frame 7 of .* has colours"):
            opened.data[7]


@pytest.mark.parametrize("layout", ["pal8", "nv12", "nv21", "yuyv422", "uyvy422", "ya8"])
@pytest.mark.parametrize("coloured", [False, True])
def test_grey_and_colours_are_told_apart_in_any_layout(tmp_path, layout, coloured):
    """By the palette, or the chroma; a result has the kind of its input."""
    grey, path = frames(3)[..., 0], tmp_path / f"a.{'mkv' if layout == 'ya8' else 'avi'}"
    codec = "ffv1" if layout == "ya8" else "rawvideo"
    if layout != "pal8":
        image = np.repeat(grey[..., None], 3, axis=-1)
        image[:, :16, :16, 1:] //= 1 + coloured
        saved(path, image, codec, layout)
    else:
        palette = np.repeat(np.arange(256, dtype=np.uint8)[::-1, None], 4, axis=1)  # from white
        palette[:, 1] //= 1 + coloured
        with av.open(path, "w") as container:
            stream = container.add_stream(codec, rate=25)
            stream.height, stream.width, stream.pix_fmt = *SIZE, layout
            for pixels in grey:
                frame = av.VideoFrame(*SIZE[::-1], layout)
                frame.planes[0].update(pixels.tobytes())
                frame.planes[1].update(palette.tobytes())
                container.mux(stream.encode(frame))
    has_colours = coloured and layout != "ya8"
    (file,) = gd.run_batch(path, SMALL, 20, output=tmp_path / "out.mkv").files
    for name in (path, file.output):
        image = formats.read(name)
        assert (image.axes, image.data.dtype) == ("TYXS" if has_colours else "TYX", np.uint8)
    first = decoded(path)[0]
    if layout == "pal8":
        expected = first.to_ndarray(format="rgb24")
    else:
        luma = np.frombuffer(first.planes[0], "u1")[layout == "uyvy422" :]
        expected = luma[:: 1 if layout.startswith("nv") else 2].reshape(*SIZE, 1)
    if not has_colours:
        np.testing.assert_array_equal(formats.read(path).data[0], expected[..., 0])


def test_frames_larger_than_a_file_can_hold_are_refused(tmp_path):
    if "libx264" not in av.codecs_available:
        pytest.skip("this FFmpeg has no libx264")
    blank = np.zeros((1, 10240, 10240), np.uint8)
    path = saved(tmp_path / "a.mp4", blank, "libx264", "yuv420p", preset="ultrafast")
    with pytest.raises(FileError, match=r"declares 315 MB of pixels but holds .*: it is damaged"):
        formats.read(path)


@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.avi", "mjpeg", {}),
        ("a.avi", "mjpeg", {"sound": True}),
        ("a.mkv", "ffv1", {}),
        ("a.mkv", "ffv1", {"sound": True}),
        ("a.wmv", "wmv2", {}),
        ("a.mp4", "mpeg4", {"movflags": "faststart", "sound": True}),
        ("b.mp4", "mpeg4", {"movflags": "frag_keyframe+empty_moov"}),
        ("a.mpg", "mpeg2video", {}),
    ],
)
def test_missing_frames_are_never_left_unsaid(tmp_path, name, codec, options):
    layout = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    path = saved(tmp_path / name, frames(), codec, layout, **options)
    whole, fewer = path.read_bytes(), 0
    for share in np.linspace(0.1, 0.99, 19):
        path.write_bytes(whole[: int(share * len(whole))])
        with contextlib.suppress(FileError, ImageError):
            image = formats.read(path)
            said, fewer = " ".join(image.notes), fewer + (len(image.data) < 20)
            assert len(image.data) == 20 or "cut short" in said, (share, said)
    assert fewer or name == "b.mp4"


def test_frames_lost_in_the_middle_are_noted(tmp_path):
    times = [40 * k + 200 * (k > 9) for k in range(15)]
    (note,) = formats.read(saved(tmp_path / "a.mkv", frames(15), "ffv1", "gray", times)).notes
    assert "varies from 40 to 240 ms, as if 5 were lost" in note
    path = saved(tmp_path / "a.avi", frames(), "mjpeg", "yuvj420p")
    whole = path.read_bytes()
    at = whole.index(b"00dc", len(whole) // 2)
    path.write_bytes(whole[:at] + b"JUNK" + whole[at + 4 :])
    assert "declares 20 frames and lacks 1 of them" in " ".join(formats.read(path).notes)


def test_codecs_that_ffmpeg_lacks_and_containers_of_nothing(tmp_path):
    path = saved(tmp_path / "a.mkv", frames(3), "ffv1", "gray")
    path.write_bytes(path.read_bytes().replace(b"V_FFV1", b"V_QQV1"))
    with pytest.raises(FileError, match=r"codec that FFmpeg lacks \(unknown\): convert it"):
        formats.read(path)
    path.write_bytes(b"\x1aE\xdf\xa3" + bytes(2000))
    with pytest.raises(FileError, match="cut short or damaged"):
        formats.read(path)


def test_playlists_are_not_followed(tmp_path):
    path = tmp_path / "list.avi"
    path.write_text("#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")
    with pytest.raises(FileError, match="not a video"):
        formats.read(path)
