"""Stands for lm-evaluation-harness in tests. --task KIND:FILE says what it does: it asks for what the harness has recorded
(tests/goldens/runs/lm_eval), so that tests/cmd/test_eval_harness.c can compare the answers, or misbehaves. A task file is read
as far as the transcripts need it: the records "test: FILE" have a question q, choices c, and a, the number of the right one."""
import glob
import json
import math
import os
import re
import subprocess
import sys
import types

if os.environ.get("FAKE_MISSING"):
    raise ModuleNotFoundError("No module named 'lm_eval'", name="lm_eval")


def module(name, **names):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(names)


class TemplateLM:
    pass


class Array:
    """As NumPy's."""
    def tolist(self):
        return [1.5, float("nan"), "a"]


class TaskManager:
    def __init__(self, include_path=None, include_defaults=True):
        self.all_tasks = {}
        for folder in [include_path] if isinstance(include_path, str) else include_path or []:
            for file in sorted(glob.glob(folder + "/*.yaml")):
                with open(file) as f:
                    text = f.read()
                if name := re.search(r"^(?:task|group): (\w+)", text, re.M):
                    self.all_tasks[name[1]] = text


def get_task_dict(names, manager):
    for name in names:
        if not os.path.isfile(name) and name.partition(":")[0] not in SCENES:
            manager.all_tasks[name]


class Request:
    def __init__(self, *args):
        self.args = args


def normalize_gen_kwargs(given, most):
    return {"do_sample": False, "until": [], "max_gen_toks": most, **given}


module("lm_eval.api")
module("lm_eval.api.model", TemplateLM=TemplateLM)
module("lm_eval.models")
module("lm_eval.models.utils", normalize_gen_kwargs=normalize_gen_kwargs)
module("lm_eval.tasks", TaskManager=TaskManager, get_task_dict=get_task_dict)
tasks = sys.modules["lm_eval.tasks"]


def results(name, numbers, samples, shots=0, **more):
    entry = {"alias": name, "name": name, "sample_len": len(samples), **numbers}
    return {"results": {name: entry}, "groups": {}, "group_subtasks": {name: []}, "n-shot": {name: shots}, "higher_is_better": {name: {}},
            "n-samples": {name: {"original": 100, "effective": len(samples)}}, "samples": {name: samples}, **more}


def sample(i, arguments, resps, values):
    return {"doc_id": i, "doc": {"i": i}, "target": 0, "arguments": arguments, "resps": resps, "filtered_resps": [r[0] for r in resps],
            "filter": "none", "metrics": list(values), "doc_hash": "x", **values}


def recorded(model, path, asked):
    """The prompts of a recorded run; the sum of its log-likelihoods, or how many texts are equal, as its result."""
    with open(path) as f:
        run = json.load(f)
    rows, samples, total = run["rows"][:asked["limit"]], [], 0.0
    if "choices" in rows[0]:
        pairs = [(r["context"], c["continuation"]) for r in rows for c in r["choices"]]
        values = iter(model.loglikelihood([Request(*p) for p in pairs]))
        for r in rows:
            mine = [next(values) for _ in r["choices"]]
            samples.append(sample(r["doc_id"], [(r["context"], c["continuation"]) for c in r["choices"]], [[v] for v in mine], {"acc": 1.0}))
            total += sum(v for v, _ in mine)
    elif "windows" in rows[0]:
        values = model.loglikelihood_rolling([Request(r["text"]) for r in rows])
        samples = [sample(r["doc_id"], [(r["text"],)], [[v]], {"words": (v, r["words"])}) for r, v in zip(rows, values)]
        total = sum(values)
    else:
        settings = {"until": rows[0]["stop"][:-1], "max_gen_toks": 64, "do_sample": False, "temperature": 0.0}
        texts = model.generate_until([Request(r["context"], settings) for r in rows])
        samples = [sample(r["doc_id"], [(r["context"], settings)], [[t]], {"equal": float(t == r["text"])}) for r, t in zip(rows, texts)]
        total = sum(t == r["text"] for r, t in zip(rows, texts))
    return results("recorded", {"total,none": total, "total_stderr,none": "N/A"}, samples[::-1], asked["num_fewshot"] or 0)


def mean(metric, values):
    n, middle = len(values), sum(values) / len(values)
    error = math.sqrt(sum((v - middle) ** 2 for v in values) / (n - 1) / n) if n > 1 else "N/A"
    return {f"{metric},none": middle, f"{metric}_stderr,none": error}


