# One tracker of a training run. axtrain starts it with a socket as descriptor 3 and sends lines of
# JSON: first {"tracker": NAME, "settings": {...}}; when training begins, {"begin": {...}}; then the
# records of metrics.jsonl; at a clean end, {"end": BOOL}. It answers {"ready": true} or
# {"missing": ..., "remedy": ...}; later {"run": {"id": ..., "url": ...}} or {"failed": ...}.
import importlib
import json
import os
import re
import sys

sys.path[:] = [p for p in sys.path if p]  # it may contain a folder with the tracker's name
SOCKET = 3
REFUSED = re.compile(r"\b40[13]\b|no api key|verification failed|invalid|unauthorized|forbidden", re.I)
# Names that are not those of metrics.jsonl after train/ or eval/, and keys that are not sent.
NAMES = {"epoch": "train/epoch", "eval_accuracy": "eval/mean_token_accuracy", "eval_seconds": "eval/runtime"}
KEPT_HERE = {"step", "tokens", "trained_tokens", "seconds", "memory_bytes", "peak_memory_bytes", "waits", "eval_rows",
             "eval_tokens", "eval_trained_tokens"}


class Missing(Exception):
    """(what is missing, the command that helps)"""


def say(**message):
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(SOCKET, data):]


def whole_lines(stream):
    """Up to the end of axtrain. It may be killed in the middle of a line, or before it has read what we
    said: then the connection is reset."""
    try:
        for line in stream:
            if line.endswith(b"\n"):
                yield line
    except ConnectionError:
        pass


def full_name(key, names):
    return names.get(key) or (f"eval/{key[5:]}" if key.startswith("eval_") else f"train/{key}")


def numbers(record):
    names = NAMES
    if record.get("eval_loss") is not None and record.get("eval_perplexity") is None:
        names = {**NAMES, "eval_accuracy": "eval/accuracy"}  # of pairs, not of tokens
    out = {full_name(k, names): v for k, v in record.items() if k not in KEPT_HERE and type(v) in (int, float)}
    if record.get("memory_bytes"):
        out["train/memory_gib"] = record["memory_bytes"] / 2**30
    return out


def flat(value, name=""):
    if isinstance(value, dict) and value:
        for k, v in value.items():
            yield from flat(v, f"{name}.{k}" if name else k)
    else:
        yield name, value


def load(name, *functions):
    module = importlib.import_module(name)
    for f in functions:
        if not hasattr(module, f):  # a folder with this name is imported as an empty module
            raise ImportError(f"{name} has no {f}")
    return module


def options(settings, *names):
    return {n: settings[n] for n in names if settings.get(n) is not None}


def attribute(x, name):
    try:
        return getattr(x, name)
    except Exception:  # some are properties that raise without a server
        return None


def log_in(name, login, remedy):
    """No key, or one that the server refuses, is missing. A server that cannot be reached is not: the
    run will say so if that is still so later."""
    try:
        if login():
            return
        why = "no API key"
    except (Exception, SystemExit) as e:
        why = f"{type(e).__name__}: {e}"[:300]
        kind = type(e).__name__ in ("UsageError", "KeyFileError", "EOFError", "ValidationError")
        if not kind and not REFUSED.search(str(e)):
            return
    raise Missing(f"{name} does not know you ({why})", remedy)


class Wandb:
    install = "pip install wandb"
    modes = {"dryrun": "offline", "run": "online"}

    def check(self, s):
        self.wandb = wandb = load("wandb", "init", "login")
        mode = s.get("mode") or os.environ.get("WANDB_MODE") or "online"
        self.mode = self.modes.get(mode, mode)
        if self.mode not in ("online", "shared"):
            return
        log_in("Weights & Biases", lambda: wandb.login(verify=True),
               "run `wandb login`, set WANDB_API_KEY, or write wandb_mode: offline")

    def begin(self, s, b):
        run = self.wandb.init(config=b["config"], mode=self.mode, id=b["id"] or s.get("run_id"),
                              resume="allow", **options(s, "project", "entity", "name"))
        run.define_metric("train/global_step")
        run.define_metric("*", step_metric="train/global_step", step_sync=True)
        self.run = run
        return run.id, attribute(run, "url")

    def log(self, values, step):
        self.run.log({**values, "train/global_step": step})

    def upload(self, files, name):
        artifact = self.wandb.Artifact(f"{name}-{self.run.id}", type="model")
        for path, inside in files:
            artifact.add_file(path, name=inside)
        self.run.log_artifact(artifact)

    def finish(self, ok):
        self.run.finish(exit_code=0 if ok else 1)


class Mlflow:
    install = "pip install mlflow"

    def check(self, s):
        self.mlflow = load("mlflow", "start_run", "log_metrics")

    def begin(self, s, b):
        if s.get("uri"):
            self.mlflow.set_tracking_uri(s["uri"])
        if s.get("experiment"):
            self.mlflow.set_experiment(s["experiment"])
        if b["id"]:
            run = self.mlflow.start_run(run_id=b["id"])
        else:
            run = self.mlflow.start_run(run_name=s.get("name"))
            params = [(k, str(v)[:500]) for k, v in flat(b["config"]) if v is not None]
            for i in range(0, len(params), 100):  # at most 100 per request
                self.mlflow.log_params(dict(params[i:i + 100]))
        return run.info.run_id, None

    @staticmethod
    def allowed(name):
        """MLflow takes only some characters and normal paths; rewards are named by expressions and paths, too."""
        return os.path.normpath(re.sub(r"[^/\w.\- :]", lambda c: f"_{ord(c[0]):x}_", name))

    def log(self, values, step):
        self.mlflow.log_metrics({self.allowed(k): v for k, v in values.items()}, step=step)

    def upload(self, files, name):
        for path, inside in files:
            self.mlflow.log_artifact(path, os.path.dirname(f"{name}/{inside}"))

    def finish(self, ok):
        self.mlflow.end_run("FINISHED" if ok else "FAILED")


