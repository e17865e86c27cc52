/* Tokenizers that transformers 5 makes by their class.
 *
 * Most of its classes take vocabulary, merges, added tokens and post_processor from tokenizer.json, and have a normalizer,
 * a pre_tokenizer and a decoder of their own. AutoTokenizer decides by tokenizer_class and the model's type whether such a
 * class is used, or one that follows the file (models/auto/tokenization_auto.py, release 5.23). */
#include "data/text/vocab/hf_class.h"

#include <string.h>

#include "base/io.h"
#include "base/log.h"

enum { MAX_CONFIG = 64 * 1024 * 1024 };

/* ---- classes ---- */

/* What is put before a text; the places of `parts`. */
enum prefix { NONE, FIRST, ALWAYS, PREFIXES };

#define METASPACE(scheme)                                                                          \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"▁\",\"prepend_scheme\":\"" scheme \
    "\",\"split\":false}"
#define PIECES(more)                                                                               \
    "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"         \
    "\"String\":\"▁\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}" more    \
    "]}"
#define STRIP         ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}"
#define FALLBACK(unk) "\"model\":{\"fuse_unk\":true,\"byte_fallback\":true,\"unk_token\":" unk "},"

#define LLAMA(scheme, strip) "{" FALLBACK("null") METASPACE(scheme) "," PIECES(strip) "}"
#define CODE_LLAMA(scheme)   "{" FALLBACK("\"<unk>\"") METASPACE(scheme) "," PIECES(STRIP) "}"
#define GEMMA                                                                                      \
    "{" FALLBACK("\"<unk>\"") "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" "   \
                              "\"},\"content\":\"▁\"},"                                          \
                              "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" "  \
                              "\"},\"behavior\":"                                                  \
                              "\"MergedWithPrevious\",\"invert\":false}," PIECES("") "}"

#define BYTES(prefix, regex)                                                                       \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":" regex "}"
#define BYTE_MODEL "\"model\":{},\"decoder\":{\"type\":\"ByteLevel\"}"
#define NFC        "\"normalizer\":{\"type\":\"NFC\"},"
#define SPLIT_THEN(step, last)                                                                     \
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[" step "," last "]},"
#define DIGITS "{\"type\":\"Digits\",\"individual_digits\":true}"
#define REGEX(pattern)                                                                             \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                        \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"

#define GPT2(prefix) "{\"pre_tokenizer\":" BYTES(prefix, "true") "," BYTE_MODEL "}"
#define NEOX(prefix)                                                                               \
    "{" NFC "\"pre_tokenizer\":" BYTES(                                                            \
        prefix, "true") ",\"post_processor\":{\"type\":\"ByteLevel\"}," BYTE_MODEL "}"
#define COHERE(prefix) "{" NFC SPLIT_THEN(DIGITS, BYTES(prefix, "true")) BYTE_MODEL "}"
#define QWEN2(prefix)                                                                              \
    "{" NFC SPLIT_THEN(                                                                            \
        REGEX("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| ?"   \
              "[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"        \
              "\\\\s+"),                                                                           \
        BYTES(prefix, "false")) BYTE_MODEL "}"
#define QWEN35(prefix)                                                                             \
    "{" NFC SPLIT_THEN(                                                                            \
        REGEX("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|"    \
              "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"     \
              "\\\\s+(?!\\\\S)|\\\\s+"),                                                           \
        BYTES(prefix, "false")) BYTE_MODEL "}"
#define OF_BYTES(parts)                                                                            \
    { parts("false"), parts("true"), parts("true") }

