"""lm-evaluation-harness on local rows and task files, every request recorded."""
import logging
import os
import random
import shutil
import tempfile
from pathlib import Path

import tools
import torch

from . import plain, text, trl_runs

YAML = dict(
    runs_mc='''task: runs_mc
dataset_path: json
dataset_kwargs:
  data_files:
    test: lm_eval/rows/mc.jsonl
    train: lm_eval/rows/mc_fewshot.jsonl
output_type: multiple_choice
fewshot_split: train
fewshot_config:
  sampler: first_n
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
''',
    runs_gsm8k='''task: runs_gsm8k
dataset_path: json
dataset_kwargs:
  data_files:
    test: lm_eval/rows/gsm8k.jsonl
    train: lm_eval/rows/gsm8k_fewshot.jsonl
output_type: generate_until
fewshot_split: train
fewshot_config:
  sampler: first_n
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
    ignore_punctuation: false
    regexes_to_ignore:
      - ","
      - "\\\\$"
      - "(?s).*#### "
      - "\\\\.$"
generation_kwargs:
  until:
    - "Question:"
    - "</s>"
    - "<|im_end|>"
  do_sample: false
  temperature: 0.0
  max_gen_toks: 64
filter_list:
  - name: "strict-match"
    filter:
      - function: "regex"
        regex_pattern: "#### (\\\\-?[0-9\\\\.\\\\,]+)"
      - function: "take_first"
  - name: "flexible-extract"
    filter:
      - function: "regex"
        group_select: -1
        regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)"
      - function: "take_first"
metadata:
  version: 1.0
''',
    runs_rolling='''task: runs_rolling
dataset_path: json
dataset_kwargs:
  data_files:
    test: lm_eval/rows/rolling.jsonl
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
metadata:
  version: 1.0
''')

YAML["runs_arith"] = YAML["runs_gsm8k"].replace("runs_gsm8k", "runs_arith").replace("rows/gsm8k", "rows/arith")

KINDS = dict(
    colour=("red", "pale green", "blue", "yellow", "dark brown"),
    animal=("horse", "sparrow", "frog", "sea turtle", "wolf"),
    fruit=("apple", "ripe pear", "cherry", "mango", "plum"),
    metal=("iron", "copper", "tin", "silver", "lead"),
    tool=("hammer", "pair of pliers", "saw", "chisel", "spanner"),
    season=("spring", "summer", "autumn", "winter", "the rainy season"))


