"""Runs the experiments whose results depend on the device, and writes them down: `python -m whyattention.record`.

One JSON file per device kind lies in `recordings/`, with the versions, the date and the commit beside each result.
An experiment saves what it has as it goes: an interrupted recording keeps it, and the next run goes on from there.
What is unfinished lies beside what is finished, and takes its place only when it is finished itself.
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from whyattention.language_model import RecurrentLanguageModel
from whyattention.measure import attention_cost, real_text, scaling
from whyattention.measure import length_curve as curve
from whyattention.measure import scoreboard as board
from whyattention.measure.context import loss_by_context, loss_with_far_context_changed
from whyattention.measure.trainability import contestants, matched_language_models, updates_by_difficulty
from whyattention.recurrent import TanhCell
from whyattention.scale import SCALES, check_scale
from whyattention.seq2seq import matched_translators
from whyattention.tasks.corpora import ALPHABET, cache_directory, shakespeare_split
from whyattention.tasks.parallel_text import bible
from whyattention.tasks.recall import AssociativeRecall, DelayedRecall
from whyattention.tasks.text import Characters, NextCharacter, bits_per_character
from whyattention.training import fit, parameter_count

RECORDINGS = Path(__file__).parent / "recordings"

Result = dict
# Called with the scale, a function that saves an unfinished result, and what such a save left behind ({} at first).
Experiment = Callable[[str, Callable[[Result], None], Result], Result]


def language_model(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 1's language model, wider and trained longer than a reader wants to wait: bits per character, by seed."""
    hidden_size, updates, seeds = {"quick": (256, 3000, 3), "full": (512, 20_000, 5)}[scale]
    characters = Characters(ALPHABET)
    text, held_out = shakespeare_split()
    task = NextCharacter(jnp.asarray(text))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(3e-3, updates)))
    result = {"hidden_size": hidden_size, "evaluated_at": [], "bits": [], **previous}
    for seed in range(len(result["bits"]), seeds):
        rngs = nnx.Rngs(seed)
        _, history = fit(
            RecurrentLanguageModel(characters.size, TanhCell(64, hidden_size, rngs=rngs), rngs=rngs),
            task,
            steps=updates,
            optimizer=optimizer,
            key=jax.random.key(seed),
            chunk=updates // 20,
            evaluate=lambda model: {"bits": bits_per_character(model, held_out)},
        )
        result["evaluated_at"] = history.evaluated_at.tolist()
        result["bits"].append(history.evaluations["bits"].tolist())
        save(result)
    return result


def layer_times(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 2: an LSTM and an attention layer, forward and backward, over batch, width and length."""
    table = {"batch": [], "width": [], "length": [], **previous}
    done = set(zip(table["batch"], table["width"], table["length"], strict=True))
    for size in scaling.LAYER_SIZES[scale]:
        if size not in done:
            for name, column in scaling.layer_times([size]).items():
                table.setdefault(name, []).extend(column)
            save(table)
    return table


def utilisation(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 2: the share of peak that a scan reaches. Shares are of one run, so an unfinished one is begun again."""
    return scaling.utilisation(scaling.UTILISATION_SIZES[scale], peak_side={"quick": 2048, "full": 8192}[scale])


def chain_against_product(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 2: dependent products against one product of the same work, by batch."""
    lengths = scaling.PRODUCT_LENGTHS[scale]
    return {str(batch): scaling.chain_against_product(lengths, batch=batch, width=256) for batch in (1, 16)}


def context_use(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 4's language models, trained for longer: loss in nats on the same characters by what they are shown.

    For each model, seeds first: "cut" [seeds, contexts], with as many characters before the target as `contexts` says;
    "shuffled" and "replaced" [seeds, near], with `window` characters of which the last `near` are as they were.
    """
    features, updates, batch_size, window, targets, seeds = {
        "quick": (64, 3600, 16, 100, 1024, 3),
        "full": (256, 20_000, 64, 400, 16_384, 5),
    }[scale]
    contexts, near = (1, 2, 5, 10, 20, 50, 100, 200, 400), (1, 2, 5, 10, 20, 50)
    text, held_out = map(jnp.asarray, shakespeare_split())
    task = NextCharacter(text, length=window, batch_size=batch_size)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(5e-3, updates)))
    makers = matched_language_models(Characters(ALPHABET).size, features)
    positions = jax.random.randint(jax.random.key(0), (targets,), max(contexts), len(held_out))
    settings = {"window": window, "updates": updates, "contexts": contexts, "near": near}
    models = previous.get("models") or {name: {"cut": [], "shuffled": [], "replaced": []} for name in makers}
    for seed, (name, make) in itertools.product(range(seeds), makers.items()):
        found = models[name]
        if len(found["cut"]) > seed:
            continue
        model, _ = fit(make(nnx.Rngs(seed)), task, steps=updates, optimizer=optimizer, key=jax.random.key(seed))
        found["parameters"] = parameter_count(model)
        for change in ("shuffled", "replaced"):
            losses = loss_with_far_context_changed(
                model, held_out, positions, near, context=window, change=change, key=jax.random.key(1000 + seed)
            )
            found[change].append(losses.mean(axis=1).tolist())
        found["cut"].append(loss_by_context(model, held_out, positions, contexts).mean(axis=1).tolist())
        save({**settings, "models": models})
    return {**settings, "models": models}


