"""Whole training runs by TRL's own trainers, recorded.

Each Case is one run.  What is recorded, per micro-batch: the tensors that the
trainer fed, the value that its compute_loss returned, its metrics, and the
per-token log-probabilities of policy and reference; per optimizer step: the
log line; at the end: the parameters.
"""
import dataclasses
import importlib
import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import tools
import models
import torch                                   # noqa: E402
from safetensors.torch import load_file        # noqa: E402

COMMON = dict(
    per_device_train_batch_size=2, gradient_accumulation_steps=2, max_steps=6,
    learning_rate=1e-3, lr_scheduler_type="linear", warmup_steps=2,
    optim="adamw_torch", adam_beta1=0.9, adam_beta2=0.95, adam_epsilon=1e-8, weight_decay=0.1, max_grad_norm=1.0,
    seed=42)
# said in the README once; they are no part of the method
QUIET = dict(logging_steps=1, bf16=False, fp16=False, gradient_checkpointing=False, use_cpu=True, report_to="none",
             save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False, logging_first_step=False)

TRAINERS = dict(       # family -> (module, trainer, config)
    dpo=("trl", "DPOTrainer", "DPOConfig"),
    kto=("trl", "KTOTrainer", "KTOConfig"),
    orpo=("trl.experimental.orpo", "ORPOTrainer", "ORPOConfig"),
    cpo=("trl.experimental.cpo", "CPOTrainer", "CPOConfig"),
    reward=("trl", "RewardTrainer", "RewardConfig"),
    prm=("trl.experimental.prm", "PRMTrainer", "PRMConfig"),
    grpo=("trl", "GRPOTrainer", "GRPOConfig"),
    sft=("trl", "SFTTrainer", "SFTConfig"),
    gkd=("trl.experimental.gkd", "GKDTrainer", "GKDConfig"),
    distill=("trl.trainer.distillation_trainer", "DistillationTrainer", "DistillationConfig"),
)

# tensors of a micro-batch that depend on the data alone (shared between the cases of one `batches` key)
IDS = {"input_ids", "attention_mask", "completion_mask", "labels", "label", "margin", "position_ids", "cu_seq_lens_q",
       "KL_input_ids", "KL_attention_mask", "KL_completion_mask",
       "chosen_input_ids", "chosen_attention_mask", "chosen_labels",
       "rejected_input_ids", "rejected_attention_mask", "rejected_labels",
       "prompt_ids", "prompt_mask", "completion_ids", "prompts", "prompt_attention_mask"}
IGNORED_INPUTS = {"prompt_input_ids", "cu_seq_lens_k", "seq_idx", "max_length_q", "max_length_k", "use_cache",
                  "shift_labels", "byte_offsets"}
NEW_ADAPTER = "models/new_adapter"


@dataclasses.dataclass
class Case:
    family: str
    name: str
    model: str                  # model folder, relative to the folder of goldens
    data: str                   # rows, relative to the runs folder
    args: dict = dataclasses.field(default_factory=dict)
    about: str = ""
    batches: str = ""           # key of the shared file of fed tensors; default: the case's own
    tokenizer: str = ""         # tokenizer folder, when it is not the model's
    teacher: str = ""
    lora: dict = None           # LoraConfig settings: a new adapter
    adapter: str = ""           # PEFT folder: go on training this adapter
    keep_model: str = ""        # a folder like the trained one, under this name
    keep_seed: int = 0          # of its weights

    @property
    def settings(self):
        return dict(COMMON, **self.args)


def short(path, *roots):
    """A path as the README spells it: relative to the folder of goldens."""
    for r in roots:
        try:
            return str(Path(path).resolve().relative_to(Path(r).resolve()))
        except ValueError:
            pass
    return str(path)


def read_rows(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines() if line]


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(r, ensure_ascii=True) + "\n" for r in rows), encoding="utf-8")


def load_causal(folder, dtype=torch.float32, **kw):
    import transformers
    cfg = json.loads((Path(folder) / "config.json").read_text())
    if "expert" in json.dumps(cfg):
        kw["experts_implementation"] = "eager"
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **kw)


def checkpoint(model, folder):
    """Parameters under the names of the file that save_pretrained writes."""
    model.save_pretrained(folder)
    found = [p for p in Path(folder).glob("*.safetensors")]
    assert len(found) == 1, found
    return load_file(str(found[0]))


