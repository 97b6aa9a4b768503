"""The pictures whose ranges a model is quantised with: chosen, digested, and put through the C preprocessing."""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, create_calibrator
from onnxruntime.quantization.calibrate import CalibraterBase

from edge_app.config.tensor import InputSpec
from edge_app.engine import fit_of, tensor_of
from edge_app.errors import ConfigError, ModelError
from edge_app.frame import PixelFormat
from edge_app.listing import read_paths
from edge_app.preprocess import Geometry, Plan, Source
from edge_app.toolchain.dataset import pictures_in, read_picture

FEWEST_PICTURES = 32
"""Below this, ranges still move by several percent with each further picture."""
LEAST_VARIETY = 4.0
"""Mean absolute difference between thumbnails, grey levels, below which pictures are near copies of one another."""
METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}
Ranges = dict[str, tuple[float, float]]
Step = Callable[[int, int], None]
"""Called with (done, of) while something long goes on."""


@dataclass(frozen=True, slots=True)
class CalibrationSet:
    """Pictures in the order in which they are used."""

    files: tuple[Path, ...]
    sha256: str
    warnings: tuple[str, ...]


def choose(folder: Path, count: int | None, seed: int) -> list[Path]:
    """Pictures of a folder: all by name, or `count` drawn by `seed`."""
    files = pictures_in(folder)
    if count is None or count >= len(files):
        return files
    order = np.random.default_rng(seed).permutation(len(files))[:count]
    return [files[index] for index in order]


def listed(file: Path, root: Path) -> list[Path]:
    """Pictures of a list file: a path a line, relative to `root`; # begins a comment.

    Raises:
        ConfigError: the list can't be read, or names pictures that are not there.
    """
    pictures = read_paths(file, root)
    absent = [picture for picture in pictures if not picture.is_file()]
    if absent:
        raise ConfigError(
            f"the list names {len(absent)} of {len(pictures)} pictures that are not there", where=str(file),
            wanted="a path a line, relative to --calibration", got=str(absent[0]),
        )  # fmt: skip
    return pictures


def examine(files: Sequence[Path], image: InputSpec) -> CalibrationSet:
    """Digests the pictures, and says what is wrong with them as a calibration set.

    Raises:
        ConfigError: no picture, one that can't be read, or pictures that all hold one grey level.
    """
    if not files:
        raise ConfigError("no calibration picture", wanted=f"{FEWEST_PICTURES} or more", got="none")
    digest = hashlib.sha256()
    thumbnails = []
    sizes = set()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
        picture = read_picture(file)
        sizes.add(picture.shape[:2])
        thumbnails.append(_thumbnail(picture, image))
    stack = np.stack(thumbnails)
    if float(stack.max()) - float(stack.min()) < 1:
        raise ConfigError(
            "the calibration pictures hold nothing but one grey level",
            where=str(files[0].parent),
            wanted="pictures such as the camera will deliver",
            got=f"{len(files)} pictures of level {stack.max():.0f}",
            remedy="collect frames from the line: `edge_app calibration collect --pipeline P`",
        )
    return CalibrationSet(tuple(files), digest.hexdigest(), tuple(_warnings(stack, sizes, image)))


def tensors(files: Sequence[Path], image: InputSpec) -> Iterator[npt.NDArray[np.generic]]:
    """The model's input for each picture, by the preprocessing of the run time."""
    for file in files:
        yield tensor(read_picture(file), image)[0]


def tensor(picture: npt.NDArray[np.uint8], image: InputSpec) -> tuple[npt.NDArray[np.generic], Geometry]:
    """One BGR picture as the model's input, and where it landed."""
    height, width = picture.shape[:2]
    plan = Plan(Source(width, height, PixelFormat.BGR8), tensor_of(image), fit_of(image))
    out = plan.tensor.empty()
    plan.prepare(out)
    plan.run(np.ascontiguousarray(picture).reshape(-1), out)
    return out, plan.geometry