static const struct made {
    const char *class;
    bool prefix; /* where add_prefix_space is missing */
    const char *parts[PREFIXES];
} made[] = {
    {"LlamaTokenizer", true, {LLAMA("never", ""), LLAMA("first", STRIP), LLAMA("always", STRIP)}},
    {"CodeLlamaTokenizer", true, {CODE_LLAMA("never"), CODE_LLAMA("first"), CODE_LLAMA("first")}},
    {"GemmaTokenizer", false, {GEMMA, GEMMA, GEMMA}},
    {"GPT2Tokenizer", false, OF_BYTES(GPT2)},
    {"CodeGenTokenizer", false, OF_BYTES(GPT2)},
    {"GPTNeoXTokenizer", false, OF_BYTES(NEOX)},
    {"CohereTokenizer", false, OF_BYTES(COHERE)},
    {"Qwen2Tokenizer", false, OF_BYTES(QWEN2)},
    {"Qwen3_5Tokenizer", false, OF_BYTES(QWEN35)},
};

/* ---- which of them a folder gets ---- */

/* Of types of models that are not here, tokenizer_class alone decides. */
static const struct typed {
    const char *type;
    const char *class
        ; /* where no tokenizer_class is given; NULL: tokenizer.json is followed, whatever is given */
    bool always; /* it has this class, whatever is given */
} types[] = {
    {"aya_vision", "CohereTokenizer", false},
    {"cohere", "CohereTokenizer", false},
    {"cohere2", "CohereTokenizer", false},
    {"ernie4_5", NULL, false},
    {"ernie4_5_moe", NULL, false},
    {"gemma", "GemmaTokenizer", false},
    {"gemma2", "GemmaTokenizer", false},
    {"gemma3", "GemmaTokenizer", false},
    {"gemma3_text", "GemmaTokenizer", false},
    {"gemma3n", "GemmaTokenizer", false},
    {"gemma3n_text", "GemmaTokenizer", false},
    {"glm", NULL, false},
    {"glm4", NULL, false},
    {"glm4_moe", NULL, false},
    {"gpt_bigcode", NULL, false},
    {"granite", NULL, false},
    {"granitemoe", NULL, false},
    {"granitemoehybrid", NULL, false},
    {"granitemoeshared", NULL, false},
    {"internlm2", NULL, false},
    {"internlm3", NULL, false},
    {"internvl", "Qwen2Tokenizer", false},
    {"jamba", NULL, false},
    {"kimi_linear", NULL, false},
    {"llava", NULL, false},
    {"llava_next", NULL, false},
    {"mimo_v2_flash", NULL, false},
    {"minicpm3", NULL, false},
    {"minimax_m2", NULL, false},
    {"ministral", NULL, false},
    {"ministral3", NULL, false},
    {"mistral", NULL, false},
    {"mistral3", NULL, false},
    {"mixtral", NULL, false},
    {"nemotron", NULL, false},
    {"olmo2", NULL, false},
    {"olmo3", NULL, false},
    {"olmo_hybrid", NULL, false},
    {"phi3", NULL, false},
    {"phimoe", NULL, false},
    {"pixtral", NULL, false},
    {"qwen2", "Qwen2Tokenizer", true},
    {"qwen2_5_vl", "Qwen2Tokenizer", false},
    {"qwen2_moe", "Qwen2Tokenizer", false},
    {"qwen2_vl", "Qwen2Tokenizer", false},
    {"qwen3", "Qwen2Tokenizer", false},
    {"qwen3_5", "Qwen3_5Tokenizer", true},
    {"qwen3_5_moe", "Qwen3_5Tokenizer", true},
    {"qwen3_5_moe_text", "Qwen3_5Tokenizer", true},
    {"qwen3_5_text", "Qwen3_5Tokenizer", false},
    {"qwen3_moe", "Qwen2Tokenizer", false},
    {"qwen3_next", "Qwen2Tokenizer", false},
    {"qwen3_vl", "Qwen2Tokenizer", false},
    {"qwen3_vl_moe", "Qwen2Tokenizer", false},
    {"smolvlm", NULL, false},
    {"stablelm", NULL, false},
    {"starcoder2", "GPT2Tokenizer", false},
    {"vipllava", NULL, false},
};

static const struct typed *find_type(const char *type) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].type, type) == 0)
            return &types[i];
    return NULL;
}

/* Are they the same but for the ending Fast, which names of older releases have? */
static bool is_class(const char *name, const char *class) {
    const size_t n = strlen(class);
    return strncmp(name, class, n) == 0 && (name[n] == '\0' || strcmp(name + n, "Fast") == 0);
}

