/* Base folder + adapter folder → model folder or GGUF file, checked before the rename. */
#include "model/convert/merge.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/adapter/base_note.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hf/merge_note.h"
#include "ckpt/hf/peft.h"
#include "data/text/stop_tokens.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/adapter/load.h"
#include "model/arch/arch.h"
#include "model/arch/classifier.h"
#include "model/convert/from_gguf.h"
#include "model/convert/merged.h"
#include "model/parts/head.h"
#include "model/pass.h"

/* ---- the probe: logits of a small random batch, in float32, before and after ---- */

struct merge_probe {
    const struct ax_arch *arch;
    const struct ax_peft *peft;
    int threads;
    float *adapter, *other; /* logits [tokens][V]; owned */
    /* max |adapter − base|, max |merged − adapter|, max |adapter| */
    double effect, error, largest;
};

enum { DOCS = 2, LENGTH = 24, TOKENS = DOCS * LENGTH };

struct answer {
    const struct merge_probe *probe;
    const struct ax_hf *hf;
    const struct ax_peft *peft; /* NULL: without */
    float *logits;              /* [TOKENS][V], of a classifier its labels */
};

static enum ax_status fill_probe(struct ax_batch *batch, struct ax_queue *q, int64_t vocab) {
    int32_t tokens[TOKENS];
    struct ax_document docs[DOCS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] =
            (int32_t)ax_rng_below((struct ax_rng_key){.seed = 1}, (uint64_t)i * 4, (uint64_t)vocab);
    for (int d = 0; d < DOCS; d++)
        docs[d] = (struct ax_document){.n = LENGTH, .tokens = tokens + d * LENGTH};
    return ax_batch_fill(batch, q, vocab, DOCS, docs);
}

static enum ax_status run_pass(struct ax_pass *p, float *out) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_tensor logits =
        ax_tensor_2d(AX_F32, NULL, TOKENS, ax_arch_head_rows(&p->model->arch));
    AX_TRY(ax_pass_begin(p));
    AX_TRY(ax_pass_forward_all(p));
    logits = ax_stack_take(&rt->arena.scratch, "logits", logits);
    AX_TRY(ax_pass_logits(p, 0, TOKENS, &logits));
    AX_TRY(ax_queue_read(rt->q, logits.data, out, ax_tensor_bytes(&logits), NULL));
    ax_stack_release(&rt->arena.scratch, 0);
    ax_pass_end(p);
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    const struct answer *a = ctx;
    struct ax_model m;
    struct ax_batch batch;
    struct ax_slot slot = {0};
    const struct ax_model_options o = {
        .dtype = AX_F32, .max_positions = LENGTH, .adapter = a->peft ? &a->peft->config : NULL};
    AX_TRY(ax_model_create(&m, a->probe->arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, a->hf), st, done);
    if (a->peft)
        AX_TRY_GOTO(ax_adapter_load(&m, a->peft), st, done);
    AX_TRY_GOTO(ax_slot_create(&slot, &m, &rt->arena.slots[0]), st, done);
    ax_batch_allocate(&batch, &rt->arena.persistent, TOKENS, DOCS, LENGTH, 1, 0);
    ax_batch_cut(&batch, &rt->arena.persistent, m.arch.chunk);
    AX_TRY_GOTO(fill_probe(&batch, rt->q, m.arch.vocab_size), st, done);
    ax_arena_enter(&rt->arena, AX_PHASE_EVAL);
    struct ax_pass p = {.model = &m,
                        .batch = &batch,
                        .slot = &slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY_GOTO(run_pass(&p, a->logits), st, done);
done:
    ax_slot_free(&slot);
    ax_model_free(&m);
    return st;
}

static enum ax_status answer(const struct merge_probe *p, const struct ax_hf *hf,
                             const struct ax_peft *peft, float *logits) {
    struct answer a = {p, hf, peft, logits};
    const struct ax_runtime_options o = {.backend = "cpu", .threads = p->threads};
    return ax_runtime_run(&o, body, &a, NULL);
}

