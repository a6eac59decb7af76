"""The method `fir_wiener` is the generator's filter without a correction."""

import numpy as np
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.generator_config import GeneratorConfig
from synthesis.methods import fir_wiener
from synthesis.paths import AcousticPaths
from synthesis.start.generator import Generator
from synthesis.synthesizer import extract_features, synthesize_fir
from tests.synthesis.cases import Case, random_case, relative_error

CONFIG = GeneratorConfig.prime_log()


def untrained(case: Case) -> np.ndarray:
    """Design with the torch modules in float64."""
    generator = Generator(CONFIG).double().eval()
    paths = AcousticPaths(torch.from_numpy(case.primary), torch.from_numpy(case.secondary))
    with torch.no_grad():
        ratio = extract_features(generator, paths)
        correction = torch.zeros(len(case.primary), 2, CONFIG.n_points, dtype=torch.float64)
        return synthesize_fir(generator, paths, ratio.log_paths, correction, None).numpy()


def assert_it_is_the_untrained_generator_s(case: Case) -> None:
    found = [fir_wiener(*pair) for pair in zip(case.primary, case.secondary, strict=True)]
    # The grid's matrices are float32 in torch.
    assert relative_error(np.stack(found), untrained(case)) < 1e-5


def test_it_is_untrained_generator_filter() -> None:
    assert_it_is_the_untrained_generator_s(random_case(n_cases=3, n_fft=DESIGN_N_FFT, seed=9))