def mc_rows(seed, lex, kinds, rows):
    rng, out, names = random.Random(seed), [], sorted(kinds)
    for i in range(rows):
        if i % 2:
            kind = names[(i // 2) % len(names)]
            others = rng.sample([n for n in names if n != kind], 3)
            choices = [rng.choice(kinds[kind])] + [rng.choice(kinds[o]) for o in others]
            question = f"Which of these is a kind of {kind}?"
        else:
            p = lex.problems[(i // 2) % len(lex.problems)](rng, lex)
            thing = rng.choice(lex.things)
            wrong = {p.wrong, p.answer + 3, p.answer + 11, p.answer + 20, abs(p.answer - 4)} - {p.answer}
            picked = rng.sample(sorted(wrong), 3)
            choices = [str(p.answer)] + [str(w) if rng.random() < 0.6 else f"exactly {w} {thing}" for w in picked]
            question = p.question
        order = list(range(4))
        rng.shuffle(order)
        out.append(dict(question=question, choices=[choices[k] for k in order], answer=order.index(0)))
    return out


def rolling_rows(seed, lex):
    rng, out = random.Random(seed), []
    for i in range(10):
        p = [lex.problems[(i + k) % len(lex.problems)](rng, lex) for k in range(2)]
        t = " ".join(x.question + " " + text.right(rng, lex, x) for x in p)
        if i == 1:
            t = " " + t
        if i == 2:
            t = "\n".join(x.question + "\n\t" + text.right(rng, lex, x) for x in p) + "\n"
        if i == 3:
            t = rng.choice(lex.names)
        if i == 4:
            t = "\u201c" + t + "\u201d \u2014 \u00bd \u00d7 4 = 2 \U0001f600"
        if i == 5:
            t = " ".join(f"{x.question} {text.right(rng, lex, x)}" for x in
                         [lex.problems[k % len(lex.problems)](rng, lex) for k in range(14)])
        out.append(dict(text=t))
    return out


def arith_rows(seed, rows):
    """GSM8K-like rows that a small model gets right now and then."""
    rng, out = random.Random(seed), []
    for i in range(rows):
        a, b = rng.randint(1, 12) * (1 if i % 3 else 100), rng.randint(1, 12)
        out.append(dict(question=f"What is {a:,} + {b}?", answer=f"{a:,} + {b} = {a + b:,}\n#### {a + b:,}"))
    return out


def write_rows(roots, lex, seed, recorded):
    """recorded: the folder that has rows 0-19 of GSM8K's test file and rows 0 and 1 of its training file."""
    folder = roots.runs / "lm_eval" / "rows"
    tools.fresh(folder)
    trl_runs.write_rows(folder / "mc.jsonl", mc_rows(seed, lex, KINDS, 30))
    trl_runs.write_rows(folder / "mc_fewshot.jsonl", mc_rows(seed + 1, lex, KINDS, 2))
    trl_runs.write_rows(folder / "rolling.jsonl", rolling_rows(seed + 2, lex))
    trl_runs.write_rows(folder / "arith.jsonl", arith_rows(seed + 3, 12))
    trl_runs.write_rows(folder / "arith_fewshot.jsonl", arith_rows(seed + 4, 2))
    for name in ("gsm8k.jsonl", "gsm8k_fewshot.jsonl"):
        shutil.copyfile(recorded / name, folder / name)
    tasks = tools.fresh(roots.runs / "lm_eval" / "tasks")
    for name, body in YAML.items():
        (tasks / f"{name}.yaml").write_text(body)


def recorded_lm(model, tok, max_length):
    from lm_eval.models.huggingface import HFLM

    class Recorded(HFLM):
        def _loglikelihood_tokens(self, requests, disable_tqdm=False, override_bs=None):
            res = super()._loglikelihood_tokens(requests, disable_tqdm=True, override_bs=override_bs)
            for (pair, ctx, cont), (ll, greedy) in zip(requests, res):
                fed = (ctx + cont)[-(self.max_length + 1):][:-1]
                self.scored.append(dict(pair=pair, context_ids=ctx, continuation_ids=cont, fed=len(fed),
                                        loglikelihood=ll, is_greedy=greedy))
            return res

        def _model_generate(self, context, max_length, stop, **kw):
            kw.pop("output_logits", None)
            original = self.model.generate

            def generate(**kws):
                out = original(**kws, output_logits=True, return_dict_in_generate=True)
                gaps = []
                for step in out.logits:
                    top = step[0].topk(2).values
                    gaps.append((top[0] - top[1]).item())
                self.made.append(dict(context_ids=context[0].tolist(), generated_ids=out.sequences[0, context.shape[1]:].tolist(),
                                      smallest_top2_gap=min(gaps), stop=list(stop),
                                      close_calls=[[i, g] for i, g in enumerate(gaps) if g < 0.02]))
                return out.sequences
            self.model.generate = generate
            try:
                return super()._model_generate(context, max_length, stop, **kw)
            finally:
                del self.model.generate
    lm = Recorded(pretrained=model, tokenizer=tok, backend="causal", max_length=max_length, batch_size=1, device="cpu")
    lm.scored, lm.made = [], []
    return lm


def float64_gap(folder, scored, max_length, limit):
    net = plain.Net(folder, torch.float64)
    worst, worst_rel = 0.0, 0.0
    with torch.no_grad():
        for r in scored[:limit]:
            ids = torch.tensor((r["context_ids"] + r["continuation_ids"])[-(max_length + 1):])
            n = len(r["continuation_ids"])
            lp = net.logps(ids).gather(1, ids[1:, None]).squeeze(1)[-n:].sum().item()
            worst = max(worst, abs(lp - r["loglikelihood"]))
            worst_rel = max(worst_rel, abs(lp - r["loglikelihood"]) / abs(lp))
    return dict(requests=min(limit, len(scored)), largest=tools.sig(worst), largest_relative=tools.sig(worst_rel))


def run(roots, name, folder, runs, max_length=256, gap_limit=400):
    """runs: list of dict(out, task, shots, chat, multiturn, system, max_length)."""
    import datasets
    import lm_eval
    import transformers
    from lm_eval.tasks import TaskManager
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    cache = tempfile.mkdtemp(prefix="runs-cache-")
    datasets.config.HF_DATASETS_CACHE = Path(cache)
    here = os.getcwd()
    os.chdir(roots.runs)
    try:
        tok = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        out_dir = tools.fresh(roots.runs / "lm_eval" / name)
        gaps = {}
        for r in runs:
            length = r.get("max_length", max_length)
            lm = recorded_lm(model, tok, length)
            manager = TaskManager(include_path=str(roots.runs / "lm_eval" / "tasks"), include_defaults=False)
            res = lm_eval.simple_evaluate(
                model=lm, tasks=[r["task"]], num_fewshot=r.get("shots", 0), task_manager=manager, bootstrap_iters=0,
                log_samples=True, apply_chat_template=r.get("chat", False), fewshot_as_multiturn=r.get("multiturn", True),
                system_instruction=r.get("system"))
            info = dict(about=r.get("about", ""), model=name, task=r["task"], num_fewshot=r.get("shots", 0),
                        apply_chat_template=r.get("chat", False), fewshot_as_multiturn=r.get("multiturn", True),
                        system_instruction=r.get("system"), max_length=length, batch_size=1, dtype="float32",
                        prefix_token_id=lm.prefix_token_id,
                        results={k: v for k, v in res["results"][r["task"]].items()
                                 if k not in ("alias", "name", "sample_len", "sample_count") and "stderr" not in k},
                        rows=collect(res["samples"][r["task"]], lm))
            if lm.scored:
                info["float64_gap"] = gaps[r["out"]] = float64_gap(folder, lm.scored, length, gap_limit)
                gap = choice_gap(info["rows"])
                if gap:
                    info["smallest_choice_gap"] = gap
            if lm.made:
                info["smallest_top2_gap"] = gaps[r["out"]] = tools.sig(min(m["smallest_top2_gap"] for m in lm.made))
            tools.save_json(out_dir / f"{r['out']}.json", info)
            print(f"lm_eval/{name}/{r['out']}", info["results"], gaps.get(r["out"]), flush=True)
    finally:
        os.chdir(here)
        shutil.rmtree(cache, ignore_errors=True)


def choice_gap(rows):
    """How close the two best choices come: by log-likelihood (acc) and per character (acc_norm)."""
    best = {"acc": [], "acc_norm": []}
    for r in rows:
        if "choices" not in r:
            return None
        lls = [c["loglikelihood"] for c in r["choices"]]
        chars = [len(c["continuation"].lstrip()) for c in r["choices"]]
        for k, v in (("acc", lls), ("acc_norm", [a / n for a, n in zip(lls, chars)])):
            a, b = sorted(v)[-2:]
            best[k].append(b - a)
    return {k: tools.sig(min(v)) for k, v in best.items()}


def collect(samples, lm):
    samples = sorted(samples, key=lambda s: (s["doc_id"], s.get("filter", "")))
    rows, by_pair = [], {}
    for r in lm.scored:
        if r["pair"] is not None:
            by_pair.setdefault(tuple(r["pair"]), r)
    windows = [r for r in lm.scored if r["pair"] is None]
    made = {}
    for m in lm.made:
        made.setdefault(tuple(m["context_ids"]), m)
    cursor = 0
    for s in samples:
        doc = s["doc_id"]
        kinds = [k for k in s["metrics"]] if "metrics" in s else []
        args = [a for a in s["arguments"]] if isinstance(s["arguments"], (list, tuple)) else list(s["arguments"].values())
        if "choices" in s["doc"]:
            context = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]["arg_0"]
            choices = []
            for a in args:
                c, k = (a[0], a[1]) if isinstance(a, (list, tuple)) else (a["arg_0"], a["arg_1"])
                r = by_pair[(c, k)]
                choices.append(dict(continuation=k, continuation_ids=r["continuation_ids"], fed=r["fed"],
                                    loglikelihood=r["loglikelihood"], is_greedy=r["is_greedy"]))
            rows.append(dict(doc_id=doc, context=context, context_ids=by_pair[(context, choices[0]["continuation"])]["context_ids"],
                             gold=s["target"], choices=choices, **{k: s[k] for k in kinds}))
        elif "text" in s["doc"]:
            # the windows of the documents come in order; a document's are those that add up to its tokens
            total = len(lm.tok_encode(s["doc"]["text"]))
            mine, seen = [], 0
            while seen < total:
                w = windows[cursor]
                mine.append(dict(context_ids=w["context_ids"], continuation_ids=w["continuation_ids"],
                                 loglikelihood=w["loglikelihood"]))
                seen += len(w["continuation_ids"])
                cursor += 1
            ll, words = s["word_perplexity"]
            rows.append(dict(doc_id=doc, text=s["doc"]["text"], tokens=total, words=words, bytes=s["byte_perplexity"][1],
                             loglikelihood=ll, windows=mine))
        else:
            a = args[0]
            context = a[0] if isinstance(a, (list, tuple)) else a["arg_0"]
            if rows and rows[-1]["doc_id"] == doc:
                row = rows[-1]
            else:
                ids = lm.tok_batch_encode([context])[0][0].tolist()
                limit = lm.max_length - 64
                m = made[tuple(ids[-limit:])]
                row = dict(doc_id=doc, context=context, context_tokens=len(ids), fed_ids=m["context_ids"],
                           generated_ids=m["generated_ids"], close_calls=m["close_calls"],
                           text=s["resps"][0][0], target=s["target"], stop=m["stop"])
                rows.append(row)
            row[s["filter"]] = dict(extracted=s["filtered_resps"][0] if isinstance(s["filtered_resps"], list) else s["filtered_resps"],
                                    exact_match=s["exact_match"])
    return rows
