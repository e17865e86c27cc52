"""Times TRL's DPOTrainer or RewardTrainer on pairs: one epoch in steps of 4 pairs.

usage: trl_pairs.py dpo|reward MODEL_DIR PAIRS.jsonl [--batch 4] [--seq 512] [--dtype bfloat16] [--lora R]
                    [--no-checkpointing]

A pair is {"prompt", "chosen", "rejected"}, lists of messages. The DPO trainer's forward passes of its reference are part
of its steps. Prints one JSON line: tokens of the epoch (both sides, without padding), seconds per step, tokens/s of all
steps but the first, peak RSS. Needs: torch transformers trl datasets (peft for --lora).
"""
import argparse
import json
import resource
import tempfile
import time

from datasets import load_dataset
from transformers import AutoTokenizer, TrainerCallback

p = argparse.ArgumentParser()
p.add_argument("what", choices=["dpo", "reward"])
p.add_argument("model")
p.add_argument("data")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--seq", type=int, default=512)
p.add_argument("--dtype", default="bfloat16")
p.add_argument("--lora", type=int, default=0)
p.add_argument("--no-checkpointing", action="store_true")
a = p.parse_args()
if a.what == "dpo":
    from trl import DPOConfig as Config, DPOTrainer as Trainer
else:
    from trl import RewardConfig as Config, RewardTrainer as Trainer


class Clock(TrainerCallback):
    spans = []

    def on_step_begin(self, *args, **kw):
        self.start = time.time()

    def on_step_end(self, *args, **kw):
        self.spans.append(time.time() - self.start)


pairs = load_dataset("json", data_files=a.data, split="train")
tokenizer = AutoTokenizer.from_pretrained(a.model)
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token


def length(pair, side):
    text = tokenizer.apply_chat_template(pair["prompt"] + pair[side], tokenize=False)
    return min(a.seq, len(tokenizer(text, add_special_tokens=False)["input_ids"]))


tokens = sum(length(pair, side) for pair in pairs for side in ("chosen", "rejected"))
peft = None
if a.lora:
    from peft import LoraConfig

    peft = LoraConfig(
        r=a.lora,
        lora_alpha=2 * a.lora,
        target_modules="all-linear",
        task_type="CAUSAL_LM" if a.what == "dpo" else "SEQ_CLS",
    )
with tempfile.TemporaryDirectory() as out:
    config = Config(
        output_dir=out,
        max_length=a.seq,
        per_device_train_batch_size=a.batch,
        num_train_epochs=1,
        learning_rate=1e-5,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
        model_init_kwargs={"dtype": a.dtype, "attn_implementation": "sdpa"},
        gradient_checkpointing=not a.no_checkpointing,
    )
    clock = Clock()
    Trainer(
        model=a.model,
        args=config,
        train_dataset=pairs,
        processing_class=tokenizer,
        callbacks=[clock],
        peft_config=peft,
    ).train()
steady = tokens * (len(clock.spans) - 1) / len(clock.spans) / sum(clock.spans[1:])
print(
    json.dumps(
        {
            "what": f"trl {a.what}",
            "args": {k: v for k, v in vars(a).items() if k not in ("model", "data")},
            "tokens": tokens,
            "seconds": clock.spans,
            "tok_s": steady,
            "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        }
    )
)
