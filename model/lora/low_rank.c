/* Halko, Martinsson & Tropp 2011: a random subspace of slightly more dimensions than requested,
 * drawn toward the largest singular vectors by products with W and Wᵀ. In each round, Jacobi
 * rotations make the rows of the small matrix Uᵀ·W orthogonal and are applied to U too. Then U, the
 * rows' norms and the rows are the singular triplets within the subspace. */
#include "model/lora/low_rank.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

#define EXTRA      16 /* minimum number of extra dimensions */
#define STANDS     1e-7 /* ‖W·v − s·u‖ relative to the largest s: as exact as float32 weights */
#define MOST       400 /* maximum iterations: with equal singular values vectors never converge */
#define SWEEPS     30
#define ORTHOGONAL 1e-14
#define BLOCK      256       /* columns per block */
#define WORTH      (1 << 16) /* minimum elements to use threads */

struct space {
    const struct ax_low_rank *l;
    int64_t q;          /* dimensions */
    double *u, *z, *wv; /* [q][rows], [q][cols] (s_j·v_j), [q][rows] (W·v_j) */
};

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* wv = V·Wᵀ, where V are the rows of z. */
static void times_v(const struct space *s) {
    const struct ax_low_rank *l = s->l;
#pragma omp parallel for schedule(static) if (l->rows * l->cols >= WORTH)
    for (int64_t i = 0; i < l->rows; i++) {
        const float *w = l->w + i * l->cols;
        for (int64_t j = 0; j < s->q; j++) {
            const double *v = s->z + j * l->cols;
            double sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t k = 0; k < l->cols; k++)
                sum += (double)w[k] * v[k];
            s->wv[j * l->rows + i] = sum;
        }
    }
}

/* z = U·W. */
static void times_u(const struct space *s) {
    const struct ax_low_rank *l = s->l;
#pragma omp parallel for schedule(static) if (l->rows * l->cols >= WORTH)
    for (int64_t first = 0; first < l->cols; first += BLOCK) {
        const int64_t n = l->cols - first < BLOCK ? l->cols - first : BLOCK;
        for (int64_t j = 0; j < s->q; j++)
            memset(s->z + j * l->cols + first, 0, (size_t)n * sizeof *s->z);
        for (int64_t i = 0; i < l->rows; i++) {
            const float *w = l->w + i * l->cols + first;
            for (int64_t j = 0; j < s->q; j++) {
                const double u = s->u[j * l->rows + i];
                double *z = s->z + j * l->cols + first;
                for (int64_t k = 0; k < n; k++)
                    z[k] += u * (double)w[k];
            }
        }
    }
}

/* Gram–Schmidt on q rows of n, twice, against rounding; a row that depends on the others becomes
 * zero. */
static void orthonormalize(double *x, int64_t q, int64_t n) {
    for (int64_t j = 0; j < q; j++) {
        double *row = x + j * n;
        const double before = sqrt(dot(row, row, n));
        for (int twice = 0; twice < 2; twice++)
            for (int64_t i = 0; i < j; i++) {
                const double along = dot(x + i * n, row, n);
                for (int64_t k = 0; k < n; k++)
                    row[k] -= along * x[i * n + k];
            }
        const double left = sqrt(dot(row, row, n));
        const double by = left > 1e-12 * before ? 1 / left : 0;
        for (int64_t k = 0; k < n; k++)
            row[k] *= by;
    }
}

static void rotate(double *a, double *b, int64_t n, double c, double s) {
    for (int64_t k = 0; k < n; k++) {
        const double x = a[k], y = b[k];
        a[k] = c * x - s * y;
        b[k] = s * x + c * y;
    }
}

