/* A model folder: both config spellings, every golden file present. */
#include "tests/goldens/model.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "model/adapter/load.h"
#include "model/model.h"
#include "tests/goldens/digest.h"

#define MAX_JSON (64u << 20)
/* The text model's config inside that of a model with vision, too. */
#define WRAPPER "config.wrapper.json"

/* A float64 run may differ from the float32 golden by this many gaps: 1.1, plus half a gap
 * because transformers' own float64 run computes some steps in float32
 * (docs/decisions/003-float64-goldens.md). */
#define REF_GAP 1.65

/* What a folder need not have: golden.json says what was made. Without "packed" or "aux_loss" in it there
 * are no such files; goldens with norms.json have the balancing loss, but not its gradients; one without "train" is no folder of make.py's, and has no generations, or is an
 * adapter's that was not trained: then it has neither gradients nor merged weights. */
static bool is_optional(const struct ax_golden_case *c, const char *name) {
    static const struct {
        bool adapter;
        const char *name, *key;
    } made[] = {{false, "packed.safetensors", "packed"},
                {false, "grads_packed.safetensors", "packed"},
                {false, "long.safetensors", "long"},
                {false, "grads_long.safetensors", "long"},
                {false, "aux_loss_router_grads.safetensors", "aux_loss"},
                {false, "generate.json", "train"},
                {true, "grads.safetensors", "train"},
                {true, "merged.safetensors", "train"}};
    for (size_t i = 0; c->golden.root && i < sizeof made / sizeof *made; i++)
        if (made[i].adapter == (c->peft != NULL) && strcmp(name, made[i].name) == 0)
            return !json_object_get(c->golden.root, made[i].key) ||
                   (strcmp(made[i].key, "aux_loss") == 0 && c->norms.root);
    return strcmp(name, "bf16.json") == 0;
}

enum ax_status ax_golden_file(const struct ax_golden_case *c, const char *name, char **path) {
    static const char end[] = ".safetensors";
    const size_t n = strlen(name), m = strlen(end);
    AX_TRY(ax_sprintf(path, "%s%s/%s", c->dir, c->qat ? "" : "/golden", name));
    if (ax_path_exists(*path))
        return AX_OK;
    if (n > m && strcmp(name + n - m, end) == 0) {
        char *samples;
        AX_TRY(
            ax_sprintf(&samples, "%s/golden/%.*s" GOLDEN_SAMPLE_END, c->dir, (int)(n - m), name));
        if (ax_path_exists(samples)) {
            ax_free(*path);
            *path = samples;
            return AX_OK;
        }
        ax_free(samples);
    }
    ax_golden_absent(c->report, *path, is_optional(c, name));
    ax_free(*path);
    *path = NULL;
    return AX_OK;
}

/* False if the golden says nothing of this. */
static bool gap_of(const struct ax_golden_case *c, const char *key, double *gap) {
    if (!c->golden.root)
        return false;
    struct ax_json v = ax_json_get(ax_json_get(ax_json_root(&c->golden), "fp64_gap"), key);
    return v.v && ax_json_f64(v, gap) == AX_OK;
}

double ax_golden_tolerance(const struct ax_golden_case *c, const char *key, double usual) {
    double gap;
    return c->dtype == AX_F64 && gap_of(c, key, &gap) ? REF_GAP * gap : usual;
}

double ax_golden_packed_tolerance(const struct ax_golden_case *c, double usual) {
    double gap;
    if (!gap_of(c, "packed_grads_worst_relative_norm", &gap))
        return usual;
    return fmax(usual, (c->dtype == AX_F64 ? 1 : 2) * REF_GAP * gap);
}

double ax_golden_recorded_tolerance(const struct ax_golden_case *c, const char *key, double usual) {
    double gap;
    if (!c->norms.root || !gap_of(c, key, &gap))
        return usual;
    return fmax(usual, (c->dtype == AX_F64 ? 1 : 2) * REF_GAP * gap);
}

struct ax_json ax_golden_norms(const struct ax_golden_case *c, const char *what) {
    if (strcmp(what, "long") == 0 && c->golden.root)
        return ax_json_get(ax_json_get(ax_json_root(&c->golden), what), "grads");
    return c->norms.root ? ax_json_get(ax_json_root(&c->norms), what) : (struct ax_json){0};
}

