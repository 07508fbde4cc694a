"""What users ran into: each of these was wrong once."""

import threading

import dask.array as da
import numpy as np
import pytest
from napari.layers import Image
from napari.utils.progress import progress

import napari_gpu_denoise as gd
from _napari.lazy_data import Sliced, drive
from _napari.noise_records import estimate
from napari_gpu_denoise._napari import preferences
from napari_gpu_denoise._napari.denoise.options import numbers
from napari_gpu_denoise._napari.denoise.run import Request, steps
from napari_gpu_denoise._napari.docks import _dock_of
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.source import Source, capture
from napari_gpu_denoise._napari.parts import Caption
from napari_gpu_denoise._napari.wording import in_panel, label_of
from napari_gpu_denoise.errors import DenoiseError
from napari_gpu_denoise.filters import FILTERS, VBM3D, NLMeans
from napari_gpu_denoise.noise.models import PoissonGaussian
from napari_gpu_denoise.protocol.settings import setting_fields
from napari_gpu_denoise.run import denoise as runs
from napari_gpu_denoise.run.request import Run

pytestmark = pytest.mark.gui

LONG = "A sentence that needs more than a line where the panel is narrow. " * 5


def test_the_noise_panel_does_not_follow_onto_results(
    viewer, open_noise, open_panel, measured, quick, noisy, run
):
    source = viewer.add_image(noisy, name="cells")
    panel = open_noise()
    measured(panel)
    filtering = open_panel()
    run(filtering)
    assert viewer.layers.selection.active is not source
    assert panel.layer.layer() is source
    panel.layer.choose(viewer.layers[-1])  # by hand it can be chosen
    assert panel.layer.layer() is viewer.layers[-1]


def test_noise_handed_over_comes_back_with_its_layer(viewer, open_panel, noisy):
    cells, other = viewer.add_image(noisy, name="cells"), viewer.add_image(noisy[:30], name="o")
    panel = open_panel()
    panel.take_noise(cells, "YX", estimate(), "cells")
    panel.layer.choose(other)
    assert panel.options.noise.chosen() == "auto"
    panel.take_noise(other, "YX", estimate((PoissonGaussian(2.0, 1.0),)), "o")
    panel.layer.choose(cells)
    assert panel.request().run.noise == estimate()
    assert "measured in cells" in panel.options.noise.caption.text()
    panel.options.noise.choose("auto")
    panel.layer.choose(other)
    assert (
        panel.options.noise.chosen() == "measured"
        and "measured in o" in panel.options.noise.caption.text()
    )
    panel.layer.choose(cells)
    assert panel.options.noise.chosen() == "auto"  # as it was left


def test_captions_shrink_again(qtbot):
    caption = Caption()
    qtbot.addWidget(caption)
    caption.resize(200, 20)
    caption.setText("Short.")
    short = caption.minimumHeight()
    caption.setText(LONG)
    assert caption.minimumHeight() > 2 * short
    caption.setText("Short.")
    assert caption.minimumHeight() == short


def test_run_stays_where_it_is(make_napari_viewer, plugin, qtbot):
    viewer = make_napari_viewer(show=True)
    viewer.window._qt_window.resize(1100, 800)
    _, panel = viewer.window.add_plugin_dock_widget("napari-gpu-denoise", "NL-means")
    qtbot.waitUntil(lambda: panel.options.device.caption.text() != "")
    qtbot.wait(100)
    panel.say("")
    qtbot.wait(100)
    place = panel.run_button.geometry()
    panel.say(LONG, "Not done.")
    qtbot.waitUntil(lambda: panel.status.height() > 2 * panel.run_button.height())
    qtbot.wait(100)
    assert panel.run_button.geometry() == place


def test_planes_are_not_called_frames(movie):
    data = np.stack([movie, movie], axis=1)[:, :, :24, :24]  # 6 time points of 2 slices
    source = Source("movie", data)
    settings = NLMeans(frames_before=1, window=5)
    stages, _ = drive(steps(Request(source, Run(settings, 9.0, axes="TZYX"))))
    assert stages[-1].words == "Denoising: plane 12 of 12"
    stages, _ = drive(steps(Request(Source("m", data[:, 0]), Run(settings, 9.0, axes="TYX"))))
    assert stages[-1].words == "Denoising: frame 6 of 6"


