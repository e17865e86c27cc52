/* Which of cuBLASLt's algorithms computes a kind of product: measured once, and told as text to whoever
 * keeps it (kernels/queue.h). A choice read from there is only made if the library accepts it. */
#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "kernels/cuda/gemm/blas.h"

#define MOST   16384 /* kinds: later ones are not measured */
#define RUNS   3     /* of each algorithm, after one that does not count */
#define BETTER 0.97  /* of the favorite's time, or the favorite is kept */

/* ---- what is chosen ---- */

static const struct ax_blas_choice *find(const struct ax_blas *b, const struct ax_blas_key *key,
                                         size_t n) {
    for (size_t i = 0; i < n; i++)
        if (memcmp(&b->choices[i].key, key, sizeof *key) == 0)
            return &b->choices[i];
    return NULL;
}

static bool is_accepted(const struct ax_blas *b, const struct ax_blas_plan *p,
                        const ax_lt_algo *algo) {
    ax_lt_choice found = {0};
    return b->lt.MatmulAlgoCheck(b->handle, p->desc, p->a, p->b, p->c, p->d, algo, &found) ==
               AX_LT_OK &&
           found.workspaceSize <= AX_BLAS_WORK;
}

enum ax_status ax_blas_settle(const struct ax_blas *b, struct ax_blas_plan *p) {
    const struct ax_blas_choice *chosen = find(b, &p->key, b->n_chosen);
    ax_lt_choice favorite = {0};
    int n;
    p->known = chosen && is_accepted(b, p, &chosen->algo);
    if (p->known) {
        p->algo = chosen->algo;
        return AX_OK;
    }
    AX_TRY(ax_blas_ask(b, p, 1, &favorite, &n));
    p->algo = favorite.algo;
    p->known = find(b, &p->key, b->n_choices) != NULL || b->n_choices == MOST;
    return AX_OK;
}

static enum ax_status add(struct ax_blas *b, const struct ax_blas_choice *c) {
    if (b->n_choices == b->room) {
        const size_t room = b->room ? 2 * b->room : 64;
        AX_TRY(ax_regrow(&b->choices, b->room, room, sizeof *b->choices));
        b->room = room;
    }
    b->choices[b->n_choices++] = *c;
    return AX_OK;
}

/* ---- measuring ---- */

/* *milliseconds of the fastest run, or AX_OK with a negative number where the algorithm does not take
 * the product. */
static enum ax_status time_algo(const struct ax_blas *b, const struct ax_blas_plan *p,
                                const ax_lt_algo *algo, const struct ax_blas_product *x,
                                const cudaEvent_t at[2], float *milliseconds) {
    *milliseconds = -1;
    for (int run = 0; run <= RUNS; run++) {
        float took;
        AX_CUDA_TRY(cudaEventRecord(at[0], x->stream));
        if (ax_blas_multiply(b, p, algo, x) != AX_LT_OK)
            return AX_OK;
        AX_CUDA_TRY(cudaEventRecord(at[1], x->stream));
        AX_CUDA_TRY(cudaEventSynchronize(at[1]));
        AX_CUDA_TRY(cudaEventElapsedTime(&took, at[0], at[1]));
        if (run == 1 || (run > 1 && took < *milliseconds))
            *milliseconds = took;
    }
    return AX_OK;
}

static enum ax_status find_fastest(struct ax_blas *b, const struct ax_blas_plan *p,
                                   const struct ax_blas_product *x, const cudaEvent_t at[2]) {
    ax_lt_choice found[AX_BLAS_TRIED] = {0};
    struct ax_blas_choice best = {.key = p->key, .algo = p->algo};
    float least, took;
    int n;
    AX_TRY(ax_blas_ask(b, p, AX_BLAS_TRIED, found, &n));
    AX_TRY(time_algo(b, p, &p->algo, x, at, &least));
    least *= (float)BETTER;
    for (int i = 1; i < n; i++) { /* the first is p's */
        if (found[i].state != AX_LT_OK)
            continue;
        AX_TRY(time_algo(b, p, &found[i].algo, x, at, &took));
        if (took >= 0 && took < least) {
            least = took;
            best.algo = found[i].algo;
        }
    }
    b->counters->measured++;
    return add(b, &best);
}

static enum ax_status measure(struct ax_blas *b, const struct ax_blas_plan *p,
                              const struct ax_blas_product *x) {
    cudaEvent_t at[2] = {0};
    enum ax_status st = ax_cuda_check(cudaEventCreateWithFlags(&at[0], 0), "cudaEventCreate");
    if (st == AX_OK)
        st = ax_cuda_check(cudaEventCreateWithFlags(&at[1], 0), "cudaEventCreate");
    if (st == AX_OK)
        st = find_fastest(b, p, x, at);
    for (int i = 0; i < 2; i++)
        if (at[i])
            (void)cudaEventDestroy(at[i]);
    return st;
}

