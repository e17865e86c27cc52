/* Paths first, then the hub. */
#include "model/convert/base_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/io_path.h"
#include "base/text/lfs_pointer.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "ckpt/hub/hub.h"
#include "model/convert/from_gguf.h"

/* Finds a hub model in the cache, or downloads it into it. */
static enum ax_status find_in_hub(char **out, const char *id, const char *revision,
                                  enum ax_hub_part part) {
    struct ax_hub hub;
    struct ax_hub_report report;
    AX_TRY(ax_hub_open(&hub));
    const enum ax_status st = ax_hub_model(out, &hub, id, revision, part, &report);
    ax_hub_close(&hub);
    return st;
}

/* Model families that are not supported, by the names under which they are published. */
static const struct {
    const char *prefix, *family;
} lacking[] = {
    {"ai21labs/", "Jamba"},
    {"bigscience/bloom", "BLOOM"},
    {"EleutherAI/", "GPT-NeoX"},
    {"facebook/opt", "OPT"},
    {"google/recurrentgemma", "RecurrentGemma"},
    {"microsoft/phi-1", "Phi-1"},
    {"microsoft/phi-2", "Phi-2"},
    {"moonshotai/Kimi-K2", "Kimi K2"},
    {"moonshotai/Kimi-VL", "Kimi-VL"},
    {"openai-community/gpt2", "GPT-2"},
    {"state-spaces/mamba", "Mamba"},
    {"THUDM/chatglm", "ChatGLM"},
    {"tiiuae/falcon-11b", "Falcon 2"},
    {"tiiuae/falcon-180b", "Falcon"},
    {"tiiuae/falcon-40b", "Falcon"},
    {"tiiuae/falcon-7b", "Falcon"},
    {"tiiuae/falcon-mamba", "Mamba"},
    {"tiiuae/falcon-rw", "Falcon"},
};

enum ax_status ax_base_model_check_name(const char *name) {
    for (size_t i = 0; i < sizeof lacking / sizeof *lacking; i++)
        if (strncasecmp(name, lacking[i].prefix, strlen(lacking[i].prefix)) == 0 &&
            !ax_path_exists(name))
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: %s models are not supported; `axtrain config models` lists those "
                            "that are",
                            name, lacking[i].family);
    return AX_OK;
}

/* Names that could be hub ids, but are much more likely what a run writes. */
static bool looks_like_path(const char *name) {
    static const char *const ends[] = {".gguf", ".safetensors", ".json",
                                       ".bin",  "/merged",      "/quantized"};
    static const char *const begins[] = {"out/",  "output/",      "outputs/",
                                         "runs/", "checkpoints/", "models/"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ax_path_ends_in(name, ends[i]))
            return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return strstr(name, "/checkpoint-") != NULL;
}

/* The folder of a model in the hub's cache, models--org--name, has its snapshots and no model itself. */
static enum ax_status refuse_cache(const char *dir) {
    static const char prefix[] = "models--";
    const char *end = dir + strlen(dir), *base;
    char *snapshots, id[256];
    while (end > dir && end[-1] == '/')
        end--;
    for (base = end; base > dir && base[-1] != '/';)
        base--;
    if (strncmp(base, prefix, sizeof prefix - 1) != 0)
        return AX_OK;
    AX_TRY(ax_path_join(&snapshots, dir, "snapshots"));
    const bool is_cache = ax_path_is_dir(snapshots);
    ax_free(snapshots);
    if (!is_cache)
        return AX_OK;
    base += sizeof prefix - 1;
    snprintf(id, sizeof id, "%.*s", (int)(end - base), base);
    char *parts = strstr(id, "--");
    if (parts) {
        *parts = '/';
        memmove(parts + 1, parts + 2, strlen(parts + 2) + 1);
    }
    return ax_error(AX_ERR_CONFIG,
                    "%s: the hub's cache of a model: write %s, or one of the folders in its "
                    "snapshots/",
                    dir, id);
}