def test_open_panels_follow_the_preferred_device(viewer, open_panel, noisy):
    settings = pytest.importorskip("napari.settings")
    if not hasattr(settings, "get_plugin_settings"):
        pytest.skip("napari before 0.9 keeps no settings of plugins")
    viewer.add_image(noisy)
    panel = open_panel()
    assert panel.options.device.box.itemText(0) == "Automatic"
    computing = settings.get_plugin_settings("napari-gpu-denoise").computing
    computing.device = "cpu"
    assert panel.options.device.box.itemText(0) == "Automatic (cpu)"
    assert panel.request().run.device == "cpu"
    computing.device = "no such device"
    assert "no such device" in panel.options.device.caption.text()
    assert preferences.changed()[0] is computing.events.device


@pytest.mark.parametrize("kind", FILTERS)
def test_arrows_pass_over_even_widths(qtbot, kind):
    from napari_gpu_denoise._napari.denoise.form import SettingsForm

    form = SettingsForm(kind)
    qtbot.addWidget(form)
    form.set_axes("TZYX")
    odd = [spec for spec in setting_fields(kind) if "odd" in spec.metadata["help"]]
    assert odd == [spec for spec in setting_fields(kind) if spec.metadata["odd"]]
    for spec in odd:
        box = form.controls[spec.name].native
        seen = []
        box.valueChanged.connect(seen.append)
        box.setValue(1)
        for steps_up in [1] * 4 + [-1] * 6 + [1] * 2:
            box.stepBy(steps_up)
        assert len(set(seen)) > 3 and all(value % 2 or not value for value in seen)
        box.setValue(6)  # typed
        with pytest.raises(DenoiseError, match=f"{spec.name}=6 must be odd"):
            form.settings()
        box.stepBy(1)
        assert box.value() == 7


@pytest.mark.parametrize(
    ("text", "channels", "found"),
    [
        ("12,5", 1, (12.5,)),
        ("12.5", 1, (12.5,)),
        ("12,5; 7", 2, (12.5, 7.0)),
        ("12,5 7,25", 2, (12.5, 7.25)),
        ("12.5, 7", 2, (12.5, 7.0)),
        ("12,7", 2, (12.0, 7.0)),
        ("1, 2, 3", 1, (1.0, 2.0, 3.0)),
    ],
)
def test_a_decimal_comma_in_sigma(text, channels, found):
    assert tuple(map(float, numbers(text, channels))) == found


def test_a_decimal_comma_in_the_panel(viewer, open_panel, qtbot, noisy):
    viewer.add_image(noisy, name="cells")
    viewer.add_image(np.stack([noisy, noisy]), name="two", axis_labels=("c", "y", "x"))
    panel = open_panel("BM3D")
    panel.layer.choose(viewer.layers["cells"])
    qtbot.keyClicks(panel.options.noise.edit, "12,5")
    assert panel.request().run.sigma == 12.5
    panel.layer.choose(viewer.layers["two"])
    assert panel.request().run.sigma == (12.0, 5.0)
    box = panel.form.controls["threshold"].native
    box.selectAll()
    qtbot.keyClicks(box, "2,9")
    assert panel.form.controls["threshold"].value == 2.9
    box.selectAll()
    qtbot.keyClicks(box, "3.1")
    assert panel.form.controls["threshold"].value == 3.1


@pytest.mark.parametrize("kind", FILTERS)
def test_errors_of_settings_name_controls(kind):
    for spec in setting_fields(kind):
        with pytest.raises(DenoiseError) as caught:
            kind(**{spec.name: -77 if type(spec.default) in (int, float) else "xyz"})
        text = in_panel(caught.value)
        assert "=" not in text and text.startswith(label_of(spec.name)), text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gd.NLMeans(window=20), "Window 20 must be odd."),
        (lambda: gd.NLMeans(rician=True, distance="pearson"), "Rician on is for MRI"),
        (lambda: gd.denoise(np.ones((4, 5)), gd.NLMeans(), axes=5), "Axes 5 is not text"),
    ],
)
def test_errors_are_not_in_python(call, said):
    with pytest.raises(DenoiseError) as caught:
        call()
    assert in_panel(caught.value).startswith(said)


def test_errors_in_the_panel_are_not_in_python(viewer, open_panel, noisy):
    viewer.add_image(noisy)
    panel = open_panel()
    panel.form.controls["window"].value = 20
    assert panel.status.text() == ("<b>Not ready.</b> Window 20 must be odd.")
    panel.axes.edit.setText("YXX")
    assert "=" not in panel.axes.caption.text()


