"""Make the pictures of the documentation: napari with the panel, and the head of the README.

    python docs/make_screenshots.py              # needs a display; on a server:
    xvfb-run -a -s "-screen 0 1600x1000x24" python docs/make_screenshots.py

Writes into ``docs/images``. Needs napari, matplotlib and an OpenCL device. The settings that napari
keeps for the user are neither read nor changed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

# Before napari is imported: its settings, such as the theme, come from an empty folder.
os.environ["NAPARI_CONFIG"] = str(Path(tempfile.mkdtemp()) / "settings.yaml")

import napari
import numpy as np
import platformdirs
import tifffile
from qtpy.QtCore import QPoint
from qtpy.QtWidgets import QApplication, QMainWindow, QMenu

from napari_gpu_denoise import NLMeans, denoise
from napari_gpu_denoise._napari.parts import Section
from napari_gpu_denoise.files import samples
from napari_gpu_denoise.filters import FILTERS
from napari_gpu_denoise.noise.models import NoiseModel

# Settings of earlier runs do not show, and these are not kept.
platformdirs.user_config_path = lambda *_: Path(tempfile.mkdtemp())

IMAGES = Path(__file__).resolve().parent / "images"
PLUGIN = "napari-gpu-denoise"
SIZE = (1280, 800)
FILTER_TITLES = {"Denoise", *(kind.title for kind in FILTERS)}


def settle(seconds: float = 0.5) -> None:
    """Let Qt draw for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        QApplication.processEvents()
        time.sleep(0.01)


def wait_for(condition, seconds: float = 300) -> None:
    """Let Qt work until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("napari did not get there in time")
        settle(0.02)


def new_viewer(height: int = SIZE[1]) -> tuple[napari.Viewer, QMainWindow]:
    """Return a new viewer, and its window, which is shown."""
    viewer = napari.Viewer(show=False)
    window = viewer.window._qt_window
    window.resize(SIZE[0], height)
    window.show()
    return viewer, window


def save(widget, name: str) -> None:
    """Save a picture of a widget as it is now."""
    widget.grab().save(str(IMAGES / f"{name}.png"))


def item(menu: QMenu, title: str):
    """Return the entry of a menu that has a title."""
    return next(a for a in menu.actions() if a.text().replace("&", "") == title)


def open_menus(start: QMenu, at: QPoint, titles: list[str]) -> list[QMenu]:
    """Open a menu and its submenus as a mouse would; returns those that are open."""
    opened = [start]
    start.popup(at)
    settle(0.3)
    for depth, title in enumerate(titles):
        menu = opened[-1]
        menu.aboutToShow.emit()
        entry = item(menu, title)
        menu.setActiveAction(entry)
        if depth < len(titles) - 1:
            corner = menu.actionGeometry(entry).topRight()
            entry.menu().popup(menu.mapToGlobal(corner))
            opened.append(entry.menu())
        settle(0.3)
    return opened


def open_panel(viewer, title: str, path: tuple[str, ...] = ("Filter", "Denoise (GPU)")):
    """Open a panel from the Layers menu; returns it once it knows the devices."""
    menu, name = viewer.window.layers_menu, f"{title} (GPU Denoise)"
    for each in path:
        menu = item(menu, each).menu()
    item(menu, name).trigger()
    settle()  # what is chosen is shown after the click
    docks = viewer.window.dock_widgets
    name = "Filter (GPU Denoise)" if title in FILTER_TITLES else name
    wait_for(lambda: hasattr(docks.get(name), "status"))  # once it is loaded
    panel = docks[name]
    wait_for(lambda: not hasattr(panel, "options") or panel.options.device.caption.text())
    return panel


def picture_of_menu(window, start: QMenu, titles: list[str], name: str) -> None:
    """Save the part of the screen where nested menus are open."""
    bar = window.menuBar()
    at = bar.mapToGlobal(bar.actionGeometry(start.menuAction()).bottomLeft())
    opened = open_menus(start, at, titles)
    origin = window.mapToGlobal(QPoint(0, 0))
    screen = window.screen().grabWindow(0)
    right = max(menu.geometry().right() for menu in opened) + 24
    bottom = max(menu.geometry().bottom() for menu in opened) + 24
    screen.copy(origin.x(), origin.y(), right - origin.x(), bottom - origin.y()).save(
        str(IMAGES / f"{name}.png")
    )
    for menu in reversed(opened):
        menu.close()
    settle(0.2)


def napari_pictures() -> None:
    """Open a sample, run NL-means from the panel, and save what is seen on the way."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    settle(1)
    picture_of_menu(
        window,
        viewer.window.layers_menu,
        ["Filter", "Denoise (GPU)", "Denoise (GPU Denoise)"],
        "napari_menu",
    )
    picture_of_menu(
        window,
        viewer.window.file_menu,
        ["Open Sample", "GPU Denoise", samples.info("fluorescence").title],
        "napari_samples",
    )
    panel = open_panel(viewer, "NL-means")
    settle(1)
    viewer.reset_view()
    settle(1)
    panel.form.controls["step"].value = 1
    panel.form.controls["frames_before"].value = 2
    panel.form.controls["frames_after"].value = 2
    panel.run_button.click()
    # Half way where there are tiles enough; after the first where the device is too fast.
    wait_for(lambda: panel.progress.value() * 2 >= panel.progress.maximum() > 0)
    save(window, "napari_running")
    wait_for(panel.run_button.isEnabled)
    settle(1)
    save(window, "napari_after")

    # napari 0.9 moved it; older ones have it on the viewer
    grid = viewer.canvas.grid if hasattr(viewer, "canvas") else viewer.grid
    grid.stride = 1
    grid.enabled = True
    viewer.reset_view()
    settle(1.5)
    save(window, "napari_side_by_side")
    grid.enabled = False

    for section in panel.findChildren(Section):
        section.show_content(True)
    window.resize(SIZE[0], SIZE[1] + 440)
    settle(1)
    save(panel, "panel")
    viewer.window.remove_dock_widget(panel)
    window.resize(*SIZE)
    picture_of_bm3d(viewer, window)
    viewer.close()


