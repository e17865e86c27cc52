/* A model on a mesh against the same model on one rank: what the tests of `axtrain check mesh` share.
 * Include it after cmocka.h. */
#ifndef AX_TESTS_CMD_MESH_CASE_H
#define AX_TESTS_CMD_MESH_CASE_H

#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "optim/check/mesh.h"
#include "tests/tiny.h"

/* Sizes that divide as little as they may: vocabulary and feed-forward columns are cut unevenly,
 * KV heads are fewer than 4 ranks of tp. */
static inline enum ax_status make_arch(struct ax_arch *arch, const char *type, bool tied,
                                       const char *extra, int vocab) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": 40, "
             "\"intermediate_size\": 54, \"num_hidden_layers\": 5, \"num_attention_heads\": 4, "
             "\"num_key_value_heads\": %d, \"head_dim\": 12, \"initializer_range\": 0.15, "
             "\"max_position_embeddings\": 64, \"pad_token_id\": 3, \"tie_word_embeddings\": %s%s}",
             type, vocab ? vocab : 97, tiny_kv_heads(type), tied ? "true" : "false", extra);
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, "mesh", text, strlen(text)));
    const enum ax_status st = ax_arch_parse(arch, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

struct model {
    const char *type;
    bool tied;
    const char *extra;
    /* in place of the family's, where any is named; then the heads of v are smaller, too */
    struct ax_norm_names mixer_norms, ffn_norms;
    int vocab; /* 0 = 97 */
};
struct mesh {
    struct ax_mesh_sizes sizes; /* pp, dp_replicate, dp_shard, cp, tp, ep */
    int micro;
};
static int figures;
static int ffn_size; /* intermediate_size of the models that run; 0 = 54 */

static inline enum ax_status run_here(const struct model *m, const struct mesh *mesh,
                                      const char *backend, enum ax_recompute recompute,
                                      struct ax_mesh_check *c, struct ax_golden_report *r,
                                      bool *here) {
    static struct ax_arch arch;
    assert_int_equal(make_arch(&arch, m->type, m->tied, m->extra, m->vocab), AX_OK);
    if (ffn_size > 0)
        arch.intermediate_size = ffn_size;
    /* OLMo Hybrid's own 1e-5 would make roundings larger by as much (test_mesh_families.c) */
    arch.delta.norm_eps = arch.norm_eps;
    for (int64_t i = 0; m->ffn_norms.out && i < arch.n_layers; i++) {
        arch.layers[i].mixer_norms = m->mixer_norms;
        arch.layers[i].ffn_norms = m->ffn_norms;
        arch.v_head_dim = arch.head_dim - 5;
    }
    if (c->step.mtp_coef > 0)
        assert_int_equal(ax_arch_predict(&arch, "mtp_loss_scaling_factor"), AX_OK);
    c->arch = &arch;
    c->sizes = mesh->sizes;
    c->backend = backend;
    c->step.recompute = recompute;
    c->step.n_microbatches = mesh->micro;
    c->step.tokens = 36;
    *r = (struct ax_golden_report){0};
    const uint64_t live = ax_mem_live_blocks();
    const enum ax_status st = ax_mesh_check_run(c, r, here);
    if (st != AX_OK && !c->tamper)
        fail_msg("%s", ax_error_text());
    assert_int_equal(ax_mem_live_blocks(), live);
    ax_arch_free(&arch);
    return st;
}

static inline enum ax_status run(const struct model *m, const struct mesh *mesh,
                                 const char *backend, enum ax_recompute recompute,
                                 struct ax_mesh_check *c, struct ax_golden_report *r) {
    bool here;
    return run_here(m, mesh, backend, recompute, c, r, &here);
}

static inline void expect_figures(const struct ax_golden_report *r, const struct model *m,
                                  const struct mesh *mesh, int at_least) {
    assert_true(r->n >= at_least);
    for (int i = 0; i < r->n; i++) {
        if (!(r->groups[i].worst <= r->groups[i].tolerance))
            fail_msg("%s, pp %d dp_replicate %d dp_shard %d cp %d tp %d ep %d: %s %g > %g (%s)",
                     m->type, mesh->sizes.pp, mesh->sizes.dp_replicate, mesh->sizes.dp_shard,
                     mesh->sizes.cp, mesh->sizes.tp, mesh->sizes.ep, r->groups[i].name,
                     r->groups[i].worst, r->groups[i].tolerance, r->groups[i].where);
        figures++;
    }
}

static inline bool has_group(const struct ax_golden_report *r, const char *group) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->groups[i].name, group) == 0)
            return true;
    return false;
}

#endif
