"""Stands for lm-evaluation-harness in tests/cmd/test_eval_harness.c: --task KIND:FILE says what it does. It asks for what the
harness has recorded (tests/goldens/runs/lm_eval), so that the test can compare the answers, or misbehaves."""
import json
import os
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
    all_tasks = ()

    def __init__(self, include_path=None, include_defaults=True):
        self.include_path = include_path


class Request:
    def __init__(self, *args):
        self.args = args


def normalize_gen_kwargs(given, most):
    return {"do_sample": False, "until": [], "max_gen_toks": most, **given}


module("lm_eval.api")
module("lm_eval.api.model", TemplateLM=TemplateLM)
module("lm_eval.models")
module("lm_eval.models.utils", normalize_gen_kwargs=normalize_gen_kwargs)
module("lm_eval.tasks", TaskManager=TaskManager)


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


def rendered(model, kind, asked):
    talk = [{"role": "system", "content": asked["system_instruction"]}, {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "1"}, {"role": "user", "content": "Two?"}]
    texts = [model.apply_chat_template(talk), model.apply_chat_template(talk + [{"role": "assistant", "content": "It is"}], False)]
    return results("rendered", {"turns,none": float(asked["fewshot_as_multiturn"])}, [sample(0, [tuple(texts)], [[(0.0, True)]], {"array": Array()})])


def sampled(model, path, asked):
    """Drawn answers differ; each kind of settings is a list of its own."""
    many = [Request("The train", {"do_sample": True, "max_gen_toks": 6, "top_k": 9}) for _ in range(1500)]
    texts = model.generate_until(many + [Request("The train", {"max_gen_toks": 6})] * 2)
    return results("sampled", {"different,none": float(len(set(texts[:1500])) > 100), "equal,none": float(texts[-1] == texts[-2])}, [])


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


def simple_evaluate(model, tasks, **asked):
    kind, _, path = tasks[0].partition(":")
    return globals()[kind](model, path, asked)