/* One-sided Jacobi (Hestenes 1958): the rows of z become orthogonal, the longest first. */
static void diagonalize(const struct space *s) {
    const struct ax_low_rank *l = s->l;
    bool done = false;
    for (int sweep = 0; sweep < SWEEPS && !done; sweep++) {
        done = true;
        for (int64_t i = 0; i < s->q; i++)
            for (int64_t j = i + 1; j < s->q; j++) {
                double *a = s->z + i * l->cols, *b = s->z + j * l->cols;
                const double aa = dot(a, a, l->cols), bb = dot(b, b, l->cols);
                const double ab = dot(a, b, l->cols);
                double c = 1, si = 0;
                if (fabs(ab) > ORTHOGONAL * sqrt(aa * bb)) {
                    const double tau = (bb - aa) / (2 * ab);
                    const double t = copysign(1, tau) / (fabs(tau) + sqrt(1 + tau * tau));
                    c = 1 / sqrt(1 + t * t);
                    si = c * t;
                    if (aa - t * ab < bb + t * ab) { /* the longer one first */
                        const double was = c;
                        c = -si;
                        si = was;
                    }
                } else if (aa < bb) {
                    c = 0;
                    si = 1;
                }
                if (si == 0)
                    continue;
                done = false;
                rotate(a, b, l->cols, c, si);
                rotate(s->u + i * l->rows, s->u + j * l->rows, l->rows, c, si);
            }
    }
}

/* True if the first r triplets have converged: z is s_j·v_j and wv is W·v_j·s_j. */
static bool stands(const struct space *s) {
    const struct ax_low_rank *l = s->l;
    const double largest = sqrt(dot(s->z, s->z, l->cols));
    for (int64_t j = 0; j < l->r; j++) {
        const double *z = s->z + j * l->cols, *u = s->u + j * l->rows, *y = s->wv + j * l->rows;
        const double size = sqrt(dot(z, z, l->cols));
        double off = 0;
        for (int64_t i = 0; i < l->rows; i++) {
            const double d = y[i] - size * size * u[i];
            off += d * d;
        }
        if (sqrt(off) > STANDS * largest * size)
            return false;
    }
    return true;
}

static void iterate(const struct space *s) {
    const struct ax_low_rank *l = s->l;
    const bool all = s->q == l->rows || s->q == l->cols; /* the subspace is the full space */
    const int most = l->iterations > 0 ? l->iterations : MOST;
    for (int64_t i = 0; i < s->q * l->cols; i++)
        s->z[i] = (double)ax_rng_normal(l->key, (uint64_t)i);
    orthonormalize(s->z, s->q, l->cols);
    times_v(s);
    for (int n = 0;; n++) {
        memcpy(s->u, s->wv, (size_t)(s->q * l->rows) * sizeof *s->u);
        orthonormalize(s->u, s->q, l->rows);
        times_u(s);
        diagonalize(s);
        if (n == most || (all && n > 0))
            return;
        times_v(s);
        if (l->iterations == 0 && stands(s))
            return;
    }
}

enum ax_status ax_low_rank_find(struct ax_low_rank *l) {
    const int64_t least = l->rows < l->cols ? l->rows : l->cols;
    const int64_t extra = l->r > EXTRA ? l->r : EXTRA;
    struct space s = {.l = l, .q = l->r + extra < least ? l->r + extra : least};
    AX_ASSERT(l->r <= least);
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&s.u, (size_t)(s.q * l->rows), sizeof *s.u), st, done);
    AX_TRY_GOTO(ax_alloc(&s.z, (size_t)(s.q * l->cols), sizeof *s.z), st, done);
    AX_TRY_GOTO(ax_alloc(&s.wv, (size_t)(s.q * l->rows), sizeof *s.wv), st, done);
    AX_TRY_GOTO(ax_alloc(&l->s, (size_t)l->r, sizeof *l->s), st, done);
    iterate(&s);
    for (int64_t j = 0; j < l->r; j++) {
        double *z = s.z + j * l->cols;
        l->s[j] = sqrt(dot(z, z, l->cols));
        for (int64_t k = 0; k < l->cols; k++)
            z[k] = l->s[j] > 0 ? z[k] / l->s[j] : 0;
    }
    l->u = s.u;
    l->v = s.z;
    s.u = s.z = NULL;
done:
    ax_free(s.u);
    ax_free(s.z);
    ax_free(s.wv);
    if (st != AX_OK)
        ax_low_rank_free(l);
    return st;
}

void ax_low_rank_free(struct ax_low_rank *l) {
    ax_free(l->u);
    ax_free(l->s);
    ax_free(l->v);
    l->u = l->s = l->v = NULL;
}
