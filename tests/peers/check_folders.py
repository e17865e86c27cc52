"""Model folders that axtrain wrote (sft, convert, merge), in several versions of transformers: they
load without a complaint, all weights are used, and logits, tokens and chat text are those of the
first one.

usage: check_folders.py FOLDER... [--python OTHER_PYTHON]...

Exit code 0: all equal; 1: not; 77: skipped, as transformers or torch are not installed."""
import json
import subprocess
import sys
import tempfile

TEXTS = ["The capital of France is", "def f(x):\n    return x * 2\n", "12 × 7 = 84; naïve café 漢字 🙂",
         "Natalia sold clips to 48 of her friends in April, and then half as many in May."]
CHAT = [{"role": "user", "content": "What is 7 times 8?"}]
LIMIT = 1e-4  # float32 sums in another order


def look(folder, out):
    """What this interpreter's transformers makes of a folder, as JSON and an array."""
    import numpy as np
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    tok = AutoTokenizer.from_pretrained(folder)
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                       output_loading_info=True)
    ids = [tok(t)["input_ids"] for t in TEXTS]
    with torch.no_grad():
        logits = [model(torch.tensor([i])).logits[0, -1].double().numpy() for i in ids]
    np.save(out + ".npy", np.stack(logits))
    facts = {"version": transformers.__version__, "class": type(model).__name__,
             "eos": model.generation_config.eos_token_id, "ids": ids,
             "chat": tok.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True),
             "complaints": {k: sorted(map(str, v)) for k, v in info.items() if v}}
    with open(out + ".json", "w", encoding="utf-8") as f:
        json.dump(facts, f)


def facts_of(python, folder, scratch, n):
    import numpy as np

    out = f"{scratch}/{n}"
    subprocess.run([python, __file__, "--look", folder, out], check=True)
    with open(out + ".json", encoding="utf-8") as f:
        return json.load(f), np.load(out + ".npy")


def check(folder, pythons):
    import numpy as np

    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        first, logits = facts_of(pythons[0], folder, scratch, 0)
        print(f"{folder}: {first['class']}")
        for n, python in enumerate(pythons):
            facts, got = (first, logits) if n == 0 else facts_of(python, folder, scratch, n)
            apart = np.abs(got - logits).max()
            wrong = [k for k in ("class", "eos", "ids", "chat") if facts[k] != first[k]]
            wrong += ["complaints: " + str(facts["complaints"])] if facts["complaints"] else []
            wrong += ["logits"] if not apart < LIMIT else []
            print(f"  transformers {facts['version']}: largest difference of logits {apart:.1e}, "
                  f"{'DIFFER: ' + ', '.join(wrong) if wrong else 'ok'}", flush=True)
            bad += len(wrong)
    return bad


def main():
    words, folders, pythons = sys.argv[1:], [], [sys.executable]
    try:
        import numpy  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as e:
        print(f"skipped: {e}")
        return 77
    while words:
        word = words.pop(0)
        (pythons if word == "--python" else folders).append(words.pop(0) if word == "--python"
                                                            else word)
    return sum(check(f, pythons) for f in folders) > 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        look(*sys.argv[2:4])
    else:
        sys.exit(main())
