"""A run with the real package of each tracker, without a server, and what the package stored.

    check_trackers.py AXTRAIN MODELS [NAME…]

AXTRAIN_PYTHON (or this Python) has the packages; one that is absent is skipped with a line. Each
tracker logs two steps and an evaluation; the run resumes for two more; then the store is read back:
one run, four steps, the losses of metrics.jsonl. Exit 77: no package is there."""
import glob
import importlib.metadata
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import zipfile

CHAT = '{"messages": [{"role": "user", "content": "say %d"}, {"role": "assistant", "content": "no, no"}]}\n'


def train(axtrain, models, where, keys, more=()):
    with open(os.path.join(where, "rows.jsonl"), "w") as f:
        f.writelines(CHAT % i for i in range(8))
    config = {
        "base_model": os.path.join(models, "llama"), "output_dir": os.path.join(where, "out"),
        "datasets": [{"path": os.path.join(where, "rows.jsonl"), "type": "chat_template"}],
        "chat_template": "llama3", "sequence_len": 64, "learning_rate": 1e-3, "micro_batch_size": 2,
        "gradient_accumulation_steps": 1, "num_epochs": 9, "max_steps": 2, "save_steps": 2,
        "val_set_size": 2, "eval_steps": 2, **keys}
    path = os.path.join(where, "c.yaml")
    with open(path, "w") as f:
        json.dump(config, f)  # YAML, too
    env = {**os.environ, "AXTRAIN_PYTHON": os.environ.get("AXTRAIN_PYTHON", sys.executable),
           "HF_HUB_OFFLINE": "1", "HF_HOME": os.path.join(where, "hf")}
    p = subprocess.run([axtrain, "sft", path, *more], cwd=where, env=env, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    bad = [line for line in p.stdout.splitlines() if line.startswith("warn ")]
    assert p.returncode == 0 and not bad, p.stdout


def losses(where):
    with open(os.path.join(where, "out", "metrics.jsonl")) as f:
        records = [json.loads(line) for line in f]
    return {r["step"]: r["loss"] for r in records if "loss" in r}


def same(got, want):
    assert set(got) == set(want), (got, want)
    for step, loss in want.items():
        assert abs(got[step] - loss) <= 1e-6 * abs(loss), (step, got[step], loss)


def run_id(where, name):
    with open(os.path.join(where, "out", "trackers.json")) as f:
        return json.load(f)[name]["id"]


def leveldb_records(path):
    """W&B's file is a LevelDB log with 7 bytes in front: chunks of a checksum, a length, a type (1 a
    whole record; 2, 3, 4 its first, middle, last part), in blocks of 32 KiB."""
    with open(path, "rb") as f:
        log = f.read()
    at, record = 7, b""
    while at + 7 <= len(log):
        if 32768 - at % 32768 < 7:  # no chunk begins there
            at += 32768 - at % 32768
            continue
        n, kind = int.from_bytes(log[at + 4:at + 6], "little"), log[at + 6]
        record = log[at + 7:at + 7 + n] if kind in (1, 2) else record + log[at + 7:at + 7 + n]
        at += 7 + n
        if kind in (1, 4):
            yield record


def wandb(where):
    """Two offline folders of one run ID: `wandb sync` joins them."""
    from wandb.proto import wandb_internal_pb2
    got, ids = {}, set()
    for path in glob.glob(os.path.join(where, "wandb", "offline-run-*", "*.wandb")):
        for data in leveldb_records(path):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
            if record.WhichOneof("record_type") == "history":
                items = {i.key or ".".join(i.nested_key): json.loads(i.value_json)
                         for i in record.history.item}
                if "train/loss" in items:
                    got[items["train/global_step"]] = items["train/loss"]
    assert ids == {run_id(where, "wandb")}, ids
    return got


def mlflow(where):
    import mlflow
    client = mlflow.MlflowClient(f"sqlite:///{where}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("e").experiment_id])
    assert len(runs) == 1 and runs[0].info.status == "FINISHED", runs
    assert runs[0].data.params["learning_rate"] == "0.001", runs[0].data.params
    return {m.step: m.value for m in client.get_metric_history(runs[0].info.run_id, "train/loss")}


def trackio(where):
    got = {}
    files = glob.glob(os.path.join(where, "hf", "trackio", "*.db"))
    assert len(files) == 1, files
    with sqlite3.connect(files[0]) as db:
        for run, step, metrics in db.execute("SELECT run_name, step, metrics FROM metrics"):
            assert run == run_id(where, "trackio")
            loss = json.loads(metrics).get("train/loss")
            if loss is not None:
                got[step] = loss
    return got


def comet(where):
    """Two archives of one experiment: `comet upload` joins them."""
    got, keys = {}, set()
    for path in glob.glob(os.path.join(where, ".cometml-runs", "*.zip")):
        with zipfile.ZipFile(path) as z:
            keys.add(json.loads(z.read("experiment.json"))["offline_id"])
            for line in z.read("messages.json").decode().splitlines():
                m = json.loads(line)
                payload = m.get("payload", {}).get("metric") or {}
                if payload.get("metricName") == "train/loss":
                    got[m["payload"]["metric"]["step"]] = float(payload["metricValue"])
    assert keys == {run_id(where, "comet")}, (keys, run_id(where, "comet"))
    return got


def swanlab(where):
    """Offline folders of its own format; only their presence is checked here."""
    folders = glob.glob(os.path.join(where, "swanlog", "run-*"))
    assert len(folders) == 2, folders
    return None


TRACKERS = {
    "wandb": ("wandb", {"wandb_project": "p", "wandb_mode": "offline"}, wandb),
    "mlflow": ("mlflow", {"mlflow_experiment_name": "e",
                          "mlflow_tracking_uri": "sqlite:///mlflow.db"}, mlflow),
    "trackio": ("trackio", {"trackio_project_name": "t"}, trackio),
    "comet": ("comet_ml", {"use_comet": True, "comet_online": False}, comet),
    "swanlab": ("swanlab", {"swanlab_project": "s", "swanlab_mode": "offline"}, swanlab),
}


def main():
    axtrain, models, chosen = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    checked = failed = 0
    for name, (package, keys, read) in TRACKERS.items():
        if chosen and name not in chosen:
            continue
        if importlib.util.find_spec(package) is None:
            print(f"{name}: skipped, this Python has no {package}")
            continue
        with tempfile.TemporaryDirectory() as where:
            try:
                train(axtrain, models, where, keys)
                train(axtrain, models, where, keys, ["resume_from_checkpoint=auto", "max_steps=4"])
                got = read(where)
                if got is not None:
                    same(got, losses(where))
                print(f"{name} {importlib.metadata.version(package)}: passed"
                      f"{'' if got is not None else ' (not read back)'}")
                checked += 1
            except Exception as e:
                failed += 1
                print(f"{name} {importlib.metadata.version(package)}: FAILED: {e!r}")
                for log in glob.glob(os.path.join(where, "out", "tracker-*.log")):
                    print(open(log).read()[-3000:])
    print(f"{checked} trackers passed, {failed} failed")
    sys.exit(1 if failed else 0 if checked else 77)


main()
