/* Attention of a batch's queries to the keys and values of its documents, wherever these are: in
 * this rank's rows, in another document's rows (shared prefixes), on other ranks of cp, or in the
 * cache. Shared by mixers that make keys and values in different ways. */
#ifndef AX_MODEL_PARTS_ATTEND_H
#define AX_MODEL_PARTS_ATTEND_H

#include "model/core/pass.h"

/* FLOPs of a token in a sequence of seq, half of whose keys it sees on average: heads·(head_dim +
 * v_head_dim)·seq. */
double ax_attention_flops(const struct ax_arch *a, const struct ax_layer_spec *spec, int64_t seq);

/* The KV heads [T][H][…] that this rank's queries attend to, of those that it computes. */
struct ax_tensor ax_own_kv_heads(const struct ax_pass *p, const struct ax_layer *l,
                                 const struct ax_tensor *t);

/* The caller sets in a: q [T][Hq][hd], out, lse; this rank's keys and values k, v [T][Hk][…];
 * scale, window, softcap, sink, chosen (with a cache: rows of it, as top_keys gives them). The rest is set here. With a
 * cache, keys and values are first written to it. The layer says whether its tokens attend within chunks. */
enum ax_status ax_attend_forward(struct ax_pass *p, const struct ax_layer *l,
                                 const struct ax_attention *a);
/* The same with keys and values that the cache has already; a has none. */
enum ax_status ax_attend_cached(struct ax_pass *p, const struct ax_layer *l,
                                const struct ax_attention *a);
/* The caller sets in b: a as for forward; dout, dq, dk, dv in the shapes of out, q, k, v; dsink. */
enum ax_status ax_attend_backward(struct ax_pass *p, const struct ax_layer *l,
                                  const struct ax_attention_backward *b);
/* Chooses keys (indexer.h). The caller sets in t: q and w of this rank's rows, its keys k [T][1][…], top, scale,
 * and the result. With a cache, keys are first written to it, as those of the nth indexer. */
enum ax_status ax_attend_choose(struct ax_pass *p, int nth, const struct ax_top_keys *t);

#endif