def pictures_of_start() -> None:
    """Let a filter be recommended for a time-lapse and for two channels, and denoise them."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    panel = open_panel(viewer, "Denoise")
    wait_for(panel.advised)
    settle(1)
    viewer.reset_view()
    settle(1)
    save(window, "napari_start")

    movie = viewer.layers[0]
    place = {name: getattr(movie, name) for name in ("scale", "units", "axis_labels")}
    low, high = movie.contrast_limits
    turned = viewer.add_image(
        np.ascontiguousarray(movie.data[:, ::-1]),
        name="second channel",
        colormap="magenta",
        blending="additive",
        contrast_limits=(low, high),
        **place,
    )
    viewer.layers.selection = {movie, turned}
    panel.layer.follow_selection()
    wait_for(lambda: len(panel.advised()) == 2)
    panel.run_button.click()
    wait_for(lambda: not panel.runs.running)
    settle(1)
    save(panel, "panel_start")
    viewer.close()


def picture_of_bm3d(viewer, window) -> None:
    """Run BM3D from its panel, and save the panel as it is then."""
    viewer.layers.selection.active = viewer.layers["fluorescence"]
    panel = open_panel(viewer, "BM3D")
    panel.form.profile.setCurrentText("fast")
    panel.run_button.click()
    wait_for(lambda: not panel.run_button.isEnabled())
    wait_for(panel.run_button.isEnabled)
    settle(1)
    save(panel, "panel_bm3d")


def picture_of_assessment() -> None:
    """Ask how good BM3D is on a frame of a sample, and save the window and the section."""
    viewer, window = new_viewer(SIZE[1] + 160)
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    panel = open_panel(viewer, "BM3D")
    panel.form.profile.setCurrentText("fast")
    viewer.reset_view()
    settle(1)
    panel.assess.show_content(True)
    panel.assess.start_button.click()
    wait_for(lambda: not panel.assess.running)
    settle(1)
    bar = panel.assess.parent().parent().parent().verticalScrollBar()
    bar.setValue(bar.maximum())
    settle(1)
    save(window, "napari_assess")
    save(panel.assess, "panel_assess")
    viewer.close()


def picture_of_vbm3d() -> None:
    """Try VBM3D on the frame shown of a sample, and save what is seen then."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    panel = open_panel(viewer, "VBM3D")
    panel.places.boxes["T"].click()
    panel.run_button.click()
    wait_for(lambda: not panel.run_button.isEnabled())
    wait_for(panel.run_button.isEnabled)
    settle(1)
    viewer.reset_view()
    settle(1)
    save(window, "napari_vbm3d")
    viewer.close()


def zoom(viewer, factor: float) -> None:
    """Zoom in."""
    # napari 0.9 moved it; older ones have it on the viewer
    scene = viewer.scene if hasattr(viewer, "scene") else viewer
    scene.camera.zoom *= factor


