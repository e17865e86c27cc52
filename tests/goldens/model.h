/* A model folder's goldens, loaded once for the forward, training and decoding checks. */
#ifndef TESTS_GOLDENS_MODEL_H
#define TESTS_GOLDENS_MODEL_H

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "tests/goldens/golden.h"
#include "model/arch/arch.h"
#include "model/core/batch.h"

#define AX_GOLDEN_MAX_DOCS 64

/* The documents of a golden batch: sequences without padding, or the packed ones. */
struct ax_golden_docs {
    int n;
    struct ax_document docs[AX_GOLDEN_MAX_DOCS];
    /* first flat position of the document in the golden tensors */
    int64_t from[AX_GOLDEN_MAX_DOCS];
    int64_t tokens, longest;
    int32_t *ids, *labels; /* owned; labels shifted */
};
/* From input_ids, labels and attention_mask [B][S], or from cu_seqlens. */
enum ax_status ax_golden_docs_read(struct ax_golden_docs *d, const struct ax_safetensors *st);
void ax_golden_docs_free(struct ax_golden_docs *d);

struct ax_golden_case {
    const char *dir;             /* folder that contains golden/: a model's or an adapter's */
    const struct ax_scheme *qat; /* dir itself has the files, of a model that trains for it; NULL */
    const struct ax_golden_options *o;
    struct ax_golden_report *report;
    struct ax_arch arch;
    struct ax_hf hf;
    enum ax_dtype dtype;
    const struct ax_peft *peft; /* the adapter; NULL = none */
    struct ax_json_doc golden;  /* golden.json; root NULL if missing */
    struct ax_json_doc norms;   /* norms.json, likewise */
};
/* Path of golden/NAME in the folder, or of samples of it (digest.h); if both are missing, *path = NULL and it is noted
 * as absent. */
enum ax_status ax_golden_file(const struct ax_golden_case *c, const char *name, char **path);
/* Of fake quantization: an activation near the middle between two codes goes either way, which a
 * difference of one ulp decides; what follows moves by a share of its size: docs/decisions/024. */
#define AX_GOLDEN_QAT_TOLERANCE 0.02
/* The tolerance: on ref 1.65 × golden.json's fp64_gap[key] if given, else `usual`. */
double ax_golden_tolerance(const struct ax_golden_case *c, const char *key, double usual);
/* Tolerance of the packed row's gradients, relative: the usual one, or the distance of the golden's float32 from
 * float64 if that is larger, as it is where a norm magnifies a small output (the gated delta rule); twice that for
 * float32 here, which is as far on its side. A relative error of all tensors bounds that of their norm. */
double ax_golden_packed_tolerance(const struct ax_golden_case *c, double usual);
/* Tolerance of hidden states and of the batch's gradients: the usual one; in folders with norms.json, whose streams may
 * be large, the distance fp64_gap[key] of the golden's float32 by the same rule if that is larger. */
double ax_golden_recorded_tolerance(const struct ax_golden_case *c, const char *key, double usual);
/* Norms of tensors by name: key `what` of norms.json, or of what golden.json says of the long row; .v NULL: none. */
struct ax_json ax_golden_norms(const struct ax_golden_case *c, const char *what);
/* The same for a fraction of n elements: rounded up to an integer number of them. */
double ax_golden_share_tolerance(const struct ax_golden_case *c, const char *key, int64_t n,
                                 double usual);
/* Half a unit in the last place of a golden float32 number: the smallest useful tolerance. */
double ax_golden_half_place(double golden);

enum ax_status ax_golden_forward(const struct ax_golden_case *c);
/* With an adapter: loss and gradients of its parameters; only the loss if grads_file is missing. */
enum ax_status ax_golden_gradients(const struct ax_golden_case *c, const char *batch_file,
                                   const char *grads_file, const char *key);
/* The routers' balancing loss and its gradient. */
enum ax_status ax_golden_balance(const struct ax_golden_case *c);
/* The loss of indexers and its gradients, while they warm up and with sparse attention, if golden.json has them. */
enum ax_status ax_golden_indexers(const struct ax_golden_case *c);
/* Loss, outputs and gradients of the layer for multi-token prediction, if golden.json has them. */
enum ax_status ax_golden_mtp(const struct ax_golden_case *c);
enum ax_status ax_golden_steps(const struct ax_golden_case *c);
enum ax_status ax_golden_bf16(const struct ax_golden_case *c);
enum ax_status ax_golden_generate(const struct ax_golden_case *c);

/* Creates and loads the case's model, with its adapter. */
struct ax_model;
enum ax_status ax_golden_load(const struct ax_golden_case *c, struct ax_model *m);

#endif
