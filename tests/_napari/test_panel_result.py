"""Click Run: the new layer, and what the panel says of it."""

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import NLMeans
from napari_gpu_denoise.run import denoise as runs

pytestmark = pytest.mark.gui


def test_result_is_the_filter_s_and_looks_like_its_source(viewer, open_panel, run, noisy):
    stack = np.stack([noisy, noisy[::-1]])
    source = viewer.add_image(
        stack,
        name="cells",
        scale=(2.0, 0.5, 0.25),
        translate=(1, 2, 3),
        rotate=[[1, 0, 0], [0, 0.6, -0.8], [0, 0.8, 0.6]],
        shear=(0.1, 0.0, 0.2),
        affine=np.diag([1.0, 2.0, 2.0, 1.0]),
        units=("second", "micrometer", "micrometer"),
        axis_labels=("t", "y", "x"),
        colormap="magma",
        contrast_limits=(20, 200),
        gamma=0.8,
        blending="additive",
        interpolation2d="linear",
        opacity=0.7,
        metadata={"stain": "DAPI"},
    )
    before = stack.copy()
    panel = open_panel()
    status = run(panel)

    result = viewer.layers[-1]
    expected = runs.denoise(stack, NLMeans(), axes="TYX")
    np.testing.assert_array_equal(result.data, expected.image)
    assert result.data.dtype == np.uint8
    assert result.name == "cells (NL-means)"
    for attribute in ("scale", "translate", "rotate", "shear", "affine", "contrast_limits"):
        np.testing.assert_allclose(getattr(result, attribute), getattr(source, attribute))
    for attribute in ("units", "axis_labels", "gamma", "blending", "opacity", "rgb", "multiscale"):
        assert getattr(result, attribute) == getattr(source, attribute), attribute
    assert result.interpolation2d == "linear"
    assert result.colormap.name == "magma"
    assert result.visible
    np.testing.assert_array_equal(source.data, before)

    record = result.metadata[METADATA_KEY]
    assert result.metadata["stain"] == "DAPI"
    assert record["filter"] == "nl_means"
    assert record["axes"] == "TYX"
    assert record["version"] == gd.__version__
    assert record["settings"]["patch"] == 8
    assert record["device"] in status
    assert METADATA_KEY not in source.metadata
    assert status.startswith("Done in ")
    assert f"sigma {record['sigma'][0]:.4g} (estimated)" in status
    assert panel.options.noise.edit.text() == f"{record['sigma'][0]:.4g}"


def test_typed_values_reach_the_filter(viewer, open_panel, run, noisy, qtbot):
    viewer.add_image(noisy)
    panel = open_panel()
    panel.options.noise.edit.clear()
    qtbot.keyClicks(panel.options.noise.edit, "25")
    assert panel.options.noise.chosen() == "typed"
    panel.form.controls["patch"].value = 5
    panel.form.controls["step"].value = 2
    panel.options.dtype.setCurrentIndex(2)
    status = run(panel)
    expected = runs.denoise(noisy, NLMeans(patch=5, step=2), 25.0, dtype="float32")
    np.testing.assert_array_equal(viewer.layers[-1].data, expected.image)
    assert viewer.layers[-1].data.dtype == np.float32
    assert "Noise 25 grey levels (given)." in status


def test_a_profile_chosen_reaches_the_filter(viewer, open_panel, run, noisy):
    viewer.add_image(noisy)
    panel = open_panel()
    panel.form.profile.setCurrentText("fine")
    run(panel)
    expected = runs.denoise(noisy, NLMeans(patch=5, step=1))
    np.testing.assert_array_equal(viewer.layers[-1].data, expected.image)


def test_names_stay_unique_and_the_choice_stays(viewer, open_panel, run, noisy):
    source = viewer.add_image(noisy, name="a")
    panel = open_panel()
    panel.results.keep_both.setChecked(True)
    run(panel)
    run(panel)
    names = [layer.name for layer in viewer.layers]
    assert names[:2] == ["a", "a (NL-means)"]
    assert len(set(names)) == 3
    assert panel.layer.layer() == source


