#include "ckpt/hf/shards.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"

#define MAX_SHARDS 100000
#define NO_INDEX   "there is no model.safetensors.index.json, and "

/* ---- names ---- */

static const char *skip(const char *at, const char *text) {
    const size_t n = strlen(text);
    return at && strncmp(at, text, n) == 0 ? at + n : NULL;
}

static const char *read_number(const char *at, int *out) {
    *out = 0;
    if (!at || !isdigit((unsigned char)*at))
        return NULL;
    for (; isdigit((unsigned char)*at); at++) {
        if (*out > MAX_SHARDS)
            return NULL;
        *out = *out * 10 + (*at - '0');
    }
    return at;
}

bool ax_hf_is_shard(const char *name, int *number, int *n) {
    const char *at = read_number(skip(name, "model-"), number);
    at = skip(read_number(skip(at, "-of-"), n), ".safetensors");
    return at && *at == '\0' && *number >= 1 && *number <= *n && *n <= MAX_SHARDS;
}

/* ---- a folder's ---- */

static enum ax_status place(struct ax_hf_shards *s, const char *dir, const char *name) {
    int number, n;
    if (!ax_hf_is_shard(name, &number, &n))
        return AX_OK;
    if (s->n == 0) {
        AX_TRY(ax_alloc(&s->names, (size_t)n, sizeof *s->names));
        s->n = n;
    }
    if (s->n != n || s->names[number - 1])
        return ax_error(AX_ERR_DATA,
                        "%s: " NO_INDEX
                        "%s is beside shards of another save, of which there are %d; "
                        "remove those that are not the model's",
                        dir, name, s->n);
    return ax_strdup(&s->names[number - 1], name);
}

static enum ax_status refuse_gaps(const struct ax_hf_shards *s, const char *dir) {
    int missing = 0, first = 0;
    for (int i = 0; i < s->n; i++)
        if (!s->names[i])
            first = missing++ ? first : i + 1;
    return missing == 0
               ? AX_OK
               : ax_error(AX_ERR_DATA,
                          "%s: " NO_INDEX "%d of the %d shards model-…-of-….safetensors are "
                          "missing, the first of them number %d; get the folder again",
                          dir, missing, s->n, first);
}

enum ax_status ax_hf_shards_list(struct ax_hf_shards *s, const char *dir) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    *s = (struct ax_hf_shards){0};
    ax_dir_open(&d, dir);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;)
        st = place(s, dir, name);
    st = ax_dir_end(&d, st);
    if (st == AX_OK)
        st = refuse_gaps(s, dir);
    if (st != AX_OK)
        ax_hf_shards_free(s);
    return st;
}

void ax_hf_shards_free(struct ax_hf_shards *s) {
    for (int i = 0; i < s->n; i++)
        ax_free(s->names[i]);
    ax_free(s->names);
    *s = (struct ax_hf_shards){0};
}

/* ---- their tensors ---- */

static int by_name(const void *a, const void *b) {
    const struct ax_st_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* The shard of a tensor, which is in one of them. */
static const char *shard_of(const struct ax_hf_shards *s, const struct ax_safetensors *files,
                            const struct ax_st_entry *e) {
    int i = 0;
    while (e < files[i].entries || e >= files[i].entries + files[i].n)
        i++;
    return s->names[i];
}

enum ax_status ax_hf_shards_check(const struct ax_hf_shards *s, const char *dir,
                                  const struct ax_safetensors *files) {
    const struct ax_st_entry **all;
    size_t n = 0, k = 0;
    enum ax_status st = AX_OK;
    for (int i = 0; i < s->n; i++)
        n += (size_t)files[i].n;
    AX_TRY(ax_alloc(&all, n, sizeof *all));
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < files[i].n; j++)
            all[k++] = &files[i].entries[j];
    qsort(all, n, sizeof *all, by_name);
    for (size_t i = 1; i < n && st == AX_OK; i++)
        if (strcmp(all[i]->name, all[i - 1]->name) == 0)
            st = ax_error(
                AX_ERR_DATA,
                "%s: " NO_INDEX "tensor %s is in %s and in %s; they are not of one save: get "
                "the folder again",
                dir, all[i]->name, shard_of(s, files, all[i - 1]), shard_of(s, files, all[i]));
    ax_free(all);
    return st;
}