def open_window():
    """Open napari with a sample, in the middle of its time, and a panel; returns all three."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    panel = open_panel(viewer, "BM3D")
    settle(1)
    viewer.reset_view()
    zoom(viewer, 1.2)
    settle(1)
    return viewer, window, panel


def picture_of_preview() -> None:
    """Preview a sample, and save what is seen then."""
    viewer, window, panel = open_window()
    panel.preview.box.click()
    wait_for(lambda: panel.live.settled)
    settle(1)
    save(window, "napari_preview")
    viewer.close()


def picture_of_strengths() -> None:
    """Show three strengths side by side, and save what is seen then."""
    viewer, window, panel = open_window()
    panel.preview.strip.click()
    wait_for(lambda: panel.live.settled)
    settle(1)
    save(window, "napari_strengths")
    viewer.close()


def picture_of_region() -> None:
    """Draw a rectangle, denoise it, and save what is seen then."""
    viewer, window, panel = open_window()
    panel.region.box.setCurrentIndex(2)
    panel.region.draw_button.click()
    shapes = viewer.layers[-1]
    corners = [(40, 70), (40, 150), (120, 150), (120, 70)]
    shapes.add_rectangles(np.array([(8, *corner) for corner in corners], float))
    shapes.mode = "pan_zoom"
    settle(1)
    panel.run_button.click()
    wait_for(lambda: panel.details)
    settle(1)
    save(window, "napari_region")
    viewer.close()


def picture_of_bm4d() -> None:
    """Try BM4D on one slice, then denoise the volume; save both, that in maximum projections."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "mri")
    source = viewer.layers[-1]
    panel = open_panel(viewer, "BM4D")

    def run() -> None:
        panel.run_button.click()
        wait_for(lambda: not panel.run_button.isEnabled())
        wait_for(panel.run_button.isEnabled)
        settle(1)

    panel.places.boxes["Z"].click()
    run()
    preview = viewer.layers[-1]
    # napari 0.9 moved it; older ones have it on the viewer
    grid = viewer.canvas.grid if hasattr(viewer, "canvas") else viewer.grid
    grid.stride = 1
    grid.enabled = True
    viewer.reset_view()
    settle(1.5)
    save(window, "napari_bm4d_slice")

    viewer.layers.remove(preview)
    panel.places.boxes["Z"].click()
    run()
    source.visible = True
    viewer.dims.ndisplay = 3
    viewer.reset_view()
    settle(2)
    save(window, "napari_bm4d")
    viewer.close()