enum ax_status ax_blas_measure(struct ax_blas *b, struct ax_blas_plan *p,
                               const struct ax_blas_product *x) {
    const struct ax_blas_key *k = &p->key;
    struct ax_blas_product here = *x;
    void *other = NULL;
    p->known = true;
    if (x->beta != 0 && x->c == x->d) { /* each run would add to it */
        const size_t element = k->out == AX_BF16 ? 2 : 4;
        const size_t n = (size_t)(p->m - 1) * (size_t)k->stride_c + (size_t)k->n;
        if (cudaMalloc(&other, n * element) != cudaSuccess) {
            (void)cudaGetLastError();
            return AX_OK;
        }
        here.d = other;
    }
    const enum ax_status st = measure(b, p, &here);
    if (other)
        (void)cudaFree(other);
    return st;
}

/* ---- as text ---- */

/* What a choice holds for: the GPU, the library, and what a line means. */
static enum ax_status put_title(const struct ax_blas *b, char *out, size_t size) {
    struct cudaDeviceProp gpu;
    int device;
    AX_CUDA_TRY(cudaGetDevice(&device));
    AX_CUDA_TRY(cudaGetDeviceProperties(&gpu, device));
    snprintf(out, size, "axtrain gemm 1: %.200s, sm_%d%d, %d processors, cuBLASLt %zu", gpu.name,
             gpu.major, gpu.minor, gpu.multiProcessorCount, b->lt.GetVersion());
    return AX_OK;
}

#define KEY_DIGITS  (2 * sizeof(struct ax_blas_key))
#define ALGO_DIGITS (2 * sizeof(ax_lt_algo))

enum ax_status ax_blas_choices(const struct ax_blas *b, struct ax_buf *out) {
    char title[320], key[KEY_DIGITS + 1], algo[ALGO_DIGITS + 1];
    AX_TRY(put_title(b, title, sizeof title));
    AX_TRY(ax_buf_printf(out, "%s\n", title));
    for (size_t i = 0; i < b->n_choices; i++) {
        ax_hex(key, (const unsigned char *)&b->choices[i].key, sizeof b->choices[i].key);
        ax_hex(algo, (const unsigned char *)&b->choices[i].algo, sizeof b->choices[i].algo);
        AX_TRY(ax_buf_printf(out, "%s %s\n", key, algo));
    }
    return AX_OK;
}

/* n bytes of 2n digits, as ax_hex writes them. */
static bool from_hex(void *out, const char *text, size_t n) {
    static const char digits[] = "0123456789abcdef";
    unsigned char *to = out;
    for (size_t i = 0; i < n; i++) {
        const char *high = text[2 * i] ? strchr(digits, text[2 * i]) : NULL;
        const char *low = high && text[2 * i + 1] ? strchr(digits, text[2 * i + 1]) : NULL;
        if (!low)
            return false;
        to[i] = (unsigned char)(16 * (high - digits) + (low - digits));
    }
    return true;
}

static enum ax_status read_lines(struct ax_blas *b, const char *text) {
    struct ax_blas_choice c;
    for (int line = 2; *text; line++) {
        const char *algo = text + KEY_DIGITS + 1;
        if (b->n_choices == MOST || !from_hex(&c.key, text, sizeof c.key) || algo[-1] != ' ' ||
            !from_hex(&c.algo, algo, sizeof c.algo) || algo[ALGO_DIGITS] != '\n')
            return ax_error(AX_ERR_DATA, "line %d is damaged", line);
        AX_TRY(add(b, &c));
        text = algo + ALGO_DIGITS + 1;
    }
    return AX_OK;
}

enum ax_status ax_blas_choose(struct ax_blas *b, const char *text) {
    struct ax_blas read = {0};
    char title[320];
    AX_TRY(put_title(b, title, sizeof title));
    const size_t n = strlen(title);
    if (strncmp(text, title, n) != 0 || text[n] != '\n')
        return ax_error(AX_ERR_DATA, "they are of \"%.*s\", and this is \"%s\"",
                        (int)(strcspn(text, "\n") < 300 ? strcspn(text, "\n") : 300), text, title);
    const enum ax_status st = read_lines(&read, text + n + 1);
    if (st != AX_OK) {
        ax_free(read.choices);
        return st;
    }
    ax_free(b->choices);
    b->choices = read.choices;
    b->n_choices = b->n_chosen = read.n_choices;
    b->room = read.room;
    ax_blas_forget(b); /* the plans' algorithms */
    return AX_OK;
}
