/* A checkpoint's folder: its manifest; opening and verifying; writing: model, state, manifest, rename. */
#include "ckpt/state/checkpoint.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/direct_io.h"
#include "base/hash/hash.h"
#include "base/io_path.h"
#include "ckpt/hf/safetensors_types.h"

#define FIRST        "{\"crc32c\": \""
#define FIRST_END    "\","
#define FIRST_SIZE   (sizeof FIRST - 1 + 8 + sizeof FIRST_END - 1)
#define MAX_MANIFEST ((size_t)1 << 30)

/* A report of what one rank wrote, as JSON: its files, and where tensors are in them. */
struct report {
    const struct ax_sum_list *files;
    int n_parts;
    const struct ax_state_part *parts;
    const char *state_file; /* contains the parts */
};

/* The manifest: what all ranks wrote. */
struct manifest {
    struct ax_sum_list files;
    json_t *names;   /* object: file → its index */
    json_t *tensors; /* object: "NAME:SLOT" → its entry */
};
static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the checkpoint's manifest");
}

/* ---- the manifest, written ----
 *
 * JSON whose first line contains the CRC-32C of the rest, so that corruption of the manifest itself is
 * found before anything in it is used. */

static json_t *numbers(const int64_t *v, int n) {
    json_t *list = json_array();
    for (int i = 0; list && i < n; i++) {
        if (json_array_append_new(list, json_integer(v[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *tensor_json(const struct ax_state_part *p, const char *file) {
    return json_pack("{ss ss ss so s[{ss so so sI sI}]}", "name", p->name, "slot", p->slot, "dtype",
                     ax_dtype_info(p->dtype)->safetensors, "shape", numbers(p->shape, p->ndim),
                     "shards", "file", file, "start", numbers(p->start, p->ndim), "size",
                     numbers(p->size, p->ndim), "first", (json_int_t)p->first, "n",
                     (json_int_t)p->n);
}

static enum ax_status file_json(const struct ax_file_sums *f, json_t **out) {
    char *hex;
    AX_TRY(ax_alloc(&hex, 8 * f->sums.n + 1, 1));
    for (size_t i = 0; i < f->sums.n; i++)
        snprintf(hex + 8 * i, 9, "%08x", f->sums.crc[i]);
    *out =
        json_pack("{ss sI ss}", "name", f->name, "bytes", (json_int_t)f->sums.bytes, "crc32c", hex);
    ax_free(hex);
    return *out ? AX_OK : no_memory();
}

static enum ax_status file_list(const struct ax_sum_list *files, json_t *list) {
    for (size_t i = 0; i < files->n; i++) {
        json_t *file;
        AX_TRY(file_json(&files->files[i], &file));
        if (json_array_append_new(list, file) != 0)
            return no_memory();
    }
    return AX_OK;
}

static enum ax_status report_text(const struct report *r, char **text, size_t *len) {
    json_t *files = json_array(), *tensors = json_array();
    bool ok = files && tensors;
    enum ax_status st = ok ? file_list(r->files, files) : no_memory();
    for (int i = 0; ok && i < r->n_parts; i++)
        ok = json_array_append_new(tensors, tensor_json(&r->parts[i], r->state_file)) == 0;
    json_t *root = ok ? json_pack("{sO sO}", "files", files, "tensors", tensors) : NULL;
    json_decref(files);
    json_decref(tensors);
    if (st == AX_OK)
        st = root ? ax_json_dump(root, text, len) : no_memory();
    json_decref(root);
    return st;
}

static json_t *mesh_json(const struct ax_mesh *mesh) {
    static const enum ax_role roles[] = {AX_ROLE_PP, AX_ROLE_DP_REPLICATE, AX_ROLE_DP_SHARD,
                                         AX_ROLE_CP, AX_ROLE_TP,           AX_ROLE_EP};
    json_t *v = json_pack("{si}", "world", mesh->world);
    for (size_t i = 0; v && i < sizeof roles / sizeof *roles; i++)
        json_object_set_new(v, ax_role_name(roles[i]), json_integer(mesh->size[roles[i]]));
    return v;
}

static enum ax_status add_lists(json_t *root, const struct manifest *m) {
    json_t *files = json_array(), *tensors = json_array(), *entry;
    const char *key;
    bool ok = json_object_set_new(root, "files", files) == 0;
    ok = json_object_set_new(root, "tensors", tensors) == 0 && ok;
    if (ok)
        AX_TRY(file_list(&m->files, files));
    json_object_foreach(m->tensors, key, entry) ok = ok && json_array_append(tensors, entry) == 0;
    return ok ? AX_OK : no_memory();
}

/* What is not in lists: of a save, or of a checkpoint that is read. NULL: out of memory. */
static json_t *head_of_save(const struct ax_checkpoint_save *save) {
    return json_pack("{ss si sI so sO*}", "format", "axtrain checkpoint", "version",
                     AX_CHECKPOINT_FORMAT, "step", (json_int_t)save->step, "mesh",
                     mesh_json(save->mesh), "run", (json_t *)(uintptr_t)save->run);
}

static json_t *head_of(const struct ax_checkpoint *c) {
    json_t *head = json_copy((json_t *)(uintptr_t)ax_json_root(&c->manifest).v);
    if (head)
        json_object_del(head, "crc32c");
    return head;
}

/* Adds the lists to `root`. */
static enum ax_status manifest_text(const struct manifest *m, json_t *root, struct ax_buf *out) {
    char *text = NULL;
    size_t len;
    AX_TRY(root ? add_lists(root, m) : no_memory());
    AX_TRY(ax_json_dump(root, &text, &len));
    text[len] = '\n'; /* replaces the NUL: the checksum covers it */
    const uint32_t crc = ax_crc32c(0, text + 1, len);
    enum ax_status st = ax_buf_printf(out, FIRST "%08x" FIRST_END, crc);
    if (st == AX_OK)
        st = ax_buf_append(out, text + 1, len);
    ax_free(text);
    return st;
}

static void free_manifest(struct manifest *m) {
    ax_sum_list_free(&m->files);
    json_decref(m->names);
    json_decref(m->tensors);
    *m = (struct manifest){0};
}

/* ---- a file in the manifest ---- */

/* Accepts plain names in the folder, and in "state/" and that of templates. */
static bool is_safe(const char *name) {
    static const char templates[] = AX_TEMPLATES_DIR "/";
    const size_t n = strncmp(name, templates, sizeof templates - 1) ? 0 : sizeof templates - 1;
    return ax_is_plain_name(strncmp(name, "state/", 6) == 0 ? name + 6 : name + n);
}

/* The first file called so; SIZE_MAX: none. */
static size_t index_of(const json_t *names, const char *name) {
    const json_t *at = json_object_get(names, name);
    return at ? (size_t)json_integer_value(at) : SIZE_MAX;
}

static enum ax_status parse_file(struct ax_sum_list *files, json_t *names, struct ax_json v) {
    const char *name, *hex;
    int64_t bytes;
    struct ax_checksums *sums;
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &name));
    AX_TRY(ax_json_i64(ax_json_get(v, "bytes"), 0, INT64_MAX, &bytes));
    AX_TRY(ax_json_str(ax_json_get(v, "crc32c"), &hex));
    const uint64_t pieces = ((uint64_t)bytes + AX_SUM_PIECE - 1) / AX_SUM_PIECE;
    if (!is_safe(name))
        return ax_json_error(v, "\"%s\" is not the name of a file in the checkpoint", name);
    if (strlen(hex) != 8 * pieces || strspn(hex, "0123456789abcdef") != 8 * pieces)
        return ax_json_error(v, "expected %llu checksums", (unsigned long long)pieces);
    AX_TRY(ax_sum_list_add(files, name, &sums));
    if (index_of(names, name) == SIZE_MAX &&
        json_object_set_new(names, name, json_integer((json_int_t)files->n - 1)) != 0)
        return no_memory();
    AX_TRY(ax_alloc(&sums->crc, (size_t)pieces, sizeof *sums->crc));
    sums->n = sums->cap = (size_t)pieces;
    sums->bytes = (uint64_t)bytes;
    for (size_t i = 0; i < sums->n; i++) {
        char word[9] = {0};
        memcpy(word, hex + 8 * i, 8);
        sums->crc[i] = (uint32_t)strtoul(word, NULL, 16);
    }
    return AX_OK;
}

/* ---- reports of ranks ---- */

/* A file of several ranks becomes one. */
static enum ax_status take_file(struct manifest *m, struct ax_json v) {
    const char *name;
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &name));
    const size_t known = index_of(m->names, name);
    AX_TRY(parse_file(&m->files, m->names, v));
    return known == SIZE_MAX ? AX_OK : ax_sum_list_merge_last(&m->files, known);
}

/* The shards of a tensor are put together. */
static enum ax_status take_tensor(json_t *tensors, struct ax_json v) {
    const char *name, *slot;
    char *key;
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &name));
    AX_TRY(ax_json_str(ax_json_get(v, "slot"), &slot));
    AX_TRY(ax_sprintf(&key, "%s:%s", name, slot));
    json_t *known = json_object_get(tensors, key);
    const int rc =
        known ? json_array_extend(json_object_get(known, "shards"), json_object_get(v.v, "shards"))
              : json_object_set(tensors, key, (json_t *)(uintptr_t)v.v);
    ax_free(key);
    return rc == 0 ? AX_OK : no_memory();
}

