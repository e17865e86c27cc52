/* Golden files that are not about models: rope.json, schedules.json, optim/, objectives/. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "tests/goldens/golden.h"
#include "model/arch/rope.h"
#include "optim/optimizers/lr_schedule.h"

#define MAX_JSON (64u << 20)

/* DIR/NAME, or DIR itself if it is that file; false if there is no such file. */
static bool locate(const char *dir, const char *name, char *path, size_t size) {
    const size_t n = strlen(dir), m = strlen(name);
    if (n >= m && strcmp(dir + n - m, name) == 0)
        snprintf(path, size, "%s", dir);
    else
        snprintf(path, size, "%s/%s", dir, name);
    return ax_path_exists(path) && !ax_path_is_dir(path);
}

/* Runs `check` on each element of "cases" of a JSON file. */
static bool each_case(struct ax_golden_report *r, const char *path,
                      enum ax_status (*check)(struct ax_golden_report *r, struct ax_json root,
                                              struct ax_json item)) {
    struct ax_json_doc doc = {0};
    snprintf(r->title, sizeof r->title, "%s", path);
    enum ax_status st = ax_json_load(&doc, path, MAX_JSON);
    if (st == AX_OK) {
        const struct ax_json root = ax_json_root(&doc), cases = ax_json_get(root, "cases");
        for (size_t i = 0; i < ax_json_size(cases) && st == AX_OK; i++)
            st = check(r, root, ax_json_at(cases, i));
    }
    if (st != AX_OK)
        ax_golden_error(r, path);
    ax_golden_flush(r);
    ax_json_free(&doc);
    return true;
}

static enum ax_status rope_case(struct ax_golden_report *r, struct ax_json root, struct ax_json v) {
    (void)root;
    struct ax_rope_config rope;
    int64_t head_dim, max_positions, seq_len;
    double want, scaling;
    float inv_freq[1024];
    const char *kind;
    char where[96];
    AX_TRY(ax_json_i64(ax_json_get(v, "head_dim"), 2, 2048, &head_dim));
    AX_TRY(ax_json_i64(ax_json_get(v, "max_position_embeddings"), 1, INT32_MAX, &max_positions));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "seq_len"), 1, INT32_MAX, 1, &seq_len));
    AX_TRY(ax_rope_parse(&rope, v, (struct ax_rope_usual){0}, head_dim, max_positions));
    AX_TRY(ax_json_str(ax_json_get(ax_json_get(v, "rope_parameters"), "rope_type"), &kind));
    snprintf(where, sizeof where, "%s head_dim %lld theta %g seq %lld", kind, (long long)head_dim,
             rope.theta, (long long)seq_len);
    ax_rope_frequencies(&rope, seq_len, inv_freq, &scaling);
    AX_TRY(ax_json_f64(ax_json_get(v, "attention_scaling"), &want));
    ax_golden_note(r, "attention scaling (relative)", fabs(scaling - want) / want, 1e-6, where);
    const struct ax_json list = ax_json_get(v, "inv_freq");
    if ((int64_t)ax_json_size(list) != rope.dim / 2)
        return ax_json_error(list, "expected %lld values", (long long)(rope.dim / 2));
    for (int64_t i = 0; i < rope.dim / 2; i++) {
        AX_TRY(ax_json_f64(ax_json_at(list, (size_t)i), &want));
        ax_golden_note(r, "inv_freq (relative)", fabs((double)inv_freq[i] - want) / want, 1e-6,
                       where);
    }
    return AX_OK;
}

bool ax_golden_rope(struct ax_golden_report *r, const char *dir,
                    const struct ax_golden_options *o) {
    (void)o;
    char path[4096];
    return locate(dir, "rope.json", path, sizeof path) && each_case(r, path, rope_case);
}

static enum ax_status read_schedule(struct ax_json root, struct ax_json v,
                                    struct ax_lr_schedule *s) {
    const char *kind, *decay;
    AX_TRY(ax_json_str(ax_json_get(v, "kind"), &kind));
    AX_TRY(ax_lr_kind_parse(kind, &s->kind));
    AX_TRY(ax_json_f64(ax_json_get(root, "base_lr"), &s->base_lr));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "total"), 0, INT64_MAX, 0, &s->total));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "warmup"), 0, INT64_MAX, 0, &s->warmup));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "decay"), 0, INT64_MAX, 0, &s->decay));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "stable"), 0, INT64_MAX, 0, &s->stable));
    AX_TRY(ax_json_i64_or(ax_json_get(v, "timescale"), 0, INT64_MAX, 0, &s->timescale));
    const double waves = s->kind == AX_LR_COSINE_WITH_RESTARTS ? 1 : 0.5;
    double min_lr;
    AX_TRY(ax_json_f64_or(ax_json_get(v, "num_cycles"), waves, &s->num_cycles));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "min_lr"), 0, &min_lr));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "min_lr_rate"), min_lr / s->base_lr, &s->min_lr_ratio));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "min_lr_ratio"), s->min_lr_ratio, &s->min_lr_ratio));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "lr_end"), 1e-7, &s->lr_end));
    AX_TRY(ax_json_f64_or(ax_json_get(v, "power"), 1, &s->power));
    AX_TRY(ax_json_str_or(ax_json_get(v, "decay_type"), "linear", &decay));
    return ax_lr_decay_parse(decay, &s->decay_type);
}

static enum ax_status schedule_case(struct ax_golden_report *r, struct ax_json root,
                                    struct ax_json v) {
    struct ax_lr_schedule s = {0};
    const char *kind;
    AX_TRY(read_schedule(root, v, &s));
    AX_TRY(ax_json_str(ax_json_get(v, "kind"), &kind));
    const struct ax_json list = ax_json_get(v, "lr");
    if (ax_json_size(list) == 0)
        return ax_json_error(list, "expected rates");
    for (size_t i = 0; i < ax_json_size(list); i++) {
        double want;
        char where[64];
        AX_TRY(ax_json_f64(ax_json_at(list, i), &want));
        snprintf(where, sizeof where, "step %zu", i);
        const double diff = fabs(ax_lr_at(&s, (int64_t)i) - want);
        const double scale = want != 0 ? fabs(want) : 1;
        ax_golden_note(r, kind, diff / scale, 1e-12, where);
    }
    return AX_OK;
}

bool ax_golden_schedules(struct ax_golden_report *r, const char *dir,
                         const struct ax_golden_options *o) {
    (void)o;
    char path[4096];
    return locate(dir, "schedules.json", path, sizeof path) && each_case(r, path, schedule_case);
}