def trainability(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 4's delayed recall: updates until solved [lags, seeds] by model, null where the budget was not enough."""
    lags, updates, seeds, features = {
        "quick": ((10, 20, 50, 100, 200), 500, 5, 32),
        "full": ((10, 20, 50, 100, 200, 500), 2000, 10, 96),
    }[scale]
    tasks = [DelayedRecall(lag) for lag in lags]
    makers = contestants(tasks[0].vocabulary_size, features)
    result = {"lags": lags, "updates": updates, "solved_after": {}, **previous}
    for name, make in makers.items():
        if name not in result["solved_after"]:
            found = updates_by_difficulty(make, tasks, seeds=seeds, updates=updates, key=jax.random.key(0))
            result["solved_after"][name] = np.where(np.isfinite(found), found, None).tolist()
            save(result)
    return result


def length_curve(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 6: quality of the small language's translators by the length of the source, and by that trained on.

    "runs" is a list of {"trained_to", "model", "seed", "parameters", "loss", "quality", "alignment"}: the longest
    source in training, in words; loss the mean of the last 100 updates, in nats per token; quality and alignment by
    bucket, as `measure.length_curve` has them.
    """
    hidden_size, embed_features, batch_size, updates, seeds, longest = {
        "quick": (128, 64, 32, 8000, 3, (30, 15)),
        "full": (256, 128, 64, 10_000, 5, (50, 30, 15)),
    }[scale]
    per_bucket, pairs = {"quick": (100, 50_000), "full": (500, 500_000)}[scale]
    test = curve.unseen_sentences(per_bucket, seed=0)
    makers = matched_translators(curve.SOURCE.size, curve.TARGET.size, hidden_size, embed_features=embed_features)
    settings = {"hidden_size": hidden_size, "batch_size": batch_size, "updates": updates, "edges": curve.EDGES}
    runs = previous.get("runs", [])
    done = {(run["trained_to"], run["model"], run["seed"]) for run in runs}
    for trained_to in longest:
        task = curve.training_task(trained_to, pairs=pairs, batch_size=batch_size, seed=1)
        for seed, (name, make) in itertools.product(range(seeds), makers.items()):
            if (trained_to, name, seed) in done:
                continue
            model, history = fit(
                make(nnx.Rngs(seed)), task, steps=updates, optimizer=curve.schedule(updates), key=jax.random.key(seed)
            )
            found = {"trained_to": trained_to, "model": name, "seed": seed, "parameters": parameter_count(model)}
            found["loss"] = float(history.loss[-100:].mean())
            found["quality"] = _without_nan(curve.quality(model, test))
            if name == "attention":
                found["alignment"] = _without_nan(curve.alignment_by_length(model, test))
            runs.append(found)
            save({**settings, "runs": runs})
    return {**settings, "runs": runs}


def translation(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 6's translators of real text, the Bible in French: BLEU by the length of the source.

    "runs" is a list of {"model", "seed", "parameters", "loss", "bleu", "signature", "quality", "samples"}; see
    `measure.real_text.evaluate`. A training that is interrupted goes on from a checkpoint in the cache directory.
    """
    hidden_size, embed_features, tokens, updates, seeds = {
        "quick": (256, 128, 1024, 3600, 2),
        "full": (512, 512, 8192, 30_000, 3),
    }[scale]
    corpus = real_text.prepare(bible(), vocabulary_size={"quick": 4000, "full": 8000}[scale])
    task = real_text.training_mixture(corpus, tokens=tokens)
    makers = matched_translators(corpus.source.size, corpus.target.size, hidden_size, embed_features=embed_features)
    settings = {"hidden_size": hidden_size, "tokens": tokens, "updates": updates}
    runs = previous.get("runs", [])
    done = {(run["model"], run["seed"]) for run in runs}
    for seed, (name, make) in itertools.product(range(seeds), makers.items()):
        if (name, seed) in done:
            continue
        checkpoint = cache_directory() / f"translation-{scale}-{updates}-{name.replace(' ', '-')}-{seed}.npz"
        model, history = fit(
            make(nnx.Rngs(seed)),
            task,
            steps=updates,
            optimizer=real_text.schedule(updates),
            key=jax.random.key(seed),
            chunk=10,
            checkpoint=checkpoint,
            save_every=200,
        )
        found = {"model": name, "seed": seed, "parameters": parameter_count(model)}
        found["loss"] = float(history.loss[-100:].mean())
        found |= real_text.evaluate(model, corpus, samples=range(0, len(corpus.test), len(corpus.test) // 12))
        found["quality"] = _without_nan(found["quality"])
        runs.append(found)
        save({**settings, "runs": runs})
        checkpoint.unlink()
    return {**settings, "runs": runs}


def training_step(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 9: a training step of an LSTM layer and of a Transformer layer, full and blockwise."""
    table = {"batch": [], "width": [], "length": [], **previous}
    done = set(zip(table["batch"], table["width"], table["length"], strict=True))
    for size in attention_cost.STEP_SIZES[scale]:
        if size not in done:
            for name, column in attention_cost.step_times([size]).items():
                table.setdefault(name, []).extend(column)
            save(table)
    return table


def scoreboard(scale: str, save: Callable[[Result], None], previous: Result) -> Result:
    """Chapter 12: every language model of the book at as good as the same number of parameters, on three tasks.

    "models" has for each {"solved_after", "accuracy", "bits"}: updates until delayed recall is solved [lags, seeds],
    null where the budget was not enough; the share of associative recall answered rightly at the end [pairs, seeds],
    where `pairs` lists (pairs, symbols); bits per character on held-out Shakespeare [seeds].
    """
    features, seeds, batch_size, lags, pairs = {
        "quick": (32, 3, 16, (10, 30, 100), ((2, 4), (4, 8))),
        "full": (128, 5, 64, (10, 30, 100, 300, 1000), ((4, 16), (16, 64), (64, 256))),
    }[scale]
    updates = {
        "quick": {"lag": 400, "pairs": 1000, "text": 1000},
        "full": {"lag": 2000, "pairs": 10_000, "text": 20_000},
    }[scale]
    text, held_out = map(jnp.asarray, shakespeare_split())
    delayed = [DelayedRecall(lag, batch_size=batch_size) for lag in lags]
    associative = [AssociativeRecall(count, symbols, queries=count, batch_size=batch_size) for count, symbols in pairs]
    characters = NextCharacter(text, length={"quick": 64, "full": 256}[scale], batch_size=batch_size)

    def solved_after(name):
        make = board.contestants(delayed[0].vocabulary_size, features)[name]
        found = updates_by_difficulty(make, delayed, seeds=seeds, updates=updates["lag"], key=jax.random.key(0))
        return np.where(np.isfinite(found), found, None)

    def accuracy(name):
        options = {"seeds": seeds, "updates": updates["pairs"], "key": jax.random.key(0)}
        makers = [board.contestants(task.vocabulary_size, features)[name] for task in associative]
        return [board.accuracy_after(make, task, **options) for make, task in zip(makers, associative, strict=True)]

    def bits(name):
        make = board.contestants(Characters(ALPHABET).size, features)[name]
        options = {"seeds": seeds, "updates": updates["text"], "key": jax.random.key(0)}
        return board.bits_after(make, characters, held_out, **options)

    parts = {"solved_after": solved_after, "accuracy": accuracy, "bits": bits}
    settings = {"features": features, "batch_size": batch_size, "lags": lags, "pairs": pairs, "updates": updates}
    models = previous.get("models") or {name: {} for name in board.contestants(2, features)}
    for (part, run), name in itertools.product(parts.items(), models):
        if part not in models[name]:
            models[name][part] = np.asarray(run(name)).tolist()
            save({**settings, "models": models})
    return {**settings, "models": models}


def _without_nan(columns: dict[str, np.ndarray]) -> Result:
    return {name: np.where(np.isnan(column), None, column).tolist() for name, column in columns.items()}


EXPERIMENTS: dict[str, Experiment] = {
    "chain_against_product": chain_against_product,
    "context_use": context_use,
    "language_model": language_model,
    "layer_times": layer_times,
    "length_curve": length_curve,
    "scoreboard": scoreboard,
    "trainability": trainability,
    "training_step": training_step,
    "translation": translation,
    "utilisation": utilisation,
}


@dataclass(frozen=True)
class Recording:
    """One experiment's finished result on one device."""

    device: str
    scale: str
    date: str
    versions: dict[str, str]
    result: Result


def device_name() -> str:
    """The device that JAX runs on, as a reader would name it: the accelerator, or the CPU's model and its cores."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return f"{jax.device_count()} x {device.device_kind}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_cpu_model()}, {cores} cores"


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def path_for(device: str, folder: Path = RECORDINGS) -> Path:
    """Where the recordings of a device lie."""
    return folder / (re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".json")


def load(experiment: str, folder: Path = RECORDINGS) -> list[Recording]:
    """The finished recordings of an experiment, one per device that has one, by device name.

    Raises ValueError if no experiment has that name.
    """
    _check_experiment(experiment)
    found = []
    for path in sorted(folder.glob("*.json")):
        content = _read(path)
        entry = content["experiments"].get(experiment)
        if entry is not None:
            found.append(
                Recording(content["device"], entry["scale"], entry["date"], entry["versions"], entry["result"])
            )
    return sorted(found, key=lambda recording: recording.device)


def record(experiment: str, scale: str, folder: Path = RECORDINGS) -> Path:
    """Runs one experiment on this device and writes its result: the path of the device's file.

    A finished result is replaced; an unfinished one of the same scale and commit is continued. Raises ValueError for
    an unknown experiment or scale, and OSError, before anything has run, if the file cannot be written.
    """
    _check_experiment(experiment)
    check_scale(scale)
    device = device_name()
    path = path_for(device, folder)
    stamp = {"scale": scale, "commit": _commit(), "versions": _versions()}

    def write(result: Result, section: str) -> None:
        content = _read(path, device)
        content["unfinished"].pop(experiment, None)
        content[section][experiment] = {**stamp, "date": datetime.date.today().isoformat(), "result": result}
        _write_whole(path, content)

    before = _read(path, device)
    _write_whole(path, before)  # better to learn now than in some hours that the folder cannot be written
    earlier = before["unfinished"].get(experiment, {})
    goes_on = bool(earlier) and all(earlier[name] == value for name, value in stamp.items())
    part = earlier["result"] if goes_on else {}
    result = EXPERIMENTS[experiment](scale, lambda part: write(part, "unfinished"), part)
    write(result, "experiments")
    return path


def _check_experiment(name: str) -> None:
    if name not in EXPERIMENTS:
        raise ValueError(f"the experiment must be one of {', '.join(sorted(EXPERIMENTS))}; got {name!r}")


def _read(path: Path, device: str = "") -> dict:
    """A device's file; one that begins, if there is none. Raises ValueError if it is not a file of recordings."""
    if not path.exists():
        return {"device": device, "experiments": {}, "unfinished": {}}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {"unfinished": {}, **{name: content[name] for name in ("device", "experiments")}, **content}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file of recordings ({error}); delete it, or restore it from git") from error


def _write_whole(path: Path, content: dict) -> None:
    """Either the old file stays or the new one is there, never half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, allow_nan=False, default=_plain) + "\n"
    with tempfile.TemporaryDirectory(
        dir=path.parent, prefix="."
    ) as folder:  # on the same disk, so that a move is whole
        part = Path(folder) / path.name
        part.write_text(text, encoding="utf-8")
        part.replace(path)


def _plain(value):
    """NumPy's and JAX's numbers and arrays as JSON has them."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a recording holds numbers, texts, lists and dicts, got {value!r}")


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("whyattention", "jax", "jaxlib", "flax", "numpy")} | {
        "python": platform.python_version()
    }


def _commit() -> str | None:
    """The commit this package is of, marked where its files have changed since; None outside its own repository."""
    try:
        if not _git("ls-files", "--", Path(__file__).name):  # it may be installed inside another project's folder
            return None
        return _git("rev-parse", "HEAD") + ("-changed" if _git("status", "--porcelain", "--", "*.py") else "")
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m whyattention.record", description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="quick")
    parser.add_argument("--only", metavar="NAME", choices=sorted(EXPERIMENTS), help="one experiment instead of all")
    options = parser.parse_args(arguments)
    for name in [options.only] if options.only else sorted(EXPERIMENTS):
        print(f"{name} ({options.scale}) on {device_name()} ...", flush=True)
        print(f"  written to {record(name, options.scale)}", flush=True)


if __name__ == "__main__":
    main()
