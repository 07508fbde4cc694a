"""The section "How good is this?" of a filter's panel."""

import json

import dask.array as da
import numpy as np
import pytest

import napari_gpu_denoise as gd
from napari_gpu_denoise._napari.denoise import assess
from napari_gpu_denoise._napari.layers.provenance import METADATA_KEY
from napari_gpu_denoise.filters import NLMeans

pytestmark = pytest.mark.gui


@pytest.fixture
def assessed(click, qtbot):
    """Open the section, click its button and wait for the end; returns what was found."""

    def run(panel):
        section = panel.assess
        section.expand()
        click(section.start_button)
        qtbot.waitUntil(lambda: not section.running)
        return section.assessment

    return run


def quick(panel):
    panel.form.controls["step"].value = 4
    panel.options.noise.choose("typed")
    panel.options.noise.edit.setText("10")


def test_half_a_page_for_the_region_in_view(viewer, open_panel, assessed, noisy):
    stack = np.stack([noisy, noisy[::-1]])
    viewer.add_image(stack, name="cells", scale=(1, 0.2, 0.2), units=("s", "um", "um"))
    viewer.dims.set_current_step(0, 1)
    panel = open_panel()
    quick(panel)
    found = assessed(panel)

    assert found.region == ((1, 2), (0, 64), (0, 80))
    assert found.spacing == pytest.approx((0.2, 0.2))
    section = panel.assess
    text = section.words.text()
    assert "Expected error" in text
    assert "µm" in text
    assert not section.plot.isHidden()
    assert not section.residuals.isHidden()
    assert all(not each.pixmap().isNull() for each in section.residuals.pictures)
    region = [slice(*each) for each in found.region]
    settings, axes = panel.form.settings(), panel.axes.axes()
    expected = gd.assess(stack, settings, 10, axes=axes, region=region)
    assert found.mse == pytest.approx(expected.mse)
    assert len(viewer.layers) == 1, "no layer is added"


def test_the_error_map_becomes_a_layer_where_it_lies(viewer, open_panel, assessed, click, noisy):
    image = np.tile(noisy, (2, 2))
    viewer.add_image(image, name="cells", scale=(0.5, 0.5), translate=(3, 4))
    viewer.camera.zoom *= 3
    panel = open_panel()
    quick(panel)
    found = assessed(panel)
    click(panel.assess.map_button)
    layer = viewer.layers[-1]
    assert "expected error" in layer.name
    np.testing.assert_array_equal(layer.data, found.error_map)
    (y, _), (x, _) = found.region
    np.testing.assert_allclose(layer.translate, (3 + 0.5 * y, 4 + 0.5 * x))


def test_the_record_of_a_result_holds_it(viewer, open_panel, assessed, run, noisy):
    viewer.add_image(noisy, name="cells")
    panel = open_panel()
    quick(panel)
    run(panel)
    found = assessed(panel)
    before = viewer.layers[-1].metadata[METADATA_KEY]
    assert before["assessment"]["mse"] == pytest.approx(found.mse)
    run(panel)
    assert "assessment" in viewer.layers[-1].metadata[METADATA_KEY], "also of a later result"
    panel.options.noise.edit.setText("14")
    run(panel)
    assert "assessment" not in viewer.layers[-1].metadata[METADATA_KEY], "not of another run"
    panel.form.controls["step"].value = 3
    run(panel)
    assert "assessment" not in viewer.layers[-1].metadata[METADATA_KEY]


def test_a_report_is_saved(viewer, open_panel, assessed, noisy, tmp_path):
    viewer.add_image(noisy, name="cells")
    panel = open_panel()
    quick(panel)
    found = assessed(panel)
    file = tmp_path / "report.json"
    panel.assess.write(str(file))
    assert json.loads(file.read_text())["mse"] == pytest.approx(found.mse)
    panel.assess.write(str(tmp_path / "report.pdf"))
    assert "end it with" in panel.assess.status.text()


def test_errors_are_shown_in_words_of_the_panel(viewer, open_panel, assessed, noisy):
    viewer.add_image(noisy[:20, :24], name="small")
    panel = open_panel()
    quick(panel)
    assert assessed(panel) is None
    assert "zoom out" in panel.status.text()


def test_it_can_be_stopped(viewer, open_panel, click, qtbot, monkeypatch, noisy):
    import threading

    gate = threading.Event()
    real = assess.assess_steps

    def slow(*args):
        steps = real(*args)
        yield next(steps)
        gate.wait()
        return (yield from steps)

    monkeypatch.setattr(assess, "assess_steps", slow)
    viewer.add_image(noisy, name="cells")
    panel = open_panel()
    quick(panel)
    section = panel.assess
    section.expand()
    click(section.start_button)
    assert section.running
    assert section.start_button.text() == "Cancel"
    click(section.start_button)
    assert not section.running
    assert section.status.text() == "Cancelled."
    gate.set()
    assert section.assessment is None


def test_of_lazy_data_only_what_is_needed_is_read(noisy):
    from napari_gpu_denoise._napari.denoise.run import Request
    from napari_gpu_denoise._napari.layers.source import Source
    from napari_gpu_denoise.assessment.assess import Options
    from napari_gpu_denoise.run.request import Run

    read = []

    def frame(block_info=None):
        read.append(block_info[None]["chunk-location"][0])
        return noisy[None]

    chunks = ((1,) * 9, noisy.shape[:1], noisy.shape[1:])
    data = da.map_blocks(frame, chunks=chunks, dtype=noisy.dtype, meta=noisy[None])
    run = Run(NLMeans(step=4, frames_before=1), sigma=10.0, axes="TYX")
    region = (5, slice(0, 64), slice(0, 80))
    asked = assess.Judging(Request(Source("stack", data), run), Options(region=region))
    steps = assess.steps(asked)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found = end.value
            break
    assert found.region[0] == (5, 6)
    assert set(read) == {4, 5}


def test_colours_with_alpha(viewer, open_panel, assessed, click, noisy):
    colours = np.stack([noisy, noisy, noisy, np.full_like(noisy, 255)], axis=-1)
    viewer.add_image(colours, name="rgba", rgb=True)
    panel = open_panel("BM3D")
    panel.form.profile.setCurrentText("fast")
    panel.options.noise.choose("typed")
    panel.options.noise.edit.setText("10")
    found = assessed(panel)
    assert len(found.channels) == 3
    click(panel.assess.map_button)
    assert viewer.layers[-1].data.shape == noisy.shape
