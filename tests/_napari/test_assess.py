"""The section "How good is this?" of a filter's panel."""

import threading

import numpy as np
import pytest

import napari_gpu_denoise as gd
from _napari.inputs import Sliced, click, drive, type_sigma
from napari_gpu_denoise._napari.denoise import assess
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise._napari.layers.source import Source
from napari_gpu_denoise._napari.run import Request
from napari_gpu_denoise.assessment.assess import Options
from napari_gpu_denoise.filters import NLMeans
from napari_gpu_denoise.run.request import Run


@pytest.fixture
def assessed(qtbot):
    """Open the section, click its button and wait for the end; returns what was found."""

    def run(panel):
        section = panel.assess
        section.show_content(True)
        click(section.start_button)
        qtbot.waitUntil(lambda: section.start_button.text() != "Cancel")
        return section.assessment

    return run


@pytest.fixture
def quick_panel(viewer, open_panel):
    """Open a panel that needs little work, of an image."""

    def open_it(image, **attributes):
        viewer.add_image(image, name="cells", **attributes)
        panel = open_panel()
        panel.form.controls["step"].value = 4
        type_sigma(panel)
        return panel

    return open_it


def test_half_a_page_for_the_region_in_view(viewer, quick_panel, assessed, noisy):
    stack = np.stack([noisy, noisy[::-1]])
    panel = quick_panel(stack, scale=(1, 0.2, 0.2), units=("s", "um", "um"))
    viewer.dims.set_current_step(0, 1)
    found = assessed(panel)
    assert found.region == ((1, 2), (0, 64), (0, 80))
    assert found.spacing == pytest.approx((0.2, 0.2))
    section = panel.assess
    text = section.words.text()
    assert text.startswith(f"<p><b>{found.sentence()}</b></p>")
    assert section.plot.x_label == "Cycles per µm"
    (line, *_) = section.plot.series
    assert line.x[0] == pytest.approx(found.channels[0].detail.frequency[0] / 0.2)
    assert "Expected error" in text and "µm" in text
    assert not section.plot.isHidden() and not section.residuals.isHidden()
    assert all(not picture.pixmap().isNull() for picture in section.residuals.pictures)
    region = [slice(*span) for span in found.region]
    settings, axes = panel.form.settings(), panel.axes.axes()
    expected = gd.assess(stack, settings, 10, axes=axes, region=region)
    assert found.mse == pytest.approx(expected.mse)
    assert len(viewer.layers) == 1, "no layer is added"


def test_the_sigma_of_the_check_is_used(quick_panel, assessed):
    y, x = np.mgrid[:128, :128]
    clean = 300 + 60 * np.sin(y / 9) * np.cos(x / 11)
    panel = quick_panel(clean + np.random.default_rng(1).normal(0, 16, clean.shape))
    type_sigma(panel, "16")
    assert assessed(panel).check.fits and panel.assess.sigma_button.isHidden()
    type_sigma(panel, "11.3")
    found, button = assessed(panel), panel.assess.sigma_button
    assert not found.check.fits and not button.isHidden()
    assert button.text() == f"Use {found.check.best:.2g} times this sigma"
    click(button)
    assert panel.options.strength.value() == pytest.approx(found.check.best, rel=0.02)
    assert panel.request().run.sigma_factor == panel.options.strength.value()
    # As the check is of sigma before Strength, that is not multiplied again.
    assert assessed(panel).check.best == pytest.approx(found.check.best, rel=0.1)


def test_the_record_of_a_result_holds_it(viewer, quick_panel, assessed, run, noisy):
    panel = quick_panel(noisy)

    def noted():
        return viewer.layers[-1].metadata[METADATA_KEY].get("assessment")

    run(panel)
    found = assessed(panel)
    assert noted()["mse"] == pytest.approx(found.mse)
    run(panel)
    assert noted(), "also of a later result"
    type_sigma(panel, "14")
    run(panel)
    assert not noted(), "not of another run"


def test_errors_are_shown_in_words_of_the_panel(quick_panel, assessed, noisy):
    panel = quick_panel(noisy[:20, :24])
    assert assessed(panel) is None and "zoom out" in panel.status.text()


def test_it_can_be_stopped(quick_panel, movie):
    gate = threading.Event()
    slow = Sliced(movie, on_read=gate.wait)
    section = quick_panel(slow, contrast_limits=(0, 900), multiscale=False).assess
    section.show_content(True)
    click(section.start_button)
    assert section.start_button.text() == "Cancel"
    click(section.start_button)
    assert section.start_button.text() != "Cancel" and section.status.text() == "Cancelled."
    gate.set()
    assert section.assessment is None


def test_of_lazy_data_only_what_is_needed_is_read(noisy):
    data = Sliced(np.stack([noisy] * 9))
    run = Run(NLMeans(step=4, frames_before=1), sigma=10.0, axes="TYX")
    region = (5, slice(0, 64), slice(0, 80))
    asked = assess.Judging(Request(Source("stack", data), run), Options(region=region))
    _, found = drive(assess.assess_view, asked)
    assert found.region[0] == (5, 6)
    assert {t for first, *_ in data.read for t in np.arange(9)[first].ravel()} == {4, 5}
