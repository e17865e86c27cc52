# Runs lm-evaluation-harness for axtrain (harness.h), which starts it with this text behind its length on standard
# input, where then a line of JSON has the settings. From then on this side asks, a line each, and axtrain answers with a line:
#   {"score": [[context, continuation], ...]}  ->  {"values": [[log-likelihood, greedy], ...]}
#   {"roll": [text, ...]}                      ->  {"values": [log-likelihood, ...]}
#   {"generate": [context, ...], "until": [...], "max_tokens": 256, "temperature": 0, "top_p": 1, "top_k": 0}
#                                              ->  {"values": [text, ...]}
#   {"render": [message, ...]}  ->  {"text": ...}, through the chat template
#   {"samples": [...]}                         ->  {}, lines for --log-samples
# A long list comes in several lines; all but the last have "more": true, and get {}. The end is {"results": {...}, ...},
# or {"error": ..., "missing": true if the package is not there}, or {"tried": true} if the settings only have tasks looked up. What the harness prints goes to standard error.
import importlib.metadata
import json
import logging
import math
import os
import re
import signal
import sys
import traceback

signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the keeper blocks SIGTERM, by which pools of processes end
answers = os.dup(1)
os.dup2(2, 1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for name, value in (("TQDM_DISABLE", "1"), ("HF_DATASETS_DISABLE_PROGRESS_BARS", "1"), ("TRANSFORMERS_VERBOSITY", "error")):
    os.environ.setdefault(name, value)
sys.path.insert(0, os.getcwd())
LINES = 1024  # requests in a line


def say(message):
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(answers, data):]


def ask(message):
    say(message)
    line = stream.readline()
    if not line.endswith(b"\n"):
        os._exit(1)  # axtrain has ended
    return json.loads(line)


def ask_all(kind, items, **more):
    """All in one list: prompts that begin alike go through the model once."""
    for at in range(0, len(items), LINES):
        last = at + LINES >= len(items)
        reply = ask({kind: items[at:at + LINES], "more": not last, **more})
    return reply["values"] if items else []


def define_model():
    from lm_eval.api.model import TemplateLM
    from lm_eval.models.utils import normalize_gen_kwargs

    class Model(TemplateLM):
        """Texts go to axtrain as they are: it has the tokenizer, the template and the lengths."""
        backend = "causal"
        tokenizer = None
        tokenizer_name = "axtrain"

        @property
        def eot_token_id(self):
            raise NotImplementedError("axtrain has the tokens")

        def tok_encode(self, string, add_special_tokens=None, **kwargs):
            raise NotImplementedError("axtrain has the tokens")

        def _loglikelihood_tokens(self, requests, **kwargs):
            raise NotImplementedError("axtrain has the tokens")

        def loglikelihood(self, requests, disable_tqdm=False):
            return [tuple(v) for v in ask_all("score", [list(r.args) for r in requests])]

        def loglikelihood_rolling(self, requests, disable_tqdm=False):
            return ask_all("roll", [r.args[0] for r in requests])

        def generate_until(self, requests, disable_tqdm=False):
            groups, texts = {}, [None] * len(requests)
            for i, r in enumerate(requests):
                settings = json.dumps(generation(normalize_gen_kwargs(r.args[1], 256)), sort_keys=True)
                groups.setdefault(settings, []).append(i)
            for settings, places in groups.items():
                values = ask_all("generate", [str(requests[i].args[0]) for i in places], **json.loads(settings))
                for i, text in zip(places, values):
                    texts[i] = text
            return texts

        def apply_chat_template(self, chat_history, add_generation_prompt=True):
            return ask({"render": chat_history})["text"]

    return Model()


def generation(given):
    """The harness's keys → ours. What changes answers and is not there is an error."""
    kwargs = dict(given)
    sample, heat = kwargs.pop("do_sample"), float(kwargs.pop("temperature", 1.0) or 0)
    settings = {"until": [u for u in kwargs.pop("until") if u], "max_tokens": kwargs.pop("max_gen_toks"),
                "temperature": heat if sample else 0.0, "top_p": float(kwargs.pop("top_p", 1.0)),
                "top_k": int(kwargs.pop("top_k", 0) or 0)}
    beams = kwargs.pop("num_beams", 1)
    if beams != 1 or kwargs:
        raise ValueError(f"generation_kwargs: {next(iter(kwargs), 'num_beams')} is not supported")
    return settings