def from_text(model, text, asked):
    """The task of a file."""
    name, path, kind = (re.search(p, text, re.M)[1] for p in (r"^task: (\w+)", r"test: ([^}\s]+)", r"^output_type: (\w+)"))
    with open(path) as f:
        rows = [json.loads(line) for line in f][:asked["limit"]]
    system = [{"role": "system", "content": asked["system_instruction"]}] * bool(asked["system_instruction"])
    talks = [system + [{"role": "user", "content": r["q"]}] for r in rows]
    asks = [model.apply_chat_template(t) if asked["apply_chat_template"] else r["q"] for t, r in zip(talks, rows)]
    if kind == "multiple_choice":
        arguments = [[(a, c) for c in r["c"]] for a, r in zip(asks, rows)]
        values = iter(model.loglikelihood([Request(*pair) for pairs in arguments for pair in pairs]))
        resps = [[[next(values)] for _ in pairs] for pairs in arguments]
        metric, scores = "acc", [float(max(v)[0] == v[r["a"]][0]) for v, r in zip(resps, rows)]
    elif kind == "generate_until":
        settings = json.loads(re.search(r"^generation_kwargs: (.*)", text, re.M)[1])
        arguments = [[(a, settings)] for a in asks]
        resps = [[[t]] for t in model.generate_until([Request(*a[0]) for a in arguments])]
        metric, scores = "exact_match", [float(v[0][0] == r["c"][r["a"]]) for v, r in zip(resps, rows)]
    else:
        arguments = [[(r["q"],)] for r in rows]
        resps = [[[v]] for v in model.loglikelihood_rolling([Request(r["q"]) for r in rows])]
        metric, scores = "bits_per_byte", [-v[0][0] / len(r["q"].encode()) / math.log(2) for v, r in zip(resps, rows)]
    samples = [sample(i, a, v, {metric: s}) for i, (a, v, s) in enumerate(zip(arguments, resps, scores))]
    return results(name, mean(metric, scores), samples, asked["num_fewshot"] or 0)


def merged(all_found):
    first, *rest = all_found
    for found in rest:
        for key in first:
            first[key].update(found[key])
    return first


def from_file(model, manager, spec, asked):
    if os.path.isfile(spec):
        with open(spec) as f:
            return from_text(model, f.read(), asked)
    text = manager.all_tasks[spec]
    members = re.search(r"^task: \[(.*)\]", text, re.M)
    if not members:
        return from_text(model, text, asked)
    names = members[1].split(", ")
    found = merged([from_file(model, manager, name, asked) for name in names])
    found["results"] = {spec: {"alias": spec}, **found["results"]}
    found["group_subtasks"][spec] = names
    return found


def rendered(model, kind, asked):
    talk = [{"role": "system", "content": asked["system_instruction"]}, {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "1"}, {"role": "user", "content": "Two?"}]
    texts = [model.apply_chat_template(talk), model.apply_chat_template(talk + [{"role": "assistant", "content": "It is"}], False)]
    return results("rendered", {"turns,none": float(asked["fewshot_as_multiturn"])}, [sample(0, [tuple(texts)], [[(0.0, True)]], {"array": Array()})])


def sampled(model, path, asked):
    """Drawn answers differ, but not where only one token can be drawn; each kind of settings is a list of its own."""
    many = [Request("The train", {"do_sample": True, "max_gen_toks": 6, "top_k": 9}) for _ in range(1500)]
    texts = model.generate_until(many + [Request("The train", {"max_gen_toks": 6})] * 2)
    narrow = [{"top_p": 1e-6}, {"top_k": 1}, {"temperature": 1e-6}]
    one = model.generate_until([Request("The train", {"do_sample": True, "max_gen_toks": 6, **n}) for n in narrow for _ in range(4)])
    shown = [sample(i, [("The train", {})], [[t]], {"n": 1}) for i, t in enumerate(texts[:9] + texts[-1:])]
    return results("sampled", {"different,none": float(len(set(texts[:1500])) > 100), "equal,none": float(texts[-1] == texts[-2]),
                               "narrow,none": float(set(one) == {texts[-1]})}, shown)


def nested(model, path, asked):
    entry = {"acc,none": 0.5, "acc_stderr,none": 0.125, "f1,strict": float("inf"), "f1_stderr,strict": "N/A"}
    found = results("leaf", entry, [{}] * 3, 2)
    found["results"].update({"outer": {"alias": "Outside", "acc,none": 0.25, "acc_stderr,none": "N/A"}, "inner": {"alias": " - inner"}})
    found["groups"] = {"outer": found["results"]["outer"]}
    found["group_subtasks"] = {"outer": ["inner"], "inner": ["leaf"], "leaf": []}
    return found


def shapeless(model, path, asked):
    return results("a", {}, [], **json.loads(os.environ["FAKE_RESULTS"]))


def asks(model, path, asked):
    main = sys.modules["__main__"]
    main.ask(json.loads(os.environ["FAKE_LINE"]))


def raises(model, path, asked):
    print("on its standard output")
    raise KeyError("no task of that\nname")


def dies(model, path, asked):
    os._exit(3)


def babbles(model, path, asked):
    os.write(sys.modules["__main__"].answers, b"{}{}\n")
    sys.modules["__main__"].stream.readline()


def wants_beams(model, path, asked):
    model.generate_until([Request("a", {"num_beams": 3})])


def terminates(model, path, asked):
    """As a pool of processes ends its own."""
    child = subprocess.Popen(["sleep", "1000"])
    child.terminate()
    return results("terminates", {"by,none": float(-child.wait(60))}, [])


def sleeps(model, path, asked):
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    with open(path + ".part", "w") as f:
        f.write(f"{os.getpid()} {child.pid}")
    os.rename(path + ".part", path)
    child.wait()


SCENES = {f.__name__: f for f in (recorded, rendered, sampled, nested, shapeless, asks, raises, dies, babbles, wants_beams, terminates,
                                  sleeps)}


def simple_evaluate(model, tasks, task_manager, **asked):
    found = []
    for spec in tasks:
        kind, _, path = spec.partition(":")
        scene = SCENES.get(kind)
        found.append(scene(model, path, asked) if scene else from_file(model, task_manager, spec, asked))
    return merged(found)
