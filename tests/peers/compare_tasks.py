"""Compares lm-evaluation-harness with axtrain as its model (`axtrain eval --task`) and with the model of transformers: prompts,
log-likelihoods, answers, filters, metrics and results of twelve tasks of all kinds and two groups of them, on rows that this
script makes. Then times both on the tasks given with --time.

usage: compare_tasks.py AXTRAIN MODEL_DIR [--chat] [--single-turn] [--shots N] [--max-length N] [--time TASK.yaml]...

Bootstrapped standard errors are compared of BLEU, chrF and TER only: of others the harness needs minutes for them. Needs: lm_eval 0.4.13, torch,
transformers, datasets, scikit-learn."""
import argparse
import json
import os
import random
import subprocess
import tempfile
import time

p = argparse.ArgumentParser()
p.add_argument("axtrain")
p.add_argument("model")
p.add_argument("--chat", action="store_true")
p.add_argument("--single-turn", action="store_true")
p.add_argument("--shots", type=int)
p.add_argument("--max-length", type=int)
p.add_argument("--threads", type=int, default=2)
p.add_argument("--time", action="append", default=[])
a = p.parse_args()
a.axtrain, a.model = os.path.abspath(a.axtrain), os.path.abspath(a.model)
a.time = [os.path.abspath(t) for t in a.time]

import datasets
import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

datasets.disable_progress_bars()
torch.set_num_threads(a.threads)
WORDS = "red blue green horse frog sparrow apple plum iron tin copper spring summer winter hammer saw".split()
FILES = "dataset_path: json\ndataset_kwargs:\n  data_files: {test: rows/test.jsonl, train: rows/train.jsonl, validation: rows/val.jsonl}\n"
CHOICE = FILES + "output_type: multiple_choice\n"
TASKS = {
    "index": CHOICE + """training_split: train
test_split: test
doc_to_text: "Question: {{q}}\\nAnswer:"
doc_to_target: "{{choices.label.index(key)}}"
doc_to_choice: "{{choices.text}}"
num_fewshot: 3
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}, {metric: acc_mutual_info}, {metric: exact_match}, {metric: mcc}]
""",
    "own_split": CHOICE + """test_split: test
fewshot_split: test
doc_to_text: "{{ q | regex_replace('[0-9]+', '#') }} {{subject}}"
doc_to_target: gold
doc_to_choice: opts
description: "Subject {{subject}}.\\n\\n"
num_fewshot: 2
metric_list: [{metric: acc}, {metric: brier_score}]
""",
    "two": CHOICE + """training_split: train
test_split: test
doc_to_text: "{{story}}\\nQuestion: {{q}}?\\nAnswer:"
doc_to_target: gold2
doc_to_choice: ["no", "yes"]
target_delimiter: "\\n"
fewshot_delimiter: "\\n---\\n"
num_fewshot: 1
metric_list: [{metric: acc}, {metric: f1}]
""",
    "contexts": CHOICE + """training_split: train
test_split: validation
doc_to_text: gold2
doc_to_target: subject
doc_to_choice: "{{[q ~ ' first', q ~ ' second']}}"
num_fewshot: 2
metric_list: [{metric: acc}]
""",
    "last_word": FILES + """output_type: loglikelihood
validation_split: validation
doc_to_text: "{{story.split(' ')[:-1]|join(' ')}}"
doc_to_target: "{{' ' + story.split(' ')[-1]}}"
""",
    "rolling": FILES + "output_type: loglikelihood_rolling\ntest_split: test\ndoc_to_text: ''\ndoc_to_target: story\n",
    "filters": FILES + """output_type: generate_until
training_split: train
test_split: validation
doc_to_text: "{{q}}"
doc_to_target: "{{num}}"
gen_prefix: "The answer is"
generation_kwargs: {until: ["9", "zz", "\\n\\n"], max_gen_toks: 20}
repeats: 3
num_fewshot: 2
filter_list:
  - {name: vote, filter: [{function: regex, regex_pattern: "([a-z]+) ([0-9])?"}, {function: majority_vote}, {function: take_first}]}
  - {name: all, filter: [{function: remove_whitespace}, {function: uppercase}]}
  - {name: mapped, filter: [{function: take_first_k, k: 2}, {function: lowercase}, {function: map, mapping_dict: {"a": "1"}, default_value: none}, {function: take_first}]}
metric_list: [{metric: exact_match, ignore_case: true, ignore_punctuation: true, ignore_numbers: true}]
""",
    "samples": FILES + """output_type: generate_until
test_split: validation
doc_to_text: q
doc_to_target: ans
fewshot_config: {sampler: first_n, samples: [{q: "One?", ans: ["1"], num: 3}, {q: "Two?", ans: ["2"], num: 4}]}
generation_kwargs: {max_gen_toks: 12, until: "\\n"}
num_fewshot: 1
metric_list: [{metric: exact_match, regexes_to_ignore: ["[^0-9]"]}]
""",
    "letters": """dataset_path: json
dataset_kwargs: {data_files: {validation: rows/letters.jsonl}}
output_type: generate_until
test_split: validation
doc_to_text: "Say {{q}}:"
doc_to_target: "(A)"
generation_kwargs: {max_gen_toks: 24, until: []}
filter_list:
  - {name: x, filter: [{function: multi_choice_regex, group_select: -1, ignore_case: true, ignore_punctuation: true, regex_pattern: "(\\\\([A-Z]\\\\))"}, {function: take_first}]}
""",
    "table": """dataset_path: csv
dataset_kwargs: {data_files: rows/c.csv}
output_type: multiple_choice
test_split: train
doc_to_text: "{{id}} {{q}} {{num}} {{flag}} {{mix}}"
doc_to_target: answer
doc_to_choice: "{{[a,b,c]}}"
num_fewshot: 2
""",
    "translate": FILES + """output_type: generate_until
training_split: train
test_split: validation
doc_to_text: "{{q}} Repeat that:"
doc_to_target: "{{q}} {{subject}}"
generation_kwargs: {max_gen_toks: 24, until: []}
num_fewshot: 2
metric_list: [{metric: bleu}, {metric: chrf}, {metric: chrf++}, {metric: ter}]
""",
    "continue": FILES + """output_type: generate_until
tag: [texts]
test_split: test
doc_to_text: "{{story}}"
doc_to_target: "{{story}}"
generation_kwargs: {max_gen_toks: 16, until: []}
metric_list: [{metric: bleu}, {metric: exact_match}]
""",
}
GROUPS = {
    "outer": """group_alias: Outside
task: [index, {task: own_split, num_fewshot: 1, target_delimiter: "-"}, inner, {group: new, task: [table], num_fewshot: 0}]
aggregate_metric_list: [{metric: acc}, {metric: acc, weight_by_size: false, filter_list: none}, {metric: acc_norm, weight_by_size: true}]
""",
    "inner": """task: [two, contexts, texts]
fewshot_delimiter: "\n~\n"
aggregate_metric_list: {metric: exact_match}
""",
}
SINGLE = [t for t in TASKS if t not in ("index", "own_split", "table", "two", "contexts", "continue")]


