/* The command table, by name. */
#include "cmd/commands.h"

#define TRAIN_DETAILS                                                                              \
    "CONFIG is a YAML file; `axtrain init` writes one. key=value sets a key for this run only.\n"  \
    "The trained model, checkpoints and metrics.jsonl come to lie in output_dir; `axtrain "        \
    "report`\n"                                                                                    \
    "draws them. SIGTERM, SIGUSR1 and Ctrl-C save first; with resume_from_checkpoint: auto the\n"  \
    "same command goes on from there.\n"                                                           \
    "  --json         one JSON object about the run on stdout\n"                                   \
    "  --quiet        no progress\n"                                                               \
    "  --color WHEN   auto, always or never\n"

const struct ax_command ax_commands[] = {
    {"bench", "time what training and generation are made of, and compare with earlier times",
     "[--model DIR|--arch NAME] [options]\n"
     "ops [--op NAME …] [options]\n"
     "step --model DIR|--arch NAME [options]\n"
     "generate --model DIR|--arch NAME [options]\n"
     "pipeline --model DIR|--arch NAME [options]\n"
     "startup --model DIR|--arch NAME [options]",
     "ops: each op at the shapes of SmolLM2-135M. step: a training step. generate: prefill and\n"
     "decode. pipeline: rows to tokens, packing, loading a model, saving a checkpoint behind a "
     "step.\n"
     "startup: from `axtrain sft` to its first forward. Alone: a short set of all (a minute).\n"
     "Shares are of what this process reaches itself, measured before: of its fastest matrix "
     "product,\n"
     "or of its fastest copy (bytes read and written). More than 100 %: the operands fit into "
     "caches,\n"
     "the copy does not. Every kind takes:\n"
     "  --json              one JSON object on stdout: figures with unit, direction and share\n"
     "  -o FILE             write that there, too\n"
     "  --compare OLD.json  beside what -o wrote earlier; exit code 1 where a figure is worse by\n"
     "                      more than the tolerance; names that only one side has are listed\n"
     "  --tolerance P       (with --compare) a percentage (default 5%)\n"
     "  --threads N         CPU threads (default: all this process may use; not for startup)\n"
     "All but ops take:\n"
     "  --model DIR         a model folder (step: or a config.json, with random weights)\n"
     "  --arch NAME         a built-in shape with random weights: smollm2-135m, llama-tiny\n"
     "Kinds have their own:\n"
     "  --dtype T           (not startup) compute in float32 or bfloat16 (default: bfloat16 where\n"
     "                      the CPU has it)\n"
     "  --backend B         (ops, step) cpu or ref (default cpu)\n"
     "  --op NAME           (ops) only this one; may be given several times\n"
     "  --write-random DIR  (step) write the model with random weights as a folder, and stop\n"
     "  --batch N           (step) documents per step (default 2); (generate) sequences at once\n"
     "                      (default: 1, then 8, then 64)\n"
     "  --seq N             (step) tokens per document (default 1024)\n"
     "  --steps N           (step) steps to time after a warm-up of two (default 6)\n"
     "  --accumulate N      (step) micro-batches per step (default 1)\n"
     "  --optimizer NAME    (step) as in `axtrain plan` (default adamw)\n"
     "  --masters KIND      (step) float32 (the default), bf16_remainder or bf16_sr\n"
     "  --recompute MODE    (step) off, selective or on (default selective)\n"
     "  --lora R            (step) adapters of rank R on all linears, everything else frozen\n"
     "  --dora              (step) with --lora: train magnitudes too\n"
     "  --base KIND         (step) with --lora: frozen matrices as plain, nf4, nf4-double, int8 or "
     "fp8\n"
     "  --prompt-tokens N   (generate) of each sequence (default 128)\n"
     "  --new-tokens N      (generate) decoded for each (default 64)\n"
     "  --rounds N          (generate) the best of so many counts (default 3); (startup) the "
     "median\n"
     "                      of so many starts (default 5)\n"
     "  --data FILE         (pipeline, startup) rows, as for init (default: generated problems)\n"
     "  --work DIR          (pipeline, startup) where files are written for a while (default: "
     "TMPDIR,\n"
     "                      or /tmp)\n"
     "  --no-save           (pipeline) without the checkpoint, which takes gigabytes\n",
     "axtrain bench step --arch smollm2-135m --batch 2 --seq 1024", ax_cmd_bench},
    {"chat", "talk to a model", "--model M [options]",
     "M is a model folder, a GGUF file or a hub id. Each line is a message; /help lists commands.\n"
     "Ctrl-C stops a reply; end of input leaves. Works through pipes too.\n"
     "  --adapter [NAME=]DIR    a PEFT folder that the model is the base of; may be given several\n"
     "                          times: the first is in use, and /adapter NAME changes it\n"
     "  --base KIND             matrices as plain (default), nf4, nf4-double, int8 or fp8\n"
     "  --system TEXT           system message\n"
     "  --context N             tokens of the conversation (default: the model's, at most 8192)\n"
     "  --dtype T               float32 or bfloat16 (default: bfloat16 where the CPU has it)\n"
     "  --max-new-tokens N      of a reply (default 1024)\n"
     "  --temperature X         0 = greedy; a filter without it means 1\n"
     "  --top-k N, --top-p X, --min-p X, --repetition-penalty X\n"
     "                          filters as in transformers, in its order\n"
     "  --seed N                the same seed gives the same text, whatever --batch and --threads\n"
     "  --stop TEXT             end an answer before this text; may be given several times\n"
     "  --threads N             CPU threads (default: all this process may use)\n"
     "What is not given, the model's generation_config.json decides; without it, greedy.\n",
     "axtrain chat --model my-model/ --temperature 0.7", ax_cmd_chat},
    {"check", "compare with golden files, or a mesh of ranks with one rank",
     "golden DIR [--backend cpu|ref] [--dtype T] [--threads N]\n"
     "mesh MODEL [pp=N] [dp_replicate=N] [dp_shard=N] [cp=N] [tp=N] [ep=N] [options]",
     "golden: looks for a model or adapter folder with golden/, optim.json, rope.json, "
     "schedules.json\n"
     "or entropy.safetensors, and prints the worst figure of each group beside its demand.\n"
     "mesh: runs two training steps of a small model on such a mesh and on one rank, and prints\n"
     "the worst relative error of each group. MODEL is a folder, or a config.json for random\n"
     "weights.\n"
     "Exit code 0 only when all hold.\n"
     "  --backend B        golden: cpu (float32, and bfloat16 where bf16.json is; default) or ref\n"
     "                     (float64); mesh: ref (default) or cpu\n"
     "  --dtype T          (golden) only this compute type\n"
     "  --gloo             (mesh) ranks as processes instead of threads\n"
     "  --micro-batches N  (mesh) per data rank and step (default 3)\n"
     "  --tokens N         (mesh) per row (default 96)\n"
     "  --recompute MODE   (mesh) off, selective or on (default off)\n"
     "  --lora R           (mesh) a random adapter of rank R on a frozen model\n"
     "  --dora             (mesh) with it: magnitudes too\n"
     "  --base S           (mesh) with it: the frozen matrices as nf4, nf4-double, int8 or fp8\n",
     "axtrain check mesh my-model/ dp_shard=2 tp=2", ax_cmd_check},
    {"completion", "print a script by which a shell completes commands, options and keys",
     "bash\nzsh\nfish",
     "  bash   in ~/.bashrc: source <(axtrain completion bash)\n"
     "  zsh    in a folder of $fpath: axtrain completion zsh > _axtrain\n"
     "  fish   axtrain completion fish > ~/.config/fish/completions/axtrain.fish\n",
     "axtrain completion bash", ax_cmd_completion},
    {"config", "explain and check configurations",
     "help [KEY]\nshow FILE [key=value | --key value] [--json]\nschema\ndocs",
     "  help KEY   type, default, range and meaning of a key, and whether it has an effect here\n"
     "  show FILE  the resolved configuration, with where each value came from\n"
     "  schema     a JSON Schema for editors\n"
     "  docs       the reference of all keys as Markdown\n"
     "  -o FILE    write there instead of standard output\n"
     "  --json     (show) values, origins and notes as one JSON object\n",
     "axtrain config show sft.yaml learning_rate=1e-4", ax_cmd_config},
    {"convert", "a GGUF file to a Hugging Face folder, and back",
     "SRC DST --to hf [--dtype T]\nSRC DST --to gguf [--quant Q] [--overwrite] [--threads N]",
     "Kinds of models: llama, mistral, mixtral, qwen2, qwen3, qwen3_moe.\n"
     "--to hf: SRC is a GGUF file (F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q6_K); DST becomes "
     "a\n"
     "folder with weights, config, tokenizer and chat template. It must not exist or be empty.\n"
     "  --dtype T     float32, bfloat16 or float16 for the written weights; default: the smallest\n"
     "                type that holds all matrices exactly\n"
     "--to gguf: SRC is such a folder (or an org/name in the local Hugging Face cache); DST "
     "becomes\n"
     "one file with all of that, as llama.cpp reads it.\n"
     "  --quant Q     f32 f16 bf16 q8_0 q4_0 q4_1 q4_k_m q6_k; default: as the weights are "
     "stored.\n"
     "                Rows that are not whole blocks of 256 get Q5_0 for Q4_K and Q8_0 for Q6_K.\n"
     "  --overwrite   replace DST if it exists\n"
     "  --threads N   CPU threads (default: all this process may use)\n",
     "axtrain convert my-model/ my-model.Q4_K_M.gguf --to gguf --quant q4_k_m", ax_cmd_convert},
    {"env", "show what this machine and this build have", "[--json]",
     "  --json   one JSON object on stdout\n", "axtrain env", ax_cmd_env},
    {"eval", "measure a model on data: loss, perplexity, token accuracy, solved problems",
     "--model DIR --data FILE [options]\n--model DIR --config FILE [options]",
     "Negative log-likelihood (nats) and accuracy of the trained tokens, prepared as training "
     "would\n"
     "prepare them: with the model's tokenizer and chat template, answers only.\n"
     "  --adapter [NAME=]DIR\n"
     "                       a PEFT folder that the model is the base of; of several, and of the\n"
     "                       base, a table: the model is loaded once\n"
     "  --base KIND          matrices as plain (default), nf4, nf4-double, int8 or fp8\n"
     "  --data FILE          rows (JSONL …); with --config, read by the rules of its data set\n"
     "  --config FILE        a training configuration; without --data its evaluation rows\n"
     "  --type T             dataset type of --data (default chat_template: rows of messages)\n"
     "  --rows N             only the first N rows\n"
     "  --task final-answer  also answer each row greedily and count the final answers (behind\n"
     "                       \"####\") that equal the row's own\n"
     "  --samples N          draw N answers to each row instead: pass@k, the chance that one of k\n"
     "                       is right, estimated without bias (Chen et al. 2021)\n"
     "  --pass-at K,K,…      the k, up to N (default 1,N)\n"
     "  --temperature X, --top-p X\n"
     "                       of drawn answers (default 1, 1)\n"
     "  --seed N             the same seed draws the same answers, whatever --batch and --threads\n"
     "  --max-new-tokens N   an answer's longest (default 256)\n"
     "  --batch N            answers generated together (default 16)\n"
     "  --dtype T            compute in float32 (default) or bfloat16\n"
     "  --threads N          CPU threads (default: all this process may use)\n"
     "  --per-row            a line of JSON for each row, and one for all\n"
     "  --json               one JSON object\n"
     "  -o FILE              write there instead of standard output\n",
     "axtrain eval --model my-model/ --data test.jsonl --task final-answer", ax_cmd_eval},
    {"fetch", "download what a configuration names on the hub, ahead of training",
     "CONFIG [key=value …]",
     "Models and data sets that are hub ids (org/name) come into the local Hugging Face cache; "
     "what "
     "is\n"
     "there already is not fetched again, and what was interrupted goes on where it stopped. "
     "Branches\n"
     "are looked up anew; other commands use what the cache has, and download only what it lacks.\n"
     "Honoured: HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN (or the token that `hf auth login` "
     "stored),\n"
     "HF_HUB_OFFLINE, HTTPS_PROXY, SSL_CERT_FILE; AXTRAIN_DUCKDB, the library that reads "
     "Parquet.\n",
     "axtrain fetch sft.yaml", ax_cmd_fetch},
    {"generate", "continue prompts, or answer them",
     "--model M [--prompt TEXT | --input FILE.jsonl] [options]",
     "M is a model folder, a GGUF file or a hub id. Without --prompt and --input, standard input "
     "is\n"
     "the prompt. One answer is shown as it is made; several come out in order.\n"
     "  --prompt TEXT           one prompt\n"
     "  --input FILE            {\"prompt\": \"…\"} or {\"messages\": […]} a line\n"
     "  --adapter [NAME=]DIR    a PEFT folder that the model is the base of; may be given several\n"
     "                          times. A row's \"adapter\": \"NAME\" says which (or \"base\"),\n"
     "                          else it is the first\n"
     "  --each-adapter          every prompt through the base and each adapter\n"
     "  --base KIND             matrices as plain (default), nf4, nf4-double, int8 or fp8\n"
     "  --chat                  a prompt is what the user says: the model's chat template\n"
     "  --system TEXT           system message of conversations that have none\n"
     "  --n N                   answers for each prompt (default 1)\n"
     "  --batch N               sequences at once (default 16)\n"
     "  --json                  one JSON object per answer: text, tokens, finish, logprob\n"
     "  --dtype T               float32 or bfloat16 (default: bfloat16 where the CPU has it)\n"
     "  --max-new-tokens N      of an answer, its end included (default 256)\n"
     "  --temperature X         0 = greedy; a filter without it means 1\n"
     "  --top-k N, --top-p X, --min-p X, --repetition-penalty X\n"
     "                          filters as in transformers, in its order\n"
     "  --seed N                the same seed gives the same text, whatever --batch and --threads\n"
     "  --stop TEXT             end an answer before this text; may be given several times\n"
     "  --threads N             CPU threads (default: all this process may use)\n"
     "What is not given, the model's generation_config.json decides; without it, greedy.\n",
     "axtrain generate --model my-model/ --chat --prompt \"What is 7 times 8?\"", ax_cmd_generate},
    {"help", "explain axtrain, or one command", "[COMMAND]",
     "  --man   the manual page, for man -l\n", "axtrain help sft", ax_cmd_help},
    {"init", "write a configuration that fits a model, a data set and this machine",
     "--model M --data FILE [-o FILE]",
     "Looks at the rows (chat messages, conversations, instruction and output, question and "
     "answer,\n"
     "prompt and completion, text), tokenises them, and plans a step: full fine-tuning if it fits\n"
     "into the memory that is free, else LoRA, else QLoRA. The file says why, and runs as it is.\n"
     "  --model M     a model folder, a GGUF file or a hub id\n"
     "  --data FILE   rows (JSONL, JSON, CSV, text)\n"
     "  -o FILE       write there (default: sft.yaml); a file that is there is not touched\n",
     "axtrain init --model my-model/ --data train.jsonl", ax_cmd_init},
    {"merge", "put an adapter into its base model",
     "BASE ADAPTER DST [--dtype T] [--to gguf [--quant Q] [--overwrite]] [--threads N]",
     "BASE is a model folder or a hub id, ADAPTER a PEFT "
     "folder;\n"
     "DST becomes a model folder. Each adapted matrix is W + s·B·A, with DoRA m·V/|V| by rows of\n"
     "V = W + s·B·A: computed in float64 from the numbers of the files and rounded once. Then "
     "both\n"
     "models answer a probe batch, and the largest difference of their logits is printed. Nothing\n"
     "is written if it is too large, if the adapter changes nothing, or if it is in BASE already.\n"
     "  --dtype T     float32, bfloat16 or float16 for the merged weights (default: BASE's)\n"
     "  --to gguf     DST becomes one GGUF file instead; --quant and --overwrite as in convert\n"
     "  --threads N   CPU threads\n",
     "axtrain merge my-model/ my-adapter/ merged/", ax_cmd_merge},
    {"plan", "show what training would need, before anything is spent",
     "CONFIG [key=value …] [--json]\nMODEL [options]",
     "Memory by name and FLOPs of a step: of a configuration, with its data, or of a model folder "
     "or "
     "a\n"
     "config.json with the sizes below. No weights are read.\n"
     "  --dtype T          compute type (default bfloat16)\n"
     "  --batch N          documents per micro-batch (default 1)\n"
     "  --seq N            tokens per document (default 2048)\n"
     "  --accumulate N     micro-batches per step (default 1)\n"
     "  --optimizer NAME   adamw (the default), adamw_8bit, lion, adafactor, muon, sgd, or a name "
     "of\n"
     "                     a config's optimizer key\n"
     "  --masters KIND     float32 (the default), bf16_remainder or bf16_sr\n"
     "  --recompute MODE   off, selective or on; default: all three\n"
     "  --lora R           adapters of rank R on all linears, everything else frozen\n"
     "  --dora             with --lora: train magnitudes too\n"
     "  --base KIND        with --lora: frozen matrices as plain, nf4, nf4-double, int8 or fp8\n"
     "  --threads N        CPU threads to plan for\n"
     "  --json             one JSON object on stdout\n",
     "axtrain plan sft.yaml micro_batch_size=2", ax_cmd_plan},
    {"preprocess", "tokenise the datasets of a configuration ahead of training",
     "CONFIG [key=value …] [--refresh]",
     "Reads, checks, renders and tokenises every dataset and keeps the result in\n"
     "dataset_prepared_path, so that training starts at once.\n"
     "  --refresh   prepare again although a cache is there\n",
     "axtrain preprocess sft.yaml", ax_cmd_preprocess},
    {"preview", "show what training will see: rows, ids, and which tokens are trained",
     "CONFIG [key=value …] [options]",
     "  --step N        the batch of this step (default: the first)\n"
     "  --rows K        at most so many documents\n"
     "  --ids           token ids beside the text\n"
     "  --eval          the evaluation data instead of the training data\n"
     "  --color WHEN    auto, always or never\n"
     "  --json          one JSON object on stdout\n",
     "axtrain preview sft.yaml --rows 2", ax_cmd_preview},
    {"problems", "write generated word problems: data for trying things out", "[options] -o FILE",
     "Grade-school word problems as chat rows, {\"messages\": [user, assistant], \"level\": …}: "
     "the\n"
     "answer has a line for each step and ends with \"#### NUMBER\". The same seed gives the same\n"
     "rows; the two splits never share a question, whatever their seeds.\n"
     "  --rows N         how many (default 1000)\n"
     "  --seed N         (default 1)\n"
     "  --split S        train (default) or test\n"
     "  --min-level N    least number of steps, 1 to 4 (default 1)\n"
     "  --max-level N    most (default 4)\n"
     "  -o FILE          write there instead of standard output\n",
     "axtrain problems --rows 2000 --seed 1 -o train.jsonl", ax_cmd_problems},
    {"report", "draw what training runs tell, as one HTML page", "RUN [RUN …] [-o FILE]",
     "RUN is the output_dir of a training run, finished or not; several are laid over each other.\n"
     "The page needs nothing else, neither network nor scripts: loss, evaluations, learning rate,\n"
     "gradient norm, speed, MFU, memory, time by phase, packing, configuration, environment.\n"
     "  -o FILE   write there (default: RUN/report.html; with several runs ./report.html)\n",
     "axtrain report out/ other-out/ -o report.html", ax_cmd_report},
    {"sft", "fine-tune a model on the datasets of a configuration",
     "CONFIG [key=value …] [options]", TRAIN_DETAILS,
     "axtrain sft sft.yaml learning_rate=2e-5 output_dir=out", ax_cmd_sft},
    {"template", "render a conversation with a model's chat template",
     "--model DIR | --file T.jinja [INPUT.json] [--spans] [--now UNIX]",
     "INPUT (or standard input) is a JSON list of messages, or an object of template variables\n"
     "(messages, tools, add_generation_prompt, bos_token, …). The text comes out byte for byte.\n"
     "  --model DIR    the template and special tokens of a model folder\n"
     "  --file T       a template by itself\n"
     "  --spans        the generation spans as [[start, end], …] in code points instead\n"
     "  --now UNIX     the time that strftime_now sees\n",
     "axtrain template --model my-model/ chat.json", ax_cmd_template},
    {"tokenize", "text to token ids and back", "--model DIR | --vocab FILE [options]",
     "Standard input is text, taken byte for byte; ids come out as one JSON array. Special tokens\n"
     "in the text are recognised.\n"
     "  --model DIR            the tokenizer of a model folder\n"
     "  --vocab FILE           a tokenizer.json or .gguf file\n"
     "  --add-special-tokens   add what the model expects at the ends (BOS, EOS)\n"
     "  --decode               a JSON array of ids in, text out\n"
     "  --skip-special-tokens  with --decode: leave special tokens out\n",
     "axtrain tokenize --model my-model/ < text.txt", ax_cmd_tokenize},
    {"train", "train as a configuration says (today: fine-tuning)",
     "CONFIG [key=value …] [options]", TRAIN_DETAILS, "axtrain train sft.yaml", ax_cmd_train},
    {0},
};
