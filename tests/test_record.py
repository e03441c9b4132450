"""The recorder keeps what it had, goes on from there, and never leaves half a file."""

import json
import subprocess

import numpy as np
import pytest

from whyattention import record


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "EXPERIMENTS", {})
    monkeypatch.setattr(record, "device_name", lambda: "Acme X-1, 2 cores")
    return tmp_path


def test_a_result_is_written_with_its_circumstances(folder):
    record.EXPERIMENTS["double"] = lambda scale, save, previous: {"scale": scale, "values": [1, 2]}
    path = record.record("double", "quick", folder)
    assert path == folder / "acme-x-1-2-cores.json" and [path] == list(folder.iterdir())
    entry = json.loads(path.read_text())["experiments"]["double"]
    assert {"date", "commit", "versions", "scale", "result"} == set(entry)
    assert {"whyattention", "jax", "jaxlib", "flax", "numpy", "python"} == set(entry["versions"])
    (recording,) = record.load("double", folder)
    assert recording.device == "Acme X-1, 2 cores" and recording.result == {"scale": "quick", "values": [1, 2]}


def test_recordings_of_other_experiments_and_devices_stay(folder, monkeypatch):
    record.EXPERIMENTS.update(one=lambda *_: {"n": 1}, two=lambda *_: {"n": 2})
    for device in ("Zeta", "Acme"):
        monkeypatch.setattr(record, "device_name", lambda device=device: device)
        for name in ("one", "two"):
            record.record(name, "quick", folder)
    assert [(found.device, found.result["n"]) for found in record.load("two", folder)] == [("Acme", 2), ("Zeta", 2)]


def counting(stop_at):
    """Counts to four, saving each number; the power goes off when it gets to `stop_at`."""

    def experiment(scale, save, previous):
        done = list(previous.get("done", []))
        for number in range(len(done), 4):
            if number == stop_at:
                raise KeyboardInterrupt
            done.append(number)
            save({"done": done})
        return {"done": done, "began_with": previous}

    return experiment


def test_an_interrupted_recording_keeps_what_it_had_and_goes_on(folder):
    record.EXPERIMENTS["count"] = counting(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        record.record("count", "quick", folder)
    assert record.load("count", folder) == []
    record.EXPERIMENTS["count"] = counting(stop_at=None)
    record.record("count", "quick", folder)
    assert record.load("count", folder)[0].result == {"done": [0, 1, 2, 3], "began_with": {"done": [0, 1]}}


@pytest.mark.parametrize("change", ["scale", "commit"])
def test_what_began_otherwise_is_begun_anew(folder, monkeypatch, change):
    record.EXPERIMENTS["count"] = counting(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        record.record("count", "quick", folder)
    if change == "commit":
        monkeypatch.setattr(record, "_commit", lambda: "another")
    record.EXPERIMENTS["count"] = counting(stop_at=None)
    record.record("count", "full" if change == "scale" else "quick", folder)
    assert record.load("count", folder)[0].result["began_with"] == {}


def test_an_interrupted_repetition_keeps_the_finished_result(folder):
    record.EXPERIMENTS["count"] = counting(stop_at=None)
    record.record("count", "full", folder)
    record.EXPERIMENTS["count"] = counting(stop_at=2)
    with pytest.raises(KeyboardInterrupt):
        record.record("count", "quick", folder)
    (recording,) = record.load("count", folder)
    assert recording.scale == "full" and recording.result["done"] == [0, 1, 2, 3]


@pytest.mark.parametrize("wrong", [{1, 2}, float("nan")])
def test_what_is_no_json_leaves_the_old_file(folder, wrong):
    record.EXPERIMENTS["one"] = lambda *_: {"n": np.float32(1)}
    path = record.record("one", "quick", folder)
    before = path.read_text()
    record.EXPERIMENTS["one"] = lambda *_: {"n": wrong}
    with pytest.raises((TypeError, ValueError)):
        record.record("one", "quick", folder)
    assert path.read_text() == before


def test_a_write_that_breaks_off_leaves_the_old_file(folder, monkeypatch):
    record.EXPERIMENTS["one"] = lambda *_: {"n": 1}
    path = record.record("one", "quick", folder)
    before = path.read_text()

    def breaks_off(part, target):
        raise OSError("the power is off")

    monkeypatch.setattr(record.Path, "replace", breaks_off)
    with pytest.raises(OSError, match="power"):
        record.record("one", "quick", folder)
    assert path.read_text() == before


def test_a_folder_that_cannot_be_written_is_found_out_first(folder):
    ran = []
    record.EXPERIMENTS["one"] = lambda *_: ran.append(1) or {}
    (folder / "file").touch()
    with pytest.raises(OSError):
        record.record("one", "quick", folder / "file")
    assert not ran


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"device": "x"'])
def test_a_broken_file_is_named(folder, text):
    record.EXPERIMENTS["one"] = lambda *_: {}
    (folder / "broken.json").write_text(text)
    with pytest.raises(ValueError, match=r"broken.json is not a file of recordings"):
        record.load("one", folder)


def test_a_package_in_another_projects_repository_has_no_commit(tmp_path, monkeypatch):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "record.py").touch()
    monkeypatch.setattr(record, "__file__", str(tmp_path / "record.py"))
    assert record._commit() is None


def test_unknown_names_are_named(folder):
    record.EXPERIMENTS["one"] = lambda *_: {}
    with pytest.raises(ValueError, match="one of one; got 'two'"):
        record.load("two", folder)
    with pytest.raises(ValueError, match="one of one; got 'two'"):
        record.record("two", "quick", folder)
    with pytest.raises(ValueError, match="quick, full; got 'huge'"):
        record.record("one", "huge", folder)


def test_the_command_line_runs_what_it_is_told(folder, monkeypatch, capsys):
    ran = []
    record.EXPERIMENTS.update(one=lambda *_: {}, two=lambda *_: {})
    monkeypatch.setattr(record, "record", lambda name, scale: ran.append((name, scale)))
    record.main(["--only", "two", "--scale", "full"])
    record.main([])
    assert ran == [("two", "full"), ("one", "quick"), ("two", "quick")]
    with pytest.raises(SystemExit):
        record.main(["--only", "three"])
    assert "invalid choice: 'three'" in capsys.readouterr().err


def test_the_real_device_has_a_name():
    assert record.device_name()