class Tape:
    def __init__(self):
        self.micro, self.logs, self.live = [], [], None


def taped(cls, tape):
    """The trainer class with recording added; it computes nothing else."""

    def stores(trainer):
        for name in ("_metrics", "_stored_metrics"):
            if hasattr(trainer, name):
                return getattr(trainer, name)["train"]
        return {}

    class Taped(cls):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            live = dict(inputs={k: (v.detach().clone() if torch.is_tensor(v) else v) for k, v in inputs.items()},
                        forwards=[], num_items_in_batch=None if num_items_in_batch is None else int(num_items_in_batch))
            before = {k: len(v) for k, v in stores(self).items()}
            tape.live = live
            out = super().compute_loss(model, inputs, return_outputs=return_outputs,
                                       num_items_in_batch=num_items_in_batch)
            tape.live = None
            loss = out[0] if isinstance(out, tuple) else out
            live["loss"], live["step"] = loss.item(), self.state.global_step
            live["metrics"] = {k: v[-1] for k, v in stores(self).items()
                               if k != "num_tokens" and len(v) == before.get(k, 0) + 1}
            tape.micro.append(live)
            return out

        def log(self, logs, start_time=None):
            super().log(logs, start_time)
            tape.logs.append(dict(logs))

    if hasattr(cls, "get_batch_logps"):                    # ORPO, CPO: one log-prob per sequence
        def get_batch_logps(*args, **kw):
            out = cls.get_batch_logps(*args, **kw)
            if tape.live is not None:
                tape.live["forwards"].append(("policy", True, "sequence_logps", out.detach().clone()))
            return out
        Taped.get_batch_logps = staticmethod(get_batch_logps)
    Taped.__name__ = Taped.__qualname__ = cls.__name__
    return Taped


def watch(tape, module, who):
    def hook(_m, _args, out):
        if tape.live is None:
            return
        value = getattr(out, "log_probs", None)
        kind = "logps"
        if value is None:
            value, kind = getattr(out, "logits", None), "logits"
        if value is not None:
            tape.live["forwards"].append((who, torch.is_grad_enabled(), kind, value.detach().clone()))
    module.register_forward_hook(hook)


def recorded_generation(cls):
    """GRPO and distillation: completions come from the rows (recorded_ids),
    and the generation batch is not shuffled before it is cut into micro-batches."""

    class Recorded(cls):
        def _generate_and_score_completions(self, inputs):
            self._rows_now = inputs
            return super()._generate_and_score_completions(inputs)

        def _generate_single_turn(self, prompt_ids, *args, **kw):
            g = getattr(self, "num_generations", 1)
            ids = [list(row["recorded_ids"][j % g]) for j, row in enumerate(self._rows_now)]
            return (ids, None) if "GRPO" in cls.__name__ else ids

    Recorded.__name__ = cls.__name__
    return Recorded


def correct(completions, correct, **_):
    return [c[j % len(c)] for j, c in enumerate(correct)]


def form(completions, form, **_):
    return [c[j % len(c)] for j, c in enumerate(form)]


