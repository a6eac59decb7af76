"""A reader of the project's Dockerfile: its stages and their steps, and which files its build context holds."""

import fnmatch
import json
import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

UNDERSTOOD = {
    "ARG", "CMD", "COPY", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "USER", "WORKDIR",
}  # fmt: skip


class DockerfileError(ValueError):
    """A form of Dockerfile that this reader does not understand; says which line and what is understood."""


@dataclass(frozen=True)
class Step:
    """One instruction: its name in capitals, its `--flag=value` options, and the rest of it as written."""

    instruction: str
    flags: dict[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """The rest as separate words: the JSON list where it is one, split like a shell's line otherwise."""
        if self.text.startswith("["):
            words: list[str] = json.loads(self.text)
            return words
        return shlex.split(self.text)


@dataclass
class Stage:
    """What follows one FROM: the image it starts from, its name (or its number), its steps in order."""

    image: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def last(self, instruction: str) -> Step:
        """The one of its kind that counts, as for CMD and USER: the last.

        Raises DockerfileError where there is none.
        """
        for step in reversed(self.steps):
            if step.instruction == instruction:
                return step
        raise DockerfileError(f"stage {self.name!r}: found no {instruction}, expected one")


def read_dockerfile(file: Path) -> list[Stage]:
    """The stages of a Dockerfile, in order; raises DockerfileError at an instruction that is not understood."""
    stages: list[Stage] = []
    uncommented = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(uncommented)).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        if name not in UNDERSTOOD:
            raise DockerfileError(f"found {name!r}, expected one of {', '.join(sorted(UNDERSTOOD))}")
        flags: dict[str, str] = {}
        rest = rest.strip()
        while match := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
            flags[match[1]] = match[2]
            rest = rest[match.end() :]
        if name == "FROM":
            image, _, label = rest.partition(" AS ")
            stages.append(Stage(image, label.strip() or str(len(stages))))
        elif not stages:
            raise DockerfileError(f"found {name} before the first FROM")
        else:
            stages[-1].steps.append(Step(name, flags, rest))
    return stages


def context_files(folder: Path) -> list[PurePosixPath]:
    """Files of a build context, relative to `folder`: all but what its .dockerignore leaves out.

    The last pattern that names a file, or a folder above it, decides; `!` takes the file in again.
    """
    lines = (folder / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    tops = {pattern.lstrip("!").split("/")[0] for pattern in patterns if pattern.startswith("!")}
    found = []
    for top in sorted(tops):
        start = folder / top
        for file in [start] if start.is_file() else sorted(start.rglob("*")):
            relative = PurePosixPath(file.relative_to(folder).as_posix())
            if file.is_file() and not _ignored(relative, patterns):
                found.append(relative)
    return found


def _ignored(path: PurePosixPath, patterns: list[str]) -> bool:
    ignored = False
    for pattern in patterns:
        named = pattern.lstrip("!")
        if any(_matches(candidate, named) for candidate in (path, *path.parents)):
            ignored = not pattern.startswith("!")
    return ignored


def _matches(path: PurePosixPath, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.name, pattern[3:])
    return len(path.parts) == len(PurePosixPath(pattern).parts) and fnmatch.fnmatchcase(str(path), pattern)