static const struct made *find_class(const char *name) {
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        if (is_class(name, made[i].class))
            return &made[i];
    return NULL;
}

enum ax_status ax_hf_load_optional(struct ax_json_doc *doc, const char *dir, const char *name) {
    char *path;
    *doc = (struct ax_json_doc){0};
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = ax_path_exists(path) ? ax_json_load(doc, path, MAX_CONFIG) : AX_OK;
    ax_free(path);
    return st;
}

/* The class of the tokenizer; *found = NULL: one that follows tokenizer.json. */
static enum ax_status choose(struct ax_json config, struct ax_json model, const char *text,
                             const struct made **found) {
    const char *name, *type;
    AX_TRY(ax_json_str_or(ax_json_get(model, "tokenizer_class"), "", &name));
    AX_TRY(ax_json_str_or(ax_json_get(config, "tokenizer_class"), name, &name));
    AX_TRY(ax_json_str_or(ax_json_get(model, "model_type"), "", &type));
    const struct typed *of = find_type(type);
    if (ax_json_get(config, "auto_map").v)
        return AX_OK; /* code of the folder makes it */
    if (of && (of->always || !of->class || *name == '\0'))
        name = of->class ? of->class : "";
    else if (is_class(name, "LlamaTokenizer") && strstr(text, "\"ByteLevel\""))
        return AX_OK;
    *found = find_class(name);
    return AX_OK;
}

enum ax_status ax_hf_class_parts(struct ax_json_doc *parts, const char *dir, const char *text) {
    struct ax_json_doc config = {0}, model = {0};
    const struct made *class = NULL;
    bool prefix = false, legacy = false;
    enum ax_status st;
    *parts = (struct ax_json_doc){0};
    AX_TRY_GOTO(ax_hf_load_optional(&config, dir, "tokenizer_config.json"), st, done);
    AX_TRY_GOTO(ax_hf_load_optional(&model, dir, "config.json"), st, done);
    const struct ax_json root = ax_json_root(&config);
    AX_TRY_GOTO(choose(root, ax_json_root(&model), text, &class), st, done);
    if (!class)
        goto done;
    AX_TRY_GOTO(ax_json_bool_or(ax_json_get(root, "add_prefix_space"), class->prefix, &prefix), st,
                done);
    AX_TRY_GOTO(ax_json_bool_or(ax_json_get(root, "legacy"), false, &legacy), st, done);
    const char *own = class->parts[!prefix ? NONE : legacy ? ALWAYS : FIRST];
    st = ax_json_parse(parts, class->class, own, strlen(own));
done:
    ax_json_free(&model);
    ax_json_free(&config);
    return st;
}

/* ---- where a file has other parts ---- */

/* Does `file` have all that `own` has? */
static bool has_all(const json_t *file, const json_t *own) {
    const char *key;
    json_t *v;
    size_t i;
    bool all = true;
    if (json_is_array(own)) {
        all = json_array_size(file) == json_array_size(own);
        json_array_foreach(own, i, v) all = all && has_all(json_array_get(file, i), v);
        return all;
    }
    if (!json_is_object(own))
        return json_equal(file, own) != 0;
    json_object_foreach((json_t *)(uintptr_t)own, key, v) all =
        all && has_all(json_object_get(file, key), v);
    return all;
}

void ax_hf_class_report(const struct ax_json_doc *parts, struct ax_json file) {
    static const char *const names[] = {"normalizer", "pre_tokenizer"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *own = json_object_get(parts->root, names[i]);
        const json_t *other = ax_json_get(file, names[i]).v;
        if (own ? !has_all(other, own) : other != NULL) {
            ax_log_info(
                "%s: the %s is not followed: as in transformers 5, a %s has one of its own. "
                "To follow it, set tokenizer_class to PreTrainedTokenizerFast in "
                "tokenizer_config.json",
                file.doc, names[i], parts->name);
            return;
        }
    }
}
