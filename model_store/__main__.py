"""Manage published models and controllers: ``python -m model_store [--store ROOT] COMMAND``.

Commands: list, show, verify, alias.

Exit status 0: success; 1: failure, with one line on standard error; 2: unknown command.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

from model_store.controller import PublishedController
from model_store.errors import InvalidName, ModelStoreError
from model_store.manifest import Manifest, Table
from model_store.store import DEFAULT_ROOT, KINDS, ModelStore, ModelVersion, existing_store
from prime_anc.method.profiles import MAX_UPDATES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status."""
    options = _parser().parse_args(arguments)
    command: Callable[[ModelStore, argparse.Namespace], int] = options.run
    try:
        return command(existing_store(options.store), options)
    except ModelStoreError as error:
        _say(f"model_store: {error}", file=sys.stderr)
    except ValueError as error:
        _say(f"model_store: {error}", file=sys.stderr)
    except OSError as error:
        _say(f"model_store: {error.strerror}: {error.filename}", file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m model_store", description="Look after published models.")
    parser.add_argument(
        "--store",
        default=DEFAULT_ROOT,
        metavar="ROOT",
        help="folder or URL; default: PRIME_STORE, here %(default)s",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="every model and version, and the aliases")
    listing.set_defaults(run=_list)
    show = commands.add_parser("show", help="manifest of one version")
    show.add_argument("reference", metavar="REF", help="name, name@version or alias")
    show.set_defaults(run=_show)
    verify = commands.add_parser("verify", help="check digests, tensors and the golden case")
    verify.add_argument("reference", metavar="REF", nargs="?", help="default: every version")
    verify.set_defaults(run=_verify)
    alias = commands.add_parser("alias", help="let NAME stand for REF; without REF, show; without NAME, list")
    alias.add_argument("alias", metavar="NAME", nargs="?")
    alias.add_argument("reference", metavar="REF", nargs="?")
    alias.add_argument("--remove", action="store_true", help="forget NAME")
    alias.set_defaults(run=_alias)
    return parser


def _list(store: ModelStore, _: argparse.Namespace) -> int:
    tables = {
        ("model", "generator", "dataset", "split", "seed", "created", "held-out NR dB", "digest"): store.list(),
        ("controller", "sections", "rate Hz", "latency us", "dataset", "created", "digest"): store.list(
            PublishedController.SUFFIX
        ),
    }
    for header, versions in tables.items():
        if versions:
            _print_table([header, *(_list_row(store, version) for version in versions)])
    broken = store.broken()
    for reference, fault in broken.items():
        _say(f"{reference}  damaged: {fault}")
    if not any(tables.values()) and not broken:
        _say("no models")
    for alias, reference in store.aliases().items():
        _say(f"{alias} -> {reference}")
    return 0


def _list_row(store: ModelStore, version: ModelVersion) -> tuple[str, ...]:
    name = version.reference + (" (bundled)" if version.is_bundled else "")
    manifest = store.manifest(version.reference)
    created, digest = f"{manifest.created:%Y-%m-%d %H:%M}", version.digest[: len("sha256:") + 12]
    if isinstance(manifest, PublishedController):
        chip = f"{manifest.sample_rate:g}", f"{manifest.latency_us:g}"
        return (name, str(len(manifest.sos)), *chip, manifest.dataset, created, digest)
    assert isinstance(manifest, Manifest)
    split = "all" if manifest.split is None else str(manifest.split)
    kind, seed = str(manifest.generator["kind"]), str(manifest.seed)
    return (name, kind, manifest.dataset, split, seed, created, _headline(manifest), digest)


def _headline(manifest: Manifest) -> str:
    """Return the noise reduction per k on unseen listeners, the split models' mean for a model of all listeners."""
    scores, kind = manifest.scores, str(manifest.generator["kind"])
    values = ((n_updates, scores.noise_reduction_db(kind, n_updates)) for n_updates in range(MAX_UPDATES + 1))
    means = " ".join(f"k={n_updates} {value:.2f}" for n_updates, value in values if value is not None)
    return means + (f" (of {len(scores.split_models)} split models)" if means and not scores.held_out else "")


def _show(store: ModelStore, options: argparse.Namespace) -> int:
    version = store.resolve(options.reference, None)
    manifest = store.manifest(version.reference)
    plain = manifest.model_dump(mode="json", exclude={"name", "version", "scores", "support", "sos"})
    rows = [("model", version.reference), ("digest", version.digest), ("file", version.file)]
    rows += [("support", f"{len(manifest.support)}: {', '.join(manifest.support)}")]
    for field, value in plain.items():
        nested = value.items() if isinstance(value, dict) else [("", value)]
        rows += [(f"{field}.{key}".rstrip("."), "all" if item is None else str(item)) for key, item in nested]
    _print_table(rows)
    if not isinstance(manifest, Manifest):
        return 0
    _print_scores("held out (listeners not trained on)", manifest.scores.held_out)
    for name, table in manifest.scores.split_models.items():
        _print_scores(f"held out, split model {name}", table)
    _print_scores("IN SUPPORT (listeners trained on)", manifest.scores.in_support)
    return 0


def _print_scores(title: str, table: Table) -> None:
    if not table:
        return
    quantities = list(dict.fromkeys(quantity for figures in table.values() for quantity in figures))
    rows = [
        (design, *(f"{figures[quantity]:.3f}" if quantity in figures else "-" for quantity in quantities))
        for design, figures in table.items()
    ]
    _say()
    _say(title)
    _print_table([("design", *quantities), *rows])


def _verify(store: ModelStore, options: argparse.Namespace) -> int:
    """Check every version, even if an earlier one is damaged."""
    everything = [*(item.reference for kind in KINDS for item in store.list(kind)), *store.broken()]
    references = [options.reference] if options.reference else everything
    faults = 0
    for reference in references:
        try:
            errors = store.verify(reference)
        except InvalidName:
            raise
        except ModelStoreError as error:
            faults += 1
            _say(f"model_store: {reference}: {error}", file=sys.stderr)
        else:
            golden = errors and f"; golden case to {errors.taps:.1e} (k=0), {errors.refined_taps:.1e} (k=1)"
            _say(f"{reference}: sound{golden or ''}")
    if not references:
        _say("no models")
    return 1 if faults else 0


def _alias(store: ModelStore, options: argparse.Namespace) -> int:
    if options.remove and options.alias:
        store.remove_alias(options.alias)
        _say(f"{options.alias} is no alias any more")
    elif options.alias and options.reference:
        version = store.set_alias(options.alias, options.reference)
        hidden = any(item.name == options.alias for item in store.list())
        note = f", instead of the package's {options.alias}" if hidden else ""
        _say(f"{options.alias} -> {options.reference}, now {version.reference}{note}")
    else:
        for alias, reference in store.aliases().items():
            if options.alias in (None, alias):
                _say(f"{alias} -> {reference}")
    return 0


def _say(text: str = "", file: TextIO | None = None) -> None:
    """Print a line, with control characters escaped."""
    plain = (item if item.isprintable() else item.encode("unicode_escape").decode() for item in text)
    print("".join(plain), file=file)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns, two blanks apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