def test_rgb(viewer, open_panel, run, noisy):
    colour = np.stack([noisy, noisy // 2, 255 - noisy], axis=-1)
    viewer.add_image(colour, rgb=True, name="rgb")
    panel = open_panel()
    assert panel.axes.axes() == "YXS"
    assert panel.axes.caption.text() == "3 colour samples, 64 by 80 pixels"
    run(panel)
    result = viewer.layers["rgb (NL-means)"]
    assert result.rgb
    assert result.data.shape == colour.shape
    np.testing.assert_array_equal(result.data, runs.denoise(colour, NLMeans(), axes="YXS").image)
    assert len(result.metadata[METADATA_KEY]["sigma"]) == 3
    assert result.metadata[METADATA_KEY]["axes"] == "YXS"


@pytest.mark.parametrize("lazy", [False, True])
def test_alpha_passes_as_it_is(viewer, open_panel, run, noisy, lazy, pasted):
    alpha = np.random.default_rng(5).integers(0, 256, noisy.shape).astype(np.uint8)
    colour = np.stack([noisy, noisy // 2, 255 - noisy, alpha], axis=-1)
    before = colour.copy()
    viewer.add_image(da.from_array(colour, chunks=40) if lazy else colour, rgb=True, name="rgba")
    panel = open_panel()
    run(panel)
    result = viewer.layers["rgba (NL-means)"]
    assert result.rgb
    assert result.data.dtype == np.uint8
    np.testing.assert_array_equal(result.data[..., 3], alpha)
    expected = runs.denoise(colour[..., :3], NLMeans(), axes="YXS")
    np.testing.assert_array_equal(result.data[..., :3], expected.image)
    assert result.metadata[METADATA_KEY]["sigma"] == list(expected.record.sigma)
    np.testing.assert_array_equal(colour, before)
    # The copied lines do the same.
    scope = pasted(panel)
    np.testing.assert_array_equal(scope["denoised"], result.data)
    # Fractions of the colours are kept; alpha has none.
    panel.options.dtype.setCurrentIndex(2)
    run(panel)
    fine = viewer.layers[-1].data
    assert fine.dtype == np.float32
    np.testing.assert_array_equal(fine[..., 3], alpha)
    assert (fine[..., :3] % 1).any()


def test_multiscale_filters_the_finest_level(viewer, open_panel, run, noisy):
    viewer.add_image([noisy, noisy[::2, ::2]], multiscale=True, name="pyramid", scale=(0.5, 0.5))
    run(open_panel())
    result = viewer.layers["pyramid (NL-means)"]
    assert not result.multiscale
    assert result.data.shape == noisy.shape
    np.testing.assert_allclose(result.scale, (0.5, 0.5))


def test_dask_is_read_by_the_worker(viewer, open_panel, run, noisy):
    import threading

    readers = set()

    def read(block):
        readers.add(threading.current_thread())
        return block

    stack = np.stack([noisy] * 4)
    lazy = da.from_array(stack, chunks=(3, 40, 80)).map_blocks(read, dtype=stack.dtype)
    viewer.add_image(lazy, name="lazy", contrast_limits=(0, 255))
    panel = open_panel()
    readers.clear()  # napari has read the plane it shows
    expected = runs.denoise(stack, NLMeans()).image
    run(panel)
    result = viewer.layers["lazy (NL-means)"]
    np.testing.assert_array_equal(np.asarray(result.data), expected)
    assert viewer.layers["lazy"].data is lazy
    assert readers and threading.main_thread() not in readers


def test_planes_are_independent_without_clear_labels(viewer, open_panel, run, noisy):
    stack = np.stack([noisy, noisy[:, ::-1], noisy[::-1]])
    viewer.add_image(stack)
    panel = open_panel()
    assert panel.axes.axes() == ".YX"
    run(panel)
    alone = runs.denoise(stack[1], NLMeans(), viewer.layers[-1].metadata[METADATA_KEY]["sigma"][0])
    np.testing.assert_array_equal(viewer.layers[-1].data[1], alone.image)


def test_axes_typed_turn_time_on(viewer, open_panel, run, noisy):
    rng = np.random.default_rng(3)
    stack = np.clip(110 + rng.normal(0, 10, (5, 48, 48)), 0, 255).astype(np.float32)
    viewer.add_image(stack)
    panel = open_panel()
    before, after = (panel.form.controls[f"frames_{way}"] for way in ("before", "after"))
    assert not before.native.isEnabled()
    panel.axes.edit.setText("tyx")
    assert before.native.isEnabled()
    before.value = after.value = 2
    run(panel)
    expected = runs.denoise(stack, NLMeans(frames_before=2, frames_after=2), axes="TYX")
    np.testing.assert_array_equal(viewer.layers[-1].data, expected.image)


def test_stripes_are_removed_first_on_request(viewer, open_panel, run, noisy):
    rows = np.random.default_rng(0).normal(0, 20, (len(noisy), 1))
    image = (noisy + rows).astype(np.float32)
    viewer.add_image(image, contrast_limits=(0, 255))
    panel = open_panel()
    assert panel.request().run.correct is None
    panel.options.correct.setCurrentText("Stripes")
    status = run(panel)
    assert "Corrected first: rows have individual offsets, " in status
    expected = runs.denoise(image, panel.form.settings(), correct="stripes")
    np.testing.assert_array_equal(viewer.layers[-1].data, expected.image)
    panel.reset()
    assert panel.request().run.correct is None


def test_non_finite_pixels_kept_on_request(viewer, open_panel, run, noisy):
    image = noisy.astype(np.float32)
    image[3, 4], image[50, 60] = np.nan, np.inf
    viewer.add_image(image, contrast_limits=(0, 255))
    panel = open_panel()
    panel.options.nonfinite.setCurrentIndex(1)
    status = run(panel)
    result = viewer.layers[-1].data
    assert np.isnan(result[3, 4]) and np.isposinf(result[50, 60])
    assert np.count_nonzero(~np.isfinite(result)) == 2
    assert "2 NaN or infinite pixels were left in place." in status


def test_copied_python_call_gives_the_same(viewer, open_panel, run, noisy, pasted):
    viewer.add_image(np.stack([noisy, noisy]), name="it's")
    panel = open_panel()
    panel.axes.edit.setText("TYX")
    panel.form.controls["frames_after"].value = 1
    panel.form.controls["strength"].value = 0.8
    panel.options.dtype.setCurrentIndex(2)
    run(panel)
    scope = pasted(panel)
    np.testing.assert_array_equal(scope["denoised"], viewer.layers[-1].data)


def test_copied_command_names_the_file(viewer, open_panel, plugin, copied):
    from napari_gpu_denoise.files import samples

    viewer.open_sample("napari-gpu-denoise", "mri")
    panel = open_panel()
    panel.form.controls["slices"].value = 1
    command = copied(panel.command_button)
    assert command.startswith("gpu-denoise nl-means ")
    assert str(samples.path("mri")) in command
    assert command.endswith("--axes ZYX --slices 1")


def test_reset_to_defaults(viewer, open_panel, click, noisy):
    viewer.add_image(np.stack([noisy, noisy]))
    panel = open_panel()
    panel.axes.edit.setText("ZYX")
    panel.form.controls["slices"].value = 1
    panel.form.controls["patch"].value = 6
    assert panel.form.profile.currentText() == "custom"
    panel.options.noise.choose("typed")
    panel.options.dtype.setCurrentIndex(2)
    panel.options.device.box.setCurrentIndex(1)
    click(panel.reset_button)
    asked = panel.request().run
    assert asked.filter == NLMeans()
    assert panel.form.profile.currentText() == "normal"
    assert (asked.sigma, asked.axes, asked.dtype, asked.device) == (None, ".YX", None, None)


def test_device_chosen_is_used(viewer, open_panel, run, noisy):
    usable = gd.choose()
    viewer.add_image(noisy[:32, :32])
    panel = open_panel()
    panel.options.device.box.setCurrentIndex(panel.options.device.box.findData(usable.index))
    assert panel.request().run.device == usable.index
    run(panel)
    assert viewer.layers[-1].metadata[METADATA_KEY]["device"] == str(usable)


def test_another_filter_starts_from_the_image_not_from_a_result(
    viewer, open_panel, run, noisy, open_noise
):
    viewer.add_image(noisy, name="cells")
    viewer.add_image(noisy, name="cells 2")
    first = open_panel("NL-means")
    first.layer.choose(viewer.layers["cells 2"])
    run(first)
    result = viewer.layers[-1]
    assert viewer.layers.selection.active is result
    second = open_panel("BM3D")
    assert second.layer.currentText() == "cells 2"
    second.layer.choose(result)  # whoever wants that can have it
    assert second.layer.currentText() == result.name
    assert open_noise().layer.currentText() == "cells 2"
