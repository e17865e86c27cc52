/* The logits of a model on a small random batch, in float32, before and after a merge. */
#ifndef AX_MODEL_CONVERT_MERGE_PROBE_H
#define AX_MODEL_CONVERT_MERGE_PROBE_H

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "model/arch/arch.h"

struct ax_merge_probe {
    const struct ax_arch *arch;
    const struct ax_peft *peft;
    int threads;
    float *adapter, *other; /* logits [tokens][V]; owned */
    /* max |adapter − base|, max |merged − adapter|, max |adapter| */
    double effect, error, largest;
};
/* Base and adapter; sets effect and largest. */
enum ax_status ax_merge_probe_start(struct ax_merge_probe *p, const struct ax_hf *base);
/* The merged weights; sets error. */
enum ax_status ax_merge_probe_merged(struct ax_merge_probe *p, const struct ax_hf *merged);
void ax_merge_probe_free(struct ax_merge_probe *p);

#endif
