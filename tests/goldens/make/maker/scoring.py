"""Scores of texts by the folder of a reward model or process reward model, through
transformers, and again by plain.py."""
import math

import tools
import torch

from . import plain, trl_runs


def write(case, roots, rec):
    folder = roots.runs / case.family / case.keep_model
    out = reward(case, roots, folder) if case.family == "reward" else steps(case, roots, folder)
    tools.save_json(roots.runs / case.family / f"{case.keep_model}.scores.json", out)
    if case.family == "reward":
        tools.save_json(roots.runs / case.family / f"{case.keep_model}.pads.json", pads(case, roots, folder))


def pads(case, roots, folder):
    """Scores of texts that end in one EOS, several, or pads, for each pad_token_id of config.json."""
    import transformers
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    row = trl_runs.read_rows(roots.runs / case.data)[0]
    talk = tok.apply_chat_template(row["prompt"] + row["chosen"], tokenize=False)
    eos, pad = tok.eos_token, tok.pad_token
    texts = [talk, talk + 2 * eos, talk + pad + eos, tok.bos_token + 2 * eos]
    rows = []
    for config_pad in (None, tok.pad_token_id, tok.eos_token_id, -1):
        model.config.pad_token_id = config_pad
        for t in texts:
            ids = tok(t, add_special_tokens=False)["input_ids"]
            with torch.no_grad():
                rows.append(dict(pad_token_id=config_pad, text=t, ids=ids,
                                 score=model(input_ids=torch.tensor([ids])).logits[0, 0].item()))
    return dict(about="scores by pad_token_id of config.json; ids: the tokenizer on `text` without added special tokens",
                model=f"runs/{case.family}/{case.keep_model}", texts=rows)


def reward(case, roots, folder, count=8):
    import transformers
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    net = plain.Net(folder, torch.float64, head="score")
    rows, worst = [], 0.0
    texts = []
    for r in trl_runs.read_rows(roots.runs / case.data)[:count]:
        for side in ("chosen", "rejected"):
            talk = r["prompt"] + r[side] if isinstance(r["prompt"], list) else None
            texts.append(tok.apply_chat_template(talk, tokenize=False) if talk else r["prompt"] + r[side])
    for t in texts:
        ids = tok(t, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            score = model(input_ids=torch.tensor([ids])).logits[0, 0].item()
            again = net.logits(torch.tensor(ids))[-1, 0].item()
        worst = max(worst, abs(score - again))
        rows.append(dict(text=t, ids=ids, score=score))
    return dict(about="score of the text's last token, each text alone; ids: the tokenizer on `text` without added special "
                "tokens (the chat template has them)",
                model=f"runs/{case.family}/{case.keep_model}", data=case.data, float64_gap=tools.sig(worst), texts=rows)


def steps(case, roots, folder, count=8):
    import transformers
    from trl.experimental.prm import PRMTrainer
    tok = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    net = plain.Net(folder, torch.float64, head="score")
    sep = case.settings["step_separator"]
    rows, worst = [], 0.0
    for r in trl_runs.read_rows(roots.runs / case.data)[:count]:
        one = PRMTrainer.tokenize_row(r, tok, sep, None, None, False, True)
        at = [i for i, v in enumerate(one["labels"]) if v != -100]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([one["input_ids"]])).logits[0, at]
            again = net.logits(torch.tensor(one["input_ids"]))[at]
        worst = max(worst, (logits.double() - again).abs().max().item())
        p = logits.double().softmax(-1)[:, 1].tolist()
        rows.append(dict(prompt=r["prompt"], completions=r["completions"], labels=r["labels"], ids=one["input_ids"],
                         at=at, logits=logits, step_scores=p, min=min(p), product=math.prod(p), last=p[-1]))
    return dict(about="step score = softmax(logits)[1] at the last token of the step's separator; BOS + prompt + (step + "
                "separator)..., every piece tokenised alone, nothing between prompt and first step",
                model=f"runs/{case.family}/{case.keep_model}", data=case.data, step_separator=sep,
                float64_gap=tools.sig(worst), rows=rows)
