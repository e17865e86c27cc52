/* Golden tensors of which only a digest is kept, and comparing both forms.
 *
 * A digest has the norm of a tensor d, eight projections p_k = Σ s_k(i)·d_i on signs, and sixteen
 * elements at drawn places; signs and places are base/rng.h's, of the tensor's name. A digest by row
 * has four projections of each row. The file's metadata says what NAME is: "digest 512x64" or "rows
 * 2x40x64" (rule.py writes them).
 *
 * What they notice. Of an error e, each difference of projections is Σ s_k(i)·e_i: its mean square
 * over the signs is ‖e‖², so ρ = √(mean_k (p_k − p′_k)²) estimates ‖e‖, whatever e is, and 8ρ²/‖e‖² is
 * about χ² with 8 degrees of freedom (4 for a row). One wrong element alone moves every projection by
 * exactly its error.
 *
 * - Gradients. The full form allows a relative error of 3e-5. ρ/‖d‖ may be a third of that: an error of
 *   the tolerance is missed if χ²₈ < 8/9, with probability 1e-3, and 5e-8 if it is three times as large.
 *   Two float32 implementations differ by up to 2.7e-6 of the norm (README.md), a quarter of it.
 *   On ref the full form allows 1.65 times what was measured between float32 and float64, of the worst
 *   tensor; ρ of that very tensor is beyond 2.5 times its error with probability 6e-8: that is allowed.
 *   Norm and elements differ by no more than ‖e‖, so they are held against the same.
 * - A gradient that is zero has norm 0: everything has to be exactly 0.
 * - Parameters after steps. In the full form 99.9 % are within 1e-5, and none is off by more than
 *   2·lr·steps, which Adam can do to one whose gradient is rounding noise. The drawn elements are held
 *   against both: each stands for numel/16 of its tensor's, and the two that stand for most of those beyond
 *   1e-5 are forgiven, since a whole tensor beyond it shows in fourteen others. One element off by the bound
 *   moves every projection by the bound, less what the others contribute (0.15·lr·steps at most,
 *   README.md): no projection may be off by half the bound.
 * - Merged weights. The full form allows 1e-6 of the largest weight w, at each. Elements are held
 *   against that, ρ against a third of 1e-6·w·√n, the norm of such an error everywhere.
 * - Rows. The full form allows 1e-4 at each element, here ρ of each row is held against it. An element
 *   off by 1e-4 gives exactly that; what is off in many elements is larger than its largest. Rounding
 *   uses up 0.45 (README.md).
 *
 * - Samples: files NAME.sample.safetensors have 48 elements of each larger tensor, at places that follow from its size
 *   alone. √(n · their mean square error) estimates ‖e‖; norms are held against those of norms.json. Of parameters
 *   each stands for numel/48.
 *
 * A NaN is infinite wherever it is read, and it makes each projection NaN. */
#ifndef TESTS_GOLDENS_DIGEST_H
#define TESTS_GOLDENS_DIGEST_H

#include "tests/goldens/golden.h"

#define GOLDEN_PROJECTIONS     8
#define GOLDEN_PLACES          16
#define GOLDEN_DIGEST          (1 + GOLDEN_PROJECTIONS + GOLDEN_PLACES)
#define GOLDEN_ROW_PROJECTIONS 4
#define GOLDEN_SAMPLE          48
#define GOLDEN_SAMPLE_END      ".sample.safetensors"

/* What a file's metadata says of a tensor: its form, and the shape of what it stands for. */
enum ax_status golden_form_of(const struct ax_safetensors *st, const char *name,
                              struct ax_golden_tensor *t);

/* norm, projections, elements. */
void golden_digest(const char *name, const double *x, int64_t n, double out[GOLDEN_DIGEST]);
/* The elements of x that a sample has; n > 48. */
void golden_sample(const double *x, int64_t n, double out[GOLDEN_SAMPLE]);
/* out [rows][4] */
void golden_row_digest(const char *name, const double *x, int64_t rows, int64_t cols, double *out);

/* A figure and what it may be: for ax_golden_note. */
struct golden_figure {
    double figure, tolerance;
};
/* The relative error of a tensor; `usual` is the tolerance without ref's (equal if it is not less). A digest's
 * figure is scaled so that it is held against the tolerance of a tensor in full: × 3, or ÷ 1.5 if it is ref's. */
struct golden_figure golden_relative(const struct ax_golden_tensor *want, const double *got,
                                     double tolerance, double usual);
/* Of the largest of `want`, as far as `got` tells. */
struct golden_figure golden_of_largest(const struct ax_golden_tensor *want, const double *got,
                                       double tolerance);

/* Parameters after steps: what of them is compared, and how far off. */
struct golden_parameters {
    double worst, worst_projection; /* of elements; of projections, 0 of tensors in full */
    double total, off;              /* elements; those beyond 1e-5, estimated from the drawn */
    double forgiven[2];             /* what the two that stand for most of them stand for */
    bool digests;
};
void golden_compare_parameters(struct golden_parameters *p, const struct ax_golden_tensor *want,
                               const double *got);
/* The share of elements beyond 1e-5. */
double golden_share_off(const struct golden_parameters *p);

#endif
