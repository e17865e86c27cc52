/* One function per kind: the factor on the base rate at a step. */
#include "optim/optimizers/lr_schedule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

static double at_least_1(int64_t n) {
    return n > 1 ? (double)n : 1;
}

static double rising(const struct ax_lr_schedule *s, int64_t step) {
    const double share = (double)step / at_least_1(s->warmup);
    return s->kind == AX_LR_COSINE && s->quadratic_warmup ? share * share : share;
}

/* 0 at the end of warmup, 1 at `total`. */
static double progress(const struct ax_lr_schedule *s, int64_t step) {
    return (double)(step - s->warmup) / at_least_1(s->total - s->warmup);
}

static double half_wave(double turns) {
    return 0.5 * (1 + cos(PI * turns));
}

static double constant(const struct ax_lr_schedule *s, int64_t step) {
    (void)s;
    (void)step;
    return 1;
}

static double linear(const struct ax_lr_schedule *s, int64_t step) {
    return fmax(0, (double)(s->total - step) / at_least_1(s->total - s->warmup));
}

static double cosine(const struct ax_lr_schedule *s, int64_t step) {
    return fmax(0, half_wave(s->num_cycles * 2 * progress(s, step)));
}

static double cosine_with_restarts(const struct ax_lr_schedule *s, int64_t step) {
    const double p = progress(s, step);
    return p >= 1 ? 0 : fmax(0, half_wave(fmod(s->num_cycles * p, 1)));
}

static double cosine_with_min_lr(const struct ax_lr_schedule *s, int64_t step) {
    struct ax_lr_schedule decay = *s;
    if (s->constant_ratio > 0) {
        decay.total = (int64_t)((double)s->total * s->constant_ratio);
        step = step < decay.total ? step : decay.total;
    }
    const double wave = half_wave(s->num_cycles * 2 * progress(&decay, step));
    return fmax(0, wave * (1 - s->min_lr_ratio) + s->min_lr_ratio);
}

static double polynomial(const struct ax_lr_schedule *s, int64_t step) {
    if (step > s->total)
        return s->lr_end / s->base_lr;
    const double left = 1 - progress(s, step);
    return ((s->base_lr - s->lr_end) * pow(left, s->power) + s->lr_end) / s->base_lr;
}

static double inverse_sqrt(const struct ax_lr_schedule *s, int64_t step) {
    int64_t timescale = s->timescale ? s->timescale : s->warmup;
    timescale = timescale ? timescale : 10000;
    return 1 / sqrt((double)(step + timescale - s->warmup) / (double)timescale);
}

static double warmup_stable_decay(const struct ax_lr_schedule *s, int64_t step) {
    const int64_t decay_from = s->warmup + s->stable;
    if (step < decay_from)
        return 1;
    if (step >= decay_from + s->decay)
        return s->min_lr_ratio;
    const double p = (double)(step - decay_from) / at_least_1(s->decay);
    double left = 1 - p;
    if (s->decay_type == AX_LR_DECAY_COSINE)
        left = half_wave(s->num_cycles * 2 * p);
    if (s->decay_type == AX_LR_DECAY_1_SQRT)
        left = 1 - sqrt(p);
    return fmax(0, left * (1 - s->min_lr_ratio) + s->min_lr_ratio);
}

/* Both phases are half cosines between their end rates; the rise ends one step before the
 * warmup. */
static double one_cycle(const struct ax_lr_schedule *s, int64_t step) {
    const double start = 1.0 / 25, last = start / 1e4;
    const int64_t peak = s->warmup - 1, end = s->total - 1 > peak ? s->total - 1 : peak;
    step = step < end ? step : end;
    if (step < peak)
        return 1 + (start - 1) * half_wave((double)step / at_least_1(peak));
    return last + (1 - last) * half_wave((double)(step - peak) / at_least_1(end - peak));
}

