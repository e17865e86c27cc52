"""Reward models and process reward models in both directions, against the transformers and PEFT that
are installed.

    python check_scores.py AXTRAIN GOLDENS [WORD…]

For each model and kind of head (those whose name has one of the words, if any are given): the folder
that transformers writes, and the adapter that PEFT writes, must give `axtrain eval --task` the scores
that they compute; the folder, the adapter and the merged model that axtrain trains must give them the
scores that `axtrain eval` computes. Exit code 0: all equal within 1e-4; 1: not; 77: skipped, PEFT is
not here."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
try:
    import torch
    import transformers
    from peft import LoraConfig, PeftModel, get_peft_model
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

transformers.logging.set_verbosity_error()  # a new head is reported on every load
MODELS = ["llama", "qwen3", "mistral"]  # those with a tokenizer
TOLERANCE = 1e-4
HEADS = {
    "reward": dict(auto=transformers.AutoModelForSequenceClassification, labels=1,
                   task_type="SEQ_CLS", command="train", key="reward_model",
                   data="runs/data/preference_text.jsonl", type=""),
    "prm": dict(auto=transformers.AutoModelForTokenClassification, labels=2, task_type="TOKEN_CLS",
                command="prm", key="process_reward_model", data="runs/data/stepwise.jsonl",
                type="    type: stepwise_supervised\n"),
}
CONFIG = """base_model: {base}
{key}: true
datasets:
  - path: {data}
{type}sequence_len: 200
micro_batch_size: 2
max_steps: 3
learning_rate: 1e-2
bf16: false
float32: true
output_dir: {out}
"""
ADAPTER = "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nmerge_lora: true\n"


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError((done.stdout + done.stderr).strip())


def load(head, folder):
    return HEADS[head]["auto"].from_pretrained(folder, num_labels=HEADS[head]["labels"],
                                               dtype=torch.float32, attn_implementation="eager")


def tokens(tok, text, special):
    return tok(text, add_special_tokens=special)["input_ids"]


def texts_of(row, tok):
    """The ids of both sides of a pair, and the positions that are scored."""
    for side in ("chosen", "rejected"):
        text = row["prompt"] + row[side]
        if not text.endswith(tok.eos_token):
            text += tok.eos_token
        ids = tokens(tok, text, True)
        yield ids, [len(ids) - 1]


def steps_of(row, tok):
    ids = [] if tok.bos_token_id is None else [tok.bos_token_id]
    ids += tokens(tok, row["prompt"], False)
    at = []
    for step in row["completions"]:
        ids += tokens(tok, step, False) + tokens(tok, "\n", False)
        at.append(len(ids) - 1)
    yield ids, at


def theirs(head, model, rows, tok):
    """Scores by transformers, one list per record."""
    model.eval()
    out = []
    for row in rows:
        scores = []
        for ids, at in (texts_of if head == "reward" else steps_of)(row, tok):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([ids])).logits[0]
            scores += [logits[0].item()] if head == "reward" else logits.softmax(-1)[at, 1].tolist()
        out.append(scores)
    return out


def ours(axtrain, head, data, tmp, *model):
    run(axtrain, "eval", *model, "--task", head, "--data", data, "--rows", 8, "-o", tmp / "scores")
    lines = [json.loads(line) for line in (tmp / "scores").read_text().splitlines()]
    return [x["steps"] if head == "prm" else [x["chosen"], x["rejected"]] for x in lines]


def apart(a, b):
    if [len(x) for x in a] != [len(x) for x in b]:
        return float("inf")
    return max(abs(x - y) for p, q in zip(a, b) for x, y in zip(p, q))


def random_head(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "score" in name or "lora_B" in name:
                p.normal_(0, 0.2)
    return model


def check(axtrain, goldens, name, head, tmp):
    base = goldens / "models" / name
    tok = transformers.AutoTokenizer.from_pretrained(base)
    data = goldens / HEADS[head]["data"]
    rows = [json.loads(line) for line in data.read_text().splitlines()[:8]]
    settings = {**HEADS[head], "base": base, "data": data}
    torch.manual_seed(1)

    def train(out, more=""):
        config = tmp / "run.yaml"
        config.write_text(CONFIG.format(out=out, **settings) + more)
        run(axtrain, HEADS[head]["command"], config, "--quiet")

    model = random_head(load(head, base))
    model.save_pretrained(tmp / "theirs")
    tok.save_pretrained(tmp / "theirs")
    yield "their folder", apart(theirs(head, model, rows, tok),
                                ours(axtrain, head, data, tmp, "--model", tmp / "theirs"))
    lora = LoraConfig(r=3, lora_alpha=6, task_type=HEADS[head]["task_type"],
                      target_modules=["q_proj", "down_proj"])
    model = random_head(get_peft_model(load(head, base), lora))
    model.save_pretrained(tmp / "their_adapter")
    scores = theirs(head, model, rows, tok)
    yield "their adapter", apart(scores, ours(axtrain, head, data, tmp, "--model", base,
                                              "--adapter", tmp / "their_adapter"))
    run(axtrain, "merge", base, tmp / "their_adapter", tmp / "their_merged")
    yield "their adapter, merged by us", apart(
        scores, theirs(head, load(head, tmp / "their_merged"), rows, tok))
    train(tmp / "ours")
    yield "our folder", apart(theirs(head, load(head, tmp / "ours"), rows, tok),
                              ours(axtrain, head, data, tmp, "--model", tmp / "ours"))
    train(tmp / "our_adapter", ADAPTER)
    model = PeftModel.from_pretrained(load(head, base), tmp / "our_adapter")
    scores = theirs(head, model, rows, tok)
    yield "our adapter", apart(scores, ours(axtrain, head, data, tmp, "--model", base,
                                            "--adapter", tmp / "our_adapter"))
    yield "our adapter, merged", apart(
        scores, theirs(head, load(head, tmp / "our_adapter" / "merged"), rows, tok))


def main():
    axtrain, goldens, words = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3:]
    print(f"transformers {transformers.__version__}")
    good = True
    for name in MODELS:
        for head in HEADS:
            case = f"{name} {head}"
            if words and not any(w in case for w in words):
                continue
            with tempfile.TemporaryDirectory() as tmp:
                try:
                    for what, worst in check(axtrain, goldens, name, head, pathlib.Path(tmp)):
                        bad = not worst <= TOLERANCE
                        good = good and not bad
                        print(f"{'DIFFER' if bad else 'ok    '} {case}, {what}: {worst:.2g}")
                except RuntimeError as e:
                    good = False
                    print(f"FAILED {case}: {e}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