static int64_t count(const struct merge_probe *p) {
    return TOKENS * ax_arch_head_rows(p->arch);
}

/* A NaN counts as an infinite difference. */
static double largest_difference(const struct merge_probe *p) {
    double worst = 0;
    for (int64_t i = 0; i < count(p); i++) {
        const double d = fabs((double)p->adapter[i] - (double)p->other[i]);
        worst = d <= worst ? worst : isnan(d) ? INFINITY : d;
    }
    return worst;
}

/* Base and adapter; sets effect and largest. */
static enum ax_status merge_probe_start(struct merge_probe *p, const struct ax_hf *base) {
    AX_TRY(ax_alloc(&p->adapter, (size_t)count(p), sizeof *p->adapter));
    AX_TRY(ax_alloc(&p->other, (size_t)count(p), sizeof *p->other));
    AX_TRY(answer(p, base, p->peft, p->adapter));
    AX_TRY(answer(p, base, NULL, p->other));
    p->effect = largest_difference(p);
    for (int64_t i = 0; i < count(p); i++)
        p->largest = fmax(p->largest, fabs((double)p->adapter[i]));
    return AX_OK;
}

/* The merged weights; sets error. */
static enum ax_status merge_probe_merged(struct merge_probe *p, const struct ax_hf *merged) {
    AX_TRY(answer(p, merged, NULL, p->other));
    p->error = largest_difference(p);
    return AX_OK;
}

static void merge_probe_free(struct merge_probe *p) {
    ax_free(p->adapter);
    ax_free(p->other);
}

/* ---- the merge ---- */

#define EXACT       1e-4 /* tolerance relative to the largest logit, for float32 weights */
#define HALF_ROUNDS 0.05 /* the same for 16-bit weights, because they are rounded */

struct merge {
    struct ax_merge *m;
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_peft peft;
    bool with_tokenizer;       /* the adapter's folder has a tokenizer */
    int32_t score_pad;         /* as the adapter's note says; −1: it has none of it */
    bool unties;               /* the merged model has its own head, the base has not */
    struct ax_merged *tensors; /* [hf's count] */
    struct ax_st_output *outputs;
    /* Tensors that the base lacks: if the adapter unties a tied base, its embedding as head; if it
     * brings a classifier's head, that. */
    struct ax_st_entry added[2];
    int n_added;
    struct merge_probe probe;
};

static enum ax_status pick_dtype(struct merge *w) {
    struct ax_merge *m = w->m;
    m->written = w->arch.dtype;
    return m->dtype ? ax_convert_dtype(m->dtype, &m->written) : AX_OK;
}

static void add_tensor(struct merge *w, const struct ax_st_entry *e, const char *name) {
    w->added[w->n_added] = *e;
    w->added[w->n_added++].name = (char *)(uintptr_t)name;
}

/* Lists what the merged model has and the base has not. */
static void add_head(struct merge *w) {
    static const char *const names[] = {"score.weight", "score.bias"};
    const struct ax_st_entry *embed = ax_hf_find_embedding(&w->hf), *e;
    for (int i = 0; i < 2 && w->arch.new_head; i++) {
        char name[64];
        snprintf(name, sizeof name, AX_PEFT_PREFIX "%s", names[i]);
        if ((e = ax_safetensors_find(&w->peft.weights, name)) != NULL)
            add_tensor(w, e, names[i]);
    }
    w->unties = w->arch.tied && ax_merged_unties(&w->peft) && embed;
    if (w->unties && !ax_hf_find(&w->hf, "lm_head.weight"))
        add_tensor(w, embed, "lm_head.weight");
    w->arch.tied = w->arch.tied && !w->unties;
}

/* A language model's head has no place in a classifier. */
static bool is_dropped(const struct merge *w, const struct ax_st_entry *e) {
    return w->arch.new_head && strcmp(e->name, "lm_head.weight") == 0;
}