static enum ax_status find(struct ax_base_model *m, const char *name, const char *revision,
                           enum ax_hub_part part) {
    *m = (struct ax_base_model){.kind = AX_BASE_MODEL_FOLDER};
    if (ax_path_is_dir(name)) {
        AX_TRY(refuse_cache(name));
        return ax_strdup(&m->path, name);
    }
    if (ax_path_exists(name)) {
        m->kind = AX_BASE_MODEL_GGUF;
        AX_TRY(ax_lfs_refuse_file(name));
        if (!ax_gguf_is(name))
            return ax_error(AX_ERR_CONFIG,
                            "%s: neither a folder nor a GGUF file. Give the folder that contains "
                            "config.json and the weights.",
                            name);
        return ax_strdup(&m->path, name);
    }
    if (!ax_hub_is_id(name) || looks_like_path(name))
        return ax_error(AX_ERR_CONFIG,
                        "%s: no such folder or file, and not a hub id of the form org/name", name);
    return find_in_hub(&m->path, name, revision, part);
}

enum ax_status ax_base_model_find(struct ax_base_model *m, const char *name, const char *revision) {
    AX_TRY(ax_base_model_check_name(name));
    return find(m, name, revision, AX_HUB_WHOLE);
}

enum ax_status ax_base_model_find_tokenizer(struct ax_base_model *m, const char *name,
                                            const char *revision) {
    return find(m, name, revision, AX_HUB_TOKENIZER);
}

void ax_base_model_free(struct ax_base_model *m) {
    ax_free(m->path);
    *m = (struct ax_base_model){0};
}

static enum ax_status gguf_arch(struct ax_arch *arch, const char *path, json_t *fields) {
    struct ax_gguf file;
    struct ax_gguf_model m;
    json_t *config = NULL;
    AX_TRY(ax_gguf_open(&file, path));
    enum ax_status st = ax_gguf_model_read(&m, &file);
    if (st == AX_OK)
        st = ax_gguf_model_config(&m, &config);
    if (st == AX_OK)
        st = ax_arch_override(config, fields, path);
    if (st == AX_OK) {
        const struct ax_json_doc doc = {.root = config, .name = (char *)(uintptr_t)path};
        st = ax_arch_parse(arch, ax_json_root(&doc));
    }
    json_decref(config);
    ax_gguf_close(&file);
    return st;
}

enum ax_status ax_base_model_arch(struct ax_arch *arch, const char *name, const char *revision,
                                  json_t *fields) {
    struct ax_base_model m;
    if (ax_arch_path_is_config(name))
        return ax_arch_load_with(arch, name, fields);
    AX_TRY(ax_base_model_check_name(name));
    AX_TRY(ax_base_model_find_tokenizer(&m, name, revision));
    const enum ax_status st = m.kind == AX_BASE_MODEL_GGUF
                                  ? gguf_arch(arch, m.path, fields)
                                  : ax_arch_load_with(arch, m.path, fields);
    ax_base_model_free(&m);
    return st;
}

enum ax_status ax_base_model_cache(char **out) {
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (base && *base)
        return ax_path_join(out, base, "axtrain");
    return ax_path_join(out, home && *home ? home : "/tmp", ".cache/axtrain");
}

