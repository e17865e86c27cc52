/* The required files of a model repository: what axtrain reads or copies, never pickled weights.
 * Small files first, so that a snapshot with weights has the rest. */
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/mem.h"
#include "ckpt/hf/config.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hf/index.h"
#include "ckpt/hf/peft.h"
#include "ckpt/hf/shards.h"
#include "ckpt/hub/hub.h"

#define MAX_INDEX ((size_t)64 << 20)
#define SINGLE    "model.safetensors"
#define INDEX     "model.safetensors.index.json"

static const char *const small_files[] = {
    "config.json",
    "hf_quant_config.json", /* Model Optimizer's (ckpt/hf/config.h) */
    "params.json", /* says that tokenizer.model is Mistral's (data/text/vocab/mistral_files.h) */
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "video_preprocessor_config.json",
    "tokenizer.json",
    "tekken.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tiktoken.model",
    /* copied beside it for transformers, not run (ckpt/hf/write.c) */
    "tokenization_kimi.py",
    "tokenization_moonshot.py",
    "tool_declaration_ts.py",
    "tokenizer.model",
    "tokenizer.model.v1",
    "tokenizer.model.v2",
    "tokenizer.model.v3",
    "tokenizer.model.v7",
    "tokenizer.model.v7m1",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "chat_template.jinja",
    "chat_template.json",
    AX_PEFT_CONFIG,
    "LICENSE",
};
#define N_SMALL (sizeof small_files / sizeof *small_files)

static bool is_template(const char *path) {
    static const char folder[] = AX_TEMPLATES_DIR "/";
    return strncmp(path, folder, sizeof folder - 1) == 0 && ax_path_ends_in(path, ".jinja");
}

/* ---- the weights ---- */

static enum ax_status refuse_weights(const struct ax_hub_snapshot *s, const char *id) {
    const char *pickle = NULL, *gguf = NULL, *own = NULL, *shard = NULL;
    int number, n;
    for (size_t i = 0; i < s->list.n; i++) {
        const char *path = s->list.files[i].path;
        if (ax_path_ends_in(path, ".bin") || ax_path_ends_in(path, ".pt") ||
            ax_path_ends_in(path, ".pth"))
            pickle = path;
        else if (ax_path_ends_in(path, ".gguf"))
            gguf = path;
        else if (ax_hf_is_own_file(path) && ax_path_ends_in(path, ".safetensors"))
            own = path;
        else if (ax_hf_is_shard(path, &number, &n))
            shard = path;
    }
    if (shard)
        return ax_error(AX_ERR_DATA,
                        "%s: contains %s, but no %s, which says what is in which file. Look for a "
                        "revision that has it, or download the files (hf download) and give the "
                        "path of the folder.",
                        id, shard, INDEX);
    if (gguf)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: contains GGUF files but no safetensors. Download one (%s) and give "
                        "the path of that file.",
                        id, gguf);
    if (pickle)
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "%s: its weights are pickled (%s), a format that can execute arbitrary code, and are "
            "not downloaded. Look for a revision with safetensors (often refs/pr/1), or "
            "convert them.",
            id, pickle);
    if (own)
        return ax_hf_refuse_own_file(id, own);
    return ax_error(AX_ERR_DATA, "%s: contains no weights (%s or %s)", id, SINGLE, INDEX);
}

static enum ax_status open_index(struct ax_hf_index *ix, const struct ax_hub_snapshot *s) {
    char *path, *text;
    size_t len;
    AX_TRY(ax_path_join(&path, s->folder, INDEX));
    enum ax_status st = ax_read_file(path, MAX_INDEX, &text, &len);
    if (st == AX_OK) {
        st = ax_hf_index_parse(ix, path, text, len);
        ax_free(text);
    }
    ax_free(path);
    return st;
}

/* ---- the cached files ---- */

static enum ax_status has_shards(bool *whole, const struct ax_hub_snapshot *s) {
    struct ax_hf_index ix;
    AX_TRY(open_index(&ix, s));
    *whole = true;
    for (int i = 0; i < ix.n_shards; i++)
        *whole = *whole && ax_hub_snapshot_has(s, ix.shards[i]);
    ax_hf_index_free(&ix);
    return AX_OK;
}

/* The repository is an adapter's: config.json, if it has one, is its base's. */
static bool is_adapter(const struct ax_hub_snapshot *s) {
    if (s->listed)
        return ax_hub_list_find(&s->list, AX_PEFT_WEIGHTS) && !ax_hub_list_find(&s->list, SINGLE) &&
               !ax_hub_list_find(&s->list, INDEX);
    return ax_hub_snapshot_has(s, AX_PEFT_CONFIG) && !ax_hub_snapshot_has(s, "config.json");
}

/* True if a cached snapshot has everything that is needed. If the list of its files is not known
 * (other tools store none), a model with tokenizer and weights counts as complete, and an adapter with
 * its configuration and weights. */
