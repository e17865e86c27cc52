#include "tests/goldens/digest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/rng.h"

#define SEED        0x474f4c44 /* "GOLD" */
#define MAX_COLS    (1 << 20)
#define STEP_CLOSE  1e-5 /* a parameter is correct within this */
#define DIGEST_PART 3    /* of a tolerance of ‖e‖ */
#define REF_PART    1.5  /* 1.5 · 1.65 ≈ 2.5 */

enum { SIGNS = 1, PLACES, ROW_SIGNS };

static struct ax_rng_key key_of(const char *name, uint32_t step) {
    return (struct ax_rng_key){.seed = SEED, .step = step, .tensor = ax_hash32(name)};
}

static enum ax_status parse_note(const struct ax_safetensors *st, const char *name,
                                 const char *note, struct ax_golden_tensor *t) {
    const char *shape = strchr(note, ' ');
    if (strncmp(note, "digest ", 7) == 0)
        t->form = GOLDEN_DIGESTED;
    else if (strncmp(note, "rows ", 5) == 0)
        t->form = GOLDEN_BY_ROW;
    else
        return AX_OK; /* another kind of metadata */
    const int64_t stored = t->numel;
    t->ndim = 0;
    t->numel = 1;
    for (char *end; *shape; shape = end) {
        const long long n = strtoll(shape + 1, &end, 10);
        if (end == shape + 1 || n < 1 || n > MAX_COLS || t->ndim == AX_ST_MAX_DIMS)
            return ax_error(AX_ERR_DATA, "%s: %s: cannot read the shape \"%s\"", st->path, name,
                            note);
        t->shape[t->ndim++] = n;
        t->numel *= n;
    }
    const int64_t expected = t->form == GOLDEN_DIGESTED
                                 ? GOLDEN_DIGEST
                                 : t->numel / t->shape[t->ndim - 1] * GOLDEN_ROW_PROJECTIONS;
    if (stored != expected)
        return ax_error(AX_ERR_DATA, "%s: %s: the digest has %lld numbers, expected %lld", st->path,
                        name, (long long)stored, (long long)expected);
    return AX_OK;
}

/* A note is found in the header's text, which the file's reader has parsed: parsing it again for each tensor would be a
 * quarter of the goldens' time. Nothing but metadata has a string behind a name. */
enum ax_status golden_form_of(const struct ax_safetensors *st, const char *name,
                              struct ax_golden_tensor *t) {
    uint64_t size;
    char key[256], note[128];
    memcpy(&size, st->map.data, sizeof size);
    const char *header = (const char *)st->map.data + sizeof size;
    const int n = snprintf(key, sizeof key, "\"%s\":\"", name);
    AX_ASSERT(n > 0 && (size_t)n < sizeof key);
    const char *at = memmem(header, (size_t)size, key, (size_t)n);
    if (!at)
        return AX_OK;
    snprintf(note, sizeof note, "%.*s", (int)strcspn(at + n, "\""), at + n);
    return parse_note(st, name, note, t);
}

static void project(struct ax_rng_key key, const double *x, int64_t n, int projections,
                    double *out) {
    for (int k = 0; k < projections; k++)
        out[k] = 0;
    uint32_t words[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0)
            ax_rng_block(key, (uint64_t)i / 4, words);
        const uint32_t w = words[i % 4];
        for (int k = 0; k < projections; k++)
            out[k] += w >> k & 1 ? x[i] : -x[i];
    }
}

void golden_digest(const char *name, const double *x, int64_t n, double out[GOLDEN_DIGEST]) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    out[0] = sqrt(sum);
    project(key_of(name, SIGNS), x, n, GOLDEN_PROJECTIONS, out + 1);
    for (uint64_t j = 0; j < GOLDEN_PLACES; j++)
        out[1 + GOLDEN_PROJECTIONS + j] = x[ax_rng_below(key_of(name, PLACES), j, (uint64_t)n)];
}

void golden_row_digest(const char *name, const double *x, int64_t rows, int64_t cols, double *out) {
    const struct ax_rng_key key = key_of(name, ROW_SIGNS);
    for (int64_t r = 0; r < rows; r++)
        project(key, x + r * cols, cols, GOLDEN_ROW_PROJECTIONS, out + r * GOLDEN_ROW_PROJECTIONS);
}

void golden_sample(const double *x, int64_t n, double out[GOLDEN_SAMPLE]) {
    for (uint64_t j = 0; j < GOLDEN_SAMPLE; j++)
        out[j] = x[(2654435761U * j + 12345) % (uint64_t)n];
}

static double norm_of_difference(const double *a, const double *b, int n) {
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += (a[k] - b[k]) * (a[k] - b[k]);
    return sqrt(sum / n);
}

static bool all_zero(const double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return false;
    return true;
}