def ranges_of(
    model: Path,
    files: Sequence[Path],
    image: InputSpec,
    method: str,
    workdir: Path,
    step: Step = lambda _done, _of: None,
) -> Ranges:
    """Lowest and highest value of every float tensor over the pictures, by min-max, percentile or entropy."""
    calibrator = create_calibrator(
        model, None, augmented_model_path=str(workdir / "augmented.onnx"), calibrate_method=METHODS[method]
    )
    with quiet():
        for done, data in enumerate(tensors(files, image), 1):
            # One picture at a time: a histogram calibrator keeps all activations of one call in memory.
            try:
                calibrator.collect_data(Pictures(image.name, [data]))
            except ValueError as error:  # of NumPy: no histogram has room for infinity
                raise _not_finite(str(model), str(error)) from error
            step(done, len(files))
        return _bounds(calibrator)


def _bounds(calibrator: CalibraterBase) -> Ranges:
    data = calibrator.compute_data()
    ranges = {
        name: (np.min(found.range_value[0]).item(), np.max(found.range_value[1]).item()) for name, found in data.items()
    }
    for name, (low, high) in ranges.items():
        if not np.isfinite([low, high]).all():
            raise _not_finite(f"tensor {name}", f"{low} .. {high}")
    return ranges


def _not_finite(where: str, got: str) -> ModelError:
    return ModelError(
        "a tensor of the float model has no finite range over the calibration pictures",
        where=where,
        wanted="finite values: an encoding spans them",
        got=got,
        remedy="is the input made as in training (import --scale --mean --std)? Else mend the model",
    )


class Pictures(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Inputs as onnxruntime's calibrators read them, each given once."""

    def __init__(self, name: str, data: Sequence[npt.NDArray[np.generic]]) -> None:
        self._left = [{name: one} for one in reversed(data)]

    def get_next(self) -> dict[str, npt.NDArray[np.generic]] | None:
        """The next input; None at the end."""
        return self._left.pop() if self._left else None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """onnxruntime's quantizer prints, and warns on the root logger of what is done on purpose here."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        root.setLevel(before)


def _thumbnail(picture: npt.NDArray[np.uint8], image: InputSpec) -> npt.NDArray[np.float32]:
    """16 x 16 grey levels of what the model will see."""
    grey = image.model_copy(
        update={
            "width": 16,
            "height": 16,
            "color": "GRAY",
            "dtype": "uint8",
            "fit": "stretch",
            "shorter_side": None,
            "method": "area",
            "quant_scale": None,
            "quant_zero_point": None,
            "scale": 1 / 255,
            "mean": (0.0,),
            "std": (1.0,),
        }
    )
    if min(picture.shape[:2]) < 16:
        grey = grey.model_copy(update={"method": "bilinear"})
    return tensor(picture, grey)[0].astype(np.float32).reshape(16, 16)


def _warnings(stack: npt.NDArray[np.float32], sizes: set[tuple[int, ...]], image: InputSpec) -> Iterator[str]:
    count = len(stack)
    if count < FEWEST_PICTURES:
        yield f"only {count} calibration pictures; {FEWEST_PICTURES} or more give steady ranges"
    if count > 1:
        variety = float(np.abs(stack[1:] - stack[:-1]).mean())
        if variety < LEAST_VARIETY:
            yield f"the pictures are near copies of one another (mean difference {variety:.1f} grey levels)"
    if float(stack.std()) < LEAST_VARIETY:
        yield f"the pictures are almost one even grey (spread {float(stack.std()):.1f} levels)"
    if len(sizes) > 1:
        yield f"the pictures come in {len(sizes)} sizes; a line's camera delivers one: are they the pipeline's frames?"
    for height, width in sizes:
        if width * height < image.width * image.height:
            yield f"pictures of {width} x {height} are smaller than the model's input of {image.width} x {image.height}"
            return
