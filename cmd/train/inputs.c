/* What the ranks of a run read, as hashes that they compare before the first step: files of the base, the
 * tokenizer, templates, adapters, data sets, and of the other models. A rank whose view of a path is another one
 * would train on something else without a word. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "cmd/train/setup.h"

/* Files up to FULL bytes are read whole; of larger ones, PIECES pieces at even distances and the end. */
#define FULL   ((uint64_t)256 << 20)
#define PIECE  ((uint64_t)64 << 10)
#define PIECES 1024

/* Of a file that can be read twice; a pipe's bytes belong to who trains on them. */
static enum ax_status hash_file(const char *path, uint64_t *hash) {
    struct stat info;
    struct ax_mapping map;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return AX_OK;
    AX_TRY(ax_map_file(&map, path));
    const uint64_t size = map.len, step = size > FULL ? (size - PIECE) / PIECES : PIECE;
    *hash = ax_hash64(&size, sizeof size, *hash);
    for (uint64_t at = 0; at < size; at += step) {
        const size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        *hash = ax_hash64(map.data + at, n, *hash);
        ax_map_drop(map.data + at, n);
    }
    ax_unmap_file(&map);
    return AX_OK;
}

/* ---- folders ---- */

/* What is read of a model's folder; what else lies there may differ. */
static bool is_read(const char *name) {
    static const char *const ends[] = {".safetensors", ".json", ".jinja", ".model", ".gguf"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t end = strlen(ends[i]);
        if (n > end && strcmp(name + n - end, ends[i]) == 0)
            return *name != '.';
    }
    return false;
}

static int pick(const struct dirent *e) {
    return is_read(e->d_name);
}

static enum ax_status hash_folder(const char *dir, uint64_t *hash) {
    struct dirent **names;
    enum ax_status st = AX_OK;
    const int n = scandir(dir, &names, pick, alphasort);
    for (int i = 0; i < n; i++) {
        char *path = NULL;
        if (st == AX_OK)
            st = ax_path_join(&path, dir, names[i]->d_name);
        if (st == AX_OK && !ax_path_is_dir(path)) {
            *hash = ax_hash64(names[i]->d_name, strlen(names[i]->d_name), *hash);
            st = hash_file(path, hash);
        }
        ax_free(path);
        free(names[i]); /* scandir's */
    }
    if (n >= 0)
        free(names);
    return st;
}

/* ---- the list ---- */

/* Adds a file or folder, and with the hash 0 what is neither: standard input, a path that is missing here but
 * may be there on another rank, a text of the configuration, which the ranks have compared. Nothing if path is
 * NULL. */
static enum ax_status add_path(struct ax_train_setup *s, const char *key, const char *path) {
    struct ax_train_inputs *all = &s->o.inputs;
    if (!path)
        return AX_OK;
    /* the last stands for all that follow */
    const bool full = all->n == AX_TRAIN_MAX_INPUTS;
    struct ax_train_input *in = &all->list[full ? AX_TRAIN_MAX_INPUTS - 1 : all->n++];
    (void)snprintf(in->what, sizeof in->what, "%s (%s%s)", key, path,
                   full ? ", or a file before it" : "");
    return ax_path_is_dir(path) ? hash_folder(path, &in->hash) : hash_file(path, &in->hash);
}

enum ax_status ax_train_inputs_add_config(struct ax_train_setup *s, const char *path) {
    static const char key[] = "base_model_config";
    char *in;
    if (!s->fabric || s->planning)
        return AX_OK;
    if (ax_arch_path_is_config(path))
        return add_path(s, key, path);
    AX_TRY(ax_path_join(&in, path, "config.json"));
    const enum ax_status st = add_path(s, key, in);
    ax_free(in);
    return st;
}

static enum ax_status add_template(struct ax_train_setup *s) {
    struct ax_template_keys keys = {0};
    AX_FILL(s->cfg, "", struct ax_template_keys, &keys);
    return add_path(s, "chat_template_jinja", keys.jinja);
}

static enum ax_status add_sets(struct ax_train_setup *s, const struct ax_setup_sets *sets) {
    for (size_t i = 0; i < sets->n; i++) {
        const struct ax_setup_entry *e = &sets->entries[i];
        for (size_t k = 0; e->rows && k < ax_rows_n_files(e->rows); k++)
            AX_TRY(add_path(s, e->path, ax_rows_file(e->rows, k)));
        for (size_t k = 0; !e->rows && sets->sets && k < sets->sets[i].n_files; k++)
            AX_TRY(add_path(s, e->path, sets->sets[i].files[k]));
    }
    return AX_OK;
}

enum ax_status ax_train_inputs_read(struct ax_train_setup *s) {
    if (!s->fabric || s->planning)
        return AX_OK;
    AX_TRY(add_path(s, "base_model", s->base));
    if (!s->base || strcmp(s->data.tok.path, s->base) != 0)
        AX_TRY(add_path(s, "tokenizer_config", s->data.tok.path));
    AX_TRY(add_template(s));
    AX_TRY(add_path(s, "lora_model_dir", s->start.dir));
    AX_TRY(add_path(s, "teacher", s->teacher));
    AX_TRY(add_path(s, "kd_teacher", s->teacher_adapter.dir));
    for (int i = 0; i < s->rollout.n_models; i++)
        AX_TRY(add_path(s, "trl.reward_funcs", s->rollout.models[i].path));
    AX_TRY(add_sets(s, &s->data.train_sets));
    return add_sets(s, &s->data.eval_sets);
}