static enum ax_status open_tensors(struct merge *w) {
    add_head(w);
    const struct ax_hf_unused unused = ax_arch_unused(&w->arch);
    const int n = ax_hf_count(&w->hf), all = n + w->n_added;
    AX_TRY(ax_alloc(&w->tensors, (size_t)all, sizeof *w->tensors));
    AX_TRY(ax_alloc(&w->outputs, (size_t)all, sizeof *w->outputs));
    for (int i = 0; i < all; i++) {
        const struct ax_st_entry *e = i < n ? ax_hf_at(&w->hf, i) : &w->added[i - n];
        struct ax_merged *t = &w->tensors[w->m->tensors];
        const bool used = !ax_hf_is_unused(&unused, e->name);
        if (is_dropped(w, e))
            continue;
        AX_TRY(ax_merged_open(t, &w->arch, e, used ? &w->peft : NULL, w->m->written));
        w->outputs[w->m->tensors] = ax_merged_output(t);
        w->m->matrices += ax_merged_differs(t);
        w->m->tensors++;
    }
    return AX_OK;
}

static enum ax_status check_changed(struct merge *w) {
    for (int i = 0; i < w->m->tensors; i++)
        w->m->changed += w->tensors[i].changed;
    if (w->m->changed > 0)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "%s: merging it does not change %s%s. Nothing was written.",
                    w->m->adapter, w->m->base_name,
                    w->m->written == AX_F32 ? ": the adapter was never trained"
                                            : " (as rounded; --dtype float32 keeps more)");
}

static enum ax_status check_answers(const struct merge *w) {
    const struct ax_merge *m = w->m;
    const double tolerance = (m->written == AX_F32 ? EXACT : HALF_ROUNDS) * m->largest;
    if (m->error <= tolerance)
        return AX_OK;
    return ax_error(AX_ERR_FAILED,
                    "the merged model's logits differ from the adapter's by up to %.3g (largest "
                    "logit %.3g; tolerance %.3g). Nothing was written.",
                    m->error, m->largest, tolerance);
}

/* Fields of config.json that differ between the merged model and the base. */
static enum ax_status config_edits(const struct merge *w, json_t **out) {
    *out = json_object();
    bool ok = *out != NULL;
    if (w->unties || w->arch.unties)
        ok = ok && json_object_set_new(*out, "tie_word_embeddings", json_false()) == 0;
    if (!ok)
        return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    AX_TRY(ax_arch_grown_fields(&w->arch, *out));
    return ax_classifier_fields(&w->arch, *out);
}

static enum ax_status read_eos(const char *dir, int32_t *eos) {
    struct ax_tokenizer *t;
    AX_TRY(ax_tokenizer_load(&t, dir));
    *eos = ax_tokenizer_special_id(t, AX_EOS);
    ax_tokenizer_free(t);
    return AX_OK;
}

/* Writes the model to the folder's temporary path and reads it again to compare. */
static enum ax_status write_and_check(struct merge *w, const char *dir) {
    struct ax_hf_save save = {.dir = dir,
                              .base_dir = w->hf.dir,
                              .dtype = w->m->written,
                              .n = w->m->tensors,
                              .tensors = w->outputs};
    json_t *edits;
    /* training put a tokenizer and its chat template next to the adapter */
    int32_t eos;
    struct ax_stop_tokens ends = {0};
    if (w->score_pad >= 0)
        save.pad = &w->score_pad;
    if (w->with_tokenizer) {
        AX_TRY(read_eos(w->m->adapter, &eos));
        save.tokenizer_dir = w->m->adapter;
        save.eos = &eos;
        AX_TRY(ax_stop_tokens_add_folder(&ends, w->m->adapter));
        save.n_ends = ends.n;
        save.ends = ends.ids;
    }
    AX_TRY(config_edits(w, &edits));
    save.config = edits;
    const enum ax_status written = ax_hf_write_into(dir, &save);
    json_decref(edits);
    AX_TRY(written);
    AX_TRY(check_changed(w));
    w->arch.new_head = false; /* the merged folder has it */
    struct ax_hf merged = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_hf_open(&merged, dir), st, done);
    AX_TRY_GOTO(merge_probe_merged(&w->probe, &merged), st, done);
