import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from model_store.manifest import Manifest, Scores, sha256
from synthesis.support_statistics import SupportStatistics
from tests.model_store.cases import manifest

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), plain, max_size=5))
def test_it_reads_back_what_it_writes_byte_for_byte(training: dict[str, object]) -> None:
    written = manifest(training=training)
    read = Manifest.from_bytes(written.to_bytes())
    assert read == written
    assert read.to_bytes() == written.to_bytes()
    assert read.digest == "sha256:" + hashlib.sha256(written.to_bytes()).hexdigest()


def test_it_is_plain_readable_json() -> None:
    text = manifest().to_bytes().decode()
    assert json.loads(text)["scores"]["held_out"]["k=1"]["noise_reduction_db"] == 22.75
    assert "à l'oreille" in text
    assert text.endswith("}\n")


def test_publishing_fills_in_the_stores_fields_alone() -> None:
    draft = manifest()
    created = datetime(2025, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2)))
    files = {"generator.safetensors": sha256(b"")}
    published = draft.published("ears", 7, created, {"kind": "prime"}, 12, files)
    assert (published.name, published.version, published.n_parameters) == ("ears", 7, 12)
    assert published.created == datetime(2025, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert '"created": "2025-01-02T01:04:05Z"' in published.to_bytes().decode()
    own = {"name", "version", "created", "generator", "n_parameters", "files"}
    assert published.model_dump(exclude=own) == draft.model_dump(exclude=own)
    assert draft.version == 0


def test_support_traits_are_optional_and_absent_where_there_are_none() -> None:
    """A manifest from before they existed is read, and written again byte for byte."""
    assert "support_traits" not in json.loads(manifest().to_bytes())
    covariance = tuple(float(row == column) for row in range(28) for column in range(row + 1))
    statistics = SupportStatistics(30, 4, (0.5, -0.25) * 14, covariance, (0.0, 0.125) * 14)
    written = manifest(support_traits=statistics)
    assert json.loads(written.to_bytes())["support_traits"]["covariance"] == [*covariance]
    assert Manifest.from_bytes(written.to_bytes()).support_traits == statistics
    with pytest.raises(ValidationError, match="support_traits"):
        manifest(support_traits={"n_ears": 30})


def test_a_manifest_with_statistics_of_before_stays_whole() -> None:
    before = {"n_ears": 30, "phase_rad": -0.67, "delay_samples": {"mean": 4.0, "sd": 0.0}}
    written = manifest(support_statistics=before).to_bytes()
    assert Manifest.from_bytes(written).to_bytes() == written
    assert Manifest.from_bytes(written).support_traits is None


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="created"):
        manifest().published("ears", 1, datetime(2025, 1, 2), {}, 1, {})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("extra", 1),
        ("schema_version", 2),
        ("name", "../ears"),
        ("version", -1),
        ("split", -1),
        ("support", ()),
        ("support", ("listener-01", "listener-01")),
        ("data_fingerprint", "abc"),
        ("licence", ""),
        ("scores", {"held_out": {"k=0": {"noise_reduction_db": float("nan")}}}),
        ("scores", {"held_out": {"k=0": {}}}),
        ("scores", {"in_sample": {}}),
        ("files", {"generator.safetensors": "md5:0"}),
    ],
)
def test_a_bad_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=field):
        manifest(**{field: value})


def test_a_model_of_every_listener_has_no_held_out_figures_of_its_own() -> None:
    table = {"k=0": {"noise_reduction_db": 22.0}}
    with pytest.raises(ValidationError, match="label them in_support"):
        manifest(split=None, scores={"held_out": table})
    everybody = manifest(split=None, scores={"split_models": {"ears-split00": table}, "in_support": table})
    assert everybody.scores.in_support == table


@pytest.mark.parametrize(
    "edit", [lambda b: b + b" ", lambda b: b.replace(b"  ", b"\t"), lambda b: b[:-1], lambda b: b[:40]]
)
def test_only_the_one_form_is_read(edit) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"form|delimiter|Expecting|Unterminated"):
        Manifest.from_bytes(edit(manifest().to_bytes()))


def test_json_cannot_say_nan() -> None:
    with pytest.raises(ValueError, match=r"not JSON compliant|finite"):
        manifest(training={"rate": float("nan")}).to_bytes()


def test_a_manifest_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        manifest().seed = 2


def test_a_score_is_the_held_out_one_or_the_split_models_mean() -> None:
    table = {"prime-log": {"noise_reduction_db": 22.0}, "prime-log + GN(1)": {"noise_reduction_db": 23.0}}
    other = {"k=0": {"noise_reduction_db": 20.0}, "k=1": {"control_rms": 0.1}, "wmmse": {"noise_reduction_db": 9.0}}
    assert Scores(held_out=table).noise_reduction_db("prime-log", 1) == 23.0
    assert Scores(held_out=other).noise_reduction_db("prime-log", 0) == 20.0
    assert Scores(held_out=other).noise_reduction_db("prime-log", 1) is None
    both = Scores(split_models={"a": table, "b": other}, in_support=table)
    assert both.noise_reduction_db("prime-log", 0) == 21.0
    assert both.noise_reduction_db("prime-log", 1) == 23.0
    assert Scores(in_support=table).noise_reduction_db("prime-log", 0) is None  # of ears that it has seen
