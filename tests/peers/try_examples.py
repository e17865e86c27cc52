"""Tries a folder of training configurations written for other programs: each is run for two steps
on a tiny random model of the architecture that it names, with rows of the shape that it asks for.

    try_examples.py FOLDER [--axtrain BIN] [--jobs N] [--why]

Prints one line for each file: trained; stopped (a key that this program does not support yet, with
its name); refused (a mistake that the file would have to correct); or failed (it should have run
and did not). Files of architectures that are not built in are listed, not run. Ends with counts;
the exit status is 1 when a file failed."""
import argparse
import collections
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import yaml

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../goldens")

SIZES = {
    "vocab_size": 640, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6, "hidden_act": "silu", "torch_dtype": "bfloat16",
}
EXPERTS = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2,
           "moe_intermediate_size": 48}

# What a name of a base model says about its architecture; the first that fits, in small letters.
OTHERS = re.compile(
    r"gemma|falcon|pythia|gpt|mamba|jamba|phi|qwen3[._-]?5|qwen3-next|qwen-7b$|qwen1\.5-moe|qwen2-vl"
    r"|qwen2[._]5-vl|llama-4|vision|llava|pixtral|mistral-small|mistral-medium|ministral-3|voxtral"
    r"|magistral-small-2509|command|deepseek|glm|lfm|granite|nemotron|olmo|apertus|seed-oss|mimo"
    r"|smolvlm|stablelm|starcoder|dbrx|mpt|redpajama|btlm|cerebras|replit|xgen|trinity|afm|kimi"
    r"|minimax|hunyuan|internvl|paddleocr|c4ai|arctic")
FAMILIES = [  # pattern, model_type, golden model of the tokenizer, further members of config.json
    (r"mixtral", "mixtral", "mistral", EXPERTS),
    (r"mistral|magistral|devstral|ministral", "mistral", "mistral", {}),
    (r"qwen3-.*a\d+b", "qwen3_moe", "qwen3", EXPERTS),
    (r"qwen3|plano", "qwen3", "qwen3", {}),
    (r"qwen2|deepcoder|cogito.*qwen|qwen1\.5", "qwen2", "qwen3", {}),
    (r"llama|yi-34b|orpheus|cogito|smollm", "llama", "llama", {}),
]
ROLES = {"from": ("human", "gpt")}


def family(cfg):
    name = str(cfg.get("base_model") or "").strip().lower()
    if OTHERS.search(name):
        return None
    return next((f for f in FAMILIES if re.search(f[0], name)), None)


def architecture(model_type):
    return {"mixtral": "Mixtral", "mistral": "Mistral", "qwen3_moe": "Qwen3Moe", "qwen3": "Qwen3",
            "qwen2": "Qwen2", "llama": "Llama"}[model_type] + "ForCausalLM"


