"""Manage published models and controllers: ``python -m model_store [--store ROOT] COMMAND``.

Exit status 0: success; 1: failure, with one line on standard error; 2: unknown command.
"""

import sys
from typing import Any

import click

from model_store.errors import CorruptStore, GoldenMismatch, ModelStoreError
from model_store.store import DEFAULT_ROOT, KINDS, ModelStore, existing_store


class _Commands(click.Group):
    def invoke(self, context: click.Context) -> Any:
        """Run a command; a failure is one line on standard error."""
        try:
            return super().invoke(context)
        except (ModelStoreError, ValueError) as error:
            _say(f"model_store: {error}", err=True)
            context.exit(1)


@click.group(cls=_Commands)
@click.option(
    "--store", "root", default=str(DEFAULT_ROOT), metavar="ROOT", show_default=True, help="Folder or URL."
)
@click.pass_context
def main(context: click.Context, root: str) -> None:
    """Look after published models, which `prime-anc models` lists. PRIME_STORE names the default store."""
    context.obj = existing_store(root)


@main.command()
@click.argument("reference", metavar="[REF]", required=False)
@click.pass_obj
def verify(store: ModelStore, reference: str | None) -> None:
    """Check digests, tensors and golden case of REF, or of every version even if an earlier one is damaged."""
    faults = {} if reference else store.broken()
    for item in [reference] if reference else [str(version) for kind in KINDS for version in store.list(kind)]:
        try:
            errors = store.verify(item)
        except (CorruptStore, GoldenMismatch) as error:
            faults[item] = str(error)
        else:
            golden = ", ".join(f"{name} to {error:.1e}" for name, error in errors.items())
            _say(f"{item}: sound" + (f"; golden case: {golden}" if golden else ""))
    for item, fault in faults.items():
        _say(f"model_store: {item}: {fault}", err=True)
    sys.exit(1 if faults else 0)


@main.command()
@click.argument("name", required=False)
@click.argument("reference", metavar="[REF]", required=False)
@click.option("--remove", is_flag=True, help="Forget NAME.")
@click.pass_obj
def alias(store: ModelStore, name: str | None, reference: str | None, remove: bool) -> None:
    """Let NAME stand for REF; without REF, show it; without NAME, list all."""
    if remove and name:
        store.remove_alias(name)
        _say(f"{name} is no alias any more")
    elif name and reference:
        version = store.set_alias(name, reference)
        note = f", instead of the package's {name}" if store.versions(name, bundled=True) else ""
        _say(f"{name} -> {reference}, now {version}{note}")
    else:
        for alias_name, target in store.aliases().items():
            if name in (None, alias_name):
                _say(f"{alias_name} -> {target}")


def _say(text: str, err: bool = False) -> None:
    """Print a line, with control characters escaped."""
    plain = (item if item.isprintable() else item.encode("unicode_escape").decode() for item in text)
    click.echo("".join(plain), err=err)


if __name__ == "__main__":
    main(prog_name="python -m model_store")