static enum ax_status is_whole(bool *whole, const struct ax_hub_snapshot *s,
                               enum ax_hub_part part) {
    *whole = s->commit != NULL;
    for (size_t i = 0; i < N_SMALL && *whole && s->listed; i++)
        *whole =
            !ax_hub_list_find(&s->list, small_files[i]) || ax_hub_snapshot_has(s, small_files[i]);
    for (size_t i = 0; i < s->list.n && *whole && s->listed; i++)
        *whole =
            !is_template(s->list.files[i].path) || ax_hub_snapshot_has(s, s->list.files[i].path);
    const bool adapter = *whole && part == AX_HUB_WHOLE && is_adapter(s);
    if (*whole && !s->listed && !adapter)
        *whole = ax_hub_snapshot_has(s, "tokenizer.json") ||
                 ax_hub_snapshot_has(s, "tekken.json") ||
                 ax_hub_snapshot_has(s, "tiktoken.model") ||
                 ax_hub_snapshot_has(s, "tokenizer.model") || ax_hub_snapshot_has(s, "vocab.json");
    if (!*whole || part == AX_HUB_TOKENIZER)
        return AX_OK;
    if (adapter) {
        *whole = ax_hub_snapshot_has(s, AX_PEFT_CONFIG) && ax_hub_snapshot_has(s, AX_PEFT_WEIGHTS);
        return AX_OK;
    }
    *whole = ax_hub_snapshot_has(s, "config.json");
    if (!*whole || ax_hub_snapshot_has(s, SINGLE))
        return AX_OK;
    *whole = ax_hub_snapshot_has(s, INDEX);
    return *whole ? has_shards(whole, s) : AX_OK;
}

/* ---- fetching ---- */

static enum ax_status pull_small(struct ax_hub_snapshot *s, const struct ax_hub *h,
                                 const struct ax_hub_repo *r, bool index,
                                 struct ax_hub_report *report) {
    const char **names;
    size_t n = 0;
    AX_TRY(ax_alloc(&names, N_SMALL + s->list.n + 1, sizeof *names));
    for (size_t i = 0; i < N_SMALL; i++)
        if (ax_hub_list_find(&s->list, small_files[i]))
            names[n++] = small_files[i];
    for (size_t i = 0; i < s->list.n; i++)
        if (is_template(s->list.files[i].path))
            names[n++] = s->list.files[i].path;
    if (index)
        names[n++] = INDEX;
    const enum ax_status st = ax_hub_pull(s, h, r, names, n, report);
    ax_free(names);
    return st;
}

static enum ax_status pull_shards(struct ax_hub_snapshot *s, const struct ax_hub *h,
                                  const struct ax_hub_repo *r, struct ax_hub_report *report) {
    struct ax_hf_index ix;
    AX_TRY(open_index(&ix, s));
    const enum ax_status st = ax_hub_pull(s, h, r, ix.shards, (size_t)ix.n_shards, report);
    ax_hf_index_free(&ix);
    return st;
}

static enum ax_status pull(struct ax_hub_snapshot *s, const struct ax_hub *h,
                           const struct ax_hub_repo *r, enum ax_hub_part part,
                           struct ax_hub_report *report) {
    const char *adapter = ax_hub_list_find(&s->list, AX_PEFT_WEIGHTS) ? AX_PEFT_WEIGHTS : NULL;
    const bool single = ax_hub_list_find(&s->list, SINGLE) != NULL;
    const bool sharded = !single && ax_hub_list_find(&s->list, INDEX) != NULL;
    if (part == AX_HUB_WHOLE && !single && !sharded && !adapter)
        return refuse_weights(s, r->id);
    AX_TRY(ax_hub_snapshot_keep(s, r));
    AX_TRY(pull_small(s, h, r, part == AX_HUB_WHOLE && sharded, report));
    if (part == AX_HUB_TOKENIZER)
        return AX_OK;
    if (sharded)
        return pull_shards(s, h, r, report);
    const char *const weights[] = {single ? SINGLE : adapter};
    return ax_hub_pull(s, h, r, weights, 1, report);
}

/* Accepts what an offline machine has; whoever reads a missing file will name it. */
static enum ax_status take_offline(const struct ax_hub_snapshot *s, const struct ax_hub_repo *r,
                                   enum ax_hub_part part) {
    if (s->commit && (part == AX_HUB_TOKENIZER || ax_hub_snapshot_has(s, "config.json") ||
                      ax_hub_snapshot_has(s, AX_PEFT_CONFIG)))
        return AX_OK;
    return ax_hub_refuse_offline(r, s->commit ? "config.json" : NULL);
}

static enum ax_status bring(struct ax_hub_snapshot *s, const struct ax_hub *h,
                            const struct ax_hub_repo *r, enum ax_hub_part part,
                            struct ax_hub_report *report) {
    bool whole;
    AX_TRY(is_whole(&whole, s, part));
    if (whole && (!h->refresh || h->offline))
        return AX_OK;
    if (h->offline)
        return take_offline(s, r, part);
    report->asked = true;
    if (!s->listed || h->refresh)
        AX_TRY(ax_hub_ask(s, h, r));
    return pull(s, h, r, part, report);
}

enum ax_status ax_hub_model(char **folder, const struct ax_hub *h, const char *id,
                            const char *revision, enum ax_hub_part part,
                            struct ax_hub_report *report) {
    const struct ax_hub_repo r = {AX_HUB_MODEL, id, revision};
    struct ax_hub_snapshot s;
    *report = (struct ax_hub_report){0};
    AX_TRY(ax_hub_snapshot_find(&s, h->cache, &r));
    const enum ax_status st = bring(&s, h, &r, part, report);
    if (st == AX_OK) {
        snprintf(report->commit, sizeof report->commit, "%s", s.commit);
        *folder = s.folder;
        s.folder = NULL;
    }
    ax_hub_snapshot_free(&s);
    return st;
}