class Trackio:
    install = "pip install trackio"

    def check(self, s):
        self.trackio = load("trackio", "init", "log")
        if s.get("space_id"):
            import huggingface_hub
            if not huggingface_hub.get_token():
                raise Missing("trackio_space_id needs a token of the hub",
                              "run `hf auth login`, or set HF_TOKEN")

    def begin(self, s, b):
        name = b["id"] or s.get("name") or b["name"]
        self.trackio.init(project=s.get("project") or "huggingface", name=name, resume="allow",
                          config=b["config"], **options(s, "space_id"))
        return name, None

    def log(self, values, step):
        self.trackio.log(values, step=step)

    def finish(self, ok):
        self.trackio.finish()


class Comet:
    install = "pip install comet_ml"

    def check(self, s):
        self.comet = load("comet_ml", "start", "ExperimentConfig")
        known = s.get("api_key") or self.comet.config.get_config()["comet.api_key"]
        if s.get("online") is not False and not known:
            raise Missing("Comet does not know you",
                          "run `comet login`, set COMET_API_KEY, or write comet_online: false")

    def begin(self, s, b):
        more = options(s, "api_key", "workspace", "project_name", "mode", "online")
        key = b["id"] or s.get("experiment_key")
        if key:
            more["experiment_key"] = key
        if b["id"]:
            more["mode"] = "get_or_create"
        config = self.comet.ExperimentConfig(**(s.get("experiment_config") or {}))
        self.run = self.comet.start(experiment_config=config, **more)
        if not b["id"]:
            self.run.log_parameters(b["config"])
        return self.run.get_key(), attribute(self.run, "url")

    def log(self, values, step):
        self.run.log_metrics(values, step=step, epoch=values.get("train/epoch"))

    def finish(self, ok):
        self.run.end()


class Swanlab:
    install = "pip install swanlab"

    def check(self, s):
        self.swanlab = swanlab = load("swanlab", "init", "log")
        self.mode = s.get("mode") or os.environ.get("SWANLAB_MODE") or "cloud"
        if self.mode != "cloud":
            return
        log_in("SwanLab", lambda: swanlab.login(save=False, **options(s, "api_key")),
               "run `swanlab login`, set SWANLAB_API_KEY, or write swanlab_mode: offline")

    def begin(self, s, b):
        more = options(s, "project", "workspace", "experiment_name", "description")
        if self.mode == "cloud" and b["id"]:
            more.update(id=b["id"], resume="allow")
        run = self.swanlab.init(config=b["config"], mode=self.mode, **more)
        return attribute(run, "id"), attribute(run, "url")

    def log(self, values, step):
        self.swanlab.log(values, step=step)

    def finish(self, ok):
        self.swanlab.finish(**({} if ok else {"error": "the run ended early"}))


KINDS = {"wandb": Wandb, "mlflow": Mlflow, "trackio": Trackio, "comet": Comet, "swanlab": Swanlab}


def files(folder, deep):
    """(path, path inside the folder) of each file; with `deep` also those in subfolders."""
    for root, folders, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(root, name)
            if not name.startswith((".", "tracker")):
                yield path, os.path.relpath(path, folder)
        if not deep:
            return


def upload(tracker, when, record, output_dir):
    event = record.get("event")
    if event == "saved" and when == "checkpoint":
        tracker.upload(files(record["text"], True), os.path.basename(record["text"]))
    elif event == "finished" and when in ("checkpoint", "end"):
        tracker.upload(files(output_dir, False), "model")


def follow(tracker, settings, lines):
    begin = None
    for line in lines:
        record = json.loads(line)
        if "begin" in record:
            begin = record["begin"]
            log = os.open(begin["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            run, url = tracker.begin(settings, begin)
            say(run={"id": run, "url": url})
        elif "end" in record:
            if begin:
                tracker.finish(record["end"])
            return
        else:
            if "event" not in record:
                tracker.log(numbers(record), record["step"])
            upload(tracker, settings.get("log_model"), record, begin["output_dir"])
    if begin:  # axtrain was killed
        tracker.finish(False)


def main(lines):
    first = json.loads(next(lines))
    settings, tracker = first["settings"], KINDS[first["tracker"]]()
    try:
        tracker.check(settings)
    except Missing as e:
        return say(missing=e.args[0], remedy=e.args[1])
    except ImportError as e:
        return say(missing=f"its Python package does not load ({e})", remedy=tracker.install)
    say(ready=True)
    try:
        follow(tracker, settings, lines)
    except Exception as e:
        say(failed=f"{type(e).__name__}: {e}"[:500])
        raise


main(whole_lines(stream))  # noqa: F821, what follows this script
