/* A prepared data set: records → format → examples, or from the cache. */
#ifndef AX_DATA_RECORDS_PIPELINE_PREPARED_H
#define AX_DATA_RECORDS_PIPELINE_PREPARED_H

#include <jansson.h>

#include "data/records/pipeline/examples.h"
#include "data/records/pipeline/prepare.h"

struct ax_prepared_options {
    struct ax_rows *rows;
    const struct ax_format *format;
    int64_t max_bad_rows;
    int threads;
    int32_t bos;           /* AX_NO_TOKEN = none */
    const char *cache;     /* folder for prepared sets; NULL: none */
    const char *tokenizer; /* identifies the tokenizer in the cache key */
    bool refresh;          /* rebuilds the set even if it is cached */
};

/* Free with ax_examples_free. */
enum ax_status ax_prepared_open(struct ax_examples *out, const struct ax_prepared_options *o);

/* Prepared data sets as folders: CACHE/KEY/{words.bin, examples.bin, set.json}. The key is a hash
 * of everything that determines the examples; set.json contains it in full. A folder appears
 * complete or not at all, and every byte is checked before use. Only prepared.c and its tests use
 * the functions, except for the path: others have folders beside these. */
#define AX_CACHE_FORMAT 10 /* file format version; part of the key */

/* CACHE/KEY for a description. Free with ax_free. */
enum ax_status ax_cache_path(char **out, const char *cache, const json_t *description);

/* The examples must have `columns`, which `description` contains too. *found = false if there is
 * no such set. AX_ERR_DATA names what is corrupted. */
enum ax_status ax_cache_load(struct ax_examples *out, const char *path, const json_t *description,
                             const struct ax_columns *columns, bool *found);

/* Writes a set in bounded memory while it grows: begin, then flush every few examples, then
 * commit. */
struct ax_cache_writer {
    struct ax_folder folder;
    struct ax_file words;
    uint32_t words_crc;
    size_t flushed; /* blocks written and freed */
};
/* The parent folder of `path` must exist. */
enum ax_status ax_cache_begin(struct ax_cache_writer *w, const char *path);
enum ax_status ax_cache_flush(struct ax_cache_writer *w, struct ax_examples *set);
enum ax_status ax_cache_commit(struct ax_cache_writer *w, const struct ax_examples *set,
                               const json_t *description);
void ax_cache_abort(struct ax_cache_writer *w); /* safe on zeroed or committed */

#endif
