#include "tests/goldens/weights.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/dtype.h"

#define MAX_RULE (16 << 20)
#define SQRT3    1.7320508075688772

struct tensor {
    const char *name; /* borrowed from the rule */
    struct ax_json rule;
    int64_t numel;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct tensor *)a)->name, ((const struct tensor *)b)->name);
}

static enum ax_status read_tensor(struct ax_json rule, struct tensor *t) {
    *t = (struct tensor){.rule = rule, .numel = 1};
    AX_TRY(ax_json_str(ax_json_get(rule, "name"), &t->name));
    for (const char *c = t->name; *c; c++) /* so that the header needs no escapes */
        if (!strchr("._-", *c) && !isalnum((unsigned char)*c))
            return ax_json_error(ax_json_get(rule, "name"), "\"%s\" is not the name of a tensor",
                                 t->name);
    const struct ax_json shape = ax_json_get(rule, "shape");
    for (size_t i = 0; i < ax_json_size(shape); i++) {
        int64_t n;
        AX_TRY(ax_json_i64(ax_json_at(shape, i), 1, 1 << 20, &n));
        t->numel *= n;
    }
    return AX_OK;
}

/* Appends a tensor's entry of the header, and moves *at behind its values. */
static enum ax_status put_entry(struct ax_buf *header, const struct tensor *t, int64_t *at) {
    const struct ax_json shape = ax_json_get(t->rule, "shape");
    AX_TRY(
        ax_buf_printf(header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[", *at ? "," : "{", t->name));
    for (size_t i = 0; i < ax_json_size(shape); i++)
        AX_TRY(ax_buf_printf(header, "%s%lld", i ? "," : "",
                             (long long)json_integer_value(ax_json_at(shape, i).v)));
    const int64_t end = *at + t->numel * (int64_t)sizeof(float);
    AX_TRY(
        ax_buf_printf(header, "],\"data_offsets\":[%lld,%lld]}", (long long)*at, (long long)end));
    *at = end;
    return AX_OK;
}

static enum ax_status put_values(struct ax_buf *file, const struct tensor *t, uint64_t seed) {
    const struct ax_rng_key key = {.seed = seed, .tensor = ax_hash32(t->name)};
    double mean, std;
    const char *round;
    AX_TRY(ax_json_f64(ax_json_get(t->rule, "mean"), &mean));
    AX_TRY(ax_json_f64(ax_json_get(t->rule, "std"), &std));
    AX_TRY(ax_json_str_or(ax_json_get(t->rule, "round"), "", &round));
    if (*round && strcmp(round, "bf16") != 0)
        return ax_json_error(ax_json_get(t->rule, "round"), "\"%s\" is not \"bf16\"", round);
    for (int64_t i = 0; i < t->numel; i++) {
        const double u = ax_rng_uniform(key, (uint64_t)i);
        float x = (float)(mean + std * SQRT3 * (2.0 * u - 1.0));
        if (*round)
            x = ax_bf16_to_f32(ax_f32_to_bf16(x));
        AX_TRY(ax_buf_append(file, &x, sizeof x));
    }
    return AX_OK;
}

static enum ax_status put_file(struct ax_json rule, const struct tensor *all, size_t n,
                               struct ax_buf *header, struct ax_buf *file) {
    int64_t at = 0, seed;
    AX_TRY(ax_json_i64(ax_json_get(rule, "seed"), 0, INT64_MAX, &seed));
    for (size_t i = 0; i < n; i++)
        AX_TRY(put_entry(header, &all[i], &at));
    AX_TRY(ax_buf_puts(header, "}"));
    while (header->len % 8 != 0)
        AX_TRY(ax_buf_puts(header, " "));
    const uint64_t size = header->len;
    AX_TRY(ax_buf_append(file, &size, sizeof size));
    AX_TRY(ax_buf_append(file, header->data, header->len));
    for (size_t i = 0; i < n; i++)
        AX_TRY(put_values(file, &all[i], (uint64_t)seed));
    return AX_OK;
}

/* The SHA-256 says that both sides made the same bytes. */
static enum ax_status check_sum(struct ax_json rule, const char *path, const struct ax_buf *file) {
    const char *want;
    unsigned char sum[32];
    char got[65];
    struct ax_sha256 sha;
    AX_TRY(ax_json_str(ax_json_get(rule, "sha256"), &want));
    ax_sha256_init(&sha);
    ax_sha256_update(&sha, file->data, file->len);
    ax_sha256_final(&sha, sum);
    ax_hex(got, sum, sizeof sum);
    if (strcmp(got, want) != 0)
        return ax_error(AX_ERR_DATA,
                        "%s: the weights that follow this rule have SHA-256 %s here, but %s where "
                        "the goldens were made. Either the file was edited, or base/rng.c or "
                        "tests/goldens/weights.c no longer do what rule.py does",
                        path, got, want);
    return AX_OK;
}

enum ax_status golden_make_weights(const char *rule, const char *to) {
    struct ax_json_doc doc;
    struct ax_buf header = {0}, file = {0};
    struct tensor *all = NULL;
    AX_TRY(ax_json_load(&doc, rule, MAX_RULE));
    const struct ax_json root = ax_json_root(&doc), tensors = ax_json_get(root, "tensors");
    const size_t n = ax_json_size(tensors);
    enum ax_status st;
    if (n == 0)
        AX_TRY_GOTO(ax_json_error(tensors, "expected a list of tensors"), st, done);
    AX_TRY_GOTO(ax_alloc(&all, n, sizeof *all), st, done);
    for (size_t i = 0; i < n; i++)
        AX_TRY_GOTO(read_tensor(ax_json_at(tensors, i), &all[i]), st, done);
    qsort(all, n, sizeof *all, by_name);
    AX_TRY_GOTO(put_file(root, all, n, &header, &file), st, done);
    AX_TRY_GOTO(check_sum(root, rule, &file), st, done);
    st = ax_write_file_atomic(to, file.data, file.len);
done:
    ax_buf_free(&header);
    ax_buf_free(&file);
    ax_free(all);
    ax_json_free(&doc);
    return st;
}