def write_rows(): # letters: its filter reads a list from the column "choices"
    rng = random.Random(5)
    for name, n in (("test", 23), ("train", 40), ("val", 9), ("letters", 10)):
        with open(f"rows/{name}.jsonl", "w") as f:
            for i in range(n):
                k = rng.choice([2, 3, 4, 5])
                texts = rng.sample(WORDS, k)
                texts[0] = "été — " + texts[0] if i % 7 == 0 else texts[0]
                choices = ["7", "re", "Th", "9"] if name == "letters" else dict(text=texts, label=list("ABCDE"[:k]))
                row = dict(q=f"Which one is it, {rng.choice(WORDS)} {i}?", subject=rng.choice(["x", "y z"]), choices=choices,
                           key="ABCDE"[rng.randrange(k)], num=rng.randrange(20), gold=rng.randrange(4),
                           opts=[str(rng.randrange(100)) for _ in range(4)], gold2=rng.randrange(2),
                           ans=[str(rng.randrange(9)), "two"], story=" ".join(rng.choices(WORDS, k=rng.randrange(1, 60))))
                f.write(json.dumps(row, ensure_ascii=False) + "\n")
    with open("rows/c.csv", "w") as f:
        f.write("id,q,a,b,c,answer,num,flag,mix\n")
        for i in range(15):
            words = rng.sample(WORDS, 3)
            f.write(f'{i:03d},"Pick, {rng.choice(WORDS)}?",{",".join(words)},{rng.randrange(3)},'
                    f'{"" if i == 4 else rng.randrange(9)},{rng.choice(["True", "False"])},{rng.choice(["1", "x", "NA"])}\n')