def pictures_of_isoline() -> None:
    """Filter speckle with the isoline filter, and save its panel."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "ultrasound")
    panel = open_panel(viewer, "Isoline")
    panel.form.controls["criterion"].value = "multiplicative"
    panel.run_button.click()
    wait_for(lambda: not panel.run_button.isEnabled())
    wait_for(panel.run_button.isEnabled)
    settle(1)
    for section in panel.findChildren(Section):
        section.show_content(True)
    window.resize(SIZE[0], SIZE[1] + 460)
    settle(1)
    save(panel, "panel_isoline")
    viewer.close()


def pictures_of_noise() -> None:
    """Measure the noise of a sample, hand it to BM3D and run; save what is seen on the way."""
    viewer, window = new_viewer(SIZE[1] + 160)
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    panel = open_panel(viewer, "Estimated noise", ("Measure",))
    wait_for(lambda: panel.estimate() is not None)
    settle(1)
    viewer.reset_view()
    settle(1)
    save(window, "napari_noise")
    window.resize(SIZE[0], SIZE[1] + 620)
    settle(1)
    save(panel, "panel_noise")

    window.resize(*SIZE)
    panel.use_button.click()
    filtering = viewer.window.dock_widgets["Filter (GPU Denoise)"]
    filtering.filter.choose("bm3d")
    wait_for(lambda: filtering.options.device.caption.text())
    filtering.run_button.click()
    wait_for(lambda: not filtering.run_button.isEnabled())
    wait_for(filtering.run_button.isEnabled)
    settle(1)
    viewer.reset_view()
    settle(1)
    save(window, "napari_noise_bm3d")
    viewer.close()


def pictures_of_comparison() -> None:
    """Denoise a sample; save a curtain, and the residual with curves along a line."""
    viewer, window = new_viewer()
    viewer.open_sample(PLUGIN, "fluorescence")
    viewer.dims.set_current_step(0, 8)
    panel = open_panel(viewer, "NL-means")
    panel.form.controls["step"].value = 1
    panel.form.controls["frames_before"].value = 2
    panel.run_button.click()
    wait_for(lambda: not panel.run_button.isEnabled())
    wait_for(panel.run_button.isEnabled)
    panel.results.compare_button.click()
    name = "Compare (GPU Denoise)"
    wait_for(lambda: name in viewer.window.dock_widgets)
    panel = viewer.window.dock_widgets[name]
    wait_for(lambda: panel.overlay.layer is not None)
    settle(1)
    viewer.reset_view()
    settle(1)
    save(window, "napari_compare")

    panel.mode.setCurrentIndex(panel.mode.findData("residual"))
    panel.draw()
    viewer.layers[-1].add_lines(np.array([[8, 60, 30], [8, 110, 180]], float))
    viewer.layers[-1].mode = "pan_zoom"
    wait_for(lambda: panel.overlay.mode == "residual")
    settle(1)
    save(window, "napari_residual")
    viewer.close()


def files_for_batch(folder: Path) -> None:
    """Write time-lapses of two channels, one of them cut short, and an image in colours."""
    movie = tifffile.imread(samples.path("fluorescence"))
    movie = np.concatenate([movie, movie[::-1]])
    channels = {"Name": ["DAPI", "GFP"], "Color": [0x3070FFFF, 0x30FF60FF]}
    size = {f"PhysicalSize{axis}": 0.108 for axis in "XY"}
    for number in range(1, 7):
        path = folder / f"embryo_{number}.ome.tif"
        stack = np.stack([movie[number:][:16], movie[number:, ::-1, ::-1][:16]])
        tifffile.imwrite(path, stack, metadata={"axes": "CTYX", "Channel": channels, **size})
        if number == 3:
            path.write_bytes(path.read_bytes()[:100_000])
    colours = np.stack([movie[0], movie[0][::-1], movie[0][:, ::-1]], axis=-1)
    colours = np.clip(255 * (colours / np.percentile(colours, 99.8)), 0, 255).astype(np.uint8)
    tifffile.imwrite(folder / "section.tif", colours, photometric="rgb")


def pictures_of_batch() -> None:
    """Denoise a folder, and save the window half way, and with a result opened at the end."""
    folder = Path(tempfile.gettempdir()) / "embryos"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files_for_batch(folder)
    viewer, window = new_viewer(SIZE[1] + 160)
    panel = open_panel(viewer, "Batch")
    panel.add([str(folder)])
    wait_for(lambda: len(panel.files.rows) == 7 and all(row.header for row in panel.files.rows))
    panel.form.filter.box.setCurrentText("BM3D")
    panel.run_button.click()
    fourth = panel.files.rows[3]
    wait_for(lambda: " of " in fourth.words or fourth.state == "done")
    settle(0.3)
    save(window, "napari_batch")
    wait_for(lambda: not panel.runs.running)
    panel.files.rows[0].setSelected(True)
    panel.open_button.click()
    settle(1)
    viewer.reset_view()
    settle(1)
    save(window, "napari_batch_result")
    viewer.close()
    shutil.rmtree(folder)


def readme_picture() -> None:
    """Save noisy, denoised and residual side by side, at one grey scale each pair."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    noisy = tifffile.imread(samples.path("fluorescence"))
    settings = NLMeans(step=1, frames_before=2, frames_after=2)
    result = denoise(noisy, settings, axes="TYX", dtype="float32")
    frame = 8
    low, high = np.percentile(noisy[frame], (0.5, 99.7))
    denoised, model = result.image[frame], NoiseModel.from_dict(result.record.noise[0])
    residual = (noisy[frame] - denoised) / np.sqrt(model.positive_variance(denoised))
    pictures = {
        "noisy": (noisy[frame], low, high),
        "denoised": (denoised, low, high),
        "(noisy - denoised) / expected sigma": (residual, -4, 4),
    }
    ny, nx = noisy.shape[1:]
    figure, axes = plt.subplots(1, 3, figsize=(12, 12 * ny / nx / 3 + 0.35), facecolor="white")
    for place, (title, (image, bottom, top)) in zip(axes, pictures.items(), strict=True):
        place.imshow(image, cmap="gray", vmin=bottom, vmax=top, interpolation="nearest")
        place.set_title(title, fontsize=12)
        place.axis("off")
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.01, top=0.92, wspace=0.02)
    figure.savefig(IMAGES / "noisy_denoised_residual.png", dpi=100)
    plt.close(figure)


def main() -> None:
    """Make all pictures, or only some."""
    parser = argparse.ArgumentParser(description="Make the pictures of the documentation.")
    makers = {
        "napari": napari_pictures,
        "start": pictures_of_start,
        "assess": picture_of_assessment,
        "vbm3d": picture_of_vbm3d,
        "bm4d": picture_of_bm4d,
        "isoline": pictures_of_isoline,
        "preview": picture_of_preview,
        "strengths": picture_of_strengths,
        "region": picture_of_region,
        "noise": pictures_of_noise,
        "compare": pictures_of_comparison,
        "batch": pictures_of_batch,
        "readme": readme_picture,
    }
    parser.add_argument("--only", choices=tuple(makers), help="make only these")
    given = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, make in makers.items():
        if given.only in (None, name):
            make()


if __name__ == "__main__":
    main()