/* CACHE/NAME-KEY for the file `real`, where the key depends on its path, size and date. */
static enum ax_status linked_path(char **out, const char *real, const char *cache_dir) {
    struct stat info;
    if (stat(real, &info) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot access it: %m", real);
    const int64_t facts[] = {(int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                             (int64_t)info.st_mtim.tv_nsec};
    const uint64_t key = ax_hash64(real, strlen(real), ax_hash64(facts, sizeof facts, 0));
    const char *name = strrchr(real, '/') + 1;
    return ax_sprintf(out, "%s/%s-%016llx", cache_dir, name, (unsigned long long)key);
}

/* Writes the folder, under a lock, unless another process has; replaces one that an earlier version
 * made with a copy of the weights. */
static enum ax_status link_at(const char *path, const char *lock_path, const char *gguf) {
    struct ax_lock lock;
    ax_lock_take(&lock, lock_path, AX_LOCK_EXCLUSIVE);
    enum ax_status st = ax_folder_recover(path);
    if (st == AX_OK && !ax_path_has(path, AX_HF_GGUF))
        st = ax_convert_gguf_link(gguf, path);
    ax_lock_drop(&lock);
    return st;
}

/* Repeats if another process clears the folder between writing and locking it. */
static enum ax_status link_and_use(struct ax_lock *use, const char *path, const char *gguf) {
    char *lock_path;
    AX_TRY(ax_sprintf(&lock_path, "%s.lock", path));
    enum ax_status st = AX_OK;
    for (;;) {
        ax_lock_take(use, lock_path, AX_LOCK_SHARED);
        if (ax_path_has(path, AX_HF_GGUF))
            break;
        ax_lock_drop(use);
        if ((st = link_at(path, lock_path, gguf)) != AX_OK)
            break;
    }
    ax_free(lock_path);
    return st;
}

static enum ax_status link_in(char **folder, struct ax_lock *use, const char *gguf,
                              const char *cache_dir) {
    char real[PATH_MAX], *path;
    if (!realpath(gguf, real))
        return ax_error(AX_ERR_IO, "%s: cannot access it: %m", gguf);
    AX_TRY(ax_mkdir_parents_private(cache_dir));
    AX_TRY(linked_path(&path, real, cache_dir));
    const enum ax_status st = link_and_use(use, path, real);
    if (st == AX_OK)
        *folder = path;
    else
        ax_free(path);
    return st;
}

static enum ax_status link_gguf(char **folder, struct ax_lock *use, const char *gguf,
                                const char *cache_dir) {
    char *own = NULL;
    if (!cache_dir)
        AX_TRY(ax_base_model_cache(&own));
    enum ax_status st = link_in(folder, use, gguf, cache_dir ? cache_dir : own);
    if (st == AX_ERR_IO && own && access(own, W_OK) != 0)
        st = ax_error(
            st,
            "%s. GGUF files are read by way of %s: set XDG_CACHE_HOME to a folder that can "
            "be written to",
            ax_error_text(), own);
    ax_free(own);
    return st;
}

enum ax_status ax_base_model_folder(char **folder, struct ax_lock *use, const char *name,
                                    const char *revision, const char *cache_dir) {
    struct ax_base_model m;
    const bool hub = ax_hub_is_id(name) && !ax_path_exists(name);
    const struct ax_hub_repo repo = {AX_HUB_MODEL, name, revision};
    *use = (struct ax_lock){0};
    if (hub)
        AX_TRY(ax_hub_use(use, &repo));
    enum ax_status st = ax_base_model_find(&m, name, revision);
    if (st == AX_OK && hub && !use->held) /* if it was just downloaded */
        st = ax_hub_use(use, &repo);
    if (st == AX_OK && m.kind == AX_BASE_MODEL_GGUF) {
        st = link_gguf(folder, use, m.path, cache_dir);
        ax_base_model_free(&m);
    } else if (st == AX_OK) {
        *folder = m.path;
    }
    if (st != AX_OK)
        ax_lock_drop(use);
    return st;
}

/* ---- an adapter's ---- */

#define MAX_ADAPTER_CONFIG ((size_t)16 << 20)

static enum ax_status read_base_name(char **base, const char *path, const char *dir) {
    struct ax_json_doc doc;
    const char *name = NULL;
    AX_TRY(ax_json_load(&doc, path, MAX_ADAPTER_CONFIG));
    enum ax_status st =
        ax_json_str_or(ax_json_get(ax_json_root(&doc), "base_model_name_or_path"), NULL, &name);
    if (st == AX_OK && (!name || !*name))
        st = ax_error(AX_ERR_CONFIG,
                      "%s: names no base model; give the base as the model, with --adapter %s",
                      path, dir);
    else if (st == AX_OK)
        st = ax_peft_base_from(dir, name, base);
    if (st == AX_OK && !ax_path_exists(*base) && !ax_hub_is_id(*base)) {
        st = ax_error(AX_ERR_CONFIG,
                      "%s: names a base model that does not exist here (%s); give the base as the "
                      "model, with --adapter %s",
                      path, name, dir);
        ax_free(*base);
        *base = NULL;
    }
    ax_json_free(&doc);
    return st;
}

enum ax_status ax_base_model_of_adapter(char **base, const char **model,
                                        struct ax_arg_list *adapters) {
    const char *dir = *model;
    char *path;
    enum ax_status st = AX_OK;
    *base = NULL;
    AX_TRY(ax_path_join(&path, dir, "adapter_config.json"));
    const bool is_adapter = !ax_path_has(dir, "config.json") && ax_path_exists(path);
    if (is_adapter && adapters->n == AX_ARG_LIST_MAX)
        st = ax_error(AX_ERR_CONFIG, "--adapter: more than %d", AX_ARG_LIST_MAX);
    else if (is_adapter)
        st = read_base_name(base, path, dir);
    if (*base) {
        memmove(adapters->text + 1, adapters->text, (size_t)adapters->n * sizeof *adapters->text);
        adapters->n++;
        adapters->text[0] = dir;
        *model = *base;
    }
    ax_free(path);
    return st;
}
