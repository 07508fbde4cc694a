"""Errors and notes: one sentence, a code with values, and remedies worded by front ends."""

import ast
import copy
import json
import pickle
from functools import cache
from pathlib import Path
from string import Formatter

import numpy as np
import pytest

import napari_gpu_denoise
from napari_gpu_denoise import errors
from napari_gpu_denoise._napari import wording as panel
from napari_gpu_denoise.cli import failures as command_line

SOURCES = Path(napari_gpu_denoise.__file__).parent


@cache
def coded_calls():
    """Return the code of each error and note in the sources, with the names of its values."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "code=" in text else ():
            if not isinstance(node, ast.Call):
                continue
            given = {each.arg: each.value for each in node.keywords}
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if "code" in given and (name == "Note" or name.endswith("Error")):
                where = f"{path.relative_to(SOURCES)}:{node.lineno}"
                found.append((where, ast.literal_eval(given.pop("code")), set(given)))
    return found


def test_front_ends_know_every_code():
    known = set(panel.REMEDIES) | set(command_line.REMEDIES)
    assert {code for _, code, _ in coded_calls()} == known


@pytest.mark.parametrize("table", [panel.REMEDIES, command_line.REMEDIES], ids=["panel", "cli"])
def test_remedies_are_filled_from_values(table):
    for where, code, values in coded_calls():
        fields = {name for _, name, _, _ in Formatter().parse(table.get(code, "")) if name}
        assert fields <= values, where


def test_a_sentence_with_problem_and_remedy():
    error = errors.AxesError("No axis is named T", "pass axes='TYX'", code="axis-needed", axis="T")
    assert str(error) == "No axis is named T: pass axes='TYX'."
    assert (error.problem, error.remedy) == ("No axis is named T", "pass axes='TYX'")
    assert (error.code, error.values) == ("axis-needed", {"axis": "T"})
    assert errors.worded(error, {"axis-needed": "type {axis}YX"}) == (
        "No axis is named T: type TYX."
    )
    assert errors.worded(error, {}) == str(error)


@pytest.mark.parametrize("kind", [errors.FileError, errors.DeviceMemoryError, errors.LayerError])
def test_a_whole_sentence(kind):
    error = kind("It is empty: copy it again.")
    assert str(error) == "It is empty: copy it again."
    assert (error.remedy, error.code, error.values) == ("", "", {})
    assert errors.worded(error, panel.REMEDIES) == str(error)


def test_errors_and_notes_travel_between_processes():
    error = errors.OutputError("a.tif exists", "pass overwrite=True", code="exists", path="a.tif")
    note = errors.Note("one sigma is a compromise", "noise='auto'", code="uneven", dark=1.0)
    for made in (pickle.loads(pickle.dumps((error, note))), copy.deepcopy((error, note))):
        assert list(map(str, made)) == [str(error), str(note)]
        assert [each.code for each in made] == ["exists", "uneven"]
        assert [each.values for each in made] == [{"path": "a.tif"}, {"dark": 1.0}]


def test_a_note_is_plain_text():
    note = errors.Note("one sigma is a compromise", "noise='auto'", code="uneven")
    assert note == "one sigma is a compromise: noise='auto'"
    assert json.dumps([note]) == "[\"one sigma is a compromise: noise='auto'\"]"
    assert panel.in_panel(note) == "one sigma is a compromise: choose Automatic"
    assert command_line.on_command_line(note) == "one sigma is a compromise: --noise auto"
    assert panel.in_panel("nothing to do") == "nothing to do"
    assert errors.Note("nothing to do") == "nothing to do"


def test_a_single_clipped_value_is_one():
    image = np.full((16, 16), 100, np.float32)
    image[3, 4] = 300
    with pytest.warns(errors.SaturationWarning, match="^1 value was clipped to the range of uint8"):
        napari_gpu_denoise.nl_means(image, 0.0, dtype="uint8")