/* A step ahead of the others, as axolotl's: the first step has a rate, and the last one the floor. */
static double rex(const struct ax_lr_schedule *s, int64_t step) {
    if (++step <= s->warmup)
        return rising(s, step);
    const double z = fmax(0, 1 - progress(s, step));
    return s->min_lr_ratio + (1 - s->min_lr_ratio) * z / (0.1 + 0.9 * z);
}

static const struct {
    const char *name;
    double (*factor)(const struct ax_lr_schedule *s, int64_t step);
    int warms_up;
} kinds[AX_LR_KIND_COUNT] = {
    [AX_LR_CONSTANT] = {"constant", constant, 0},
    [AX_LR_CONSTANT_WITH_WARMUP] = {"constant_with_warmup", constant, 1},
    [AX_LR_LINEAR] = {"linear", linear, 1},
    [AX_LR_COSINE] = {"cosine", cosine, 1},
    [AX_LR_COSINE_WITH_RESTARTS] = {"cosine_with_restarts", cosine_with_restarts, 1},
    [AX_LR_COSINE_WITH_MIN_LR] = {"cosine_with_min_lr", cosine_with_min_lr, 1},
    [AX_LR_POLYNOMIAL] = {"polynomial", polynomial, 1},
    [AX_LR_INVERSE_SQRT] = {"inverse_sqrt", inverse_sqrt, 1},
    [AX_LR_WARMUP_STABLE_DECAY] = {"warmup_stable_decay", warmup_stable_decay, 1},
    [AX_LR_ONE_CYCLE] = {"one_cycle", one_cycle, 0},
    [AX_LR_REX] = {"rex", rex, 0},
};

/* The factor for restarts. Before the first restart it does not rise. */
static double restarts(const struct ax_lr_schedule *s, int64_t step) {
    const int64_t since = step % s->restart, left = s->restart - since;
    double share = 1;
    if (step < s->restart - s->restart_anneal)
        return 1;
    if (since < s->restart_warmup)
        share = (double)since / (double)s->restart_warmup;
    else if (left < s->restart_anneal)
        share = (double)left / (double)s->restart_anneal;
    return share * (1 - s->restart_floor) + s->restart_floor;
}

double ax_lr_at(const struct ax_lr_schedule *s, int64_t step) {
    if (s->restart > 0) {
        struct ax_lr_schedule inner = *s;
        inner.restart = 0;
        return ax_lr_at(&inner, step + 1) * restarts(s, step + 1);
    }
    double factor;
    if (kinds[s->kind].warms_up && step < s->warmup) {
        factor = rising(s, step);
        if (s->kind == AX_LR_WARMUP_STABLE_DECAY)
            factor = factor * (1 - s->min_lr_ratio) + s->min_lr_ratio;
    } else {
        factor = kinds[s->kind].factor(s, step);
    }
    return s->base_lr * factor;
}

const char *ax_lr_kind_name(size_t kind) {
    return kind < AX_LR_KIND_COUNT ? kinds[kind].name : NULL;
}

enum ax_status ax_lr_kind_parse(const char *name, enum ax_lr_kind *out) {
    char all[512];
    size_t at = 0;
    for (int k = 0; k < AX_LR_KIND_COUNT; k++) {
        if (strcmp(name, kinds[k].name) == 0) {
            *out = (enum ax_lr_kind)k;
            return AX_OK;
        }
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", k > 0 ? ", " : "", kinds[k].name);
    }
    return ax_error(AX_ERR_CONFIG, "lr_scheduler: \"%s\" is not one of %s", name, all);
}

enum ax_status ax_lr_decay_parse(const char *name, enum ax_lr_decay *out) {
    static const char *const names[] = {"linear", "cosine", "1-sqrt"};
    for (int d = AX_LR_DECAY_LINEAR; d <= AX_LR_DECAY_1_SQRT; d++) {
        if (strcmp(name, names[d]) != 0)
            continue;
        *out = (enum ax_lr_decay)d;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG, "decay_type: \"%s\" is not one of linear, cosine, 1-sqrt", name);
}