def reference(lm, names, folder):
    return lm_eval.simple_evaluate(
        model=lm, tasks=names, task_manager=TaskManager(include_path=folder, include_defaults=False), log_samples=True,
        bootstrap_iters=100, num_fewshot=a.shots, apply_chat_template=a.chat, fewshot_as_multiturn=not a.single_turn)


def ours(files, more):
    words = [a.axtrain, "eval", "--model", a.model, "--threads", str(a.threads), *more]
    words += ["--apply-chat-template"] * a.chat + ["--fewshot-single-turn"] * a.single_turn
    words += ["--num-fewshot", str(a.shots)] * (a.shots is not None)
    words += ["--max-length", str(a.max_length)] * (a.max_length is not None)
    for f in files:
        words += ["--task", f]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


def near(x, y, tolerance):
    try:
        x, y = float(x), float(y)
    except (TypeError, ValueError):
        return x == y
    return abs(x - y) <= tolerance * max(1, abs(y))


bad = []


def check(ok, *what):
    if not ok:
        bad.append(what)
        print("differs:", *what)


def compare_sample(task, want, got):
    where = (task, want["doc_id"], want["filter"])
    for x, y in zip(want["arguments"], got["arguments"]):
        check(x[0] == y[0] and (len(x) < 2 or not isinstance(x[1], str) or x[1] == y[1]), *where, "prompt", x, y)
    if isinstance(got["resps"][0], str):
        check(want["resps"][0] == got["resps"], *where, "answers", want["resps"], got["resps"])
        check(got["filtered_resps"] in (want["filtered_resps"], want["filtered_resps"][0]), *where, "filtered", want["filtered_resps"], got["filtered_resps"])
    elif task != "rolling":
        for x, y in zip(want["resps"], got["resps"]):
            check(near(x[0][0], y[0], 2e-5) and x[0][1] == y[1], *where, "log-likelihood", x, y)
    for m in got["metrics"]:
        check(isinstance(want[m], (list, tuple)) or near(want[m], got[m], 1e-4), *where, m, want[m], got[m])


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.mkdir("rows")
    os.mkdir("tasks")
    write_rows()
    for name, text in TASKS.items():
        with open(f"tasks/{name}.yaml", "w") as f:
            f.write(f"task: {name}\n{text}")
    for name, text in GROUPS.items():
        with open(f"tasks/{name}.yaml", "w") as f:
            f.write(f"group: {name}\n{text}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(a.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32).eval()
    lm = HFLM(pretrained=model, tokenizer=tokenizer, backend="causal", batch_size=1, device="cpu", max_length=a.max_length)
    want = reference(lm, SINGLE + ["outer"], "tasks")
    got = json.loads(ours([",".join(f"tasks/{t}.yaml" for t in SINGLE + ["outer"])], ["--json", "--log-samples", "samples.jsonl"]))
    check(want["group_subtasks"] == got["group_subtasks"], "group_subtasks", want["group_subtasks"], got["group_subtasks"])
    with open("samples.jsonl") as f:
        samples = {(s["task"], s["doc_id"], s["filter"]): s for s in map(json.loads, f)}
    n = 0
    for task, results in want["results"].items():
        for k, v in results.items():
            boot = any(k.startswith(m + "_stderr") for m in ("f1", "mcc", "perplexity"))
            if "," in k and not boot:
                check(near(v, got["results"][task][k], 3e-5), task, k, v, got["results"][task][k])
        for s in want["samples"].get(task, []):
            compare_sample(task, s, samples[task, s["doc_id"], s["filter"]])
            n += 1
    check(n == len(samples), "number of samples", n, len(samples))
    print(f"{n} samples of {len(TASKS)} tasks, {len(GROUPS) + 1} groups: {len(bad)} differences")
    for path in a.time: # data files are relative to the folder above that of the tasks
        os.chdir(os.path.dirname(os.path.dirname(os.path.dirname(path))))
        name = os.path.basename(path)[:-5]
        start = time.time()
        ours([path], [])
        middle = time.time()
        reference(lm, [name], os.path.dirname(path))
        end = time.time()
        print(f"{name}: {middle - start:.1f} s with loading, lm-evaluation-harness {end - middle:.1f} s without")
raise SystemExit(len(bad) > 0)
