"""Report of a run, in sentences."""

from __future__ import annotations

from typing import Any

from napari_gpu_denoise._napari.denoise.run import Outcome
from napari_gpu_denoise._napari.layers.storage import gigabytes
from napari_gpu_denoise._napari.wording import in_panel
from napari_gpu_denoise.noise.models import NoiseModel


def report(outcome: Outcome) -> str:
    """Return time, noise, device, and notes of a run that has a result."""
    record, seconds = outcome.result.record, outcome.seconds
    sentences = [
        f"Done in {seconds:.2g} s." if seconds < 9.5 else f"Done in {seconds:.0f} s.",
        _noise(record),
        f"Device: {record.device}.",
    ]
    if record.saturated:
        sentences.append(f"{record.saturated} values were clipped to {record.output_dtype}.")
    if record.nonfinite:
        sentences.append(f"{record.nonfinite} NaN or infinite pixels were left in place.")
    notes = [*map(in_panel, record.notes), outcome.without_maps]
    # Notes stand alone elsewhere; here they become sentences.
    sentences += [f"{note[:1].upper()}{note[1:].rstrip('.')}." for note in notes if note]
    if outcome.folder is not None:
        sentences.append(
            f"The result, {gigabytes(outcome.result.image.nbytes)}, is kept in a temporary file "
            f"in {outcome.folder} until its layer is removed or napari is closed: save it to keep "
            "it."
        )
    return " ".join(sentences)


def _noise(record: Any) -> str:
    how = "given" if record.sigma_source.startswith("given") else "estimated"
    models = dict.fromkeys(NoiseModel.from_dict(each).summary() for each in record.noise)
    sigma = ", ".join(f"{value:.4g}" for value in record.sigma)
    if models:
        words = "; ".join(models)
        return f"{words[:1].upper()}{words[1:]} ({how})."
    return f"Noise {sigma} grey levels ({how})." if sigma else f"Sigma {record.sigma_source}."
