/* Writing a model folder: weights (one file or shards with an index), the edited config.json, and
 * the base's side files. */
#include <stdio.h>
#include <string.h>

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"

#define DEFAULT_SHARD 5000000000LL
#define MAX_CONFIG    (16u << 20)

/* Copied unchanged: what a model folder needs besides weights and config. */
static const struct {
    const char *name;
    bool of_tokenizer;
} side_files[] = {
    {"generation_config.json", false},
    {"LICENSE", false},
    {"tokenizer.json", true},
    {"tokenizer_config.json", true},
    {"special_tokens_map.json", true},
    {"added_tokens.json", true},
    {"tokenizer.model", true},
    {"vocab.json", true},
    {"merges.txt", true},
    {"chat_template.jinja", true},
    {"chat_template.json", true},
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

static enum ax_status write_side_files(const struct target *to, const struct ax_hf_save *save) {
    const char *tokenizer = save->tokenizer_dir ? save->tokenizer_dir : save->base_dir;
    for (size_t i = 0; i < sizeof side_files / sizeof *side_files; i++) {
        const char *from = side_files[i].of_tokenizer ? tokenizer : save->base_dir;
        const bool wanted = side_files[i].of_tokenizer || !save->adapter;
        if (from && wanted && !is_own_text(save, side_files[i].name))
            AX_TRY(copy_side_file(to, from, side_files[i].name));
    }
    for (int i = 0; i < save->n_texts; i++)
        AX_TRY(
            write_text(to, save->texts[i].name, save->texts[i].text, strlen(save->texts[i].text)));
    return AX_OK;
}

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
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

static enum ax_status load_base_config(struct ax_json_doc *doc, const char *base_dir) {
    char *path = NULL;
    AX_TRY(ax_path_join(&path, base_dir, "config.json"));
    enum ax_status st = ax_json_load(doc, path, MAX_CONFIG);
    if (st == AX_OK && !json_is_object(doc->root))
        st = ax_json_error(ax_json_root(doc), "expected an object");
    ax_free(path);
    return st;
}

static enum ax_status write_config(const struct target *to, const struct ax_hf_save *save) {
    struct ax_json_doc doc = {0};
    enum ax_status st = AX_OK;
    if (save->base_dir)
        AX_TRY_GOTO(load_base_config(&doc, save->base_dir), st, done);
    else
        doc.root = json_object();
    if (!doc.root || (save->config && json_object_update(doc.root, (json_t *)save->config) != 0))
        AX_TRY_GOTO(no_memory(), st, done);
    AX_TRY_GOTO(set_dtype(doc.root, save->dtype), st, done);
    AX_TRY_GOTO(write_json(to, "config.json", doc.root), st, done);
done:
    ax_json_free(&doc);
    return st;
}

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

static enum ax_status write_shard(const struct target *to, const char *name, int n,
                                  const struct ax_st_output *tensors) {
    char *path;
    struct ax_checksums *sums;
    AX_TRY(ax_sum_list_add(to->sums, name, &sums));
    AX_TRY(ax_path_join(&path, to->dir, name));
    const enum ax_status st = ax_safetensors_write_summed(path, n, tensors, sums);
    ax_free(path);
    return st;
}

static enum ax_status write_weights(const struct target *to, const struct ax_hf_save *save) {
    int *end = NULL;
    AX_TRY(ax_alloc(&end, (size_t)save->n + 1, sizeof *end));
    const int shards = cut_shards(save, end);
    enum ax_status st = AX_OK;
    for (int i = 0, first = 0; st == AX_OK && i < shards; first = end[i++]) {
        char name[64];
        shard_name(name, sizeof name, i, shards);
        st = write_shard(to, name, end[i] - first, save->tensors + first);
    }
    if (st == AX_OK && shards > 1)
        st = write_index(to, save, shards, end);
    ax_free(end);
    return st;
}

static enum ax_status write_link(const char *dir, const char *gguf) {
    char *path;
    AX_TRY(ax_path_join(&path, dir, AX_HF_GGUF));
    const enum ax_status st = ax_symlink(gguf, path);
    ax_free(path);
    return st;
}

enum ax_status ax_hf_write_into(const char *tmp_dir, const struct ax_hf_save *save) {
    const struct target to = {tmp_dir, save->sums};
    if (!save->adapter)
        AX_TRY(write_config(&to, save));
    AX_TRY(write_side_files(&to, save));
    if (save->adapter)
        return ax_peft_write_into(tmp_dir, save->adapter, save->n, save->tensors, save->sums);
    return save->gguf ? write_link(tmp_dir, save->gguf) : write_weights(&to, save);
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