def build_trainer(case, roots, tape, work):
    import transformers
    from datasets import Dataset, disable_caching
    disable_caching()
    module, trainer_name, config_name = TRAINERS[case.family]
    mod = importlib.import_module(module)
    cls = getattr(mod, trainer_name)
    config_cls = getattr(mod, config_name, None) or getattr(importlib.import_module("trl"), config_name)
    folder = roots.find(case.model)
    tok = transformers.AutoTokenizer.from_pretrained(roots.find(case.tokenizer or case.model))
    rows = read_rows(roots.runs / case.data)
    args = dict(QUIET, **case.settings)
    fields = {f.name for f in dataclasses.fields(config_cls)}
    if case.family in ("grpo", "distill"):
        args["shuffle_dataset"] = False
    else:
        args.setdefault("train_sampling_strategy", "sequential")
    args = {k: v for k, v in args.items()}
    unknown = set(args) - fields
    assert not unknown, (case.name, unknown)
    config = config_cls(output_dir=str(work / "out"), **args)
    kw = dict(args=config, processing_class=tok)
    peft_config = None
    if case.lora:
        from peft import LoraConfig
        peft_config = LoraConfig(**case.lora)

    if case.family == "reward":
        # as TRL does for a path: the score head is drawn after set_seed(seed)
        transformers.set_seed(config.seed)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder, num_labels=1, dtype=torch.float32, attn_implementation="eager")
    elif case.family == "prm":
        transformers.set_seed(config.seed)
        model = transformers.AutoModelForTokenClassification.from_pretrained(
            folder, num_labels=2, dtype=torch.float32, attn_implementation="eager")
    else:
        model = load_causal(folder)
        if case.adapter:
            from peft import PeftModel
            model = PeftModel.from_pretrained(model, roots.find(case.adapter), is_trainable=True)

    if case.family in ("dpo", "kto") and not case.lora and not case.adapter:
        kw["ref_model"] = load_causal(folder)
    if case.teacher:
        kw["teacher_model"] = load_causal(roots.find(case.teacher))
    if case.family in ("grpo", "distill"):
        rows = [{("recorded_ids" if k == "completion_ids" else k): v for k, v in r.items()} for r in rows]
        owner = importlib.import_module("trl.trainer.grpo_trainer" if case.family == "grpo" else module)
        owner.shuffle_sequence_dict = lambda d: d
        cls = recorded_generation(cls)
        if case.family == "grpo":
            kw["reward_funcs"] = [correct, form]
    kw["train_dataset"] = Dataset.from_list(rows)
    if peft_config is not None:
        kw["peft_config"] = peft_config
    transformers.set_seed(config.seed)
    trainer = taped(cls, tape)(model=model, **kw)
    watch(tape, trainer.model, "policy")
    ref = getattr(trainer, "ref_model", None)
    if ref is not None:
        watch(tape, ref, "ref")
    return trainer, tok


DROP_LOGS = {"epoch", "step_time", "train_runtime"}


def name_forward(family, case, index, who, grad):
    if family == "kto":
        order = ["kl_logps", "logps", "ref_kl_logps", "ref_logps"] if case.args.get("loss_type", "kto") == "kto" \
            else ["logps", "ref_logps"]
        return order[index]
    if grad:
        return "logps"
    return "ref_logps"


def run(case, roots, out):
    """Trains, records, writes out/family/name.{json,safetensors}; returns
    everything that a replay needs."""
    work = Path(tempfile.mkdtemp(prefix="runs-"))
    try:
        tape = Tape()
        trainer, tok = build_trainer(case, roots, tape, work)
        base = trainer.accelerator.unwrap_model(trainer.model)
        first = checkpoint(base, work / "first")
        if case.lora:
            keep_adapter(work / "first", out / NEW_ADAPTER)
        trainer.train()
        base = trainer.accelerator.unwrap_model(trainer.model)
        last = checkpoint(base, work / "last")
        if case.keep_model:
            keep_folder(base, tok, out / case.family / case.keep_model, case.keep_seed)
        decay = decay_names(trainer, base)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return write(case, roots, out, tape, first, last, decay, trainer)


def decay_names(trainer, model):
    """Which parameters AdamW decays (by the optimizer's own groups)."""
    names = {id(p): n for n, p in model.named_parameters()}
    out = {}
    for g in trainer.optimizer.param_groups:
        for p in g["params"]:
            out[names[id(p)]] = g["weight_decay"]
    return out


def keep_adapter(src, dst):
    """The adapter before training, the same in every run that starts one."""
    if dst.exists():
        a, b = (load_file(str(folder / "adapter_model.safetensors")) for folder in (src, dst))
        assert set(a) == set(b) and all(torch.equal(a[k], b[k]) for k in a), "runs start from different adapters"
        return
    dst.mkdir(parents=True)
    shutil.copyfile(src / "adapter_model.safetensors", dst / "adapter_model.safetensors")
    cfg = json.loads((src / "adapter_config.json").read_text())
    cfg["base_model_name_or_path"] = ""
    for k, v in cfg.items():
        if isinstance(v, list):
            cfg[k] = sorted(v)
    tools.save_json(dst / "adapter_config.json", cfg)


def keep_folder(model, tok, dst, seed):
    """A folder as training leaves it, with weights by the rule in place of the trained ones."""
    dst = tools.fresh(dst)
    model.save_pretrained(dst)
    tok.save_pretrained(dst)
    shapes = {name: list(t.shape) for name, t in load_file(str(dst / "model.safetensors")).items()}
    spec = dataclasses.replace(models.SPECS[0], seed=seed)
    models.save_weights(dst, *models.weights_by_rule(spec, "llama", shapes))
    for f in dst.glob("*.json"):
        if f.name != "weights.json":
            tools.save_json(f, json.loads(f.read_text()))


