"""Compiles the processor's core when the package is built; everything else is in pyproject.toml."""

import importlib.util
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

# By path: importing the package would need its dependencies, which are not installed here.
specification = importlib.util.spec_from_file_location(
    "build_core", Path(__file__).parent / "prime_anc" / "core" / "build.py"
)
build = importlib.util.module_from_spec(specification)
specification.loader.exec_module(build)


def compiler() -> list[str]:
    """Return the requirement of the C compiler, unless the core is already compiled here."""
    levels = build.LEVELS.get(build.machine(), ())
    return ["ziglang>=0.13"] if not all(build.library_file(level).is_file() for level in levels) else []


class BuildWithCore(build_py):
    """The package's files, the compiled core among them."""

    def run(self) -> None:
        build.compile_core()
        super().run()


class PlatformDistribution(Distribution):
    """A wheel for this architecture alone."""

    def has_ext_modules(self) -> bool:
        return True


class WheelOfAnyInterpreter(bdist_wheel):
    """A wheel without extension modules: cffi loads the core."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"bdist_wheel": WheelOfAnyInterpreter, "build_py": BuildWithCore},
    distclass=PlatformDistribution,
    setup_requires=compiler(),
)
