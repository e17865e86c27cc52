"""A converted SmolLM2-135M-Instruct folder, loaded by the transformers that is installed, against
tests/goldens/smollm2: tokens, chat text, logits, NLL, greedy tokens.

    axtrain convert SmolLM2-135M-Instruct.Q4_1.gguf DIR --to hf [--dtype bfloat16]
    python check_converted.py DIR tests/goldens/smollm2

Exit code 0: all equal; 1: not; 77: skipped, as transformers or torch are not installed."""
import json
import sys


def load(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


class Report:
    bad = 0

    def check(self, what, ok, figure=""):
        print(f"{'ok    ' if ok else 'DIFFER'} {what} {figure}")
        self.bad += not ok


def tokenizer(report, tok, golden):
    wrong = [c for c in golden["cases"]
             if tok(c["text"], add_special_tokens=False)["input_ids"] != c["ids"]]
    report.check("token ids", not wrong, f"{len(golden['cases'])} texts, {len(wrong)} differ")
    plain = [c for c in golden["cases"] if tok(c["text"])["input_ids"] != c["ids"]]
    report.check("no token is added", not plain)
    wrong = [c for c in golden["cases"]
             if tok.decode(c["ids"], clean_up_tokenization_spaces=False)
             != c.get("decoded", c["text"])]
    report.check("decoded text", not wrong, f"{len(wrong)} differ")
    for what, key in (("chat text", False), ("chat ids", True)):
        wrong = 0
        for c in golden["chat"]:
            got = tok.apply_chat_template(c["messages"], tokenize=key,
                                          add_generation_prompt=c["add_generation_prompt"])
            got = got["input_ids"] if hasattr(got, "keys") else got
            wrong += got != c["ids" if key else "text"]
        report.check(what, wrong == 0, f"{len(golden['chat'])} chats, {wrong} differ")


def numbers(report, model, golden, column):
    import torch

    limit = 1e-3  # the fixture's logits have five decimals and fp32 noise of 4e-5
    for p in golden["prompts"]:
        want = p[column]
        ids = torch.tensor([p["ids"]])
        with torch.no_grad():
            logits = model(ids).logits[0, -1].float()
        worst = max(abs(logits[i].item() - v) for i, v in want["top20"])
        lse = abs(torch.logsumexp(logits, 0).item() - want["logsumexp"])
        report.check(f"{p['name']}: logits", max(worst, lse) < limit, f"{max(worst, lse):.1e}")
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=32, min_new_tokens=32, eos_token_id=None,
                             pad_token_id=0)[0, ids.shape[1]:].tolist()
        report.check(f"{p['name']}: greedy tokens", out == want["greedy"])
    ids = torch.tensor([golden["passage"]["ids"]])
    with torch.no_grad():
        logits = model(ids).logits[0, :-1].float()
    nll = torch.nn.functional.cross_entropy(logits, ids[0, 1:]).item()
    off = abs(nll - golden["passage"]["mean_nll"][column])
    report.check("mean NLL", off < 2e-5, f"{nll:.6f}, off by {off:.1e}")


def main():
    folder, goldens = sys.argv[1:3]
    try:
        import torch
        import transformers
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as e:
        print(f"skipped: {e}")
        return 77
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)
    report = Report()
    print(f"transformers {transformers.__version__}: {folder}")
    config = load(folder + "/config.json")
    tokenizer(report, AutoTokenizer.from_pretrained(folder), load(goldens + "/tokenize.json"))
    stored = config.get("torch_dtype", config.get("dtype"))
    auto, info = AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto",
                                                      output_loading_info=True)
    report.check("dtype read", str(auto.dtype) == "torch." + stored, stored)
    report.check("all weights used", not any(info.values()), str({k: v for k, v in info.items() if v}))
    numbers(report, auto.float(), load(goldens + "/model.json"),
            "fp32" if stored == "float32" else "bf16_weights")
    return report.bad > 0


if __name__ == "__main__":
    sys.exit(main())