@pytest.mark.parametrize("lazy", [None, da.from_array, Sliced])
def test_boolean_layers(viewer, open_panel, run, pasted, lazy):
    mask = np.random.default_rng(0).random((3, 40, 48)) < 0.6
    data = mask if lazy is None else lazy(mask)
    if lazy is Sliced:
        taken = capture(Image(mask))
        assert taken.data.dtype == np.uint8 and np.shares_memory(taken.data, mask)
        return
    viewer.add_image(data, name="mask", contrast_limits=(0, 1), axis_labels=("t", "y", "x"))
    panel = open_panel()
    panel.options.noise.edit.setText("0.4")
    panel.options.noise.choose("typed")
    assert run(panel).startswith("Done in ")
    expected = runs.denoise(mask.astype(np.uint8), NLMeans(), 0.4, axes="TYX").image
    np.testing.assert_array_equal(viewer.layers[-1].data, expected)
    np.testing.assert_array_equal(pasted(panel)["denoised"], expected)


def test_what_rounding_leaves_is_no_read_noise():
    y, x = np.mgrid[:128, :128]
    light = 12 + 10 * np.sin(x / 15) * np.sin(y / 12)
    image = (np.random.default_rng(4).poisson(light) * 2.5).astype(np.uint16)
    found = gd.estimate_noise(image, model="poisson-gaussian").models[0]
    assert found.read_noise == 0 or found.read_noise > 1e-5 * found.gain


def test_menus_bring_an_open_panel_to_the_front(make_napari_viewer, plugin, qtbot, noisy):
    from _napari.test_menus import find

    viewer = make_napari_viewer(show=True)
    viewer.add_image(noisy)
    path = ["Filter", "Denoise (GPU)", "NL-means (GPU Denoise)"]
    docks = viewer.window.dock_widgets
    for _ in range(3):
        find(viewer.window.layers_menu, path).trigger()
        qtbot.waitUntil(lambda: "NL-means (GPU Denoise)" in docks)
        panel = docks["NL-means (GPU Denoise)"]
        assert not _dock_of(panel).isHidden()
    assert len(viewer.window.dock_widgets) == 1
    path = ["Measure", "Estimated noise (GPU Denoise)"]
    for _ in range(2):
        find(viewer.window.layers_menu, path).trigger()
        qtbot.waitUntil(lambda: "Estimated noise (GPU Denoise)" in docks)
    noise = viewer.window.dock_widgets["Estimated noise (GPU Denoise)"]
    assert not _dock_of(noise).isHidden()


def test_the_records_of_a_source_are_kept(viewer, open_panel, run, noisy):
    viewer.add_image(noisy, name="cells")
    panel = open_panel()
    for _ in range(3):
        run(panel)
        panel.layer.choose(viewer.layers[-1])
    first, second, third = (
        layer.metadata[METADATA_KEY] for layer in viewer.layers if METADATA_KEY in layer.metadata
    )
    assert "history" not in first
    assert second["history"] == [first]
    assert third["history"] == [first, {k: v for k, v in second.items() if k != "history"}]
    assert third["filter"] == "nl_means"


@pytest.mark.parametrize("sigma", [None, 9.0])
@pytest.mark.parametrize("lazy", [False, True])
def test_stages_say_what_is_done(movie, sigma, lazy):
    source = Source("movie", Sliced(movie) if lazy else movie)
    settings = VBM3D.of(profile="fast")
    stages, _ = drive(steps(Request(source, Run(settings, sigma, axes="TYX"))))
    words = [stage.words for stage in stages]
    assert ("Measuring noise …" in words) == (sigma is None)
    assert words.index("Compiling …") < words.index("Denoising: frame 0 of 6")


def test_progress_handles_no_other_events(viewer, open_panel, qtbot, finish, held, click, movie):
    from qtpy.QtCore import QTimer

    viewer.add_image(movie, axis_labels=("t", "y", "x"))
    panel = open_panel()
    within = []

    def watched(*stage, real=panel.runs._on_stage):
        QTimer.singleShot(0, lambda: within.append(deep[-1]))
        deep.append(True)
        real(*stage)
        deep.append(False)

    deep = [False]
    panel.runs._on_stage = watched
    click(panel.run_button)
    (bar,) = progress._all_instances
    shown = []
    bar.events.eta.connect(lambda event: shown.append(event.value))
    held.set()
    finish(panel)
    assert within and not any(within)
    assert shown and threading.current_thread() is threading.main_thread()


def test_adding_a_result_searches_no_range(viewer, open_panel, run, noisy, monkeypatch):
    layer = viewer.add_image(noisy, contrast_limits=(20, 200))
    panel = open_panel()
    searched = []
    monkeypatch.setattr(Image, "_calc_data_range", lambda *_, **__: searched.append(True))
    run(panel)
    # Of all pixels, in the GUI thread: seconds for a large stack.
    assert viewer.layers[-1].contrast_limits == layer.contrast_limits and not searched
