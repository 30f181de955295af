"""The report's page: everything in one file, nothing from the network, drawn without a complaint in a browser."""

from __future__ import annotations

import dataclasses
import itertools
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageColor

from cocotb_tests.support.oracles.browser import Opened, open_page
from cocotb_tests.support.oracles.reported import NETWORKS, report_of
from lutterfly.host.files.terminal import tables_text
from lutterfly.host.report import style
from lutterfly.host.report.page import page

FIGURES = {"timeline", "shares", "roofline", "features", "constants", "external", "tables"}
HOSTILE = '<img src="https://example.com/x.png" onerror="console.error(1)">'


class Elements(HTMLParser):
    """Tags with their attributes, and the text outside of scripts and styles."""

    def __init__(self, document: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._inside = ""
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.words.append(data)


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def opened(network: str, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    return open_page(page([report_of(network)[1]]), tmp_path_factory.mktemp("page"))


@pytest.mark.sampled(2)
def test_nothing_comes_from_elsewhere(network: str) -> None:
    elements = Elements(page([report_of(network)[1]])).found
    assert {tag for tag, _ in elements} >= {"html", "table", "script", "style"}
    assert [(tag, attrs) for tag, attrs in elements if tag in ("link", "iframe", "object", "img", "base")] == []
    assert [(tag, attrs) for tag, attrs in elements if {"src", "href", "data"} & attrs.keys()] == []
    policy = next(attrs["content"] for tag, attrs in elements if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy


@pytest.mark.sampled(2)
def test_the_summary_and_the_tables_have_the_numbers(network: str) -> None:
    _, facts = report_of(network)
    words = Elements(page([facts])).words
    counters = facts.observation.counters
    assert [f"{value:,}" for value in counters.values() if f"{value:,}" not in words] == []
    assert f"{counters['cycles']:,}" in words
    assert f"cycles measured, {facts.program.predicted_cycles:,} predicted" in words
    assert f"{facts.utilisation:.1%}" in words
    assert f"{len(facts.tables)} for {facts.functions}" in words
    tables = f"{tables_text(facts.functions, len(facts.tables))}: equal ones are stored once. "
    assert any(text.startswith(tables) for text in words)
    for layer in facts.layers:
        place = words.index(layer.planned.name)
        assert words[place + 1 : place + 5] == [
            layer.planned.operation,
            layer.planned.fold,
            f"{layer.share.cycles:,}",
            f"{layer.planned.cycles:,}",
        ]


@pytest.mark.sampled(2)
def test_every_section_says_what_is_measured_and_what_predicted(network: str) -> None:
    document = page([report_of(network)[1]])
    sections = document.split("<section>")[1:]
    assert len(sections) == 9
    assert all('<span class="tag ' in section for section in sections)


@pytest.mark.regress
def test_connections_that_are_off_have_their_numbers() -> None:
    _, facts = report_of("pruned")
    words = Elements(page([facts])).words
    start = words.index("Connections that are off")
    sparse = [layer for layer in facts.layers if layer.planned.words < layer.planned.dense_words]
    assert len(sparse) == 2
    for layer in sparse:
        found = layer.planned
        place = words.index(layer.label, start)
        assert words[place + 1 : place + 8] == [
            f"{found.connections:,}",
            f"{found.live_connections:,} ({found.live_connections / found.connections:.1%})",
            f"{found.dense_words:,}",
            f"{found.model_words:,} ({found.model_words / found.dense_words:.1%})",
            f"{found.words:,} ({found.words / found.dense_words:.1%})",
            f"{layer.share.cycles:,}",
            f"{found.dense_cycles:,}",
        ]
    assert any(layer.planned.words < layer.planned.model_words for layer in sparse)
    assert "Connections that are off" not in Elements(page([report_of("joined")[1]])).words


@pytest.mark.regress
def test_a_browser_draws_it_without_a_complaint(opened: Opened) -> None:
    assert opened.console == []
    assert set(opened.texts) == FIGURES
    assert opened.document.count('class="main-svg"') >= len(FIGURES)


@pytest.mark.regress
def test_every_layer_is_named_and_no_name_hides_another(network: str, opened: Opened) -> None:
    _, facts = report_of(network)
    for figure in ("timeline", "shares"):
        ticks = [text for text in opened.texts[figure] if text.kind == "ytick"]
        assert {layer.label for layer in facts.layers} <= {text.text for text in ticks}
        axis = [text for text in opened.texts[figure] if text.kind in ("xtick", "ytick", "g-xtitle")]
        assert [pair for pair in itertools.combinations(axis, 2) if pair[0].overlaps(pair[1])] == []
        assert min(text.left for text in ticks) >= 0
        assert all(text.bottom - text.top >= 9 for text in ticks)


@pytest.mark.regress
def test_of_many_layers_no_number_hides_another(tmp_path: Path) -> None:
    """On the roofline; the layers of a large network come near to each other."""
    _, facts = report_of("large")
    made = [layer for layer in facts.layers if layer.planned.macs and layer.planned.moved_bytes]
    rng = np.random.default_rng(0)
    crowd = [
        dataclasses.replace(
            layer,
            label=f"{number} layer",
            planned=dataclasses.replace(layer.planned, macs=max(int(layer.planned.macs * rng.uniform(0.3, 1)), 1)),
        )
        for number, layer in enumerate(made[index % len(made)] for index in range(1, 41))
    ]
    opened = open_page(page([dataclasses.replace(facts, layers=tuple(crowd))]), tmp_path)
    numbers = [text for text in opened.texts["roofline"] if text.kind == "textpoint"]
    assert sum(1 + int(text.text.partition(" +")[2] or 0) for text in numbers) == len(crowd)
    assert len(numbers) > 4
    assert [pair for pair in itertools.combinations(numbers, 2) if pair[0].overlaps(pair[1])] == []


@pytest.mark.regress
def test_the_picture_is_not_blank(opened: Opened) -> None:
    colours = {colour: count for count, colour in opened.picture.getcolors(1 << 24)}
    for colour, least in ((style.STEPS, 2000), (style.LOAD, 20), (style.STORE, 5), (style.TEXT, 500)):
        assert colours.get(ImageColor.getrgb(colour), 0) >= least, colour


@pytest.mark.regress
def test_a_complaint_would_be_seen(tmp_path: Path) -> None:
    broken = page([report_of("digits")[1]]).replace("</body>", f"{HOSTILE}<script>nothing()</script></body>")
    console = open_page(broken, tmp_path).console
    assert len(console) == 3
    assert "'https://example.com/x.png' violates the following Content Security Policy" in console[0]
    assert any("nothing is not defined" in line for line in console)


@pytest.mark.regress
def test_names_from_a_model_are_text(tmp_path: Path) -> None:
    _, facts = report_of("digits")
    first = facts.layers[0]
    label, name = f"1 <b>{HOSTILE}</b>&amp;", f"</script>{HOSTILE}"
    layers = (
        dataclasses.replace(first, label=label, planned=dataclasses.replace(first.planned, name=name)),
        *facts.layers[1:],
    )
    occupants = (dataclasses.replace(facts.occupants[0], tensor=HOSTILE), *facts.occupants[1:])
    document = page([dataclasses.replace(facts, name=name, layers=layers, occupants=occupants)])
    assert not [tag for tag, _ in Elements(document).found if tag == "img"]
    opened = open_page(document, tmp_path)
    assert opened.console == []
    assert label in [text.text for text in opened.texts["timeline"]]
    assert "<img" not in opened.document.partition("</script>")[2].replace("&lt;img", "")
