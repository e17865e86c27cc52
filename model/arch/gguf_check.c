/* What readers of a GGUF file would compute otherwise. */
#include "model/arch/gguf_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ckpt/gguf/names.h"
#include "ckpt/gguf/streams.h"
#include "model/arch/kv_row.h"

enum ax_status ax_gguf_refuse(const char *where, const char *what) {
    return ax_error(AX_ERR_UNSUPPORTED, "%s: config.json: %s, which a GGUF file cannot express",
                    where, what);
}

int64_t ax_gguf_window_of(const struct ax_arch *a) {
    int64_t window = 0;
    for (int64_t i = 0; i < a->n_layers; i++)
        window = a->layers[i].window > 0 ? a->layers[i].window : window;
    return window;
}

/* Readers have these as constants. */
static enum ax_status check_streams(const struct ax_gguf_model *m, const struct ax_arch *a,
                                    const char *where) {
    const int64_t first = AX_GGUF_OWN_KEYS < a->n_layers ? AX_GGUF_OWN_KEYS : a->n_layers,
                  sparse = AX_GGUF_SPARSE < a->n_layers ? AX_GGUF_SPARSE : a->n_layers;
    const struct {
        bool is;
        const char *what;
    } all[] = {
        {a->streams.n != 4, "altup_num_inputs is not 4"},
        {a->streams.active != 0, "altup_active_idx is not 0"},
        {a->laurel_rank != 64, "laurel_rank is not 64"},
        {a->per_layer.width != 256, "hidden_size_per_layer_input is not 256"},
        {a->per_layer.rows > a->vocab_size, "vocab_size_per_layer_input is more than vocab_size"},
        {fabs(a->logit_softcap - 30) > 0, "final_logit_softcapping is not 30"},
        {m->mixed.borrow != a->n_layers - first,
         "num_kv_shared_layers are not all layers after the first 20"},
        {m->streams.sparse != sparse,
         "activation_sparsity_pattern is not 0.95 for the first 10 layers, and 0 for the others"},
        {a->rope.kind != AX_ROPE_DEFAULT || a->rope_local.kind != AX_ROPE_DEFAULT,
         "rope_parameters has a scaling"},
    };
    for (size_t i = 0; m->kind->streams && i < sizeof all / sizeof *all; i++)
        if (all[i].is)
            return ax_gguf_refuse(where, all[i].what);
    for (int64_t i = 0; m->kind->streams && i < a->n_layers; i++)
        if (ax_gguf_slides(m, i) != ((i + 1) % AX_GGUF_FULL_PERIOD != 0))
            return ax_gguf_refuse(
                where, "layer_types has full attention elsewhere than in every fifth layer");
    return AX_OK;
}

/* What a model of the file's config would compute otherwise. Of a kind that has windows in its config,
 * they are compared, too; of the others, they are lost with a warning. */
