/* Folders and GGUF files made of each other, and what must be the same. */
#ifndef AX_TESTS_CMD_GGUF_FOLDERS_H
#define AX_TESTS_CMD_GGUF_FOLDERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "base/text/json.h"
#include "cmd/commands.h"
#include "model/convert/from_gguf.h"
#include "cmd/to_gguf.h"
#include "model/convert/merge.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/arch/arch.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/gguf_tiny.h"
#include "tests/golden_files.h"

static inline void ok(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* The folder NAME from a tiny file. */
static inline void put_folder(const struct tiny *t, const char *name) {
    struct gguf_out o = {0};
    tiny_sizes(&o, t);
    tiny_vocab(&o, t);
    key_text(&o, "tokenizer.chat_template", "{{ messages }}\xc3\xa4");
    key_text(&o, "tokenizer.chat_template.tool_use", "{{ tools }}");
    tiny_tensors(&o, t);
    gguf_out_finish(&o);
    put_file("source.gguf", o.file.data, o.file.len);
    gguf_out_free(&o);
    struct ax_convert c = {.src = in_dir("source.gguf"), .dst = in_dir(name)};
    ok(ax_convert_gguf_to_hf(&c));
}

static inline enum ax_status to_gguf(const char *src, const char *dst, const char *quant) {
    struct ax_to_gguf c = {.src = src, .dst = in_dir(dst), .threads = 2};
    ok(ax_to_gguf_quant(&c.quant, quant));
    return ax_convert_to_gguf(&c);
}

static inline void to_hf(const char *src, const char *dst) {
    struct ax_convert c = {.src = in_dir(src), .dst = in_dir(dst)};
    ok(ax_convert_gguf_to_hf(&c));
}

/* --- and back --- */

static inline void same_files(const char *a, const char *b, const char *name) {
    char paths[2][128];
    snprintf(paths[0], sizeof paths[0], "%s/%s", a, name);
    snprintf(paths[1], sizeof paths[1], "%s/%s", b, name);
    char *x = get_text(paths[0]), *y = get_text(paths[1]);
    if (strcmp(x, y) != 0)
        fail_msg("%s differs:\n%s\n%s", name, x, y);
    ax_free(x);
    ax_free(y);
}

/* What a file of Gemma's has of a value: norms + 1, and q or its norm with what the softmax scale
 * lacks. Both are rounded. */
static inline double stored(const char *name, double x, const char *scaled, double factor) {
    const bool norm = strstr(name, "norm") != NULL;
    return (x + norm) * (scaled && strstr(name, scaled) ? factor : 1) - norm;
}

/* Every tensor of `folder` is in `again` with the same numbers, and no other; of Gemma's (`scaled` is
 * not NULL) within rounding. Layers for multi-token prediction are left out. */
static inline void same_weights_of(const char *folder, const char *again, const char *scaled,
                                   double factor, int64_t layers) {
    struct ax_hf a, b;
    ok(ax_hf_open(&a, folder));
    ok(ax_hf_open(&b, again));
    int left_out = 0;
    for (int i = 0; i < ax_hf_count(&a); i++) {
        const struct ax_st_entry *x = ax_hf_at(&a, i), *y = ax_hf_find(&b, x->name);
        const bool unused =
            strncmp(x->name, "mtp.", 4) == 0 || (strncmp(x->name, "model.layers.", 13) == 0 &&
                                                 strtoll(x->name + 13, NULL, 10) >= layers);
        if (!y && (unused || strcmp(x->name, "lm_head.weight") == 0) && ++left_out)
            continue;
        if (!y) {
            fail_msg("%s is not there", x->name);
            continue;
        }
        assert_int_equal(x->numel, y->numel);
        for (int64_t k = 0; k < x->numel; k++) {
            const double got = ax_load(y->dtype, y->data, k), v = ax_load(x->dtype, x->data, k);
            const double want = scaled ? stored(x->name, v, scaled, factor) : v;
            /* half a place of 1 + v each time that it is rounded */
            const double place = 0x1p-24 * (1 + fabs(v));
            if (!(fabs(got - want) <= (scaled && want != v ? 4 * place : scaled ? place : 0)))
                fail_msg("%s[%lld] is %.9g, not %.9g", x->name, (long long)k, got, want);
        }
    }
    assert_int_equal(ax_hf_count(&a) - left_out, ax_hf_count(&b));
    ax_hf_close(&a);
    ax_hf_close(&b);
}

static inline void same_weights(const char *folder, const char *again) {
    same_weights_of(folder, again, NULL, 1, INT64_MAX);
}

/* A folder of the scratch folder with files of others, and `tokens` ids for the tokenizer. */
static inline void copy_file(const char *from_dir, const char *to, const char *name) {
    char *path, *text, *copy;
    size_t len;
    ok(ax_path_join(&path, from_dir, name));
    ok(ax_path_join(&copy, in_dir(to), name));
    if (ax_path_exists(path)) {
        ok(ax_read_file(path, 64 << 20, &text, &len));
        ok(ax_write_file_atomic(copy, text, len));
        ax_free(text);
    }
    ax_free(path);
    ax_free(copy);
}

/* Two configs say the same. */
static inline void same_frequencies(const struct ax_rope_config *a,
                                    const struct ax_rope_config *b) {
    float x[1024], y[1024];
    double scaling[2];
    ax_rope_frequencies(a, 0, x, &scaling[0]);
    ax_rope_frequencies(b, 0, y, &scaling[1]);
    assert_true(fabs(scaling[0] / scaling[1] - 1) < 1e-6);
    for (int64_t i = 0; i < a->dim / 2; i++) /* of a theta with single precision */
        assert_true(fabsf(x[i] - y[i]) <= 1e-6F * fabsf(y[i]));
}

static inline void same_models(const struct ax_arch *a, const struct ax_arch *b, bool scaled) {
    const struct ax_routing *r = &a->moe.routing, *s = &b->moe.routing;
    assert_int_equal(a->moe.n_experts, b->moe.n_experts);
    assert_int_equal(a->moe.n_active, b->moe.n_active);
    assert_int_equal(a->moe.width, b->moe.width);
    assert_int_equal(a->moe.shared_width, b->moe.shared_width);
    assert_true(a->norm_eps == b->norm_eps && /* a file has single precision */
                (float)a->rope.theta == (float)b->rope.theta &&
                a->rope_local.theta == b->rope_local.theta && a->tied == b->tied);
    assert_true(a->rope.kind == b->rope.kind && a->rope.dim == b->rope.dim &&
                a->rope.interleaved == b->rope.interleaved);
    same_frequencies(&a->rope, &b->rope);
    assert_memory_equal(a->rope.short_factor, b->rope.short_factor, sizeof a->rope.short_factor);
    assert_memory_equal(a->rope.long_factor, b->rope.long_factor, sizeof a->rope.long_factor);
    assert_true(a->rope.kind == AX_ROPE_DEFAULT || /* then it is not used */
                a->rope.original_max_positions == b->rope.original_max_positions);
    assert_true(a->gating.gate == b->gating.gate && a->gating.limit == b->gating.limit);
    assert_true(r->sigmoid == s->sigmoid && r->renormalize == s->renormalize &&
                r->groups == s->groups && r->groups_kept == s->groups_kept && r->scale == s->scale);
    assert_true(scaled || fabs(a->softmax_scale / b->softmax_scale - 1) < 1e-7);
    assert_true(a->score_softcap == b->score_softcap && a->logit_softcap == b->logit_softcap);
    assert_true(fabs(a->logit_scale / b->logit_scale - 1) < 1e-7 &&
                a->embedding_scale == b->embedding_scale && a->residual_scale == b->residual_scale);
    for (int64_t i = 0; i < a->n_layers; i++)
        assert_true(a->layers[i].ffn == b->layers[i].ffn &&
                    a->layers[i].window == b->layers[i].window &&
                    a->layers[i].rope == b->layers[i].rope);
}

/* Replaces one member, or one of a member ("model/merges"), of a JSON file in a folder. */
static inline void set_member(const char *folder, const char *file, const char *key,
                              const char *json) {
    struct ax_json_doc doc, value;
    char path[128], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    ok(ax_json_load(&doc, in_dir(path), 1 << 22));
    ok(ax_json_parse(&value, "value", json, strlen(json)));
    const char *slash = strchr(key, '/');
    json_t *object = slash ? json_object_getn(doc.root, key, (size_t)(slash - key)) : doc.root;
    assert_int_equal(
        json_object_set(object, slash ? slash + 1 : key, json_object_get(value.root, "v")), 0);
    ok(ax_json_dump(doc.root, &text, &len));
    put_file(path, text, len);
    ax_free(text);
    ax_json_free(&value);
    ax_json_free(&doc);
}

/* Leaves a tokenizer.json n ids, the last of which is the only merge. */
static inline void cut_tokens(const char *folder, int64_t n) {
    struct ax_json_doc doc;
    char path[128], *text;
    size_t len;
    const char *token;
    json_t *id;
    void *next;
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    ok(ax_json_load(&doc, in_dir(path), 1 << 22));
    json_t *model = json_object_get(doc.root, "model");
    json_t *vocab = json_object_get(model, "vocab"),
           *added = json_object_get(doc.root, "added_tokens");
    json_object_foreach_safe(vocab, next, token, id) if (json_integer_value(id) >= n - 1)
        json_object_del(vocab, token);
    for (size_t i = json_array_size(added); i-- > 0;)
        if (json_integer_value(json_object_get(json_array_get(added, i), "id")) >= n)
            json_array_remove(added, i);
    assert_int_equal(json_object_set_new(vocab, "th", json_integer(n - 1)), 0);
    assert_int_equal(json_object_set_new(model, "merges", json_pack("[[ss]]", "t", "h")), 0);
    ok(ax_json_dump(doc.root, &text, &len));
    put_file(path, text, len);
    ax_free(text);
    ax_json_free(&doc);
}

/* Element k of a file's tensor is `want`. */
static inline void expect(const struct ax_gguf *g, const char *name, int64_t k, double want) {
    const struct ax_gguf_tensor *t = ax_gguf_tensor(g, name);
    assert_non_null(t);
    assert_string_equal(t->type->name, "F32");
    const double got = ax_load(AX_F32, t->data, k);
    if (!(fabs(got - want) <= 1e-7 * (1 + fabs(want))))
        fail_msg("%s[%lld] is %.9g, not %.9g", name, (long long)k, got, want);
}

static inline double value(const struct ax_hf *hf, const char *name, int64_t k) {
    const struct ax_st_entry *e = ax_hf_find(hf, name);
    if (!e)
        fail_msg("%s is missing", name);
    return ax_load(e->dtype, e->data, k);
}

/* Gives a folder's head the values of its embedding, as a tied model's has them. */
static inline void tie_weights(const char *folder) {
    struct ax_safetensors st;
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", in_dir(folder));
    ok(ax_safetensors_open(&st, path));
    const struct ax_st_entry *head = ax_safetensors_find(&st, "lm_head.weight");
    const struct ax_st_entry *embed = ax_safetensors_find(&st, "model.embed_tokens.weight");
    assert_true(head && embed && head->numel == embed->numel);
    const long at = (long)((const char *)head->data - (const char *)st.map.data);
    const size_t n = (size_t)embed->numel * sizeof(float);
    char *bytes;
    ok(ax_alloc(&bytes, n, 1));
    memcpy(bytes, embed->data, n);
    ax_safetensors_close(&st);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
    ax_free(bytes);
}

#endif
