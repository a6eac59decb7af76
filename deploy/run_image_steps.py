"""Build and run the image without Docker: every step of the Dockerfile, in fresh folders that stand for its stages.

    python deploy/run_image_steps.py [--build-arg NAME=VALUE ...] [--python /usr/bin/python3.11]

The base image alone is missing: its Python is the one named here. Absolute paths of the image (/opt, /build, /var,
/tmp) become paths below a stage's folder. The last stage is then started as its CMD says, with the image's
environment and no other, as the image's user where this program runs as root; its HEALTHCHECK must succeed, the
example listener's filter must come back, and SIGTERM must end it. Nothing else may have written into it.
"""

import argparse
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from dockerfile import Stage, Step, context_files, read_dockerfile

ROOT = Path(__file__).resolve().parents[1]
IMAGE_PATH = re.compile(r"(?<![\w./:}])/(opt|build|var|tmp)\b")
READY_WITHIN_S = 120.0
STOPPED_WITHIN_S = 30.0


class Image:
    """A stage under construction: a folder for its root, its environment, its working folder."""

    def __init__(self, stage: Stage, folder: Path, base_path: str):
        self.stage, self.root = stage, folder
        self.environment = {"PATH": base_path}
        self.working_folder = folder
        (folder / "tmp").mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)

    def inside(self, text: str) -> str:
        """`text` with the image's absolute paths turned into paths below this stage's folder."""
        return IMAGE_PATH.sub(lambda match: f"{self.root}/{match[1]}", text)

    def place(self, path: str) -> Path:
        """Where a path of the image, absolute or relative to the working folder, lies on this machine."""
        return self.root / path.lstrip("/") if path.startswith("/") else self.working_folder / path


def build(stages: list[Stage], arguments: dict[str, str], python: Path, folder: Path) -> Image:
    """Run every stage's steps below `folder`; returns the last stage."""
    commands = folder / "base" / "bin"
    commands.mkdir(parents=True)
    # The base image's Python. A script, not a link, so that Python finds its own library.
    (commands / "python").write_text(f'#!/bin/sh\nexec {python} "$@"\n')
    (commands / "python").chmod(0o755)
    images: dict[str, Image] = {}
    for stage in stages:
        image = images[stage.name] = Image(stage, folder / stage.name, f"{commands}:/usr/bin:/bin")
        for step in stage.steps:
            print(f"[{stage.name}] {step.instruction} {step.text[:100]}", flush=True)
            run_step(step, image, images, arguments)
    *earlier, final = images.values()
    for image in earlier:
        shutil.rmtree(image.root)  # the last stage must stand without them
    return final


def run_step(step: Step, image: Image, images: dict[str, Image], arguments: dict[str, str]) -> None:
    """Carry out one instruction; those that only describe the image (CMD, EXPOSE, ...) wait for the run."""
    if step.instruction == "ARG":
        name, _, default = step.text.partition("=")
        image.environment[name] = arguments.get(name, default)
    elif step.instruction == "ENV":
        for word in step.words:
            name, _, value = word.partition("=")
            image.environment[name] = image.inside(value).replace("$PATH", image.environment["PATH"])
    elif step.instruction == "WORKDIR":
        image.working_folder = image.place(step.text)
        image.working_folder.mkdir(parents=True, exist_ok=True)
    elif step.instruction == "COPY":
        copy(step, image, images)
    elif step.instruction == "RUN":
        # This machine's own settings of pip reach the build, as a builder's network and proxies would.
        own = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG") or "PIP_" in name}
        command = ["/bin/sh", "-euc", image.inside(step.text)]
        subprocess.run(command, cwd=image.working_folder, env=own | image.environment, check=True)