def make_model(where, fam):
    _, model_type, tokenizer, more = fam
    source = os.path.join(GOLDENS, "models", tokenizer)
    os.makedirs(where)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if os.path.exists(os.path.join(source, name)):
            shutil.copy(os.path.join(source, name), where)
    config = {"model_type": model_type, "architectures": [architecture(model_type)], **SIZES, **more}
    with open(os.path.join(where, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def conversation(entry, i):
    maps = entry.get("message_property_mappings") or {}
    role = maps.get("role") or entry.get("message_field_role") or "role"
    content = maps.get("content") or entry.get("message_field_content") or "content"
    user, assistant = ROLES.get(role, ("user", "assistant"))
    column = entry.get("field_messages") or "messages"
    return {column: [{role: user, content: f"say {i}"}, {role: assistant, content: f"it is {i}"}]}


def row(entry, i):
    kind = entry.get("type")
    if isinstance(kind, dict):
        names = [kind.get("field_instruction", "instruction"), kind.get("field_output", "output")]
        return {names[0]: f"say {i}", kind.get("field_input", "input"): "", names[1]: f"it is {i}"}
    kind = str(kind)
    if kind.startswith(("chat_template", "sharegpt")):
        return conversation(entry, i)
    if kind.startswith("jeopardy"):
        return {"category": "numbers", "question": f"which is {i}?", "answer": f"it is {i}"}
    if kind == "None" and "text_column" not in entry:
        ids = [5 + i, 6, 7] * 10
        return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids}
    if kind in ("completion", "pretrain", "None"):
        return {entry.get("field") or entry.get("text_column") or "text": f"line {i} of a text"}
    return {"instruction": f"say {i}", "input": "twice" if i % 2 else "", "output": f"it is {i}"}


def make_rows(path, entry):
    with open(path, "w", encoding="utf-8") as f:
        for i in range(48):
            f.write(json.dumps(row(entry, i)) + "\n")


def localise(cfg, where):
    """Overrides that point every data set at rows of our own and make all sizes small."""
    out = []
    for key in ("datasets", "test_datasets", "pretraining_dataset"):
        entries = cfg.get(key)
        single = isinstance(entries, dict)
        for i, entry in enumerate([entries] if single else entries or []):
            path = os.path.join(where, f"{key}{i}.jsonl")
            make_rows(path, entry if key != "pretraining_dataset" else {"type": "pretrain", **entry})
            at = f"{key}.{i}"
            out.append(f"{at}.path={path}")
            out += [f"{at}.{k}=null" for k in ("name", "split", "data_files", "ds_type", "revision")
                    if entry.get(k) is not None]
    if cfg.get("val_set_size"):
        out.append("val_set_size=0.25")
    if cfg.get("model_revision") or cfg.get("revision_of_model"):
        out.append("model_revision=null")
    for key in ("chat_template_jinja", "base_model_config", "tokenizer_config", "lora_model_dir",
                "resume_from_checkpoint", "hub_model_id", "use_wandb", "wandb_project", "use_mlflow",
                "mlflow_experiment_name", "use_comet", "use_trackio", "trackio_project_name",
                "use_swanlab", "swanlab_project"):
        if cfg.get(key):
            out.append(f"{key}=null")
    if cfg.get("unfrozen_parameters"):  # may name layers that a tiny model lacks
        out.append("unfrozen_parameters=[lm_head.weight]")
    return out + [
        f"base_model={os.path.join(where, 'model')}", "reinit_weights=true", "sequence_len=256",
        "micro_batch_size=1", "gradient_accumulation_steps=2", "num_epochs=40", "max_steps=2",
        "batch_size=null", "merge_lora=null", f"dataset_prepared_path={where}/cache",
        f"output_dir={where}/out",
    ]


def run(axtrain, *args):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_CACHE": "/nonexistent"}
    p = subprocess.run([axtrain, *args], capture_output=True, text=True, timeout=120, env=env,
                       check=False)
    return p.returncode, p.stdout, p.stderr


def unsupported(text):
    """The capabilities that `config show` says are missing."""
    tail = text.partition("# NOTE not supported yet")[2].splitlines()[1:]
    return [line[4:].split(" (")[0] for line in tail if line.startswith("#   ")]


def complaint(stderr):
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line or "must" in line] or lines[-1:]
    return " / ".join(re.sub(r"\(?/\S+:\d+:\d+\)?", "", line) for line in wrong[:3])[:300]


def try_file(path, args):
    code, out, err = run(args.axtrain, "config", "show", path)
    if code != 0:
        return "refused", complaint(err)
    missing = unsupported(out)
    if missing:
        return "stopped", ", ".join(missing)
    with open(path, encoding="utf-8") as f:
        cfg = yaml.safe_load(f)
    fam = family(cfg)
    if fam is None:
        return "other architecture", str(cfg.get("base_model"))
    with tempfile.TemporaryDirectory() as where:
        make_model(os.path.join(where, "model"), fam)
        code, out, err = run(args.axtrain, "sft", path, *localise(cfg, where))
    ok = code == 0 and "trained 2 of 2 steps" in out
    return ("trained", fam[1]) if ok else ("failed", complaint(err) or out[-200:])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("folder")
    p.add_argument("--axtrain", default="build/axtrain")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--why", action="store_true", help="print reasons with the files of each")
    args = p.parse_args()
    args.axtrain = os.path.abspath(args.axtrain)
    files = sorted(os.path.join(d, name) for d, _, names in os.walk(args.folder) for name in names
                   if name.endswith((".yml", ".yaml")))
    counts, reasons = collections.Counter(), collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for path, (what, why) in zip(files, pool.map(lambda f: try_file(f, args), files)):
            name = os.path.relpath(path, args.folder)
            counts[what] += 1
            reasons[what, why].append(name)
            if not args.why:
                print(f"{what:18} {name}: {why}")
    for (what, why), names in sorted(reasons.items()) if args.why else []:
        print(f"{what:18} {len(names):3}  {why}: {', '.join(names[:6])}")
    print(f"{len(files)} files: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
