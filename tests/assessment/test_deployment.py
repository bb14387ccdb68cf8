from __future__ import annotations

from pathlib import Path

import pytest

from gleak.assessment.deployment import Deployment, read_deployment, write_template
from gleak.core.errors import SpecError


def test_the_template_names_every_key_and_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    write_template(file)
    text = file.read_text()
    for key in Deployment.model_fields:
        assert f"\n{key}:" in text or f"\n# {key}:" in text, key
    found = read_deployment(file)
    written = {"client": {"batch_size": 1}, "thresholds": {"ssim": 0.5}}
    assert found == Deployment(model="lenet", data="digits", **written)
    with pytest.raises(SpecError, match=r"deployment.yaml exists already"):
        write_template(file)
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("model: lenet\n", "key 'data' is missing"),
        ("model: lenet\ndata: digits\nbugdet: 3\n", "unknown key 'bugdet'; did you mean 'budget'"),
        ("model: lenet\ndata: digits\nbudget: {}\n", "give either minutes or scale"),
        ("model: lenet\ndata: digits\nbudget: {minutes: 2, scale: small}\n", "either minutes or"),
        ("model: lenet\ndata: digits\nattacker: {kind: evil}\n", "attacker.kind = 'evil'"),
        ("model: lenet\ndata: digits\nvary: {rounds: []}\n", "vary.rounds = []"),
        ("model: lenet\ndata: [digits]\n", "give the name of a dataset, a folder of images"),
        ("- lenet\n", "the deployment must be a mapping"),
    ],
)
def test_faults_are_named_with_file_and_key(tmp_path: Path, content: str, fault: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(content)
    with pytest.raises(SpecError) as error:
        read_deployment(file)
    assert str(error.value).startswith(str(file))
    assert fault in str(error.value)


def test_a_missing_file_is_named_with_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="gleak assess --init"):
        read_deployment(tmp_path / "none.yaml")
