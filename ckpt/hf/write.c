/* Writing a model folder: weights (one file or shards with an index), the edited config.json, and
 * the base's side files. */
#include <stdio.h>
#include <string.h>

#include "base/dir.h"
#include "base/io_path.h"
#include "ckpt/hf/config.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"

#define GENERATION_CONFIG "generation_config.json"
#define TEMPLATE          "chat_template.jinja"
#define QUANTIZATION      "quantization_config"
#define MAX_CONFIG        ((size_t)16 << 20)
#define DEFAULT_SHARD     5000000000LL

/* ---- the tokenizer's tokens in config.json and generation_config.json ---- */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

/* Makes eos_token_id of a config.json or generation_config.json include the tokenizer's EOS (NULL
 * or −1: leaves it unchanged), because transformers stops generation at the tokens of these files,
 * whatever the tokenizer's EOS is. A list keeps its entries; a single number is replaced or, with
 * `keep`, becomes a list, as transformers does. */
static enum ax_status align_eos(json_t *v, const int32_t *eos, bool keep) {
    static const char key[] = "eos_token_id";
    const json_t *was = json_object_get(v, key), *one;
    size_t i;
    if (!eos || *eos < 0 || (json_is_integer(was) && json_integer_value(was) == *eos))
        return AX_OK;
    json_array_foreach(was, i, one) if (json_integer_value(one) == *eos) return AX_OK;
    json_t *now = json_integer(*eos);
    if (json_is_array(was) || (keep && json_is_integer(was))) {
        json_t *list = json_pack("[o]", now);
        const bool ok =
            list && (json_is_array(was) ? json_array_extend(list, (json_t *)(uintptr_t)was)
                                        : json_array_append(list, (json_t *)(uintptr_t)was)) == 0;
        if (!ok) {
            json_decref(list);
            return no_memory();
        }
        now = list;
    }
    return json_object_set_new(v, key, now) == 0 ? AX_OK : no_memory();
}

static enum ax_status align_id(json_t *v, const char *key, const int32_t *id) {
    if (!id || *id < 0)
        return AX_OK;
    return json_object_set_new(v, key, json_integer(*id)) == 0 ? AX_OK : no_memory();
}

static enum ax_status align(json_t *v, const struct ax_hf_save *save, bool keep) {
    AX_TRY(align_eos(v, save->eos, keep));
    AX_TRY(align_id(v, "bos_token_id", save->bos));
    return align_id(v, "pad_token_id", save->pad);
}

static enum ax_status load_base_config(struct ax_json_doc *doc, const char *base_dir) {
    char *path = NULL;
    AX_TRY(ax_path_join(&path, base_dir, "config.json"));
    enum ax_status st = ax_hf_config_read(doc, path);
    if (st == AX_OK && !json_is_object(doc->root))
        st = ax_json_error(ax_json_root(doc), "expected an object");
    ax_free(path);
    return st;
}

/* What transformers takes for the generation_config.json that a folder lacks: the ids of its config.json. */
static enum ax_status ids_of_config(json_t **out, const char *base_dir) {
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
    struct ax_json_doc doc = {0};
    AX_TRY(load_base_config(&doc, base_dir));
    const json_t *config = ax_config_text(doc.root);
    bool ok = (*out = json_object()) != NULL;
    for (size_t i = 0; ok && i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(config, keys[i]);
        ok = !v || json_is_null(v) || json_object_set(*out, keys[i], v) == 0;
    }
    ax_json_free(&doc);
    return ok ? AX_OK : no_memory();
}

/* *out = the base's generation_config.json, aligned, or one for the sake of save->ends; NULL if it has none,
 * or nothing changes. */
