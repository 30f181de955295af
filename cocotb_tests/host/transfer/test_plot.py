"""The page of `lutterfly table --plot`: curve, codes and error of every code; and it opens in a browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import ImageColor

from cocotb_tests.support.oracles.browser import open_page
from lutterfly.golden.transfer.schemes import parse
from lutterfly.host.report import style
from lutterfly.host.transfer.plot import curve, error, plot
from lutterfly.host.transfer.table import TableFacts, tabulate_chain


def facts(name: str = "Tanh") -> TableFacts:
    return tabulate_chain(name, np.tanh, parse("q3.4:symmetric"), parse("q0.7"))


def test_every_code_is_drawn() -> None:
    found = facts()
    line, points = curve(found).data
    np.testing.assert_array_equal(line.x, found.inputs)
    np.testing.assert_array_equal(line.y, found.results)
    np.testing.assert_array_equal(points.x, found.inputs)
    np.testing.assert_array_equal(points.y, found.table / np.float32(128))
    np.testing.assert_array_equal(points.customdata, np.stack([found.source.codes, found.table], axis=1))
    (errors,) = error(found).data
    np.testing.assert_array_equal(errors.x, found.inputs)
    np.testing.assert_array_equal(errors.y, found.errors * 128)


def test_names_are_text() -> None:
    page = plot(facts("<script>alert(1)</script>"))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.regress
def test_the_page_opens(tmp_path: Path) -> None:
    opened = open_page(plot(facts()), tmp_path)
    assert opened.console == []
    assert opened.texts.keys() == {"curve", "error"}
    assert "error in steps of 0.0078125" in [text.text for text in opened.texts["error"]]
    colours = {colour: count for count, colour in opened.picture.getcolors(1 << 24)}
    for colour in (style.STEPS, style.REQUANTISER):
        assert colours.get(ImageColor.getrgb(colour), 0) >= 200, colour


def test_many_points_are_drawn_by_webgl() -> None:
    found = tabulate_chain("Tanh", np.tanh, parse("q3.12"), parse("q0.7"))
    assert {trace.type for trace in (*curve(found).data, *error(found).data)} == {"scattergl"}
    assert {trace.type for trace in (*curve(facts()).data, *error(facts()).data)} == {"scatter"}