/* Adds the lists of a rank's report; *m must be zeroed before the first. */
static enum ax_status take_lists(struct manifest *m, struct ax_json root) {
    const struct ax_json files = ax_json_get(root, "files"), tensors = ax_json_get(root, "tensors");
    if ((!m->tensors && !(m->tensors = json_object())) ||
        (!m->names && !(m->names = json_object())))
        return no_memory();
    for (size_t i = 0; i < ax_json_size(files); i++)
        AX_TRY(take_file(m, ax_json_at(files, i)));
    for (size_t i = 0; i < ax_json_size(tensors); i++)
        AX_TRY(take_tensor(m->tensors, ax_json_at(tensors, i)));
    return AX_OK;
}

static enum ax_status take_report_text(struct manifest *m, int rank, const char *text, size_t len) {
    struct ax_json_doc doc;
    char name[64];
    snprintf(name, sizeof name, "report of rank %d", rank);
    AX_TRY(ax_json_parse(&doc, name, text, len));
    const enum ax_status st = take_lists(m, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

/* ---- the manifest, read ---- */

static enum ax_status check_itself(const char *name, const char *text, size_t len) {
    char want[FIRST_SIZE + 1];
    if (len < FIRST_SIZE)
        return ax_error(AX_ERR_DATA, "%s: truncated after %zu bytes", name, len);
    const uint32_t crc = ax_crc32c(0, text + FIRST_SIZE, len - FIRST_SIZE);
    snprintf(want, sizeof want, FIRST "%08x" FIRST_END, crc);
    if (memcmp(text, want, FIRST_SIZE) != 0)
        return ax_error(AX_ERR_DATA,
                        "%s: corrupted: its checksum %08x does not match its first line", name,
                        crc);
    return AX_OK;
}

static enum ax_status parse_numbers(struct ax_json list, int n, int64_t min, int64_t *out) {
    if ((int)ax_json_size(list) != n)
        return ax_json_error(list, "expected %d numbers", n);
    for (int i = 0; i < n; i++)
        AX_TRY(ax_json_i64(ax_json_at(list, (size_t)i), min, INT64_MAX, &out[i]));
    return AX_OK;
}

static enum ax_status parse_shard(struct ax_checkpoint *c, const json_t *names,
                                  const struct ax_state_part *like, struct ax_json v) {
    const char *file;
    struct ax_state_part p = *like;
    int64_t numel;
    AX_TRY(ax_json_str(ax_json_get(v, "file"), &file));
    AX_TRY(parse_numbers(ax_json_get(v, "start"), p.ndim, 0, p.start));
    AX_TRY(parse_numbers(ax_json_get(v, "size"), p.ndim, 1, p.size));
    for (int d = 0; d < p.ndim; d++)
        if (p.start[d] > p.shape[d] || p.size[d] > p.shape[d] - p.start[d])
            return ax_json_error(v, "the block reaches beyond the tensor");
    AX_TRY(ax_product(p.size, p.ndim, &numel));
    AX_TRY(ax_json_i64(ax_json_get(v, "first"), 0, numel, &p.first));
    AX_TRY(ax_json_i64(ax_json_get(v, "n"), 1, numel - p.first, &p.n));
    struct ax_checkpoint_shard *s = &c->shards[c->n_shards];
    s->file = index_of(names, file);
    if (s->file == SIZE_MAX)
        return ax_json_error(v, "file \"%s\" is not in the list of files", file);
    char *name, *slot;
    AX_TRY(ax_strdup(&name, like->name));
    s->part = p;
    s->part.name = name;
    s->part.slot = NULL;
    c->n_shards++; /* from here on c owns it */
    AX_TRY(ax_strdup(&slot, like->slot));
    s->part.slot = slot;
    return AX_OK;
}

static enum ax_status parse_tensor(struct ax_checkpoint *c, const json_t *names, struct ax_json v) {
    struct ax_state_part p = {0};
    const char *dtype;
    AX_TRY(ax_json_str(ax_json_get(v, "name"), &p.name));
    AX_TRY(ax_json_str(ax_json_get(v, "slot"), &p.slot));
    AX_TRY(ax_json_str(ax_json_get(v, "dtype"), &dtype));
    if (!ax_st_dtype_parse(dtype, &p.dtype))
        return ax_json_error(v, "unknown dtype \"%s\"", dtype);
    const struct ax_json shape = ax_json_get(v, "shape"), shards = ax_json_get(v, "shards");
    p.ndim = (int)ax_json_size(shape);
    if (p.ndim < 1 || p.ndim > AX_MAX_DIMS)
        return ax_json_error(shape, "expected 1 to %d dimensions", AX_MAX_DIMS);
    int64_t numel;
    AX_TRY(parse_numbers(shape, p.ndim, 1, p.shape));
    AX_TRY(ax_product(p.shape, p.ndim, &numel));
    const size_t n = ax_json_size(shards);
    AX_TRY(ax_regrow(&c->shards, c->n_shards, c->n_shards + n, sizeof *c->shards));
    for (size_t i = 0; i < n; i++)
        AX_TRY(parse_shard(c, names, &p, ax_json_at(shards, i)));
    return AX_OK;
}

/* By tensor, then start of the block, then position in it. */
static int by_place(const void *a, const void *b) {
    const struct ax_state_part *x = &((const struct ax_checkpoint_shard *)a)->part;
    const struct ax_state_part *y = &((const struct ax_checkpoint_shard *)b)->part;
    const int tensors = ax_state_part_compare(x, y);
    if (tensors)
        return tensors;
    for (int d = 0; d < AX_MAX_DIMS; d++) /* 0 beyond ndim */
        if (x->start[d] != y->start[d])
            return x->start[d] < y->start[d] ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static bool begins_alike(const struct ax_state_part *x, const struct ax_state_part *y) {
    return ax_state_part_compare(x, y) == 0 && memcmp(x->start, y->start, sizeof x->start) == 0;
}

/* True if two parts of a tensor overlap. Their blocks are either the same, so that the runs are
 * compared, or must be disjoint. */
static bool overlap(const struct ax_state_part *x, const struct ax_state_part *y) {
    bool same = true;
    for (int d = 0; d < x->ndim; d++) {
        if (x->start[d] + x->size[d] <= y->start[d] || y->start[d] + y->size[d] <= x->start[d])
            return false;
        same = same && x->start[d] == y->start[d] && x->size[d] == y->size[d];
    }
    return !same || (x->first < y->first + y->n && y->first < x->first + x->n);
}

static enum ax_status check_shape(const char *name, const struct ax_state_part *x,
                                  const struct ax_state_part *y) {
    if (x->ndim == y->ndim && memcmp(x->shape, y->shape, sizeof x->shape) == 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: %s of %s is listed with two shapes", name, x->slot, x->name);
}

static enum ax_status check_apart(const char *name, const struct ax_checkpoint *c, size_t i,
                                  size_t k) {
    const struct ax_state_part *p = &c->shards[i].part;
    if (!overlap(p, &c->shards[k].part))
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: %s of %s: shards in %s and %s contain the same elements",
                    name, p->slot, p->name, c->files.files[c->shards[i].file].name,
                    c->files.files[c->shards[k].file].name);
}

/* A duplicate shard would make up for a missing one, because only elements are counted. Compares
 * neighboring runs of a block, which are sorted, and the first runs of different blocks. */
static enum ax_status check_overlaps(const char *name, const struct ax_checkpoint *c) {
    for (size_t i = 0; i + 1 < c->n_shards; i++) {
        const struct ax_state_part *p = &c->shards[i].part;
        if (ax_state_part_compare(p, &c->shards[i + 1].part) == 0) {
            AX_TRY(check_shape(name, p, &c->shards[i + 1].part));
            AX_TRY(check_apart(name, c, i, i + 1));
        }
        if (i > 0 && begins_alike(&c->shards[i - 1].part, p))
            continue;
        for (size_t k = i + 2;
             k < c->n_shards && ax_state_part_compare(p, &c->shards[k].part) == 0 &&
             c->shards[k].part.start[0] < p->start[0] + p->size[0];
             k++)
            if (!begins_alike(&c->shards[k - 1].part, &c->shards[k].part))
                AX_TRY(check_apart(name, c, i, k));
    }
    return AX_OK;
}

static enum ax_status parse_lists(struct ax_checkpoint *c, struct ax_json root) {
    const struct ax_json files = ax_json_get(root, "files"), tensors = ax_json_get(root, "tensors");
    json_t *names = json_object();
    enum ax_status st = names ? AX_OK : no_memory();
    for (size_t i = 0; st == AX_OK && i < ax_json_size(files); i++)
        st = parse_file(&c->files, names, ax_json_at(files, i));
    for (size_t i = 0; st == AX_OK && i < ax_json_size(tensors); i++)
        st = parse_tensor(c, names, ax_json_at(tensors, i));
    json_decref(names);
    return st;
}

enum ax_status ax_manifest_parse(struct ax_checkpoint *c, const char *name, const char *text,
                                 size_t len) {
    const char *format;
    int64_t version;
    AX_TRY(check_itself(name, text, len));
    AX_TRY(ax_json_parse(&c->manifest, name, text, len));
    const struct ax_json root = ax_json_root(&c->manifest);
    AX_TRY(ax_json_str(ax_json_get(root, "format"), &format));
    AX_TRY(ax_json_i64(ax_json_get(root, "version"), 1, INT64_MAX, &version));
    if (strcmp(format, "axtrain checkpoint") != 0 || version > AX_CHECKPOINT_FORMAT)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: format \"%s\" version %lld; this axtrain reads version %d", name,
                        format, (long long)version, AX_CHECKPOINT_FORMAT);
    AX_TRY(ax_json_i64(ax_json_get(root, "step"), 0, INT64_MAX, &c->step));
    AX_TRY(parse_lists(c, root));
    if (c->n_shards > 1)
        qsort(c->shards, c->n_shards, sizeof *c->shards, by_place);
    AX_TRY(check_overlaps(name, c));
    c->run = ax_json_get(root, "run").v;
    return AX_OK;
}

/* ---- opening and verifying ---- */

enum ax_status ax_checkpoint_open(struct ax_checkpoint *c, const char *dir) {
    char *path = NULL, *text = NULL;
    size_t len;
    *c = (struct ax_checkpoint){0};
    enum ax_status st;
    AX_TRY_GOTO(ax_strdup(&c->dir, dir), st, done);
    AX_TRY_GOTO(ax_path_refuse_links(dir, AX_CHECKPOINT_MANIFEST), st, done);
    AX_TRY_GOTO(ax_path_join(&path, dir, AX_CHECKPOINT_MANIFEST), st, done);
    AX_TRY_GOTO(ax_read_file(path, MAX_MANIFEST, &text, &len), st, done);
    AX_TRY_GOTO(ax_manifest_parse(c, path, text, len), st, done);
    for (size_t i = 0; i < c->files.n; i++)
        AX_TRY_GOTO(ax_path_refuse_links(dir, c->files.files[i].name), st, done);
done:
    ax_free(text);
    ax_free(path);
    if (st != AX_OK)
        ax_checkpoint_close(c);
    return st;
}

void ax_checkpoint_close(struct ax_checkpoint *c) {
    for (size_t i = 0; i < c->n_shards; i++) {
        ax_free((void *)(uintptr_t)c->shards[i].part.name);
        ax_free((void *)(uintptr_t)c->shards[i].part.slot);
    }
    ax_free(c->shards);
    ax_sum_list_free(&c->files);
    ax_json_free(&c->manifest);
    ax_free(c->dir);
    *c = (struct ax_checkpoint){0};
}

static enum ax_status verify_share(const struct ax_checkpoint *c, int part, int parts) {
    void *heap, *buffer;
    AX_TRY(ax_alloc_direct(&heap, &buffer, AX_SUM_PIECE));
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i < c->files.n; i++)
        st = ax_file_sums_check(c->dir, &c->files.files[i],
                                (part + (int)(i % (size_t)parts)) % parts, parts, buffer);
    ax_free(heap);
    return st;
}

enum ax_status ax_checkpoint_verify(const struct ax_checkpoint *c, struct ax_team *team) {
    return ax_team_agree(team, verify_share(c, team ? team->rank : 0, team ? team->size : 1));
}

enum ax_status ax_checkpoint_check(const char *dir) {
    struct ax_checkpoint c;
    AX_TRY(ax_checkpoint_open(&c, dir));
    const enum ax_status st = ax_checkpoint_verify(&c, NULL);
    ax_checkpoint_close(&c);
    return st;
}

/* ---- writing ---- */

enum ax_status ax_checkpoint_key(char **key, const struct ax_state_part *part) {
    return ax_sprintf(key, "%s:%s", part->name, part->slot);
}

static enum ax_status write_state(const char *tmp, const char *name,
                                  const struct ax_checkpoint_save *save,
                                  struct ax_sum_list *files) {
    char *path;
    struct ax_checksums *sums;
    AX_TRY(ax_sum_list_add(files, name, &sums));
    AX_TRY(ax_path_join(&path, tmp, name));
    enum ax_status st = ax_safetensors_create(path);
    if (st == AX_OK)
        st = ax_safetensors_write_part(path, save->n_parts, save->state, true, sums);
    ax_free(path);
    return st;
}

static enum ax_status write_manifest(const char *tmp, const struct manifest *m, json_t *head) {
    char *path = NULL;
    struct ax_buf text = {0};
    struct ax_file f = {.fd = -1};
    enum ax_status st;
    AX_TRY(ax_path_join(&path, tmp, AX_CHECKPOINT_MANIFEST));
    AX_TRY_GOTO(manifest_text(m, head, &text), st, done);
    AX_TRY_GOTO(ax_file_create(&f, path), st, done);
    AX_TRY_GOTO(ax_file_write(&f, text.data, text.len), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
done:
    st = ax_file_end(&f, st);
    ax_buf_free(&text);
    ax_free(path);
    return st;
}

static enum ax_status begin(struct ax_folder *folder, const char *dir) {
    char *state_dir;
    AX_TRY(ax_folder_begin(folder, dir));
    AX_TRY(ax_path_join(&state_dir, folder->tmp, "state"));
    const enum ax_status st = ax_mkdir_private(state_dir);
    ax_free(state_dir);
    return st;
}

/* The folder that rank 0 has made, where all write. */
static enum ax_status find_folder(struct ax_team *team, const struct ax_folder *folder,
                                  char tmp[PATH_MAX]) {
    if (folder->tmp)
        snprintf(tmp, PATH_MAX, "%s", folder->tmp);
    AX_TRY(ax_team_share(team, tmp, PATH_MAX));
    tmp[PATH_MAX - 1] = '\0';
    return AX_OK;
}

static enum ax_status copy_pieces(struct ax_file *from, struct ax_file *to, uint64_t left,
                                  struct ax_checksums *sums) {
    char *buffer;
    AX_TRY(ax_alloc(&buffer, AX_SUM_PIECE, 1));
    enum ax_status st = AX_OK;
    for (uint64_t at = 0; st == AX_OK && left > 0;) {
        const size_t n = left < AX_SUM_PIECE ? (size_t)left : AX_SUM_PIECE;
        AX_TRY_GOTO(ax_file_pread(from, buffer, n, at), st, done);
        AX_TRY_GOTO(ax_checksums_add(sums, buffer, n), st, done);
        AX_TRY_GOTO(ax_file_write(to, buffer, n), st, done);
        at += n;
        left -= n;
    }
done:
    ax_free(buffer);
    return st;
}

static enum ax_status copy_file(const char *from_dir, const char *to_dir,
                                const struct ax_file_sums *file, struct ax_sum_list *files) {
    struct ax_file from = {.fd = -1}, to = {.fd = -1};
    struct ax_checksums *sums;
    char *source = NULL, *target = NULL;
    enum ax_status st;
    AX_TRY(ax_sum_list_add(files, file->name, &sums));
    AX_TRY_GOTO(ax_path_join(&source, from_dir, file->name), st, done);
    AX_TRY_GOTO(ax_path_join(&target, to_dir, file->name), st, done);
    AX_TRY_GOTO(ax_file_open_read(&from, source), st, done);
    AX_TRY_GOTO(ax_mkdir_for(target), st, done);
    AX_TRY_GOTO(ax_file_create(&to, target), st, done);
    AX_TRY_GOTO(copy_pieces(&from, &to, file->sums.bytes, sums), st, done);
    AX_TRY_GOTO(ax_file_sync(&to), st, done);
    AX_TRY_GOTO(ax_sync_parent(target), st, done);
done:
    st = ax_file_end(&to, st);
    st = ax_file_end(&from, st);
    ax_free(target);
    ax_free(source);
    return st;
}

static enum ax_status copy_files(const char *tmp, const struct ax_checkpoint *c,
                                 struct ax_sum_list *files) {
    for (size_t i = 0; i < c->files.n; i++)
        if (strncmp(c->files.files[i].name, "state/", 6) != 0)
            AX_TRY(copy_file(c->dir, tmp, &c->files.files[i], files));
    return AX_OK;
}

/* What this rank has: its parts of the weights, and its state. */
static enum ax_status write_own(const char *tmp, const char *state_file,
                                const struct ax_checkpoint_save *save, struct ax_sum_list *files) {
    struct ax_hf_save hf = save->hf;
    hf.dir = NULL;
    hf.sums = files;
    if (!save->state_only)
        AX_TRY(save->copy_of ? copy_files(tmp, save->copy_of, files) : ax_hf_write_into(tmp, &hf));
    return save->n_parts > 0 ? write_state(tmp, state_file, save, files) : AX_OK;
}

/* Rank 0 removes the folder when it loses a rank, while others may still write there: no mistake of theirs. */
static enum ax_status unless_given_up(enum ax_status st, const struct ax_team *team,
                                      const char *tmp) {
    const double patience = strstr(ax_error_text(), strerror(ENOENT)) ? 1 : 0;
    if (st == AX_OK || ax_team_leads(team) || !ax_path_is_gone(tmp, patience))
        return st;
    return ax_error(AX_ERR_PEER, "%s: rank 0 has given up this checkpoint", tmp);
}

static enum ax_status take_report(void *ctx, int rank, const char *text, int64_t len) {
    return take_report_text(ctx, rank, text, (size_t)len);
}

/* Rank 0 learns what the others wrote. */
static enum ax_status collect(struct ax_team *team, const struct report *r, struct manifest *m) {
    char *text = NULL;
    size_t len = 0;
    enum ax_status st = ax_team_agree(team, report_text(r, &text, &len));
    if (st == AX_OK)
        st = ax_team_collect(team, text, (int64_t)len, take_report, m);
    ax_free(text);
    return st;
}

/* Owns `head`. */
static enum ax_status complete(struct ax_folder *folder, const struct manifest *m, json_t *head,
                               bool checked) {
    char *state_dir;
    const enum ax_status written = write_manifest(folder->tmp, m, head);
    json_decref(head);
    AX_TRY(written);
    if (checked)
        AX_TRY(ax_checkpoint_check(folder->tmp));
    AX_TRY(ax_path_join(&state_dir, folder->tmp, "state"));
    enum ax_status st = ax_sync_dir(state_dir);
    if (st == AX_OK)
        st = ax_folder_commit(folder);
    ax_free(state_dir);
    return st;
}

static enum ax_status write_all(struct ax_folder *folder, const struct ax_checkpoint_save *save,
                                struct ax_sum_list *files, struct manifest *m) {
    struct ax_team *team = save->hf.team;
    const bool leads = ax_team_leads(team);
    char state_file[64], tmp[PATH_MAX] = "";
    AX_TRY(ax_team_agree(team, leads ? begin(folder, save->dir) : AX_OK));
    AX_TRY(find_folder(team, folder, tmp));
    snprintf(state_file, sizeof state_file, "state/rank-%05d.safetensors", save->mesh->rank);
    AX_TRY(
        ax_team_agree(team, unless_given_up(write_own(tmp, state_file, save, files), team, tmp)));
    const struct report report = {files, save->n_parts, save->parts, state_file};
    enum ax_status st = collect(team, &report, m);
    if (st == AX_OK && leads)
        st = complete(folder, m, head_of_save(save), save->copy_of);
    if (save->placed)
        *save->placed = leads && st == AX_OK;
    return ax_team_agree(team, st);
}

enum ax_status ax_checkpoint_write(const struct ax_checkpoint_save *save) {
    struct ax_folder folder = {0};
    struct ax_sum_list files = {0};
    struct manifest m = {0};
    const enum ax_status st = write_all(&folder, save, &files, &m);
    if (st != AX_OK)
        ax_folder_abort(&folder);
    free_manifest(&m);
    ax_sum_list_free(&files);
    return st;
}

/* ---- ranks that wrote alone ---- */

static enum ax_status move_files(const struct ax_checkpoint *from, const char *to_dir) {
    for (size_t i = 0; i < from->files.n; i++) {
        char *is = NULL, *will = NULL;
        enum ax_status st = ax_path_join(&is, from->dir, from->files.files[i].name);
        if (st == AX_OK)
            st = ax_path_join(&will, to_dir, from->files.files[i].name);
        if (st == AX_OK)
            st = ax_rename(is, will);
        ax_free(will);
        ax_free(is);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status join(struct ax_folder *folder, struct manifest *m, const char *dir, int n,
                           const struct ax_checkpoint *from) {
    AX_TRY(begin(folder, dir));
    for (int i = 0; i < n; i++) {
        AX_TRY(take_lists(m, ax_json_root(&from[i].manifest)));
        AX_TRY(move_files(&from[i], folder->tmp));
    }
    return complete(folder, m, head_of(&from[0]), false);
}

enum ax_status ax_checkpoint_join(const char *dir, int n, const struct ax_checkpoint *from) {
    struct ax_folder folder = {0};
    struct manifest m = {0};
    const enum ax_status st = join(&folder, &m, dir, n, from);
    if (st != AX_OK)
        ax_folder_abort(&folder);
    free_manifest(&m);
    return st;
}
