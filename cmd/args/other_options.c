/* The table of other programs' options, and a name's row. */
#include "cmd/args/other_options.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define TRAINS "sft|dpo|grpo|ppo|reward|prm|qat|train"

/* Names have one dash for each of their underscores and none before them; a row has what a name is here, or why it is
 * left out. */
static const struct {
    const char *command, *names, *here, *instead;
} others[] = {
    /* convert_hf_to_gguf.py */
    {"convert", "outtype", "--quant with --to gguf, and --dtype with --to hf", NULL},
    {"convert", "outfile|o|output|out", "DST, the second argument", NULL},
    {"convert", "no-lazy|use-temp-file|no-tensor-first-split", NULL,
     "tensors are written one by one"},
    /* llama-quantize */
    {"quantize", "q4-k-m|q5-k-m|q3-k-m|q4-0|q4-1|q5-0|q8-0|q6-k|f16|bf16|f32",
     "the option --quant of `axtrain convert MODEL OUT --to gguf`", NULL},
    {"quantize", "nthreads|t", "--threads", NULL},
    {"quantize", "pure", NULL, "every linear gets the scheme"},
    {"quantize", "output-tensor-type", "--head", NULL},
    {"quantize", "token-embedding-type", "--embedding", NULL},
    {"quantize", "leave-output-tensor", NULL, "the head is left unless --head is given"},
    /* PEFT's and mergekit's scripts, axolotl merge-lora */
    {"merge", "lora|lora-model-dir|adapter|peft-model", "ADAPTER, the second argument", NULL},
    {"merge", "out-path|outfile|o|output|output-dir|save-path", "DST, the third argument", NULL},
    {"merge", "out-dtype|torch-dtype|outtype", "--dtype", NULL},
    {"merge", "copy-tokenizer", NULL, "the tokenizer is copied"},
    {"merge", "cuda|device|low-cpu-memory|lazy-unpickle", NULL,
     "a matrix at a time is merged, on the CPU"},
    /* vllm serve, llama-server */
    {"serve", "m|model-path", "--model", NULL},
    {"serve", "max-model-len|ctx-size|c|max-seq-len", "--context", NULL},
    {"serve", "served-model-name|alias|a", "--name", NULL},
    {"serve", "api-key", "--api-key-file, a file that contains the key", NULL},
    {"serve", "max-num-seqs|np|n-parallel", "--parallel", NULL},
    {"serve", "lora-modules|lora", "--adapter NAME=DIR", NULL},
    {"serve", "max-loras|max-cpu-loras", "--adapter-slots", NULL},
    {"serve", "enable-lora|max-lora-rank", NULL, "--adapter alone is enough"},
    {"serve", "quantization|q", "--base", NULL},
    {"serve", "tensor-parallel-size|tp", "--mesh tp=N, under axtrain launch -n N", NULL},
    {"serve", "data-parallel-size|dp", "--mesh dp_replicate=N, under axtrain launch -n N", NULL},
    {"serve", "gpu-memory-utilization|kv-cache-memory-bytes", "--cache-tokens", NULL},
    {"serve", "t|n-threads", "--threads", NULL},
    {"serve", "seed|temp|temperature|top-p|top-k", NULL, "requests have it"},
    {"serve", "enable-auto-tool-choice|tool-call-parser|jinja", NULL,
     "calls are read in the format that the chat template writes"},
    {"serve", "enable-prefix-caching|cont-batching|cb|enable-chunked-prefill", NULL,
     "it is always so"},
    {"serve", "n-gpu-layers|ngl|gpu-layers", NULL, "--device says whether a GPU is used"},
    /* llama-cli, transformers */
    {"generate|chat", "m|model-name-or-path", "--model", NULL},
    {"generate", "p", "--prompt", NULL},
    {"generate|chat", "max-tokens|n-predict|predict|n|max-length", "--max-new-tokens", NULL},
    {"generate|chat", "temp", "--temperature", NULL},
    {"generate|chat", "repeat-penalty", "--repetition-penalty", NULL},
    {"generate|chat", "sys|system-prompt", "--system", NULL},
    {"generate|chat", "stop-strings|r|reverse-prompt", "--stop", NULL},
    {"generate|chat", "do-sample", "--temperature 1", NULL},
    {"generate|chat", "t", "--threads", NULL},
    {"generate", "output|output-file", "-o", NULL},
    {"generate", "f|file", "--input, a file with a prompt per line of JSON", NULL},
    {"generate", "batch-size|b", "--batch", NULL},
    {"generate", "cnv|conversation", "--chat", NULL},
    {"generate", "no-cnv|no-conversation", NULL, "a prompt is continued unless --chat is given"},
    {"chat", "ctx-size|c|max-model-len", "--context", NULL},
    {"generate|chat", "n-gpu-layers|ngl|gpu-layers", NULL, "--device says whether a GPU is used"},
    {"generate|chat|serve|eval", "trust-remote-code", NULL, "code of models never runs"},
    /* lm-evaluation-harness */
    {"eval", "model-args", "--model", NULL},
    {"eval", "batch-size", "--batch", NULL},
    {"eval", "limit", "--rows", NULL},
    {"eval", "system-instruction", "--system", NULL},
    {"eval", "fewshot-as-multiturn", NULL,
     "with --apply-chat-template examples are turns, unless --fewshot-single-turn is given"},
    /* torchrun, accelerate launch, mpirun */
    {"launch", "nproc-per-node|num-processes|np", "-n", NULL},
    {"launch", "num-machines", "--nnodes", NULL},
    {"launch", "machine-rank", "--node-rank", NULL},
    {"launch", "main-process-ip", "--master-addr", NULL},
    {"launch", "main-process-port", "--master-port", NULL},
    {"launch", "rdzv-endpoint", "--master-addr and --master-port", NULL},
    {"launch", "max-restarts", "--restarts", NULL},
    {"launch", "tee|redirects", "--output all", NULL},
    {"launch", "rdzv-backend|rdzv-id|standalone|multi-gpu|dynamo-backend", NULL,
     "it is not needed"},
    {"launch", "mixed-precision", "the key bf16 of the configuration", NULL},
    {"launch", "config-file|use-fsdp|use-deepspeed", "the key dp_shard_size of the configuration",
     NULL},
    {"launch", "gpu-ids", "the variable CUDA_VISIBLE_DEVICES", NULL},
    /* huggingface-cli download */
    {"fetch", "local-dir|cache-dir", "the variable HF_HOME, whose cache every command reads", NULL},
    {"fetch", "token", "the variable HF_TOKEN", NULL},
    {"fetch", "repo-type|include|exclude", NULL, "a configuration says what is fetched"},
    /* trl, axolotl */
    {TRAINS, "config", "CONFIG, the first argument", NULL},
    {TRAINS, "num-processes|nproc-per-node|launcher|accelerate-config",
     "`axtrain launch -n N` before the command", NULL},
};

static bool has_word(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *w = words; *w;) {
        const size_t len = strcspn(w, "|");
        if (len == n && strncasecmp(w, word, n) == 0)
            return true;
        w += len + (w[len] == '|');
    }
    return false;
}

enum ax_status ax_refuse_other_option(const char *command, const char *given) {
    char name[64];
    size_t n = strspn(given, "-"), len = 0;
    for (; given[n] && given[n] != '=' && len + 1 < sizeof name; n++)
        name[len++] = given[n] == '_' ? '-' : given[n];
    name[len] = '\0';
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (has_word(others[i].command, command) && has_word(others[i].names, name))
            return ax_error(AX_ERR_CONFIG, "%s: unknown option %.*s; %s %s", command, (int)n, given,
                            others[i].here ? "here it is" : "leave it out:",
                            others[i].here ? others[i].here : others[i].instead);
    return AX_OK;
}
