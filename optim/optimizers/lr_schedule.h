/* Learning-rate schedules, as in transformers.optimization, and axolotl's: one_cycle (torch's
 * OneCycleLR), rex, and cosine with a constant end or a quadratic warmup. */
#ifndef AX_OPTIM_OPTIMIZERS_LR_SCHEDULE_H
#define AX_OPTIM_OPTIMIZERS_LR_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum ax_lr_kind {
    AX_LR_CONSTANT,
    AX_LR_CONSTANT_WITH_WARMUP,
    AX_LR_LINEAR,
    AX_LR_COSINE,
    AX_LR_COSINE_WITH_RESTARTS,
    AX_LR_COSINE_WITH_MIN_LR,
    AX_LR_POLYNOMIAL,
    AX_LR_INVERSE_SQRT,
    AX_LR_WARMUP_STABLE_DECAY,
    AX_LR_ONE_CYCLE, /* up from base_lr/25 during warmup, then by a half cosine to 1/10,000 of
                        that */
    AX_LR_REX, /* z/(0.1 + 0.9·z), z = fraction left of the steps after warmup, a step early */
    AX_LR_KIND_COUNT
};

enum ax_lr_decay { AX_LR_DECAY_LINEAR, AX_LR_DECAY_COSINE, AX_LR_DECAY_1_SQRT };

/* Steps count from 0. Fields a kind does not use are ignored. */
struct ax_lr_schedule {
    enum ax_lr_kind kind;
    double base_lr;
    int64_t total, warmup; /* planned steps; the first `warmup` rise from 0 */
    double num_cycles;     /* cosine: 0.5 = half a period; with_restarts: hard restarts */
    double min_lr_ratio;   /* cosine_with_min_lr, warmup_stable_decay, rex: floor / base_lr */
    double constant_ratio; /* cosine_with_min_lr: the decay ends after this fraction of all steps
                              and the rate stays constant; 0 = 1 */
    bool quadratic_warmup; /* cosine: warmup is squared */
    double lr_end, power;  /* polynomial */
    int64_t timescale;     /* inverse_sqrt; 0 = warmup, or 10,000 without warmup */
    int64_t stable, decay; /* warmup_stable_decay: steps */
    enum ax_lr_decay decay_type;
    /* Any kind is multiplied by a factor that falls to restart_floor before each multiple of
     * `restart` steps (0: never) and rises after it. As in axolotl's wrapper, all rates then apply
     * one step early. */
    int64_t restart, restart_warmup, restart_anneal; /* the latter two ≥ 1 */
    double restart_floor;
};

double ax_lr_at(const struct ax_lr_schedule *s, int64_t step);
/* The name of a kind as in configs ("cosine_with_restarts"); NULL past the last. */
const char *ax_lr_kind_name(size_t kind);
/* AX_ERR_CONFIG lists the names. */
enum ax_status ax_lr_kind_parse(const char *name, enum ax_lr_kind *out);
enum ax_status ax_lr_decay_parse(const char *name, enum ax_lr_decay *out);

#endif
