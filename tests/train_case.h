/* A small training run without files to read: made-up documents, a random tiny model, an output
 * folder in memory. */
#ifndef AX_TESTS_TRAIN_CASE_H
#define AX_TESTS_TRAIN_CASE_H

#include "optim/train/train.h"

struct train_case {
    char dir[96]; /* scratch; o.save.output_dir is DIR/out */
    char out[112];
    struct ax_arch arch;
    json_t *model_config;
    struct ax_examples docs, eval_docs;
    struct ax_corpus train, eval;
    struct ax_corpus_source source, eval_source;
    struct ax_example_source doc_source, eval_doc_source;
    struct ax_loader *loader, *eval_loader;
    json_t *config;
    struct ax_train_options o;
};

/* 90 documents of 2 to 24 tokens, packed into rows of 32 where asked (else one a row), two rows a
 * micro-batch, two micro-batches a step; one thread; AdamW at 1e-2. */
enum ax_status train_case_open(struct train_case *c, enum ax_dtype dtype, bool packed);
/* The same for another objective, which is borrowed; of pairs, the documents are grouped by twos, two
 * of them a row where they are not packed. */
enum ax_status train_case_open_for(struct train_case *c, enum ax_dtype dtype, bool packed,
                                   const struct ax_objective *objective);
void train_case_close(struct train_case *c);
/* Replaces the model by that of a config.json, given as text. */
enum ax_status train_case_use_model(struct train_case *c, const char *config);
/* Runs it from the loader's start. */
enum ax_status train_case_run(struct train_case *c, struct ax_train_result *r);
/* XXH64 of a file below the output folder; 0 where there is none. */
uint64_t train_case_hash(const struct train_case *c, const char *name);
/* Whether the run's metrics.jsonl has this part. */
bool train_case_tells(const struct train_case *c, const char *part);

#endif
