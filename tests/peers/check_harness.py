#!/usr/bin/env python3
"""lm-evaluation-harness with axtrain as its model: `axtrain eval --task` must give what the harness has recorded with the
model of transformers; so must, of the tiny model and but for rolling windows, the harness's own local-completions with
`axtrain serve`.

    check_harness.py AXTRAIN GOLDENS [NAME=DIR]

GOLDENS has models/ and runs/lm_eval/ (build/goldens); NAME=DIR: where the model of runs/lm_eval/NAME is. Needs: lm_eval[api] 0.4.13, transformers.
Prints a line for each recorded run; exit code 1 if any differs.
"""
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

TOLERANCES = {"llama": (1e-4, 1e-6, 1e-4)}  # of log-likelihoods: absolute, relative; of logits that may swap
REAL_MODEL = (3e-4, 3e-5, 1e-3)


class Run:
    def __init__(self, path):
        self.want = json.loads(path.read_text())
        self.tolerance = TOLERANCES.get(path.parent.name, REAL_MODEL)
        self.name, self.task = f"{path.parent.name}/{path.stem}", self.want["task"]
        self.bad, self.worst, self.skipped = [], 0.0, 0

    def by_eval(self, axtrain, runs, folder, scratch):
        samples = Path(scratch) / "samples.jsonl"
        words = [axtrain, "eval", str(folder), "--dtype", "float32", "--threads", "2", "--task", f"lm_eval/tasks/{self.task}.yaml",
                 "--num-fewshot", str(self.want["num_fewshot"]), "--max-length", str(self.want["max_length"])]
        words += ["--apply-chat-template"] * self.want["apply_chat_template"]
        words += ["--fewshot-single-turn"] * (self.want["apply_chat_template"] and not self.want["fewshot_as_multiturn"])
        words += ["--system", self.want["system_instruction"]] if self.want["system_instruction"] else []
        env = {**os.environ, "AXTRAIN_PYTHON": sys.executable, "HF_DATASETS_CACHE": scratch}
        self.got = json.loads(self.call(words + ["--json", "--log-samples", str(samples)], runs, env))
        self.lines = [json.loads(line) for line in samples.read_text().splitlines()]

    def by_endpoint(self, url, folder, manager):
        import lm_eval
        chat = self.want["apply_chat_template"]
        server = {"model": folder.name, "base_url": f"{url}/completions", "tokenizer": str(folder), "tokenizer_backend": "huggingface",
                  "num_concurrent": 8, "add_bos_token": not chat, "max_length": self.want["max_length"] + 1}
        found = lm_eval.simple_evaluate(
            model="local-completions", model_args=server, tasks=[self.task], task_manager=manager, num_fewshot=self.want["num_fewshot"],
            bootstrap_iters=0, apply_chat_template=chat, fewshot_as_multiturn=self.want["fewshot_as_multiturn"],
            system_instruction=self.want["system_instruction"])
        self.got, self.lines = found, found["samples"][self.task]
        for line in self.lines:
            resps = line["resps"]
            line["resps"] = resps[0] if isinstance(resps[0][0], str) else [r[0] for r in resps]

    @staticmethod
    def call(words, folder, env):
        done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}\n{done.stderr}")
        return done.stdout

    def check(self, ok, *what):
        if not ok:
            self.bad.append(what)

    def near(self, want, got, *what):
        self.worst = max(self.worst, abs(want - got))
        self.check(abs(want - got) <= max(self.tolerance[0], self.tolerance[1] * abs(want)), *what, want, got)

    def compare(self):
        by_doc = {}
        for line in self.lines:
            by_doc.setdefault(line["doc_id"], []).append(line)
        self.check(sorted(by_doc) == [r["doc_id"] for r in self.want["rows"]], "records")
        for row in self.want["rows"]:
            lines = by_doc[row["doc_id"]]
            kind = "choices" if "choices" in row else "windows" if "windows" in row else "generated"
            getattr(self, kind)(row, lines)
        for key, value in self.want["results"].items():
            got = self.got["results"][self.task][key]
            tolerance = 1e-4 * abs(value) if "perplexity" in key or "bits" in key else 1e-7
            self.check(self.skipped or abs(got - value) <= tolerance, key, value, got)

    def choices(self, row, lines):
        (line,) = lines
        self.check(line["target"] == row["gold"], row["doc_id"], "target")
        self.check(len(line["resps"]) == len(row["choices"]), row["doc_id"], "choices")
        for choice, (context, continuation), (value, greedy) in zip(row["choices"], line["arguments"], line["resps"]):
            self.check((context, continuation) == (row["context"], choice["continuation"]), row["doc_id"], "prompt")
            self.check(greedy == choice["is_greedy"], row["doc_id"], "is_greedy")
            self.near(choice["loglikelihood"], value, row["doc_id"], "log-likelihood")
        self.check((line["acc"], line["acc_norm"]) == (row["acc"], row["acc_norm"]), row["doc_id"], "metrics")

    def windows(self, row, lines):
        (line,) = lines
        self.check(line["word_perplexity"][1] == row["words"] and line["byte_perplexity"][1] == row["bytes"], row["doc_id"], "words")
        self.near(row["loglikelihood"], line["word_perplexity"][0], row["doc_id"], "log-likelihood")

    def generated(self, row, lines):
        if any(gap < self.tolerance[2] for _, gap in row["close_calls"]):  # rounding may lead to another token
            self.skipped += 1
            return
        for line in lines:
            want = row[line["filter"]]
            self.check(line["arguments"][0][0] == row["context"], row["doc_id"], "prompt")
            self.check(line["resps"] == [row["text"]], row["doc_id"], "text", line["resps"], row["text"])
            self.check(line["filtered_resps"] in (want["extracted"], [want["extracted"]]), row["doc_id"], "extracted")
            self.check(line["exact_match"] == want["exact_match"], row["doc_id"], "exact_match")