double ax_golden_share_tolerance(const struct ax_golden_case *c, const char *key, int64_t n,
                                 double usual) {
    return ceil(ax_golden_tolerance(c, key, usual) * (double)n) / (double)n;
}

double ax_golden_half_place(double golden) {
    const float f = (float)fabs(golden);
    return 0.5 * ((double)nextafterf(f, INFINITY) - (double)f);
}

/* Row r of [B][S] is a document with as many tokens as its mask has ones (padding is on the
 * right); without a mask it is all of them. */
static void rows_to_docs(struct ax_golden_docs *d, const struct ax_golden_tensor *mask, int64_t S) {
    for (int r = 0; r < d->n; r++) {
        d->from[r] = r * S;
        for (int64_t t = 0; t < S; t++)
            d->docs[r].n += !mask->v || mask->v[r * S + t] != 0;
    }
}

static enum ax_status docs_of(struct ax_golden_docs *d, const struct ax_safetensors *st,
                              const struct ax_golden_tensor *ids,
                              const struct ax_golden_tensor *labels) {
    struct ax_golden_tensor cut = {0};
    const bool packed = ax_safetensors_find(st, "cu_seqlens") != NULL;
    const bool padded = !packed && ax_safetensors_find(st, "attention_mask");
    if (packed || padded)
        AX_TRY(ax_golden_read(st, packed ? "cu_seqlens" : "attention_mask", &cut));
    const int64_t n = packed ? cut.numel - 1 : ids->shape[0];
    enum ax_status status = AX_OK;
    if (n < 1 || n > AX_GOLDEN_MAX_DOCS || labels->numel != ids->numel ||
        (padded && cut.numel != ids->numel))
        AX_TRY_GOTO(
            ax_error(AX_ERR_DATA, "%s: %lld documents or unequal shapes", st->path, (long long)n),
            status, done);
    d->n = (int)n;
    AX_TRY_GOTO(ax_alloc(&d->ids, (size_t)ids->numel, sizeof *d->ids), status, done);
    AX_TRY_GOTO(ax_alloc(&d->labels, (size_t)ids->numel, sizeof *d->labels), status, done);
    if (!packed)
        rows_to_docs(d, &cut, ids->shape[1]);
    for (int i = 0; packed && i < d->n; i++) {
        d->from[i] = (int64_t)cut.v[i];
        d->docs[i].n = (int64_t)cut.v[i + 1] - d->from[i];
    }
    for (int i = 0; i < d->n; i++) {
        struct ax_document *doc = &d->docs[i];
        const int64_t from = d->from[i];
        if (from < 0 || doc->n < 0 || from + doc->n > ids->numel)
            AX_TRY_GOTO(ax_error(AX_ERR_DATA, "%s: cu_seqlens is out of range", st->path), status,
                        done);
        for (int64_t t = 0; t < doc->n; t++) {
            const double next = t + 1 < doc->n ? labels->v[from + t + 1] : -1;
            d->ids[from + t] = (int32_t)ids->v[from + t];
            d->labels[from + t] = next < 0 ? -1 : (int32_t)next;
        }
        doc->tokens = d->ids + from;
        doc->labels = d->labels + from;
        d->tokens += doc->n;
        d->longest = doc->n > d->longest ? doc->n : d->longest;
    }
done:
    ax_golden_tensor_free(&cut);
    return status;
}

enum ax_status ax_golden_docs_read(struct ax_golden_docs *d, const struct ax_safetensors *st) {
    *d = (struct ax_golden_docs){0};
    struct ax_golden_tensor ids = {0}, labels = {0};
    enum ax_status status;
    AX_TRY_GOTO(ax_golden_read(st, "input_ids", &ids), status, done);
    AX_TRY_GOTO(ax_golden_read(st, "labels", &labels), status, done);
    AX_TRY_GOTO(docs_of(d, st, &ids, &labels), status, done);
done:
    ax_golden_tensor_free(&ids);
    ax_golden_tensor_free(&labels);
    if (status != AX_OK)
        ax_golden_docs_free(d);
    return status;
}

void ax_golden_docs_free(struct ax_golden_docs *d) {
    ax_free(d->ids);
    ax_free(d->labels);
    *d = (struct ax_golden_docs){0};
}