def copy(step: Step, image: Image, images: dict[str, Image]) -> None:
    """COPY: files into a folder, a folder's content into a folder; nothing that .dockerignore leaves out."""
    *sources, destination = step.words
    target = image.place(destination)
    if "from" in step.flags:
        for source in sources:
            shutil.copytree(images[step.flags["from"]].place(source), target, symlinks=True, dirs_exist_ok=True)
    else:
        in_context = context_files(ROOT)
        for source in sources:
            files = [file for file in in_context if file.parts[0] == source]
            if not files:
                sys.exit(f"COPY {source}: found nothing in the build context, expected a file or a folder")
            for file in files:
                to = target / (file.name if str(file) == source else str(file.relative_to(source)))
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, to)
    if "chown" in step.flags and os.geteuid() == 0:
        user, group = (int(part) for part in step.flags["chown"].split(":"))
        for owned in (target, *target.rglob("*")):
            os.chown(owned, user, group)


def run(image: Image) -> None:
    """Start the image's CMD, wait for its HEALTHCHECK, design the example's filter, stop it with SIGTERM."""
    before = snapshot(image.root)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = image.environment | {"PRIME_HOST": "127.0.0.1", "PRIME_PORT": str(port), "LANG": "C.UTF-8"}
    as_root = os.geteuid() == 0  # nobody else may start a program as another user
    user, group = (int(part) for part in image.stage.last("USER").text.split(":"))
    started = time.monotonic()

    def start(command: list[str], errors: int | None = None) -> "subprocess.Popen[bytes]":
        found = shutil.which(command[0], path=environment["PATH"]) or command[0]
        return subprocess.Popen(
            [found, *command[1:]],
            cwd=image.working_folder,
            env=environment,
            stderr=errors,
            user=user if as_root else None,
            group=group if as_root else None,
            extra_groups=[] if as_root else None,
        )

    service = start(image.stage.last("CMD").words)
    try:
        health = Step("CMD", {}, image.stage.last("HEALTHCHECK").text.removeprefix("CMD").strip()).words
        while start(health, errors=subprocess.DEVNULL).wait() != 0:
            if service.poll() is not None or time.monotonic() - started > READY_WITHIN_S:
                sys.exit("The service did not become healthy; its lines above say why.")
            time.sleep(0.5)
        print(f"healthy after {time.monotonic() - started:.1f} s", flush=True)
        example = [sys.executable, str(ROOT / "examples" / "first_design.py"), "--url", f"http://127.0.0.1:{port}"]
        subprocess.run(example, check=True)
        service.terminate()
        status = service.wait(STOPPED_WITHIN_S)
    finally:
        service.kill()
    written = sorted(str(path) for path in snapshot(image.root) ^ before)
    if status not in (0, -15, 143):
        sys.exit(f"After SIGTERM the service ended with status {status}, expected 0.")
    if written:
        sys.exit(f"The service wrote into its image, which is mounted read-only in the compose file: {written}")


def snapshot(root: Path) -> set[tuple[str, int, int]]:
    """Every file below `root` with its size and time of change, its /tmp apart."""
    found = set()
    for file in root.rglob("*"):
        status = file.lstat()
        if stat.S_ISREG(status.st_mode) and root / "tmp" not in file.parents:
            found.add((str(file.relative_to(root)), status.st_size, status.st_mtime_ns))
    return found


def anybodys_python() -> Path:
    """A Python that the image's user may run: this one, or the system's where this one's folder is private."""
    own = Path(os.path.realpath(sys.executable))
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in own.parents):
        return own
    system = Path(f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")
    if not system.exists():
        sys.exit(f"{own} lies in a folder that other users may not enter: name another with --python")
    return system


def main() -> None:
    """Build in a fresh folder, run, and remove the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--python", type=Path, default=None, help="the base image's Python")
    options = parser.parse_args()
    arguments = dict(argument.split("=", 1) for argument in options.build_arg)
    with tempfile.TemporaryDirectory(prefix="prime-anc-image-") as folder:
        Path(folder).chmod(0o755)
        python = options.python or anybodys_python()
        image = build(read_dockerfile(ROOT / "Dockerfile"), arguments, python, Path(folder))
        run(image)
    print("The image's steps ran, and what they built is healthy, designs and stops.")


if __name__ == "__main__":
    main()
