/* The command table, by name; in help by group and place. */
#include "cmd/commands.h"

#include "kernels/cpu/isa.h"

#define TRAIN_OPTIONS                                                                              \
    "  --json         one JSON object about the run on stdout\n"                                   \
    "  --quiet        no progress output\n"                                                        \
    "  --color WHEN   auto, always or never\n"
#define TRAIN_DETAILS                                                                              \
    "CONFIG is a YAML file; `axtrain init` writes one. key=value sets a key for this run only.\n"  \
    "The trained model, checkpoints and metrics.jsonl are written to output_dir; draw them with\n" \
    "`axtrain report`. SIGTERM, SIGUSR1, SIGHUP and Ctrl-C save before stopping; with\n"           \
    "resume_from_checkpoint: auto, the same command resumes from there.\n" TRAIN_OPTIONS
/* of the commands of single methods, after what is their own */
#define METHOD_DETAILS                                                                             \
    "CONFIG, output_dir, stopping and resuming: see `axtrain help sft`.\n" TRAIN_OPTIONS

const struct ax_command ax_commands[] = {
    {"bench", AX_COMMANDS_MEASURE, 1,
     "measure the speed of training and generation, and compare with earlier results",
     "[--model DIR|--arch NAME] [options]\n"
     "ops [--op NAME …] [options]\n"
     "step --model DIR|--arch NAME [options]\n"
     "generate --model DIR|--arch NAME [options]\n"
     "eval --model DIR|--arch NAME [options]",
     "ops: each op at the shapes of SmolLM2-135M, on a GPU some at those of Llama 3.1 8B.\n"
     "step: a training step. generate: prefill and\n"
     "decoding. eval: the loss of rows, and scores of four answers to each question. Without a\n"
     "kind: a short set of all (about a minute). Each share is relative to a peak that this\n"
     "process measures first: its fastest matrix product or its fastest copy (bytes read and\n"
     "written). A share above 100 % means that the operands fit in cache and those of the copy\n"
     "do not. Every kind takes:\n"
     "  --json              one JSON object on stdout: figures with unit, direction and share\n"
     "  -o FILE             also write the JSON to FILE\n"
     "  --compare OLD.json  compare with a file written by -o; exit code 1 if a figure is\n"
     "                      worse by more than the tolerance; names found in only one file\n"
     "                      are listed\n"
     "  --tolerance P       (with --compare) a percentage (default 5%)\n"
     "  --threads N         CPU threads (default: all available to this process)\n"
     "Every kind but ops takes:\n"
     "  --model DIR         a model folder (step: or a config.json, with random weights)\n"
     "  --arch NAME         a published shape with random weights, such as smollm2-135m, or\n"
     "                      llama-tiny\n"
     "Options of single kinds:\n"
     "  --dtype T           compute in float32 or bfloat16 (default: bfloat16 if the CPU supports\n"
     "                      it)\n"
     "  --backend B         (ops, step, generate) cpu, cuda or ref (default cpu)\n"
     "  --op NAME           (ops) only this op; repeatable\n"
     "  --write-random DIR  (step) write the model with random weights to a folder, then stop\n"
     "  --batch N           (step) documents per step (default 2); (generate) sequences in\n"
     "                      parallel (default: 1, then 8, then 64); (eval) rows, and\n"
     "                      questions (default 16)\n"
     "  --seq N             (step, eval) tokens per document (default 1024)\n"
     "  --steps N           (step) steps to time after two warm-up steps (default 6)\n"
     "  --accumulate N      (step) micro-batches per step (default 1)\n"
     "  --mesh SIZES        (step, on the ranks of a launcher) such as dp_shard=2,tp=2 (default:\n"
     "                      dp_shard is the number of ranks); --batch and --accumulate are per\n"
     "                      data rank\n"
     "  --zero STAGE        (step) as zero_stage: 3 (the default), 2 or 1\n"
     "  --attention-varies  (step) as attention_deterministic: false\n"
     "  --optimizer NAME    (step) as in `axtrain plan` (default adamw)\n"
     "  --masters KIND      (step) float32 (the default), bf16_remainder or bf16_sr\n"
     "  --moments KIND      (step) as moment_dtype: float32 (the default), bfloat16 …\n"
     "  --recompute MODE    (step) off, selective or on (default selective)\n"
     "  --lora R            (step) adapters of rank R on all linears, everything else frozen\n"
     "  --dora              (step) with --lora: train magnitudes too\n"
     "  --base KIND         (step) with --lora: store frozen matrices as plain, nf4,\n"
     "                      nf4-double, int4, int8 or fp8\n"
     "  --fp8 RECIPE        (step) linears train in 8-bit floats: tensorwise or rowwise\n"
     "  --prompt-tokens N   (generate) prompt tokens per sequence (default 128); (eval) tokens\n"
     "                      per question (default 128)\n"
     "  --new-tokens N      (generate) tokens to decode per sequence (default 64); (eval)\n"
     "                      tokens per answer (default 8)\n"
     "  --samples N         (generate) N answers of each prompt at temperature 1, by weights as\n"
     "                      they are while training; --batch counts answers\n"
     "  --rounds N          (generate) report the best of N runs (default 3); (eval) the median\n"
     "                      of N (default 3)\n",
     "axtrain bench step --arch smollm2-135m --batch 2 --seq 1024", .run = ax_cmd_bench,
     .launched = true},
    {"cache", AX_COMMANDS_LOOK, 4, "list or clear what axtrain keeps to save work",
     "list [--kind K] [--dir DIR] [--json]\n"
     "clear [--kind K] [--dir DIR] [--older-than DAYS] [--yes]",
     "Entries are prepared data sets (kind prepared), log-probs that preference training\n"
     "compares with (references), the small folders that belong to GGUF files (gguf),\n"
     "repositories with files that axtrain downloaded (hub), algorithms of a GPU's products\n"
     "(products) and the compiled interpreter of rewards (sandbox). All can be made or\n"
     "downloaded again. Also listed: what interrupted or older programs left, and locks of\n"
     "what is gone (leftover), and whatever else is in ~/.cache/axtrain (other). list prints\n"
     "size, last use and place of each; clear says what it would remove, and removes it with\n"
     "--yes. It removes nothing that a running process uses, and nothing else in these folders.\n"
     "  --kind K            prepared, references, gguf, hub, products, sandbox, leftover or\n"
     "                      other; repeatable (default: list all; clear all but hub, which\n"
     "                      Hugging Face's tools share, products, sandbox and other)\n"
     "  --dir DIR           a dataset_prepared_path; repeatable (default: last_run_prepared)\n"
     "  --older-than DAYS   (clear) only what was not used for this long\n"
     "  --yes               (clear) remove\n"
     "  --json              (list) one JSON object on stdout\n",
     "axtrain cache clear --older-than 30 --yes", .run = ax_cmd_cache},
    {"chat", AX_COMMANDS_SERVE, 2, "talk to a model",
     "[--model] M [options] | --url URL [--model NAME]",
     "M is a model folder, the folder of an adapter, which names its base, a GGUF file or a hub\n"
     "id. Each line is a message; /help lists commands, such as /retry and /undo; /save FILE adds\n"
     "the conversation to training data.\n"
     "On a terminal, lines are edited as in a shell, pasted text is one message, a backslash\n"
     "at the end continues a message, and \"\"\" begins and ends one of several lines. Earlier\n"
     "messages are in ~/.local/state/axtrain/chat_history (or XDG_STATE_HOME), for you alone.\n"
     "Ctrl-C stops a reply; twice, or Ctrl-D, quits. Also works in pipes, line by line.\n"
     "  --adapter [NAME=]DIR    a PEFT folder trained on this model; repeatable: the first\n"
     "                          one is active, and /adapter NAME switches\n"
     "  --base KIND             store matrices as plain (default), nf4, nf4-double, int4,\n"
     "                          int8 or fp8\n"
     "  --url URL               a model that is served (axtrain serve, vLLM and others), as\n"
     "                          http://127.0.0.1:8000/v1; the first of its models, or NAME\n"
     "  --api-key-file FILE     a file whose only line is the key for it (default: the variable\n"
     "                          AXTRAIN_API_KEY)\n"
     "  --system TEXT           system message\n"
     "  --tools TOOL            replies may call it (docs/tools.md): python, in the sandbox;\n"
     "                          module.function or file.py:function; a program's path. "
     "Repeatable;\n"
     "                          replies are shown with their calls and results when they are\n"
     "                          complete; /save adds the definitions\n"
     "  --max-tool-calling-iterations N, --tool-call-format NAME, --tool-parse-error answer|end\n"
     "                          (--tools) as the keys of trl with these names\n"
     "  --python-state fresh|kept, --tool-timeout S, --tool-workers N, --rollout-timeout S\n"
     "                          (--tools) these, too\n"
     "  --context N             length of the conversation in tokens (default: the model's,\n"
     "                          at most 8192)\n"
     "  --dtype T               float32 or bfloat16 (default: bfloat16 if the CPU supports it)\n"
     "  --max-new-tokens N      maximum length of a reply (default 1024)\n"
     "  --temperature X         0 = greedy; a filter without a temperature implies 1\n"
     "  --top-k N, --top-p X, --min-p X, --repetition-penalty X\n"
     "                          filters, applied in the same order as in transformers\n"
     "  --seed N                the same seed gives the same text for any --threads\n"
     "  --stop TEXT             end an answer before this text; repeatable\n"
     "  --threads N             CPU threads (default: all available to this process)\n"
     "  --device D              auto (default: a GPU if one can be used), cuda or cpu\n"
     "  --mesh SIZES            on the ranks of a launcher: tp=2 splits the model over 2 ranks\n"
     "                          (default: over all of them); ep=\n"
     "Unset options come from the model's generation_config.json. Where that does not say whether\n"
     "to sample, replies are sampled at temperature 0.7; without --seed, others each time.\n",
     "axtrain chat --model my-model/ --temperature 0.7", .run = ax_cmd_chat, .launched = true},
    {"check", AX_COMMANDS_LOOK, 2,
     "check that this build computes correctly here: ops, training, ranks",
     "self [--backend cpu|cuda|ref] [--dtype T] [--threads N] [--only NAME]\n"
     "mesh MODEL [pp=N] [dp_replicate=N] [dp_shard=N] [cp=N] [tp=N] [ep=N] [options]\n"
     "flight DIR",
     "self: what docs/determinism.md promises, with a small random model, in a minute: other\n"
     "thread counts, packed documents, accumulated micro-batches, recompute, a resumed run, "
     "answers\n"
     "in a batch, meshes of two ranks, and every op against ref. One line each: deviation and\n"
     "tolerance (0: the same bits). On the cpu in float32 and bfloat16, then on a GPU.\n"
     "mesh: runs two training steps of a small model on the given mesh and on one rank, and\n"
     "prints the worst relative error of each group. MODEL is a folder, or a config.json for\n"
     "random weights.\n"
     "flight: compares the last collectives of a job's ranks, from output_dir/flight, and\n"
     "names the rank and the call that differ. Ranks write them when they wait in vain, and\n"
     "on SIGUSR2.\n"
     "Exit code 0 only if all checks pass.\n"
     "  --only NAME        (self) only these lines: threads, packed, accumulation, recompute,\n"
     "                     resume, generation, mesh or kernels; repeatable\n"
     "  --backend B        self: only this one; mesh: ref (default), cpu or cuda\n"
     "  --dtype T          (self) only this compute dtype\n"
     "  --threads N        (self) CPU threads; self compares them with one\n"
     "  --gloo             (mesh) ranks as processes instead of threads\n"
     "  --micro-batches N  (mesh) micro-batches per data rank and step (default 3)\n"
     "  --tokens N         (mesh) tokens per row (default 96)\n"
     "  --pad N            (mesh) micro-batches of different lengths, multiples of N\n"
     "  --zero STAGE       (mesh) as zero_stage: 3 (the default), 2 or 1\n"
     "  --ring             (mesh) keys and values of cp's ranks in a ring, not gathered\n"
     "  --in-line          (mesh) as fsdp_prefetch: 0, tp_overlap and expert_overlap: off\n"
     "  --bf16             (mesh) with --backend cpu: compute in bfloat16\n"
     "  --adamw            (mesh) the optimizer AdamW instead of SGD\n"
     "  --schedule NAME    (mesh) of the pipeline: 1f1b (default), afab, interleaved,\n"
     "                     zero_bubble\n"
     "  --virtual N        (mesh) with interleaved: ranges of layers per rank (default 2)\n"
     "  --recompute MODE   (mesh) off, selective or on (default off)\n"
     "  --qat S            (mesh) linears train for scheme S (docs/quantization.md)\n"
     "  --fp8 RECIPE       (mesh) linears train in 8-bit floats: tensorwise or rowwise\n"
     "  --lora R           (mesh) a random adapter of rank R on a frozen model\n"
     "  --dora             (mesh) with --lora: train magnitudes too\n"
     "  --dropout P        (mesh) with --lora: dropout of the adapter's input\n"
     "  --base S           (mesh) with --lora: store frozen matrices as nf4, nf4-double,\n"
     "                     int4, int8 or fp8\n",
     "axtrain check self", .run = ax_cmd_check, .launched = true},
    {"ckpt", AX_COMMANDS_LOOK, 3,
     "show what a training checkpoint contains, check it, or write it anew",
     "show DIR\nverify DIR\nreshard DIR [-o OUT]",
     "DIR is a checkpoint, or the output_dir of a run: then its newest one.\n"
     "show: its step, the ranks that wrote it, its files, and numbers and bytes of masters and\n"
     "optimizer state. verify: reads every byte and compares checksums; exit code 3 names the\n"
     "file and the place of the damage. reshard: writes it as one rank would have, with one\n"
     "file of state whose tensors are whole. Training does not need that, since any mesh resumes\n"
     "from any checkpoint; other tools do, and one file is easier to keep than one of each of\n"
     "many ranks. DIR is verified before, the new folder before it takes DIR's place. A folder in\n"
     "which a run works is refused, as a second run is.\n"
     "  -o OUT   (reshard) write this folder, and leave DIR as it is\n",
     "axtrain ckpt verify out/checkpoint-500", .run = ax_cmd_ckpt},
    {"completion", AX_COMMANDS_LOOK, 6,
     "print a script that completes commands, options and keys in a shell", "bash\nzsh\nfish",
     "  bash   in ~/.bashrc: source <(axtrain completion bash)\n"
     "  zsh    in a folder of $fpath: axtrain completion zsh > _axtrain\n"
     "  fish   axtrain completion fish > ~/.config/fish/completions/axtrain.fish\n",
     "axtrain completion bash", .run_among = ax_cmd_completion},
    {"config", AX_COMMANDS_TRAIN, 16, "explain and check configurations",
     "help [KEY]\nshow FILE [key=value | --key value] [--all | --json]\nschema\ndocs\nmodels",
     "  help KEY   type, default, range and meaning of a key, and whether axtrain supports it\n"
     "  show FILE  the resolved configuration, with the origin of each value\n"
     "  schema     a JSON Schema for editors\n"
     "  docs       the reference of all keys as Markdown\n"
     "  models     the models that base_model may be of, by config.json's model_type\n"
     "  -o FILE    write to FILE instead of standard output\n"
     "  --all      (show) why each key without effect has none\n"
     "  --json     (show) values, origins and notes as one JSON object\n",
     "axtrain config show sft.yaml learning_rate=1e-4", .run = ax_cmd_config},
    {"convert", AX_COMMANDS_MODELS, 2,
     "convert between GGUF and Hugging Face folders, or dequantize one",
     "SRC DST --to hf [--dtype T]\n"
     "SRC DST --to gguf [--quant Q] [--overwrite] [--ollama] [--threads N]\n"
     "ADAPTER DST --to gguf [--quant f32|f16|bf16] [--base M] [--overwrite]",
     "Architectures: llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, qwen2_moe, gemma2,\n"
     "gemma3_text, gemma3n_text, gemma4_text, ministral3, granite, smollm3, olmo2, phi3,\n"
     "glm4, glm4_moe, deepseek_v2, deepseek_v3, deepseek_v32, glm_moe_dsa, gpt_oss, cohere,\n"
     "cohere2, seed_oss, ernie4_5, ernie4_5_moe, exaone4, hunyuan_v1_dense, minimax_m2, lfm2,\n"
     "lfm2_moe, granitemoehybrid, falcon_h1, nemotron_h, qwen3_next, qwen3_5_text,\n"
     "qwen3_5_moe_text, llama4_text, kimi_linear, mimo_v2_flash, arcee, dots1, gemma, olmoe.\n"
     "--to hf: SRC is a GGUF file (F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K\n"
     "Q6_K IQ4_NL IQ4_XS MXFP4). DST becomes a folder with weights, config, tokenizer and chat\n"
     "template; it must be empty or not exist. Of a Hugging Face folder, or an org/name in\n"
     "the cache, it gets the weights in another type, and dequantized (GPTQ, AWQ, FP8,\n"
     "bitsandbytes, compressed-tensors, MXFP4 ...).\n"
     "  --dtype T     float32, bfloat16 or float16 for the written weights (default: of a\n"
     "                GGUF file the smallest type that represents all matrices exactly, of a\n"
     "                folder its own)\n"
     "--to gguf: SRC is a Hugging Face folder, an org/name in the local Hugging Face cache, or\n"
     "a GGUF file of another type (with --quant).\n"
     "DST becomes one file with all of the above, as llama.cpp reads it.\n"
     "  --quant Q     f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q3_k_m q4_k_m q5_k_m q6_k (default:\n"
     "                the type of the weights). If the row length is not a multiple of 256,\n"
     "                Q3_K becomes IQ4_NL, Q4_K Q5_0, Q5_K Q5_1 and Q6_K Q8_0.\n"
     "  --overwrite   replace DST if it exists\n"
     "  --ollama      also write DST's folder/Modelfile for `ollama create`: the chat template\n"
     "                in Go's language, and the tokens that end an answer\n"
     "  --threads N   CPU threads (default: all available to this process)\n"
     "ADAPTER is a PEFT folder: DST becomes an adapter that llama.cpp loads beside the base\n"
     "(llama-server --lora).\n"
     "  --base M      its base model (default: the one that adapter_config.json names); only\n"
     "                config.json is read\n",
     "axtrain convert my-model/ my-model.Q4_K_M.gguf --to gguf --quant q4_k_m",
     .run = ax_cmd_convert},
    {"dpo", AX_COMMANDS_TRAIN, 5,
     "train a model on preferences, as rl says: dpo, orpo, cpo, simpo, kto",
     "CONFIG [key=value …] [options]",
     "Records have a preferred and a rejected answer to a prompt; for kto one answer with a label\n"
     "(docs/data-formats.md). The model at the start is the reference, computed once before the\n"
     "first step. Keys: rl, rl_beta, dpo_loss_type … (docs/preferences.md).\n" METHOD_DETAILS,
     "axtrain dpo dpo.yaml rl_beta=0.05 output_dir=out", .run = ax_cmd_dpo, .trains = true},
    {"env", AX_COMMANDS_MEASURE, 2, "show what this machine and this build have", "[--json]",
     "  --json   one JSON object on stdout\n", "axtrain env", .run = ax_cmd_env, .launched = true},
    {"eval", AX_COMMANDS_SERVE, 4,
     "evaluate a model on data: loss, perplexity, token accuracy, solved problems",
     "[--model] M --data FILE [options]\n[--model] M --config FILE [options]\n"
     "[--model] M --task NAME [options]",
     "M is a model folder, the folder of an adapter, which names its base, a GGUF file or a hub\n"
     "id.\n"
     "Negative log-likelihood (nats) and accuracy of the tokens that training would train on.\n"
     "Data is prepared as for training: with the model's tokenizer and chat template, answers\n"
     "only.\n"
     "--task NAME|FILE has lm-evaluation-harness run a task, with this model (docs/eval.md).\n"
     "  --adapter [NAME=]DIR\n"
     "                       a PEFT folder trained on this model; repeatable: prints a table\n"
     "                       of the base and all adapters, and loads the model once;\n"
     "                       records are read with the adapter's own tokenizer and template\n"
     "  --base KIND          store matrices as plain (default), nf4, nf4-double, int4,\n"
     "                       int8 or fp8\n"
     "  --data FILE          records (JSONL …); with --config, read as its data set is\n"
     "  --config FILE        a training configuration; without --data, its evaluation data\n"
     "  --type T             dataset type of --data (default chat_template: records with\n"
     "                       messages)\n"
     "  --rows N             only the first N records\n"
     "  --task final-answer  also answer each record greedily and count the final answers (after\n"
     "                       \"####\") that match the record's own\n"
     "  --task reward|prm    score the records of --data with a reward model or a process reward\n"
     "                       model: a line of JSON per record (docs/eval.md)\n"
     "  --task NAME|FILE     a task or group of lm-evaluation-harness, by name (mmlu, ifeval) or\n"
     "                       YAML file; several with commas between them; repeatable. Needs\n"
     "                       lm_eval in AXTRAIN_PYTHON or python3\n"
     "  --include-path DIR   (harness) folder of task files, which --task and groups then name\n"
     "                       (default: the folders of the files given)\n"
     "  --num-fewshot N      (harness) examples before each record, unless the task says 0\n"
     "  --apply-chat-template\n"
     "                       (harness) examples and question as turns of a conversation\n"
     "  --fewshot-single-turn\n"
     "                       (harness) with the chat template: all in one user turn\n"
     "  --system TEXT        (harness) an instruction before everything\n"
     "  --max-length N       (harness) tokens of prompt and answer (default: the model's\n"
     "                       positions); longer prompts lose their beginning\n"
     "  --log-samples FILE   (harness) write one line of JSON per record and filter\n"
     "  --samples N          sample N answers per record instead: pass@k, the probability\n"
     "                       that at least one of k is right, estimated without bias (Chen\n"
     "                       et al. 2021)\n"
     "  --tools TOOL         (final-answer) answers may call it (docs/tools.md): python, in the\n"
     "                       sandbox; module.function or file.py:function; a program's path.\n"
     "                       Repeatable; the last turn is what counts\n"
     "  --max-tool-calling-iterations N, --tool-call-format NAME, --tool-parse-error answer|end\n"
     "                       (--tools) as the keys of trl with these names\n"
     "  --python-state fresh|kept, --tool-timeout S, --tool-workers N, --rollout-timeout S\n"
     "                       (--tools) these, too\n"
     "  --log-steps FILE     (--samples) write every different wrong answer after a right one to "
     "the\n"
     "                       same question, with labeled steps: data for a process reward model\n"
     "  --best-of N          sample N answers per record as well: records solved by the greedy\n"
     "                       answer, by the most frequent one, and by the one that the scorer\n"
     "                       prefers (docs/eval.md)\n"
     "  --scorer DIR         a reward model or a process reward model, or an adapter of one;\n"
     "                       it is loaded when all answers are there\n"
     "  --score-by HOW       (process reward model) min (default), product or last of the steps\n"
     "  --pass-at K,K,…      values of k, up to N (default 1,N)\n"
     "  --temperature X, --top-p X\n"
     "                       for sampled answers (default 1, 1)\n"
     "  --seed N             the same seed gives the same answers for any --batch and --threads;\n"
     "                       (harness) it also draws the examples (default 1234)\n"
     "  --max-new-tokens N   maximum length of an answer (default 256)\n"
     "  --batch N            answers generated in parallel (default 16; harness: by memory)\n"
     "  --dtype T            compute in float32 or bfloat16 (default: as the run that wrote the\n"
     "                       folder of the model or adapter, else float32)\n"
     "  --threads N          CPU threads (default: all available to this process)\n"
     "  --device D           auto (default: a GPU if one can be used), cuda or cpu\n"
     "  --mesh SIZES         on the ranks of a launcher, such as tp=2: as of generate\n"
     "  --per-row            one line of JSON per record, and one for the total\n"
     "  --json               one JSON object\n"
     "  -o FILE              write to FILE instead of standard output\n",
     "axtrain eval --model my-model/ --data test.jsonl --task final-answer", .run = ax_cmd_eval,
     .launched = true},
    {"fetch", AX_COMMANDS_TRAIN, 14,
     "download the hub models and data sets of a configuration, ahead of training",
     "CONFIG [key=value …]",
     "Models and data sets given as hub ids (org/name) are downloaded to the local Hugging\n"
     "Face cache. Files already there are not downloaded again; interrupted downloads resume.\n"
     "fetch looks branches up again; other commands use the cache and download only what is\n"
     "missing.\n"
     "Environment: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN (or the token that `hf auth\n"
     "login` stored), HF_HUB_OFFLINE, HTTPS_PROXY, SSL_CERT_FILE; AXTRAIN_DUCKDB is the\n"
     "library that reads Parquet.\n",
     "axtrain fetch sft.yaml", .run = ax_cmd_fetch, .launched = true},
    {"generate", AX_COMMANDS_SERVE, 1, "continue prompts, or answer them",
     "[--model] M [--prompt TEXT | --input FILE.jsonl] [options]",
     "M is a model folder, the folder of an adapter, which names its base, a GGUF file or a hub\n"
     "id. Without --prompt and --input, the prompt is read from standard input. A single answer "
     "is\n"
     "printed as it is generated; several are printed in order.\n"
     "  --prompt TEXT           one prompt\n"
     "  --input FILE            {\"prompt\": \"…\"} or {\"messages\": […]}, one per line; - is\n"
     "                          standard input; \"tools\" and \"chat_template_kwargs\" of a\n"
     "                          conversation reach the chat template\n"
     "  --adapter [NAME=]DIR    a PEFT folder trained on this model; repeatable. A line's\n"
     "                          \"adapter\": \"NAME\" (or \"base\") selects one; the default is\n"
     "                          the first\n"
     "  --each-adapter          run every prompt with the base and with each adapter\n"
     "  --base KIND             store matrices as plain (default), nf4, nf4-double, int4,\n"
     "                          int8 or fp8\n"
     "  --chat                  treat a prompt as a user message and apply the model's chat\n"
     "                          template\n"
     "  --system TEXT           system message for conversations that have none\n"
     "  --n N                   answers per prompt (default 1)\n"
     "  --best-of N             sample N answers per prompt, at temperature 1 if none is set, and\n"
     "                          print the one with the highest score\n"
     "  --scorer DIR            a reward model or a process reward model, or an adapter of one;\n"
     "                          it is loaded when all answers are there\n"
     "  --score-by HOW          (process reward model) min (default), product or last of the\n"
     "                          steps\n"
     "  --tools TOOL            answers may call it (docs/tools.md): python, in the sandbox;\n"
     "                          module.function or file.py:function; a program's path. "
     "Repeatable;\n"
     "                          implies --chat. All turns are printed; --json adds messages, "
     "tools,\n"
     "                          calls and ids\n"
     "  --max-tool-calling-iterations N, --tool-call-format NAME, --tool-parse-error answer|end\n"
     "                          (--tools) as the keys of trl with these names\n"
     "  --python-state fresh|kept, --tool-timeout S, --tool-workers N, --rollout-timeout S\n"
     "                          (--tools) these, too\n"
     "  --batch N               sequences in parallel (default 16)\n"
     "  --drafts                draft tokens by the model's layer for multi-token prediction\n"
     "                          (deepseek_v3, glm4_moe): the same answers in fewer passes\n"
     "  --json                  one JSON object per answer: row (from 0), the record's id and "
     "prompt\n"
     "                          or messages, text, tokens, finish, logprob\n"
     "  -o FILE                 write the answers to FILE\n"
     "  --dtype T               float32 or bfloat16 (default: bfloat16 if the CPU supports it)\n"
     "  --max-new-tokens N      maximum length of an answer, end token included (default 256)\n"
     "  --temperature X         0 = greedy; a filter without a temperature implies 1\n"
     "  --top-k N, --top-p X, --min-p X, --repetition-penalty X\n"
     "                          filters, applied in the same order as in transformers\n"
     "  --seed N                the same seed gives the same text for any --batch and --threads\n"
     "  --stop TEXT             end an answer before this text; repeatable\n"
     "  --threads N             CPU threads (default: all available to this process)\n"
     "  --device D              auto (default: a GPU if one can be used), cuda or cpu\n"
     "  --mesh SIZES            on the ranks of a launcher, such as tp=2,dp_replicate=2: tp and\n"
     "                          dp_shard split the model, dp_shard and dp_replicate share the\n"
     "                          prompts (default: dp_replicate takes what the others leave); ep=\n"
     "Unset options come from the model's generation_config.json; without that file, greedy.\n",
     "axtrain generate --model my-model/ --chat --prompt \"What is 7 times 8?\"",
     .run = ax_cmd_generate, .launched = true},
    {"grpo", AX_COMMANDS_TRAIN, 6,
     "train a model on rewards for its own answers, as rl says: grpo or gdpo",
     "CONFIG [key=value …] [options]",
     "Records have prompts: the model answers each several times, trl.reward_funcs reward the\n"
     "answers, and those above the mean of their prompt become more likely. Keys: rl, trl.*\n"
     "(docs/grpo.md, docs/rewards.md).\n" METHOD_DETAILS,
     "axtrain grpo grpo.yaml trl.num_generations=16 output_dir=out", .run = ax_cmd_grpo,
     .trains = true},
    {"help", AX_COMMANDS_LOOK, 5, "explain axtrain, or one command", "[COMMAND]",
     "  --man   print the manual page, for man -l\n", "axtrain help sft", .run_among = ax_cmd_help},
    {"init", AX_COMMANDS_TRAIN, 1,
     "write a configuration that fits a model, a data set and this machine",
     "--model M --data FILE [-o FILE]",
     "Detects the record type (chat messages, conversations, instruction and output, question\n"
     "and answer, prompt and completion, text; preferences, labeled steps), tokenizes the data,\n"
     "and plans a step: full fine-tuning if it fits in free memory, otherwise LoRA, otherwise\n"
     "QLoRA. Comments in the file say why, and it runs as written.\n"
     "  --model M     a model folder, a GGUF file or a hub id\n"
     "  --data FILE   records (JSONL, JSON, CSV, Parquet, text)\n"
     "  -o FILE       where to write (default: sft.yaml, dpo.yaml or prm.yaml); an existing\n"
     "                file is never overwritten\n",
     "axtrain init --model my-model/ --data train.jsonl", .run = ax_cmd_init},
    {"launch", AX_COMMANDS_TRAIN, 12, "start a command on several ranks",
     "-n N [options] COMMAND …",
     "Starts N processes of COMMAND on this host, which find each other. `axlaunch` is the same.\n"
     "A rank that dies ends the others within 5 s, and one line names it; launch exits with the\n"
     "code of the rank that failed first, and passes signals on. On several hosts, run it once\n"
     "per host, with the same token in AXTRAIN_TOKEN_FILE. torchrun, srun and mpirun start\n"
     "ranks as well (docs/launch.md). A command that works in one process is refused.\n"
     "  -n N                ranks on this host\n"
     "  --nnodes N          hosts (default 1), with N ranks each\n"
     "  --node-rank R       number of this host, from 0\n"
     "  --master-addr HOST  address of host 0, by which the others reach it\n"
     "  --master-port P     its port (default 29500; on one host any free one)\n"
     "  --restarts N        start again up to N times after a rank was lost; training resumes\n"
     "                      from its last checkpoint (default 0)\n"
     "  --spares N          of a run with elastic: true: devices beyond the first N ranks' that\n"
     "                      take the places of lost ranks' (default 0: the mesh gets smaller)\n"
     "  --output WHICH      rank0: only its output, and the last lines of a rank that fails (the\n"
     "                      default); all: every line, as \"[RANK] LINE\"\n"
     "  --timeout S         seconds for all ranks to arrive (default 600)\n",
     "axtrain launch -n 2 sft sft.yaml dp_shard_size=2", .run_among = ax_cmd_launch},
    {"merge", AX_COMMANDS_MODELS, 1, "merge an adapter into its base model",
     "BASE ADAPTER DST [--dtype T] [--to gguf [--quant Q] [--overwrite]] [--threads N]",
     "BASE is a model folder, a GGUF file or a hub id, ADAPTER a PEFT folder; DST becomes a\n"
     "model folder.\n"
     "Each adapted matrix becomes W + s·B·A, or with DoRA m·V/|V| by rows of V = W + s·B·A:\n"
     "computed in float64 from the stored numbers and rounded once. Then both models run on a\n"
     "probe batch, and the largest difference between their logits is printed. Nothing is\n"
     "written if that difference is too large, if the adapter changes nothing, or if BASE\n"
     "already contains it.\n"
     "  --dtype T     float32, bfloat16 or float16 for the merged weights (default: BASE's)\n"
     "  --to gguf     write one GGUF file instead; --quant and --overwrite as in convert\n"
     "  --threads N   CPU threads\n",
     "axtrain merge my-model/ my-adapter/ merged/", .run = ax_cmd_merge},
    {"plan", AX_COMMANDS_TRAIN, 3, "show what training would need, without running it",
     "CONFIG [key=value …] [--world N] [--hardware NAME] [--search] [--blocks] [--speed N] "
     "[--json]\nMODEL | --arch NAME [options]",
     "Does it fit? Memory, steps, tokens, time and disk space: for a configuration with its\n"
     "data, or a step of a model (a folder, config.json, GGUF file or hub id) with the sizes\n"
     "below. Of a mesh also what the ranks of each pipeline stage need, and what a rank sends\n"
     "in a step, by role and collective. Reads no weights, and writes a timeline at most;\n"
     "says what it could not count.\n"
     "  --blocks           every block of memory by name\n"
     "  --speed N          tokens per second, instead of a measurement\n"
     "  --world N          on N ranks: those of the mesh keys, or --mesh, filled by\n"
     "                     dp_shard_size\n"
     "  --hardware NAME    the time of a step on h100-sxm-80, h200, a100-80, rtx4090 …, or on a\n"
     "                     machine of FILE.tsv[:NAME]: tokens per second, MFU, what ranks wait\n"
     "                     for; docs/results/plan-time.md says how well that agrees\n"
     "  --measured         the same on this machine, whose products and memory are measured\n"
     "  --search           with --world and --hardware: the three fastest meshes that fit, with\n"
     "                     micro-batch and recompute, and why others are left out\n"
     "  --timeline FILE    with --hardware: what each pipeline stage computes and waits for in\n"
     "                     that time, for chrome://tracing or ui.perfetto.dev\n"
     "  --mesh SIZES       of a model: dp_shard=4,tp=2 …\n"
     "  --device D         of a model: cuda (no GPU is needed; with the --hardware of an H100 or\n"
     "                     H200, at the speed of axtrain's own kernels) or cpu (default: auto,\n"
     "                     where a GPU can be used cuda)\n"
     "  --model MODEL      the same as MODEL\n"
     "  --arch NAME        instead of MODEL, a published shape: llama-3.1-8b, qwen3-30b-a3b …\n"
     "  --dtype T          compute dtype (default bfloat16)\n"
     "  --batch N          documents per micro-batch (default 1)\n"
     "  --seq N            tokens per document (default 2048)\n"
     "  --accumulate N     micro-batches per step (default 1)\n"
     "  --optimizer NAME   adamw (the default), adamw_8bit, lion, adafactor, muon, sgd, or\n"
     "                     any name that the optimizer key takes\n"
     "  --masters KIND     float32 (the default), bf16_remainder or bf16_sr\n"
     "  --moments KIND     as moment_dtype: float32 (the default), bfloat16 …\n"
     "  --recompute MODE   off, selective or on (default: all three)\n"
     "  --lora R           adapters of rank R on all linears, everything else frozen\n"
     "  --dora             with --lora: train magnitudes too\n"
     "  --base KIND        with --lora: store frozen matrices as plain, nf4, nf4-double,\n"
     "                     int4, int8 or fp8\n"
     "  --fp8 RECIPE       linears train in 8-bit floats: tensorwise or rowwise\n"
     "  --threads N        CPU threads to plan for\n"
     "  --json             one JSON object on stdout\n",
     "axtrain plan sft.yaml micro_batch_size=2", .run = ax_cmd_plan},
    {"ppo", AX_COMMANDS_TRAIN, 7, "train a model on rewards, with a value model beside it",
     "CONFIG [key=value …] [options]",
     "Records have prompts; a value model learns beside the policy what an answer is worth at\n"
     "each token. Keys: rl: ppo, ppo.* (docs/ppo.md), and trl.reward_funcs "
     "(docs/rewards.md).\n" METHOD_DETAILS,
     "axtrain ppo ppo.yaml ppo.reward_model_path=outputs/rm output_dir=out", .run = ax_cmd_ppo,
     .trains = true},
    {"preprocess", AX_COMMANDS_TRAIN, 13,
     "tokenize the data sets of a configuration ahead of training",
     "CONFIG [key=value …] [--refresh]",
     "Reads, checks, renders and tokenizes every data set and stores the result in\n"
     "dataset_prepared_path, so that training starts immediately.\n"
     "  --refresh   prepare again even if the data is cached\n",
     "axtrain preprocess sft.yaml", .run = ax_cmd_preprocess},
    {"preview", AX_COMMANDS_TRAIN, 2,
     "show what training will see: records, ids, and which tokens are trained on",
     "CONFIG [key=value …] [options]",
     "  --step N        show the batch of this step (default: the first)\n"
     "  --rows K        show at most K sequences\n"
     "  --ids           show token ids next to the text\n"
     "  --eval          show the evaluation data instead of the training data\n"
     "  --color WHEN    auto, always or never\n"
     "  --json          one JSON object on stdout\n",
     "axtrain preview sft.yaml --rows 2", .run = ax_cmd_preview},
    {"prm", AX_COMMANDS_TRAIN, 9, "train a model that scores the steps of solutions",
     "CONFIG [key=value …] [options]",
     "Records have solutions in steps with a label for each; the model learns the probability\n"
     "that a step is right. Key: process_reward_model: true "
     "(docs/reward-models.md).\n" METHOD_DETAILS,
     "axtrain prm prm.yaml learning_rate=2e-5 output_dir=out", .run = ax_cmd_prm, .trains = true},
    {"problems", AX_COMMANDS_TRAIN, 15, "write generated problems: data to try things out with",
     "[options] -o FILE",
     "Grade-school word problems as chat records, {\"messages\": [user, assistant], \"level\":\n"
     "…}. The answer has one line per step and ends with \"#### NUMBER\". The same seed gives\n"
     "the same records; the two splits never share a question, whatever their seeds.\n"
     "  --rows N         number of records (default 1000)\n"
     "  --seed N         (default 1)\n"
     "  --split S        train (default) or test\n"
     "  --min-level N    minimum number of steps, 1 to 4 (default 1)\n"
     "  --max-level N    maximum number of steps (default 4; with --code, 3)\n"
     "  --max-number N   largest number in question and solutions (default: any)\n"
     "  --scale N        numbers that problems start from are N times as large, up to 100\n"
     "                   (default 1)\n"
     "  --pairs          preferences instead: {\"prompt\", \"chosen\", \"rejected\"}, the "
     "rejected\n"
     "                   answer with a mistake in one line and its consequences in those after it\n"
     "  --steps          labeled steps instead: {\"prompt\", \"completions\": lines, \"labels\"};\n"
     "                   of each problem a right solution, then one that is wrong from some\n"
     "                   line on\n"
     "  --tool           the answer calls the tool `python` in place of steps (docs/tools.md)\n"
     "  --code           programming tasks instead: {\"messages\", \"level\", \"entry_point\",\n"
     "                   \"tests\"}, where the answer is a Python function and the tests are "
     "those\n"
     "                   of the reward `code`; the splits never share a specification\n"
     "  -o FILE          write to FILE instead of standard output\n",
     "axtrain problems --rows 2000 --seed 1 -o train.jsonl", .run = ax_cmd_problems},
    {"qat", AX_COMMANDS_TRAIN, 10,
     "train a model for quantization, as qat says (docs/quantization.md)",
     "CONFIG [key=value …] [options]",
     "Weights, and with most schemes inputs, are rounded in training as `axtrain quantize` does\n"
     "afterwards, so that the model learns to live with it. Keys: qat.* "
     "(docs/quantization.md).\n" METHOD_DETAILS,
     "axtrain qat qat.yaml qat.scheme=int4-int8 output_dir=out", .run = ax_cmd_qat, .trains = true},
    {"quantize", AX_COMMANDS_MODELS, 3,
     "write a model with quantized weights, for vLLM and transformers",
     "MODEL OUT --scheme S [options]\nCONFIG",
     "MODEL is a folder, also of an adapter, which is merged into the base that it names, or an\n"
     "org/name in the local Hugging Face cache; OUT becomes a folder of compressed-tensors, which\n"
     "this program reads, too. Rounds to nearest, one matrix at a time; what is quantized are the\n"
     "linears of layers, as in training for quantization. Prints what rounding changes in each\n"
     "layer. CONFIG is a training configuration with qat or\n"
     "quantization: its output_dir (of an adapter output_dir/merged) is quantized into\n"
     "output_dir/quantized. Of llama.cpp's schemes OUT is one file (of CONFIG\n"
     "output_dir/quantized.gguf), as `axtrain convert --quant` writes it.\n"
     "With --gptq, int4 groups are rounded by GPTQ, which makes up for each error in the columns\n"
     "still to come; prints the perplexity before and after.\n"
     "  --scheme S    int4, int4-int8, int4-fp8, int8, int8-int8, fp8, fp8-tensor or nvfp4;\n"
     "                llama.cpp's q4_0, q8_0, q4_k or q6_k (docs/quantization.md)\n"
     "  --group N     numbers that share a scale, where the scheme has groups\n"
     "  --embedding, --head\n"
     "                quantize these, too; vLLM does not read that (one matrix: both are, and OUT "
     "has\n"
     "                it twice)\n"
     "  --gptq        by GPTQ; needs --calibrate\n"
     "  --calibrate FILE\n"
     "                records whose tokens go through the model, or a configuration with data "
     "sets;\n"
     "                without --gptq only to measure perplexity\n"
     "  --type T      type of the records, as in datasets (default: chat_template)\n"
     "  --rows N      sequences of 512 tokens (or sequence_len) to calibrate on (default: 128);\n"
     "                an eighth as many measure\n"
     "  --act-order   GPTQ: columns with the largest inputs first\n"
     "  --damping D   GPTQ: what is added to the diagonal, of its mean (default: 0.01)\n"
     "  --threads N   CPU threads (default: all available to this process)\n",
     "axtrain quantize my-model/ my-model-int4/ --scheme int4", .run = ax_cmd_quantize},
    {"report", AX_COMMANDS_LOOK, 1, "draw training runs as one HTML page", "RUN [RUN …] [-o FILE]",
     "RUN is the output_dir of a training run, finished or not; several runs share the same\n"
     "charts. The page is self-contained and uses no network and is complete without its script: "
     "loss,\n"
     "evaluations, learning rate, gradient norm, speed, MFU, memory, time by phase, packing,\n"
     "the command, the configuration and what differs between runs, environment; and the model's\n"
     "answers, if `axtrain eval` wrote RUN/eval.jsonl (--per-row) or RUN/samples.jsonl\n"
     "(--log-samples).\n"
     "  -o FILE   where to write (default: RUN/report.html; with several runs ./report.html)\n",
     "axtrain report out/ other-out/ -o report.html", .run = ax_cmd_report},
    {"reward", AX_COMMANDS_TRAIN, 8, "train a reward model: one score for an answer",
     "CONFIG [key=value …] [options]",
     "Records have a preferred and a rejected answer, as for dpo; the model learns a number that "
     "is\n"
     "larger for the preferred one. Key: reward_model: true "
     "(docs/reward-models.md).\n" METHOD_DETAILS,
     "axtrain reward reward.yaml learning_rate=2e-5 output_dir=out", .run = ax_cmd_reward,
     .trains = true},
    {"sandbox", AX_COMMANDS_SERVE, 5, "run a Python program that nobody trusts",
     "run FILE [options]",
     "Runs FILE as code rewards run a model's answers: in CPython compiled to WebAssembly, "
     "without\n"
     "files, environment, network, processes or a real clock, and with limits. Prints what it\n"
     "writes, and on stderr its verdict: exit N, fuel (too many instructions), memory, stack,\n"
     "output (more than 64 KiB), trap (the interpreter failed), time or crash. Exit code 0 if\n"
     "that is exit 0. The first run compiles the interpreter and keeps it (~/.cache/axtrain).\n"
     "  --stdin FILE       what the program reads (default: nothing)\n"
     "  --fuel N           WebAssembly instructions, about (default 5000000000)\n"
     "  --memory N         MiB, at most 256 (default 256)\n"
     "  --python FILE      the interpreter (default: AXTRAIN_SANDBOX_PYTHON, or what\n"
     "                     tools/get-sandbox installed)\n"
     "  --wasmtime FILE    wasmtime's library (default: AXTRAIN_WASMTIME, or the same)\n",
     "axtrain sandbox run answer.py", .run = ax_cmd_sandbox},
    {"serve", AX_COMMANDS_SERVE, 3, "answer requests over HTTP, as OpenAI's API has them",
     "[--model] M [options]",
     "M is a model folder, the folder of an adapter, which names its base, a GGUF file or a hub "
     "id.\n"
     "Clients of OpenAI's API reach it at http://HOST:PORT/v1; docs/serving.md says what it "
     "answers.\n"
     "Requests join and leave at every token, and get the tokens that they would get alone.\n"
     "  --host NAME             address to listen on (default 127.0.0.1: this machine only); "
     "others\n"
     "                          need a key\n"
     "  --port N                (default 8000); 0: any free one, which the log names\n"
     "  --api-key-file FILE     a file whose only line is the key that requests must have\n"
     "  --adapter [NAME=]DIR    also serve M with an adapter, as the model NAME (default: the "
     "last\n"
     "                          part of DIR); repeatable\n"
     "  --adapter-slots N       places for adapters that clients load while it serves, shaped as "
     "the\n"
     "                          first adapter\n"
     "  --allow-control         clients may pause the server, abort requests and clear its cache\n"
     "  --name NAME             the model's name in requests (default: the last part of M)\n"
     "  --context N             the most tokens of a prompt and its answer (default 4096, or as "
     "many\n"
     "                          as the model has positions)\n"
     "  --parallel N            sequences that are generated together on each data rank (default "
     "16)\n"
     "  --queue N               sequences that may wait (default 256); more get status 429\n"
     "  --cache-tokens N        tokens that the cache holds (default: a quarter of what all\n"
     "                          sequences could fill); sequences wait for room\n"
     "  --drafts                draft tokens by the model's layer for multi-token prediction: as "
     "of\n"
     "                          generate, on one rank or ranks of tp\n"
     "  --stop-seconds N        time for answers to end after SIGTERM or Ctrl-C (default 30)\n"
     "  --base KIND             store matrices as plain (default), nf4, nf4-double, int4,\n"
     "                          int8 or fp8\n"
     "  --dtype T               float32 or bfloat16 (default: bfloat16 if the CPU supports it)\n"
     "  --threads N             CPU threads (default: all available to this process)\n"
     "  --mesh SIZES            on the ranks of a launcher, such as tp=2,dp_replicate=2: as of "
     "generate\n"
     "  --device D              auto (default: a GPU if one can be used), cuda or cpu\n"
     "SIGTERM and Ctrl-C: no more requests are taken, and answers that take too long are cut.\n",
     "axtrain serve my-model/ --port 8000", .run = ax_cmd_serve, .launched = true},
    {"sft", AX_COMMANDS_TRAIN, 4, "fine-tune a model on the data sets of a configuration",
     "CONFIG [key=value …] [options]", TRAIN_DETAILS,
     "axtrain sft sft.yaml learning_rate=2e-5 output_dir=out", .run = ax_cmd_sft, .trains = true},
    {"template", AX_COMMANDS_MODELS, 5, "render a conversation with a model's chat template",
     "--model DIR | --file T.jinja [INPUT.json] [--spans] [--now UNIX]",
     "INPUT (or standard input) is a JSON list of messages, or an object of template variables\n"
     "(messages, tools, add_generation_prompt, bos_token, …). The text is printed byte for\n"
     "byte. A template that writes only lists of parts gets texts as such lists.\n"
     "  --model DIR    the template and special tokens of a model folder\n"
     "  --file FILE    a template file\n"
     "  --spans        print the generation spans instead, as [[start, end], …] in code points\n"
     "  --now UNIX     the time that strftime_now sees\n",
     "axtrain template --model my-model/ chat.json", .run = ax_cmd_template},
    {"tokenize", AX_COMMANDS_MODELS, 4, "convert text to token ids and back",
     "[--model] DIR | --vocab FILE [options]",
     "Reads text from standard input, byte for byte, and prints the ids as one JSON array.\n"
     "Special tokens in the text are recognized.\n"
     "  --model DIR            the tokenizer of a model folder\n"
     "  --vocab FILE           a tokenizer.json or .gguf file\n"
     "  --add-special-tokens   add the tokens that the model expects at the ends (BOS, EOS)\n"
     "  --decode               read a JSON array of ids, print text\n"
     "  --skip-special-tokens  with --decode: omit special tokens\n",
     "axtrain tokenize --model my-model/ < text.txt", .run = ax_cmd_tokenize},
    {"train", AX_COMMANDS_TRAIN, 11, "train as the configuration says",
     "CONFIG [key=value …] [options]", TRAIN_DETAILS, "axtrain train sft.yaml", .run = ax_cmd_train,
     .trains = true},
    {0},
};

enum ax_status ax_command_run(const struct ax_command *c, int argc, char **argv) {
    AX_TRY(ax_cpu_check());
    return c->run_among ? c->run_among(ax_commands, argc, argv) : c->run(argc, argv);
}