def group_of(file):
    """The name of the group that a file defines; None: it has a task."""
    with open(file, encoding="utf-8") as f:
        found = re.search(r"^group\s*:\s*[\"']?([^\s\"'#]+)", f.read(), re.M)
    return found and found[1]


def open_tasks(settings):
    """The index of tasks, and their names: a group's file is found by its name. The index of the package's own tasks takes
    seconds: it is read where a name needs it."""
    from lm_eval.tasks import TaskManager
    files = [s for s in settings["tasks"] if os.path.isfile(s)]
    groups = {f: name for f in files if (name := group_of(f))}
    folders = [settings["include_path"]] if settings["include_path"] else sorted({os.path.dirname(os.path.abspath(f)) for f in files})
    specs = [groups.get(s, s) for s in settings["tasks"]]
    manager = TaskManager(include_path=folders or None, include_defaults=False) if folders and not groups else None
    if not manager or any(s not in files and s not in manager.all_tasks for s in specs):
        manager = TaskManager(include_path=folders or None)
    return manager, specs


def number(value):
    if hasattr(value, "tolist"):  # NumPy's
        value = value.tolist()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return value if math.isfinite(value) else "N/A" if math.isnan(value) else "inf" if value > 0 else "-inf"


def plain(value):
    """A value of a record as JSON can hold it."""
    value = number(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def sample_line(task, s):
    resps, filtered = [r[0] if len(r) == 1 else r for r in s["resps"]], s["filtered_resps"]
    if len(s["resps"]) == 1 and isinstance(s["resps"][0][0], str):  # a prompt: its answers
        resps, filtered = s["resps"][0], filtered[0]
    keys = ("doc_id", "doc", "target", "arguments")
    line = {"task": task, **{k: s[k] for k in keys}, "resps": resps, "filtered_resps": filtered, "filter": s["filter"]}
    return plain({**line, **{m: s[m] for m in s["metrics"]}, "metrics": s["metrics"]})


def send_samples(samples):
    for task, lines in samples.items():
        lines = sorted(lines, key=lambda s: s["doc_id"])  # stable: filters keep their order
        for at in range(0, len(lines), LINES):
            ask({"samples": [sample_line(task, s) for s in lines[at:at + LINES]]})


def numbers(entry):
    return {k: number(v) for k, v in entry.items() if "," in k}


def report(found):
    return {"results": {k: numbers(v) for k, v in found["results"].items()},
            "groups": {k: numbers(v) for k, v in found.get("groups", {}).items()},
            "group_subtasks": {k: v for k, v in found.get("group_subtasks", {}).items() if v},
            "n-shot": {k: v or 0 for k, v in found["n-shot"].items()},
            "n-samples": {k: v["effective"] for k, v in found["n-samples"].items()},
            "higher_is_better": plain(found["higher_is_better"]),
            "lm_eval": importlib.metadata.version("lm_eval"),
            "alias": {k: str(v.get("alias", k)).lstrip(" -") for k, v in found["results"].items()}}


def run(settings):
    import lm_eval
    logging.getLogger("lm_eval").setLevel(os.environ.get("LMEVAL_LOG_LEVEL", "ERROR"))
    manager, tasks = open_tasks(settings)
    if settings["try"]:
        lm_eval.tasks.get_task_dict(tasks, manager)
        say({"tried": True})
        return
    found = lm_eval.simple_evaluate(
        model=define_model(), tasks=tasks, task_manager=manager, num_fewshot=settings["num_fewshot"],
        limit=settings["rows"], log_samples=settings["samples"], apply_chat_template=settings["chat"],
        fewshot_as_multiturn=settings["chat"] and not settings["single_turn"], system_instruction=settings["system"],
        random_seed=0, numpy_random_seed=settings["seed"], torch_random_seed=settings["seed"],
        fewshot_random_seed=settings["seed"])
    if settings["samples"]:
        send_samples(found["samples"])
    say(report(found))


def main():
    settings = json.loads(stream.readline())
    try:
        import lm_eval.api.model  # noqa: F401
    except ImportError as error:
        say({"error": str(error), "missing": error.name == "lm_eval"})
        return
    try:
        run(settings)
    except BaseException as error:
        traceback.print_exc()
        text = " ".join(str(error).split())
        say({"error": f"{type(error).__name__}: {text}"[:2000]})


main()