done:
    ax_hf_close(&merged);
    AX_TRY(st);
    w->m->effect = w->probe.effect;
    w->m->error = w->probe.error;
    w->m->largest = w->probe.largest;
    AX_TRY(check_answers(w));
    return ax_merge_note_write(dir, w->m->base_name, w->m->adapter, &w->peft);
}

static enum ax_status write_folder(struct merge *w) {
    struct ax_folder folder = {0};
    AX_TRY(ax_folder_begin(&folder, w->m->dst));
    enum ax_status st = write_and_check(w, folder.tmp);
    if (st == AX_OK)
        st = ax_folder_commit(&folder);
    if (st != AX_OK)
        ax_folder_abort(&folder);
    return st;
}

/* Writes and checks the folder as usual, but under a temporary path that is never renamed. */
static enum ax_status write_gguf(struct merge *w) {
    struct ax_folder folder = {0};
    struct ax_to_gguf *g = &w->m->gguf;
    char *name;
    AX_TRY(ax_sprintf(&name, "%s.merged", w->m->dst));
    enum ax_status st;
    AX_TRY_GOTO(ax_folder_begin(&folder, name), st, done);
    AX_TRY_GOTO(write_and_check(w, folder.tmp), st, done);
    g->src = folder.tmp;
    g->dst = w->m->dst;
    g->threads = w->m->threads;
    st = ax_convert_to_gguf(g);
    g->src = NULL;
done:
    ax_folder_abort(&folder);
    ax_free(name);
    return st;
}

static enum ax_status run(struct merge *w) {
    if (!w->m->to_gguf)
        AX_TRY(ax_folder_check_new(w->m->dst));
    AX_TRY(ax_peft_open(&w->peft, w->m->adapter));
    AX_TRY(ax_arch_load(&w->arch, w->m->base));
    AX_TRY(ax_adapter_vocabulary(&w->arch, &w->peft));
    AX_TRY(ax_classifier_of_adapter(&w->arch, &w->peft));
    if (w->m->to_gguf)
        AX_TRY(ax_classifier_refuse(&w->arch, w->m->adapter, "be written as GGUF"));
    AX_TRY(ax_hf_open(&w->hf, w->m->base));
    AX_TRY(pick_dtype(w));
    w->with_tokenizer = ax_tokenizer_is_in(w->m->adapter);
    AX_TRY(ax_merge_note_check(w->hf.dir, &w->peft));
    AX_TRY(ax_base_note_check(w->hf.dir, &w->peft));
    AX_TRY(ax_base_note_score_pad(&w->peft, &w->score_pad));
    w->probe = (struct merge_probe){.arch = &w->arch, .peft = &w->peft, .threads = w->m->threads};
    AX_TRY(merge_probe_start(&w->probe, &w->hf));
    AX_TRY(open_tensors(w));
    return w->m->to_gguf ? write_gguf(w) : write_folder(w);
}

enum ax_status ax_merge_run(struct ax_merge *m) {
    struct merge w = {.m = m, .score_pad = -1};
    if (!m->base_name)
        m->base_name = m->base;
    const enum ax_status st = run(&w);
    for (int i = 0; w.tensors && i < m->tensors; i++)
        ax_merged_close(&w.tensors[i]);
    ax_free(w.tensors);
    ax_free(w.outputs);
    merge_probe_free(&w.probe);
    ax_hf_close(&w.hf);
    ax_arch_free(&w.arch);
    ax_peft_close(&w.peft);
    return st;
}