static enum ax_status aligned_generation_config(json_t **out, const struct ax_hf_save *save) {
    struct ax_json_doc doc = {0};
    json_t *was = NULL;
    char *path;
    *out = NULL;
    AX_TRY(ax_path_join(&path, save->base_dir, GENERATION_CONFIG));
    enum ax_status st = AX_OK;
    const bool exists = ax_path_exists(path), edits = save->eos || save->bos || save->pad;
    if (save->n_ends == 0 && !(edits && exists))
        goto done;
    AX_TRY_GOTO(exists ? ax_json_load(&doc, path, MAX_CONFIG)
                       : ids_of_config(&doc.root, save->base_dir),
                st, done);
    if (!(was = json_deep_copy(doc.root)))
        AX_TRY_GOTO(no_memory(), st, done);
    AX_TRY_GOTO(align(doc.root, save, exists), st, done);
    for (int i = 0; i < save->n_ends; i++)
        AX_TRY_GOTO(align_eos(doc.root, &save->ends[i], true), st, done);
    if (!json_equal(was, doc.root))
        *out = json_incref(doc.root);
done:
    json_decref(was);
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

/* ---- what a save keeps of its base ----
 *
 * Tensors of a folder that a model made from it does not use, such as layers of multi-token prediction
 * or a vision tower: a save contains them bit for bit. */

/* Tensors that are added to a save; zeroed: none. */
struct kept {
    struct ax_hf hf;
    struct ax_st_output *tensors;
    int n_names;
    char **names; /* names of the save's tensors, if the folder spells them differently */
};

static enum ax_status read_kept(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

/* Of a team, the rank that leads writes it. */
static void add_kept(struct kept *k, struct ax_hf_save *save, const struct ax_st_entry *e) {
    struct ax_st_output *t = &k->tensors[save->n++];
    *t = (struct ax_st_output){.name = e->name, .dtype = e->dtype, .ndim = e->ndim};
    memcpy(t->shape, e->shape, sizeof t->shape);
    if (ax_team_leads(save->team)) {
        t->fill = read_kept;
        t->ctx = (struct ax_st_entry *)(uintptr_t)e;
    }
}

/* Gives the save's own list of tensors room for `more`. */
static enum ax_status copy_list(struct kept *k, struct ax_hf_save *save, int more) {
    AX_TRY(ax_alloc(&k->tensors, (size_t)(save->n + more), sizeof *k->tensors));
    memcpy(k->tensors, save->tensors, (size_t)save->n * sizeof *k->tensors);
    save->tensors = k->tensors;
    return AX_OK;
}

static enum ax_status rename_all(struct kept *k, const struct ax_hf_save *save,
                                 const struct ax_wrapping *names) {
    AX_TRY(ax_alloc(&k->names, (size_t)save->n, sizeof *k->names));
    for (int i = 0; i < save->n; i++) {
        AX_TRY(ax_wrapping_name(names, save->tensors[i].name, &k->names[i]));
        k->tensors[i].name = k->names[i];
        k->n_names++;
    }
    return AX_OK;
}

static enum ax_status add_base(struct kept *k, struct ax_hf_save *save) {
    AX_TRY(ax_hf_open(&k->hf, save->base_dir));
    const struct ax_hf_wrapped *w = k->hf.wrapped;
    const int count = ax_hf_count(&k->hf);
    AX_TRY(copy_list(k, save, count + (w ? w->n_others : 0)));
    for (int i = 0; i < count; i++)
        if (ax_hf_is_unused(&save->kept, ax_hf_at(&k->hf, i)->name))
            add_kept(k, save, ax_hf_at(&k->hf, i));
    if (!w)
        return AX_OK;
    AX_TRY(rename_all(k, save, w->names));
    for (int i = 0; i < w->n_others; i++)
        add_kept(k, save, &w->others[i]);
    return AX_OK;
}

/* Of a text model within another, its module before the names; of the others, "model." in place of another word. */
static enum ax_status name_adapter(struct kept *k, struct ax_hf_save *save) {
    static const char prefix[] = AX_PEFT_PREFIX, body[] = AX_PEFT_PREFIX "model.";
    const struct ax_peft_config *c = save->adapter;
    AX_TRY(copy_list(k, save, 0));
    AX_TRY(ax_alloc(&k->names, (size_t)save->n, sizeof *k->names));
    for (int i = 0; i < save->n; i++) {
        const char *name = save->tensors[i].name, *after = NULL;
        const bool within = strncmp(name, prefix, strlen(prefix)) == 0 &&
                            ax_peft_is_within(c, name + strlen(prefix));
        if (!c->folder_words && strncmp(name, prefix, strlen(prefix)) == 0)
            after = ax_hf_after_word(name + strlen(prefix));
        if (!within && !after)
            continue;
        AX_TRY(within ? ax_sprintf(&k->names[i], "%s%s%s", prefix, c->within, name + strlen(prefix))
                      : ax_sprintf(&k->names[i], "%s%s", body, after));
        k->tensors[i].name = k->names[i];
        k->n_names = i + 1;
    }
    return AX_OK;
}

/* Adds the kept tensors of save->base_dir to the save, which borrows them, and gives the other
 * tensors the names that they have in that folder. Does nothing if there is no such folder, or if
 * no model is saved. An adapter's tensors get the names that its config expects. */
static enum ax_status open_kept(struct kept *k, struct ax_hf_save *save) {
    bool wrapped;
    *k = (struct kept){0};
    if (save->adapter)
        return name_adapter(k, save);
    if (!save->base_dir || save->gguf)
        return AX_OK;
    AX_TRY(ax_hf_is_wrapper(save->base_dir, &wrapped));
    const bool keeps = save->kept.first < save->kept.end || save->kept.prefix;
    return wrapped || keeps ? add_base(k, save) : AX_OK;
}

static void close_kept(struct kept *k) {
    for (int i = 0; i < k->n_names; i++)
        ax_free(k->names[i]);
    ax_free(k->names);
    ax_free(k->tensors);
    ax_hf_close(&k->hf);
    *k = (struct kept){0};
}

/* ---- config and side files ---- */

/* Copied unchanged: what a model folder needs besides weights and config. */
static const struct {
    const char *name;
    bool of_tokenizer;
} side_files[] = {
    {GENERATION_CONFIG, false},
    {"preprocessor_config.json", false},
    {"processor_config.json", false},
    {"video_preprocessor_config.json", false},
    {"LICENSE", false},
    {"tokenizer.json", true},
    {"tekken.json", true},
    {"tokenizer_config.json", true},
    {"special_tokens_map.json", true},
    {"added_tokens.json", true},
    {"tiktoken.model", true},
    /* what auto_map of its tokenizer_config.json names, and what that imports: transformers has no reader of its own */
    {"tokenization_kimi.py", true},
    {"tokenization_moonshot.py", true},
    {"tool_declaration_ts.py", true},
    {"tokenizer.model", true},
    {"tokenizer.model.v1", true},
    {"tokenizer.model.v2", true},
    {"tokenizer.model.v3", true},
    {"tokenizer.model.v7", true},
    {"tokenizer.model.v7m1", true},
    {"vocab.json", true},
    {"merges.txt", true},
    {TEMPLATE, true},
    {"chat_template.json", true},
    {AX_STEPS_FILE, true},
};

/* The folder to write to, and the list that receives checksums. */
struct target {
    const char *dir;
    struct ax_sum_list *sums;
};

static enum ax_status write_text(const struct target *to, const char *name, const void *text,
                                 size_t len) {
    char *path = NULL;
    struct ax_file f = {.fd = -1};
    struct ax_checksums *sums;
    AX_TRY(ax_sum_list_add(to->sums, name, &sums));
    AX_TRY(ax_path_join(&path, to->dir, name));
    enum ax_status st;
    AX_TRY_GOTO(ax_checksums_add(sums, text, len), st, done);
    AX_TRY_GOTO(ax_file_create(&f, path), st, done);
    AX_TRY_GOTO(ax_file_write(&f, text, len), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
done:
    st = ax_file_end(&f, st);
    ax_free(path);
    return st;
}

static enum ax_status write_json(const struct target *to, const char *name, const json_t *v) {
    char *text = NULL;
    size_t len;
    struct ax_buf line = {0};
    AX_TRY(ax_json_dump(v, &text, &len));
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_append(&line, text, len), st, done);
    AX_TRY_GOTO(ax_buf_puts(&line, "\n"), st, done);
    AX_TRY_GOTO(write_text(to, name, line.data, line.len), st, done);
done:
    ax_buf_free(&line);
    ax_free(text);
    return st;
}

static enum ax_status copy_side_file(const struct target *to, const char *base, const char *name) {
    char *from = NULL;
    struct ax_mapping m = {0};
    AX_TRY(ax_path_join(&from, base, name));
    enum ax_status st = AX_OK;
    if (ax_path_exists(from)) {
        AX_TRY_GOTO(ax_map_file(&m, from), st, done);
        AX_TRY_GOTO(write_text(to, name, m.data, m.len), st, done);
    }
done:
    ax_unmap_file(&m);
    ax_free(from);
    return st;
}

static bool is_own_text(const struct ax_hf_save *save, const char *name) {
    for (int i = 0; i < save->n_texts; i++)
        if (strcmp(save->texts[i].name, name) == 0)
            return true;
    return false;
}

static enum ax_status write_generation_config(const struct target *to,
                                              const struct ax_hf_save *save, const char *name) {
    json_t *edited;
    AX_TRY(aligned_generation_config(&edited, save));
    const enum ax_status st =
        edited ? write_json(to, name, edited) : copy_side_file(to, save->base_dir, name);
    json_decref(edited);
    return st;
}

/* Where side file i comes from; NULL: the folder has none, or its own text. `adapter`: it is a PEFT folder. */
static const char *side_file_source(const struct ax_hf_save *save, size_t i, bool adapter) {
    const char *name = side_files[i].name;
    const bool of_tokenizer = side_files[i].of_tokenizer;
    const bool ends = strcmp(name, GENERATION_CONFIG) == 0 && save->n_ends > 0;
    if ((adapter && !of_tokenizer && !ends) || is_own_text(save, name))
        return NULL;
    return of_tokenizer && save->tokenizer_dir ? save->tokenizer_dir : save->base_dir;
}

/* Those of the folder that chat_template.jinja comes from. */
static enum ax_status copy_templates(const struct target *to, const char *from) {
    char *dir = NULL, *path = NULL, name[300];
    struct ax_dir d;
    AX_TRY(ax_path_join(&dir, from, AX_TEMPLATES_DIR));
    enum ax_status st = AX_OK;
    ax_dir_open(&d, dir);
    for (const char *file; st == AX_OK && (file = ax_dir_next(&d)) != NULL;) {
        if (file[0] == '.' || !ax_path_ends_in(file, ".jinja"))
            continue;
        snprintf(name, sizeof name, AX_TEMPLATES_DIR "/%s", file);
        AX_TRY_GOTO(ax_path_join(&path, to->dir, name), st, done);
        st = ax_mkdir_for(path);
        if (st == AX_OK)
            st = copy_side_file(to, from, name);
        if (st == AX_OK)
            st = ax_sync_parent(path);
        ax_free(path);
    }
done:
    ax_free(dir);
    return ax_dir_end(&d, st);
}

static enum ax_status write_side_files(const struct target *to, const struct ax_hf_save *save) {
    for (size_t i = 0; i < sizeof side_files / sizeof *side_files; i++) {
        const char *name = side_files[i].name;
        const char *from = side_file_source(save, i, save->adapter);
        if (from)
            AX_TRY(strcmp(name, GENERATION_CONFIG) == 0 ? write_generation_config(to, save, name)
                                                        : copy_side_file(to, from, name));
        if (from && strcmp(name, TEMPLATE) == 0)
            AX_TRY(copy_templates(to, from));
    }
    for (int i = 0; i < save->n_texts; i++)
        AX_TRY(
            write_text(to, save->texts[i].name, save->texts[i].text, strlen(save->texts[i].text)));
    return AX_OK;
}

static enum ax_status check_side_file(const char *dir, const char *name) {
    struct ax_mapping m = {0};
    char *path;
    AX_TRY(ax_path_join(&path, dir, name));
    const enum ax_status st = ax_path_exists(path) ? ax_map_file(&m, path) : AX_OK;
    ax_unmap_file(&m);
    ax_free(path);
    return st;
}

enum ax_status ax_hf_check_side_files(const struct ax_hf_save *save, bool adapter) {
    for (size_t i = 0; i < sizeof side_files / sizeof *side_files; i++) {
        const char *from = side_file_source(save, i, adapter);
        json_t *edited = NULL;
        if (!from)
            continue;
        AX_TRY(check_side_file(from, side_files[i].name));
        if (strcmp(side_files[i].name, GENERATION_CONFIG) == 0)
            AX_TRY(aligned_generation_config(&edited, save));
        json_decref(edited);
    }
    return AX_OK;
}

/* Sets whichever of the two keys the file has. If it has neither, sets the one that matches its
 * spelling of rope (transformers 5: rope_parameters and dtype). */
static enum ax_status set_dtype(json_t *config, enum ax_dtype dtype) {
    const char *const keys[] = {"dtype", "torch_dtype"};
    const bool has[] = {json_object_get(config, keys[0]), json_object_get(config, keys[1])};
    const bool is_new = json_object_get(config, "rope_parameters") != NULL;
    const bool set[] = {has[0] || (is_new && !has[1]), has[1] || (!is_new && !has[0])};
    for (int i = 0; i < 2; i++)
        if (set[i] &&
            json_object_set_new(config, keys[i], json_string(ax_dtype_info(dtype)->name)) != 0)
            return no_memory();
    return AX_OK;
}

static bool has_dtype(const json_t *config) {
    return json_object_get(config, "dtype") || json_object_get(config, "torch_dtype");
}

/* Of a model that contains a text model: the part about that, and in the root what both say. */
static enum ax_status edit_text(json_t *root, json_t *text, const struct ax_hf_save *save) {
    static const char *const of_root[] = {QUANTIZATION, "tie_word_embeddings"};
    if (save->config && (json_object_update(text, (json_t *)save->config) != 0 ||
                         json_object_update_existing(root, (json_t *)save->config) != 0))
        return no_memory();
    for (size_t i = 0; i < sizeof of_root / sizeof *of_root; i++) {
        json_t *v = json_object_get(save->config, of_root[i]);
        if (v && json_object_set(root, of_root[i], v) != 0)
            return no_memory();
    }
    json_object_del(text, QUANTIZATION);
    if (has_dtype(text))
        AX_TRY(set_dtype(text, save->dtype));
    return has_dtype(text) && !has_dtype(root) ? AX_OK : set_dtype(root, save->dtype);
}

/* Of a model that contains a text model, the root: it changes where it repeats the text model's. */
static enum ax_status align_root(json_t *root, const struct ax_hf_save *save) {
    struct ax_hf_save has = *save;
    if (!json_object_get(root, "eos_token_id"))
        has.eos = NULL;
    if (!json_object_get(root, "bos_token_id"))
        has.bos = NULL;
    if (!json_object_get(root, "pad_token_id"))
        has.pad = NULL;
    return align(root, &has, false);
}

static enum ax_status edit_config(json_t *root, const struct ax_hf_save *save) {
    json_t *text = ax_config_text(root);
    json_object_del(root, QUANTIZATION); /* the save is not, unless save->config says so */
    AX_TRY(align(text, save, false));
    if (text != root)
        AX_TRY(align_root(root, save));
    if (text != root)
        return edit_text(root, text, save);
    if (save->config && json_object_update(root, (json_t *)save->config) != 0)
        return no_memory();
    return set_dtype(root, save->dtype);
}

static enum ax_status write_config(const struct target *to, const struct ax_hf_save *save) {
    struct ax_json_doc doc = {0};
    json_t *was = NULL;
    enum ax_status st = AX_OK;
    if (save->base_dir)
        AX_TRY_GOTO(load_base_config(&doc, save->base_dir), st, done);
    else
        doc.root = json_object();
    if (!doc.root || !(was = json_deep_copy(doc.root)))
        AX_TRY_GOTO(no_memory(), st, done);
    AX_TRY_GOTO(edit_config(doc.root, save), st, done);
    if (save->base_dir && json_equal(was, doc.root))
        AX_TRY_GOTO(copy_side_file(to, save->base_dir, "config.json"), st, done);
    else
        AX_TRY_GOTO(write_json(to, "config.json", doc.root), st, done);
done:
    json_decref(was);
    ax_json_free(&doc);
    return st;
}

static enum ax_status write_adapter_config(const struct target *to,
                                           const struct ax_peft_config *c) {
    json_t *v;
    AX_TRY(ax_peft_config_json(c, &v));
    const enum ax_status st = write_json(to, AX_PEFT_CONFIG, v);
    json_decref(v);
    return st;
}

/* ---- weights ---- */

static int64_t output_bytes(const struct ax_st_output *t) {
    int64_t n = (int64_t)ax_dtype_size(t->dtype);
    for (int d = 0; d < t->ndim; d++)
        n *= t->shape[d];
    return n;
}

/* Shard boundaries: tensors fill a shard in order until the next would exceed the limit. Returns
 * the number of shards; end[i] is the index after shard i's last tensor. */
static int cut_shards(const struct ax_hf_save *save, int *end) {
    const int64_t limit = save->max_shard_bytes > 0 ? save->max_shard_bytes : DEFAULT_SHARD;
    int shards = 0;
    int64_t in_shard = 0;
    for (int i = 0; i < save->n; i++) {
        const int64_t bytes = output_bytes(&save->tensors[i]);
        if (in_shard > 0 && in_shard + bytes > limit) {
            end[shards++] = i;
            in_shard = 0;
        }
        in_shard += bytes;
    }
    end[shards++] = save->n;
    return shards;
}

static void shard_name(char *name, size_t size, int i, int shards) {
    if (shards == 1)
        snprintf(name, size, "model.safetensors");
    else
        snprintf(name, size, "model-%05d-of-%05d.safetensors", i + 1, shards);
}

static enum ax_status write_index(const struct target *to, const struct ax_hf_save *save,
                                  int shards, const int *end) {
    json_t *root = json_object(), *map = json_object();
    int64_t total = 0;
    bool ok = root && map;
    for (int i = 0, shard = 0; ok && i < save->n; i++) {
        char name[64];
        shard += i == end[shard];
        shard_name(name, sizeof name, shard, shards);
        ok = json_object_set_new(map, save->tensors[i].name, json_string(name)) == 0;
        total += output_bytes(&save->tensors[i]);
    }
    ok = ok && json_object_set_new(root, "metadata", json_pack("{sI}", "total_size", total)) == 0;
    ok = ok && json_object_set(root, "weight_map", map) == 0;
    enum ax_status st;
    if (ok)
        st = write_json(to, "model.safetensors.index.json", root);
    else
        st = ax_error(AX_ERR_NOMEM, "out of memory for the shard index");
    json_decref(map);
    json_decref(root);
    return st;
}

/* The files of the weights. */
struct files {
    int n;
    int *end;         /* [n] index after the last tensor of each */
    const char *only; /* name of the one file; NULL: those of a model's shards */
};

static enum ax_status make_files(struct files *files, const struct ax_hf_save *save) {
    *files = (struct files){.only = save->adapter ? AX_PEFT_WEIGHTS : NULL};
    AX_TRY(ax_alloc(&files->end, (size_t)save->n + 1, sizeof *files->end));
    if (save->adapter) {
        files->end[0] = save->n;
        files->n = 1;
    } else if (!save->gguf) {
        files->n = cut_shards(save, files->end);
    }
    return AX_OK;
}

static enum ax_status file_path(char **path, char *name, size_t size, const char *dir,
                                const struct files *files, int i) {
    if (files->only)
        snprintf(name, size, "%s", files->only);
    else
        shard_name(name, size, i, files->n);
    return ax_path_join(path, dir, name);
}

static enum ax_status create_files(const char *dir, const struct files *files) {
    for (int i = 0; i < files->n; i++) {
        char name[64], *path;
        AX_TRY(file_path(&path, name, sizeof name, dir, files, i));
        const enum ax_status st = ax_safetensors_create(path);
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status write_parts(const struct target *to, const struct ax_hf_save *save,
                                  const struct files *files) {
    for (int i = 0, first = 0; i < files->n; first = files->end[i++]) {
        char name[64], *path;
        struct ax_checksums *sums;
        AX_TRY(file_path(&path, name, sizeof name, to->dir, files, i));
        enum ax_status st = ax_sum_list_add(to->sums, name, &sums);
        if (st == AX_OK)
            st = ax_safetensors_write_part(path, files->end[i] - first, save->tensors + first,
                                           ax_team_leads(save->team), sums);
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

/* On a file system whose clients keep pages of their own, hosts take turns: two that change one page at
 * the same time would lose what one of them wrote. */
static enum ax_status write_in_turn(const struct target *to, const struct ax_hf_save *save,
                                    const struct files *files) {
    const int turns = save->team && ax_path_is_remote(to->dir) ? save->team->hosts : 1;
    for (int turn = 0; turn < turns; turn++) {
        enum ax_status st = AX_OK;
        if (turns == 1 || turn == save->team->host)
            st = write_parts(to, save, files);
        if (turn + 1 == turns)
            return st;
        AX_TRY(ax_team_agree(save->team, st));
    }
    return AX_OK;
}

static enum ax_status write_link(const char *dir, const char *gguf) {
    char *path;
    AX_TRY(ax_path_join(&path, dir, AX_HF_GGUF));
    const enum ax_status st = ax_symlink(gguf, path);
    ax_free(path);
    return st;
}

/* What one rank writes: everything but the weights, whose files it creates. */
static enum ax_status write_beside(const struct target *to, const struct ax_hf_save *save,
                                   const struct files *files) {
    if (save->adapter)
        AX_TRY(write_adapter_config(to, save->adapter));
    else
        AX_TRY(write_config(to, save));
    AX_TRY(write_side_files(to, save));
    if (save->gguf && !save->adapter)
        return write_link(to->dir, save->gguf);
    if (files->n > 1)
        AX_TRY(write_index(to, save, files->n, files->end));
    return create_files(to->dir, files);
}

static enum ax_status write_all(const char *tmp_dir, const struct ax_hf_save *save) {
    const struct target to = {tmp_dir, save->sums};
    struct files files;
    enum ax_status st = make_files(&files, save);
    if (st == AX_OK && ax_team_leads(save->team))
        st = write_beside(&to, save, &files);
    st = ax_team_agree(save->team, st);
    if (st == AX_OK)
        st = write_in_turn(&to, save, &files);
    ax_free(files.end);
    return st;
}

enum ax_status ax_hf_write_into(const char *tmp_dir, const struct ax_hf_save *save) {
    struct ax_hf_save all = *save;
    struct kept kept;
    enum ax_status st = ax_team_agree(save->team, open_kept(&kept, &all));
    if (st == AX_OK)
        st = write_all(tmp_dir, &all);
    close_kept(&kept);
    return st;
}

enum ax_status ax_hf_write(const struct ax_hf_save *save) {
    struct ax_folder folder = {0};
    AX_TRY(ax_folder_begin(&folder, save->dir));
    enum ax_status st = ax_hf_write_into(folder.tmp, save);
    if (st == AX_OK)
        st = ax_folder_commit(&folder);
    if (st != AX_OK)
        ax_folder_abort(&folder);
    return st;
}
