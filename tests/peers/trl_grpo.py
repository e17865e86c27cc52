"""Times steps of TRL's GRPOTrainer on axtrain's word problems, sampling by transformers: the settings of
configs/grpo-problems.yml. usage: trl_grpo.py MODEL_DIR PROBLEMS.jsonl [--steps 3] [--samples 8] [--answers 64]
[--new 96] [--dtype float32] [--lora 16] [--threads 2]. Prints one JSON line: seconds and mean length of answers of each step
after the first, and peak memory."""
import argparse
import json
import resource
import tempfile
import time

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("data")
p.add_argument("--steps", type=int, default=3)
p.add_argument("--samples", type=int, default=8)
p.add_argument("--answers", type=int, default=64)
p.add_argument("--micro", type=int, default=16)
p.add_argument("--new", type=int, default=96)
p.add_argument("--dtype", default="float32")
p.add_argument("--lora", type=int, default=16)
p.add_argument("--threads", type=int, default=2)
a = p.parse_args()
torch.set_num_threads(a.threads)

with open(a.data) as f:
    rows = [json.loads(line) for line in f]
data = Dataset.from_list([{"prompt": r["messages"][:1], "final_answer": str(r["final_answer"])} for r in rows])


def final_answer(completions, final_answer, **_):
    ends = [c[0]["content"].rsplit("####", 1) for c in completions]
    return [float(len(e) == 2 and e[1].strip() == want) for e, want in zip(ends, final_answer)]


class Clock(TrainerCallback):
    begun, steps = 0.0, []

    def on_step_begin(self, *_, **__):
        self.begun = time.time()

    def on_log(self, args, state, control, logs=None, **_):
        if logs and "reward" in logs:
            self.steps.append(
                {"seconds": time.time() - self.begun, "tokens": logs["completions/mean_length"], "reward": logs["reward"]}
            )


clock = Clock()
with tempfile.TemporaryDirectory() as out:
    trainer = GRPOTrainer(
        model=a.model,
        reward_funcs=[final_answer],
        train_dataset=data,
        callbacks=[clock],
        peft_config=LoraConfig(r=a.lora, lora_alpha=2 * a.lora, target_modules="all-linear") if a.lora else None,
        args=GRPOConfig(
            output_dir=out, per_device_train_batch_size=a.micro, gradient_accumulation_steps=a.answers // a.micro,
            num_generations=a.samples, max_completion_length=a.new, learning_rate=2e-4, lr_scheduler_type="constant",
            max_steps=a.steps, logging_steps=1, save_strategy="no", report_to="none", use_cpu=True, bf16=False,
            model_init_kwargs={"dtype": getattr(torch, a.dtype)}, gradient_checkpointing=False,
        ),
    )
    trainer.train()
print(
    json.dumps(
        {
            "what": "TRL GRPOTrainer", "dtype": a.dtype, "lora": a.lora, "answers": a.answers, "samples": a.samples,
            "steps": clock.steps[1:], "peak_rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        }
    )
)