static const char *difference(const struct ax_gguf_model *m, const struct ax_arch *a,
                              const struct ax_arch *b) {
    const struct ax_routing *r = &a->moe.routing, *s = &b->moe.routing;
    const bool experts = a->moe.n_experts > 0;
    const struct {
        bool is;
        const char *what;
    } all[] = {
        {a->gating.gate != b->gating.gate, "hidden_act is another than the family's"},
        {a->qkv_bias != b->qkv_bias || a->o_bias != b->o_bias || a->mla.bias != b->mla.bias,
         "attention_bias or use_bias is true for this model_type"},
        {a->mlp_bias != b->mlp_bias, "mlp_bias is true for this model_type"},
        {a->moe.n_experts != b->moe.n_experts || a->moe.shared_width != b->moe.shared_width,
         "the number of experts is another than in its layers"},
        {experts && r->renormalize != s->renormalize,
         r->renormalize ? "norm_topk_prob is true" : "norm_topk_prob is false"},
        {experts && (r->groups != s->groups || r->groups_kept != s->groups_kept ||
                     r->group_best != s->group_best || r->sigmoid != s->sigmoid),
         "n_group, topk_group or topk_method"},
        {experts && fabs(r->scale - s->scale) > 0, "routed_scaling_factor"},
        {experts && !a->moe.names->bias != !b->moe.names->bias,
         "use_expert_bias is another than the family's"},
        {a->conv.bias != b->conv.bias, "conv_bias is true"},
        {a->ssd.bias != b->ssd.bias, "mamba_proj_bias is true"},
        {a->ssd.conv_bias != b->ssd.conv_bias, "mamba_conv_bias is false"},
        {fabs(a->ssd.low - b->ssd.low) > 0 || a->ssd.high < b->ssd.high,
         "time_step_limit has bounds, or time_step_min is another than 0.001"},
        {a->conv.taps != b->conv.taps || a->delta.key_heads != b->delta.key_heads ||
             a->delta.value_heads != b->delta.value_heads || a->delta.key_dim != b->delta.key_dim ||
             a->delta.value_dim != b->delta.value_dim,
         "the sizes of layers without attention"},
        {fabs(a->score_softcap - b->score_softcap) > 0, "attn_logit_softcapping"},
        {fabs(a->logit_softcap - b->logit_softcap) > 0, "final_logit_softcapping"},
        {a->rope.interleaved != b->rope.interleaved, "rope_interleave"},
        {fabs(a->gating.limit - b->gating.limit) > 0 || fabs(a->gating.alpha - b->gating.alpha) > 0,
         "swiglu_limit or swiglu_alpha"},
        {a->qk_norm != b->qk_norm, "use_qk_norm"},
        {m->kind->slides && a->qkv_bias, "attention_bias is true for this model_type"},
        {a->chunk != b->chunk, "attention_chunk_size"},
        {m->kind->chunked && (a->rope_queries.period != b->rope_queries.period ||
                              fabs(a->rope_queries.growth - b->rope_queries.growth) > 1e-6),
         "attn_temperature_tuning, floor_scale or attn_scale"},
        {m->query_scale == 0 && m->kv_rank == 0 && !m->kind->beside &&
             fabs(a->softmax_scale / b->softmax_scale - 1) > 1e-6,
         "the scale of attention"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is)
            return all[i].what;
    for (int64_t i = 0; i < a->n_layers; i++) {
        const struct ax_layer_spec *x = &a->layers[i], *y = &b->layers[i];
        if (x->mixer != y->mixer)
            return "layer_types is another list than the family's";
        if (x->ffn != y->ffn)
            return "only some layers have experts";
        if (x->head_dim != y->head_dim || x->kv_heads != y->kv_heads || x->width != y->width ||
            x->borrows != y->borrows || x->source != y->source ||
            x->values_of_keys != y->values_of_keys || x->extra != y->extra ||
            x->sparse != y->sparse || fabs(x->cut - y->cut) > 1e-6)
            return "heads, widths, or shared keys of a layer are others than its kind's";
        if (x->rope != y->rope || x->chunked != y->chunked)
            return "no_rope_layers, or layer_types, is another list than the family's";
        if (ax_layer_kv_heads(a, x) != ax_layer_kv_heads(b, y))
            return "heads of keys and values differ between layers";
        if (ax_gguf_window_of(b) > 0 && x->window != y->window)
            return "sliding_window, or layer_types, is another than the family's";
    }
    return NULL;
}

/* Reads the config that a reader of the file would make. */
static enum ax_status check_config(const struct ax_gguf_model *m, const struct ax_arch *a,
                                   const char *where) {
    struct ax_arch again;
    json_t *config;
    AX_TRY(ax_gguf_model_config(m, &config));
    const struct ax_json root = {.v = config, .doc = "config.json"};
    const enum ax_status st = ax_arch_parse(&again, root);
    const char *what = st == AX_OK ? difference(m, a, &again) : NULL;
    if (st == AX_OK)
        ax_arch_free(&again);
    json_decref(config);
    AX_TRY(st);
    return what ? ax_gguf_refuse(where, what) : AX_OK;
}

/* Caps and windows that readers always have, so that none cannot be said. */
static enum ax_status check_nulls(const struct ax_gguf_model *m, const char *where) {
    char what[96];
    for (const struct ax_gguf_field *f = m->kind->fields; f && (f->gguf || f->hf); f++) {
        const char *at = (const char *)m + f->at;
        const bool none =
            f->type == AX_GGUF_REAL    ? f->absent > 0 && *(const double *)(const void *)at == 0
            : f->type == AX_GGUF_COUNT ? (const void *)at == &m->window && m->window == 0
                                       : false;
        if (!none || !f->hf || f->nullable)
            continue;
        snprintf(what, sizeof what, "%s is null or 0", f->hf);
        return ax_gguf_refuse(where, what);
    }
    return AX_OK;
}

/* Biases that the format has names for. */
struct named {
    bool q, output, mlp;
};

static enum ax_status note_name(void *ctx, const struct ax_gguf_name *name) {
    struct named *n = ctx;
    n->q = n->q || strstr(name->gguf, ".attn_q.bias");
    n->output = n->output || strstr(name->gguf, ".attn_output.bias");
    n->mlp = n->mlp || strstr(name->gguf, ".ffn_up.bias");
    return AX_OK;
}

static enum ax_status check_names(const struct ax_gguf_model *m, const char *where) {
    struct named named = {0};
    AX_TRY(ax_gguf_each_tensor(m, note_name, &named));
    if ((m->qkv_bias && !named.q) || (m->o_bias && !named.output) || !ax_gguf_biases_fit(m))
        return ax_gguf_refuse(where, "attention_bias is true for this model_type");
    return m->mlp_bias && !named.mlp ? ax_gguf_refuse(where, "mlp_bias is true for this model_type")
                                     : AX_OK;
}

static void warn_of_windows(const struct ax_gguf_kind *kind, const struct ax_arch *a,
                            const char *where) {
    for (int64_t i = 0; i < a->n_layers; i++) {
        const int64_t window = a->layers[i].window;
        if (window == 0 || window >= a->max_positions || kind->keeps_windows)
            continue;
        ax_log_warn("%s: config.json: sliding_window: %lld tokens, but readers of the GGUF file "
                    "attend to all; answers to longer texts will differ",
                    where, (long long)window);
        return;
    }
}

/* What readers compute otherwise, for published files of these families, too. */
static void warn_of_readers(const struct ax_gguf_model *m, const struct ax_arch *a,
                            const char *where) {
    const struct ax_rope_config *r = &a->rope;
    const struct {
        bool is;
        const char *what;
    } all[] = {
        {r->kind == AX_ROPE_LONGROPE,
         "rope type longrope: readers choose long or short factors by the size of their context, "
         "not by the length of the text"},
        {r->kind == AX_ROPE_YARN && !r->truncate,
         "rope type yarn, truncate: false: other readers round its range to integers"},
        {strcmp(m->kind->arch, "exaone4") == 0 && m->window > 0 && m->layers != 64,
         "sliding_window: readers know windows of such models only with 64 layers"},
        {a->moe.routing.groups > 1 && a->moe.routing.group_best == 1,
         "topk_method: readers score a group by its best two experts, not its best one"},
        {m->kv_rank > 0 && m->q_rank == 0 && m->layers != 26 && m->layers != 27,
         "q_lora_rank is null: readers know such models only with 26 or 27 layers"},
        {a->ssd.low > 0, "time_step_min: readers let time steps be shorter"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].is)
            ax_log_warn("%s: config.json: %s; answers will differ", where, all[i].what);
}

enum ax_status ax_gguf_check(const struct ax_gguf_model *m, const struct ax_arch *a,
                             const char *where) {
    AX_TRY(check_streams(m, a, where));
    AX_TRY(check_nulls(m, where));
    AX_TRY(check_config(m, a, where));
    AX_TRY(check_names(m, where));
    warn_of_windows(m->kind, a, where);
    warn_of_readers(m, a, where);
    return AX_OK;
}