FULL = ("layers.1.self_attn.q_proj.lora_A.weight", "layers.1.self_attn.q_proj.lora_B.weight", "score.weight", "score.bias")


def final_tensors(first, last):
    """first 64 values of every tensor, a few whole ones, and norms."""
    tensors, norms, moved = {}, {}, {}
    for n in sorted(last):
        if n not in first or first[n].shape != last[n].shape:
            raise SystemExit(f"parameter {n} changed its name or shape")
        tensors["final64." + n] = last[n].reshape(-1)[:64]
        if n.endswith(FULL):
            tensors["final." + n] = last[n]
        norms[n] = last[n].double().norm().item()
        moved[n] = (last[n].double() - first[n].double()).norm().item()
    return tensors, norms, moved


def write(case, roots, out, tape, first, last, decay, trainer):
    steps_done = [x for x in tape.logs if "loss" in x]
    ids, own = {}, {}
    for m, live in enumerate(tape.micro):
        for k, v in live["inputs"].items():
            if k in IGNORED_INPUTS or not torch.is_tensor(v):
                continue
            if k in IDS:
                ids[f"m{m:02d}.{k}"] = v
            elif v.ndim == 0:
                live.setdefault("scalars", {})[k] = v.item()
            else:
                own[f"m{m:02d}.{k}"] = v
        for i, (who, grad, kind, value) in enumerate(live["forwards"]):
            if kind == "logits":
                if case.family == "prm":
                    name = "logits"
                elif case.family == "reward":
                    name = "scores"
                    value = value.squeeze(-1)
                else:
                    continue                       # ORPO, CPO, GKD: too large; their metrics speak
            elif kind == "sequence_logps":
                name = kind
            else:
                name = name_forward(case.family, case, i, who, grad)
            own[f"m{m:02d}.{name}"] = value
    own.update({"start." + n: v for n, v in first.items() if n.startswith("score.")})
    finals, norms, moved = final_tensors(first, last)
    own.update(finals)
    folder = out / case.family
    key = case.batches or case.name
    batch_file = folder / f"{key}.batches.safetensors"
    if batch_file.exists():
        have = load_file(str(batch_file))
        for k, v in have.items():
            assert k in ids and torch.equal(v.double(), ids[k].double()), (case.name, k)
        assert set(have) == set(ids), (case.name, set(have) ^ set(ids))
    else:
        tools.save_tensors(batch_file, {k: v.to(torch.uint8) if k.endswith("mask") else v for k, v in ids.items()})
    tools.save_tensors(folder / f"{case.name}.safetensors", own)

    rows = []
    for s, line in enumerate(steps_done):
        micro = []
        for live in (x for x in tape.micro if x["step"] == s):
            one = dict(loss=live["loss"])
            if live["num_items_in_batch"] is not None:
                one["num_items_in_batch"] = live["num_items_in_batch"]
            one.update(live.get("scalars", {}))
            one.update(live["metrics"])
            micro.append(one)
        log = {k: v for k, v in line.items() if k not in DROP_LOGS}
        rows.append(dict(step=s + 1, loss=log.pop("loss"), grad_norm=log.pop("grad_norm"),
                         learning_rate=log.pop("learning_rate"), metrics=log, micro=micro))
    pad = {"pad_token_id": trainer.model.config.pad_token_id} if "pad_token" in case.args else {}
    info = dict(
        about=case.about,
        trainer=".".join(TRAINERS[case.family][:2]),
        model=case.model, tokenizer=case.tokenizer or case.model, data=case.data,
        **({"teacher": case.teacher} if case.teacher else {}),
        **({"lora": case.lora, "adapter_start": f"runs/{NEW_ADAPTER}"} if case.lora else {}),
        **({"adapter_start": case.adapter} if case.adapter else {}),
        settings=dict(case.settings, **pad),
        fed=f"{case.family}/{key}.batches.safetensors",
        undecayed=sorted(n for n, w in decay.items() if not w),
        steps=rows, final_norm=norms, final_moved=moved)
    tools.save_json(folder / f"{case.name}.json", info)
    return dict(case=case, info=info, ids=ids, own=own, first=first, last=last)