def told(kind, run):
    print(f"{kind}: {run.name}: {len(run.want['rows'])} records, {len(run.bad)} differences, largest of log-likelihoods {run.worst:.2g}",
          *run.bad[:3], sep="\n    " if run.bad else "", flush=True)
    return bool(run.bad)


def check_endpoint(axtrain, runs, folder, paths):
    from lm_eval.tasks import TaskManager
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    server = subprocess.Popen([axtrain, "serve", str(folder), "--dtype", "float32", "--port", "0"], stderr=subprocess.PIPE, text=True)
    failed = 0
    try:
        url = next(found.group(1) for found in (re.search(r" url=(\S+)", line) for line in server.stderr) if found)
        manager = TaskManager(include_path=str(runs / "lm_eval" / "tasks"), include_defaults=False)
        os.chdir(runs)
        for path in paths:
            run = Run(path)
            if run.task != "runs_rolling":  # local-completions feeds a token less than there are positions
                run.by_endpoint(url, folder, manager)
                run.compare()
                failed += told("serve", run)
    finally:
        server.terminate()
        server.wait(60)
    return failed


def main():
    axtrain, goldens = (Path(p).resolve() for p in sys.argv[1:3])
    given = dict(word.split("=", 1) for word in sys.argv[3:])
    runs, failed, n = goldens / "runs", 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.update(TQDM_DISABLE="1", HF_DATASETS_CACHE=scratch)
        for model in sorted(p.name for p in (runs / "lm_eval").iterdir()):
            folder = Path(given.get(model, goldens / "models" / model)).resolve()
            paths = sorted((runs / "lm_eval" / model).glob("*.json"))
            if not paths or not folder.is_dir():
                continue
            for path in paths:
                run = Run(path)
                run.by_eval(str(axtrain), runs, folder, scratch)
                run.compare()
                failed, n = failed + told("eval --task", run), n + 1
            if model == "llama":
                failed += check_endpoint(str(axtrain), runs, folder, paths)
    if n == 0:
        sys.exit(f"{runs}/lm_eval: there is no recorded run of a model that is here")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