static struct golden_figure relative_of_sample(const struct ax_golden_tensor *want,
                                               const double *got, double tolerance) {
    const int64_t n = want->numel;
    double mine[GOLDEN_SAMPLE], squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += got[i] * got[i];
    golden_sample(got, n, mine);
    const double error =
        norm_of_difference(mine, want->v, GOLDEN_SAMPLE) * sqrt((double)n); /* of all */
    return (struct golden_figure){error == 0 ? 0 : error / sqrt(squares), tolerance};
}

struct golden_figure golden_relative(const struct ax_golden_tensor *want, const double *got,
                                     double tolerance, double usual) {
    if (want->form == GOLDEN_FULL)
        return (struct golden_figure){ax_golden_rel_norm(got, want->v, want->numel), tolerance};
    if (want->form == GOLDEN_SAMPLED)
        return relative_of_sample(want, got, tolerance);
    const double part = tolerance < usual ? 1 / REF_PART : DIGEST_PART;
    struct golden_figure f = {.tolerance = tolerance};
    double mine[GOLDEN_DIGEST];
    const double *theirs = want->v, norm = theirs[0];
    if (norm == 0) {
        f.figure = all_zero(got, want->numel) ? 0 : INFINITY;
        return f;
    }
    golden_digest(want->name, got, want->numel, mine);
    f.figure = norm_of_difference(mine + 1, theirs + 1, GOLDEN_PROJECTIONS);
    f.figure = ax_golden_worse(f.figure, fabs(mine[0] - norm));
    f.figure = ax_golden_worse(f.figure,
                               ax_golden_max_abs(mine + 1 + GOLDEN_PROJECTIONS,
                                                 theirs + 1 + GOLDEN_PROJECTIONS, GOLDEN_PLACES)) /
               norm;
    f.figure *= part;
    return f;
}

struct golden_figure golden_of_largest(const struct ax_golden_tensor *want, const double *got,
                                       double tolerance) {
    const bool full = want->form == GOLDEN_FULL;
    const double *of = full ? want->v : got;
    double size = 0;
    for (int64_t i = 0; i < want->numel; i++)
        size = fmax(size, fabs(of[i]));
    struct golden_figure f = {.tolerance = tolerance};
    if (full) {
        f.figure = ax_golden_max_abs(got, want->v, want->numel) / size;
        return f;
    }
    double mine[GOLDEN_DIGEST];
    golden_digest(want->name, got, want->numel, mine);
    const double *theirs = want->v;
    const double rms =
        norm_of_difference(mine + 1, theirs + 1, GOLDEN_PROJECTIONS) / sqrt((double)want->numel);
    f.figure = ax_golden_worse(DIGEST_PART * rms,
                               ax_golden_max_abs(mine + 1 + GOLDEN_PROJECTIONS,
                                                 theirs + 1 + GOLDEN_PROJECTIONS, GOLDEN_PLACES)) /
               size;
    return f;
}

/* Each of n elements stands for `weight` of its tensor's. */
static void compare_elements(struct golden_parameters *p, const double *got, const double *want,
                             int64_t n, double weight) {
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs(got[i] - want[i]);
        p->worst = ax_golden_worse(p->worst, d);
        if (d <= STEP_CLOSE)
            continue;
        p->off += weight;
        if (weight > p->forgiven[0]) {
            p->forgiven[1] = p->forgiven[0];
            p->forgiven[0] = weight;
        } else if (weight > p->forgiven[1]) {
            p->forgiven[1] = weight;
        }
    }
}

void golden_compare_parameters(struct golden_parameters *p, const struct ax_golden_tensor *want,
                               const double *got) {
    p->total += (double)want->numel;
    if (want->form == GOLDEN_FULL) {
        compare_elements(p, got, want->v, want->numel, 1);
        return;
    }
    p->digests = true;
    if (want->form == GOLDEN_SAMPLED) {
        double sample[GOLDEN_SAMPLE];
        golden_sample(got, want->numel, sample);
        compare_elements(p, sample, want->v, GOLDEN_SAMPLE, (double)want->numel / GOLDEN_SAMPLE);
        return;
    }
    double mine[GOLDEN_DIGEST];
    golden_digest(want->name, got, want->numel, mine);
    p->worst_projection = ax_golden_worse(
        p->worst_projection, ax_golden_max_abs(mine + 1, want->v + 1, GOLDEN_PROJECTIONS));
    compare_elements(p, mine + 1 + GOLDEN_PROJECTIONS, want->v + 1 + GOLDEN_PROJECTIONS,
                     GOLDEN_PLACES, (double)want->numel / GOLDEN_PLACES);
}

double golden_share_off(const struct golden_parameters *p) {
    const double forgiven = p->digests ? p->forgiven[0] + p->forgiven[1] : 0;
    return (p->off - forgiven) / p->total;
}