enum ax_status ax_golden_load(const struct ax_golden_case *c, struct ax_model *m) {
    AX_TRY(ax_model_load(m, &c->hf));
    return c->peft ? ax_adapter_load(m, c->peft) : AX_OK;
}

static void attempt(const struct ax_golden_case *c, const char *what, enum ax_status st) {
    if (st != AX_OK)
        ax_golden_error(c->report, what);
}

static void run_checks(const struct ax_golden_case *c) {
    attempt(c, "forward", ax_golden_forward(c));
    attempt(c, "gradients",
            ax_golden_gradients(c, "forward.safetensors", "grads.safetensors", "batch"));
    attempt(c, "packed gradients",
            ax_golden_gradients(c, "packed.safetensors", "grads_packed.safetensors", "packed"));
    if (c->golden.root && json_object_get(c->golden.root, "long"))
        attempt(c, "long row's gradients",
                ax_golden_gradients(c, "long.safetensors", "grads_long.safetensors", "long"));
    attempt(c, "balancing loss", ax_golden_balance(c));
    attempt(c, "loss of indexers", ax_golden_indexers(c));
    attempt(c, "multi-token prediction", ax_golden_mtp(c));
    attempt(c, "optimizer steps", ax_golden_steps(c));
    attempt(c, "generation", ax_golden_generate(c));
}

static enum ax_status open_case(struct ax_golden_case *c, const char *config) {
    char *path = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_sprintf(&path, "%s/%s", c->dir, config), st, done);
    AX_TRY_GOTO(ax_arch_load(&c->arch, path), st, done);
    AX_TRY_GOTO(ax_hf_open(&c->hf, c->dir), st, done);
    ax_free(path);
    AX_TRY_GOTO(ax_golden_file(c, "golden.json", &path), st, done);
    if (path)
        AX_TRY_GOTO(ax_json_load(&c->golden, path, MAX_JSON), st, done);
    ax_free(path);
    AX_TRY_GOTO(ax_sprintf(&path, "%s/golden/norms.json", c->dir), st, done);
    if (ax_path_exists(path))
        AX_TRY_GOTO(ax_json_load(&c->norms, path, MAX_JSON), st, done);
done:
    ax_free(path);
    return st;
}

static void one_config(struct ax_golden_report *r, const char *dir, const char *config,
                       const struct ax_golden_options *o, enum ax_dtype dtype) {
    struct ax_golden_case c = {.dir = dir, .o = o, .report = r, .dtype = dtype};
    snprintf(r->title, sizeof r->title, "%s (%s) backend=%s dtype=%s", dir, config, o->backend,
             ax_dtype_info(dtype)->name);
    if (open_case(&c, config) != AX_OK)
        ax_golden_error(r, config);
    else if (dtype == AX_BF16)
        attempt(&c, "bf16 steps", ax_golden_bf16(&c));
    else if (strcmp(config, WRAPPER) == 0)
        attempt(&c, "forward", ax_golden_forward(&c));
    else
        run_checks(&c);
    ax_golden_flush(r);
    ax_json_free(&c.golden);
    ax_json_free(&c.norms);
    ax_hf_close(&c.hf);
    ax_arch_free(&c.arch);
}

bool ax_golden_model(struct ax_golden_report *r, const char *dir,
                     const struct ax_golden_options *o) {
    static const char *const configs[] = {"config.json", "config.legacy.json", WRAPPER};
    char path[4096];
    snprintf(path, sizeof path, "%s/golden", dir);
    if (!ax_path_is_dir(path) || ax_peft_is_folder(dir))
        return false;
    bool found = false;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, configs[i]);
        if (!ax_path_exists(path)) {
            if (i < 2)
                ax_golden_absent(r, path, i > 0); /* the older spelling */
            continue;
        }
        found = true;
        enum ax_dtype dtype = strcmp(o->backend, "ref") == 0 ? AX_F64 : AX_F32;
        if (o->dtype && ax_dtype_parse(o->dtype, &dtype) != AX_OK) {
            ax_golden_error(r, "--dtype");
            return true;
        }
        one_config(r, dir, configs[i], o, dtype);
        snprintf(path, sizeof path, "%s/golden/bf16.json", dir);
        if (!o->dtype && dtype == AX_F32 && i < 2 && ax_path_exists(path))
            one_config(r, dir, configs[i], o, AX_BF16);
    }
    return found;
}
