"""Compiles the processor's core when the package is built; everything else is in pyproject.toml."""

import importlib.util
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

BUILD = Path(__file__).parent / "synthesis" / "backends" / "cpu" / "build.py"


class BuildWithCore(build_py):
    """The package's files, the compiled core among them."""

    def run(self) -> None:
        # By path: importing the package would need its dependencies, which are not installed here.
        specification = importlib.util.spec_from_file_location("build_core", BUILD)
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        module.compile_core()
        super().run()


class PlatformDistribution(Distribution):
    """A wheel for this architecture alone."""

    def has_ext_modules(self) -> bool:
        return True


class WheelOfAnyInterpreter(bdist_wheel):
    """A wheel without extension modules: ctypes loads the core."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": WheelOfAnyInterpreter, "build_py": BuildWithCore}, distclass=PlatformDistribution)
