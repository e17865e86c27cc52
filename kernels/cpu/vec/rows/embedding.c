/* Rows moved by index: embedding forward and backward, scatter_rows; noise on embeddings. */
#include <math.h>

#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/philox.h"
#include "kernels/cpu/vec/split.h"
#include "kernels/panels.h"

AX_INLINE void widen_vector(void *out, const void *row, int64_t i, int64_t n) {
    v_store(AX_F32, out, i, n, v_load(AX_BF16, row, i, n));
}

static void from_panels(const struct ax_tensor *out, int64_t t, const struct ax_tensor *weight,
                        int64_t row) {
    const uint16_t *from = weight->data;
    for (int64_t i = 0; i < weight->shape[1]; i++) {
        const uint16_t x = from[ax_panels_at(weight->shape[1], row, i)];
        if (out->dtype == AX_BF16)
            ((uint16_t *)ax_tensor_row(out, t))[i] = x;
        else
            ((float *)ax_tensor_row(out, t))[i] = ax_bf16_to_f32(x);
    }
}

enum ax_status AX_VEC(ax_cpu_embedding_forward)(struct ax_queue *q,
                                                const struct ax_embedding_forward *args,
                                                void *work) {
    (void)work;
    const struct ax_tensor *weight = &args->weight, *out = &args->out;
    const int32_t *tokens = args->tokens.data;
    int64_t width = out->shape[1];
    size_t bytes = (size_t)width * ax_dtype_size(out->dtype);
    AX_PARALLEL_FOR (team(q, out->shape[0] * width), t, out->shape[0]) {
        int64_t row = AX_EMBEDDING_ROW(tokens[t], args->known) - args->first_row;
        if (row < 0 || row >= weight->shape[0])
            memset(ax_tensor_row(out, t), 0, bytes);
        else if (weight->panels)
            from_panels(out, t, weight, row);
        else if (out->dtype == weight->dtype)
            memcpy(ax_tensor_row(out, t), ax_tensor_row(weight, row), bytes);
        else
            AX_EACH_VECTOR(width, widen_vector, ax_tensor_row(out, t), ax_tensor_row(weight, row));
    }
    return AX_OK;
}

AX_INLINE void add_vector(enum ax_dtype real, float *sum, const void *row, int64_t i, int64_t n) {
    v_store_f32(sum + i, n, v_load_f32(sum + i, n) + v_load(real, row, i, n));
}

AX_INLINE void add_row(enum ax_dtype real, float *sum, const char *row, int64_t n) {
    AX_EACH_VECTOR(n, add_vector, real, sum, row);
}

#define SHARE 64 /* columns */

/* A thread adds all tokens to some columns in order, so that a frequent token neither causes races
 * nor unbalances the threads. */
enum ax_status AX_VEC(ax_cpu_embedding_backward)(struct ax_queue *q,
                                                 const struct ax_embedding_backward *args,
                                                 void *work) {
    (void)work;
    const struct ax_tensor *dout = &args->dout, *dweight = &args->dweight;
    const int32_t *tokens = args->tokens.data;
    int64_t count = dout->shape[0], width = dout->shape[1];
    int64_t size = (int64_t)ax_dtype_size(dout->dtype);
    AX_PARALLEL_FOR (team(q, count * width), i, ceil_div(width, SHARE)) {
        const int64_t first = i * SHARE;
        for (int64_t t = 0; t < count; t++) {
            const int64_t of_all = AX_EMBEDDING_ROW(tokens[t], args->known);
            const int64_t row = of_all - args->first_row;
            if (row >= 0 && row < dweight->shape[0] && of_all != args->skip_token) {
                float *sum = (float *)ax_tensor_row(dweight, row) + first;
                AX_BY_DTYPE(dout->dtype, add_row, sum,
                            (char *)ax_tensor_row(dout, t) + first * size,
                            least(SHARE, width - first));
            }
        }
    }
    return AX_OK;
}

/* Thread i owns the rows of dst that are i modulo the threads: if a row occurs twice, the later one
 * wins, as in a plain loop. */
enum ax_status AX_VEC(ax_cpu_scatter_rows)(struct ax_queue *q, const struct ax_scatter_rows *args,
                                           void *work) {
    (void)work;
    const struct ax_tensor *dst = &args->dst, *src = &args->src;
    const int32_t *rows = args->rows.data;
    size_t bytes = (size_t)ax_tensor_row_len(src) * ax_dtype_size(src->dtype);
    int64_t copies = ax_tensor_row_len(&args->rows);
    int threads = team(q, ax_tensor_numel(src) * copies);
    AX_PARALLEL_FOR (threads, thread, threads) {
        for (int64_t i = 0; i < src->shape[0] * copies; i++) {
            AX_ASSERT(rows[i] >= -1 && rows[i] < dst->shape[0]);
            if (rows[i] >= 0 && rows[i] % threads == thread)
                memcpy(ax_tensor_row(dst, rows[i]), ax_tensor_row(src, i / copies), bytes);
        }
    }
    return AX_OK;
}

/* The upper 24 bits of a word as a number in [−1, 1), as ax_rng_uniform makes one in [0, 1). */
AX_INLINE void noise_vector(enum ax_dtype real, void *x, const uint32_t *words, float bound,
                            int64_t i, int64_t n) {
    v_float unit = v_to_float(v_shift_right(v_load_int(words + i), 8)) * v_set(0x1p-24f);
    unit = v_fma(unit, v_set(2), v_set(-1));
    v_store(real, x, i, n, v_fma(v_set(bound), unit, v_load(real, x, i, n)));
}

#define NOISE_RUN 512

AX_INLINE void noise_row(enum ax_dtype real, char *row, int64_t width, struct ax_rng_key key,
                         int64_t number, float bound) {
    uint32_t room[RANDOM_ROOM(NOISE_RUN)];
    for (int64_t first = 0; first < width; first += NOISE_RUN) {
        int64_t n = least(NOISE_RUN, width - first);
        const uint32_t *words = random_words(key, number + first, n, room);
        AX_EACH_VECTOR(n, noise_vector, real, row + first * (real == AX_BF16 ? 2 : 4), words,
                       bound);
    }
}

enum ax_status AX_VEC(ax_cpu_neftune)(struct ax_queue *q, const struct ax_neftune *args,
                                      void *work) {
    (void)work;
    const struct ax_tensor *x = &args->x;
    const int32_t *cu = args->cu.data;
    const int64_t width = x->shape[1];
    const struct ax_rng_key key = {args->scalars->seed, (uint32_t)args->scalars->step,
                                   args->stream};
    const int threads = team(q, x->shape[0] * width);
    for (int64_t k = 0; k + 1 < args->cu.shape[0]; k++) {
        const float bound = (float)(args->alpha / sqrt((double)((cu[k + 1] - cu[k]) * width)));
        const int64_t begin = cu[k] > args->first ? cu[k] : args->first;
        const int64_t end = least(cu[k + 1], args->first + x->shape[0]);
        AX_PARALLEL_FOR (threads, i, end - begin) {
            const int64_t t = begin + i;
            AX_BY_DTYPE(x->dtype, noise_row, ax_tensor_row(x, t - args->first), width, key,
                        (args->first_token + t) * width, bound);
        }
    }
    return AX_OK;
}
