"""For every test: measured ears, precisions, fixed seeds, and torch on one thread."""

import contextlib
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc import library
from prime_anc.cli.__main__ import main
from prime_anc.method.types import Model
from tests.data.six_ears import write_six_ears
from tests.method.cases import Case, random_case
from tests.oracles import measured

# Files, by how their names begin, that are begun first: one that begins last keeps the other workers idle.
SLOW = (
    "training/test_experiment.py", "benchmarks/test_commands.py",
    "method/backends/test_cuda.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow files first; what is one file's stays together."""
    folder = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        name = item.path.relative_to(folder).as_posix()
        return next((number for number, begin in enumerate(SLOW) if name.startswith(begin)), len(SLOW))

    items.sort(key=place)


@pytest.fixture(scope="session")
def measured_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of six measured ears and of synthetic noises, in the layout of a whole database."""
    folder = tmp_path_factory.mktemp("six_ears")
    write_six_ears(folder)
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the example's recordings, their calibration and a filter, as the command writes them."""
    folder = tmp_path_factory.mktemp("example")
    with contextlib.chdir(folder):
        CliRunner().invoke(main, ["example", "--seconds", "4"], catch_exceptions=False)
        ear = library.calibrate("off.wav", "on.wav", gain=0.35)
        ear.save("ear.json")
        library.design(ear, k=1).save("filter.json")
    return folder


@pytest.fixture(scope="session")
def ears(measured_data: Path) -> list[measured.MeasuredEar]:
    """Every measured ear with noise-free estimates."""
    return measured.measured_ears(measured_data)


@pytest.fixture(scope="session")
def measured_psd(measured_data: Path) -> np.ndarray:
    """Mean square per bin of the measured noises, white and pink: [16385]."""
    return measured.reference_psd(measured.read_noises(measured_data))


@pytest.fixture(scope="session")
def measured_case(ears: list[measured.MeasuredEar], measured_psd: np.ndarray) -> Case:
    """The estimated paths of every ear on the design grid."""
    return _case([(ear.estimated_primary, ear.estimated_secondary) for ear in ears], measured_psd)


def _case(pairs: list[tuple[np.ndarray, np.ndarray]], reference_psd: np.ndarray) -> Case:
    return Case(*(np.fft.rfft(paths, measured.N_FFT) for paths in zip(*pairs, strict=True)), reference_psd)


@pytest.fixture(scope="session")
def model() -> Model:
    """The bundled earphone's model on the CPU's core."""
    return Model.on("cpu", ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)


@pytest.fixture(scope="session")
def small_case() -> Case:
    """Three random pairs on a reduced grid."""
    return random_case()


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each real precision in turn."""
    return request.param


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
