/* Prepared data sets as folders: CACHE/KEY/{words.bin, examples.bin, set.json}. The key is a hash
 * of everything that the examples follow from, which set.json holds in full. A folder appears whole
 * or not at all, and every byte is checked before it is used. Private to prepared.c and its tests.
 */
#ifndef AX_DATA_PIPELINE_CACHE_H
#define AX_DATA_PIPELINE_CACHE_H

#include <jansson.h>

#include "data/pipeline/examples.h"

#define AX_CACHE_FORMAT 2 /* of the files; another one is another key */

/* CACHE/KEY for a description. Free with ax_free. */
enum ax_status ax_cache_path(char **out, const char *cache, const json_t *description);

/* `columns` of every example, which the description has too. *found = false where there is none.
 * AX_ERR_DATA names what is damaged. */
enum ax_status ax_cache_load(struct ax_examples *out, const char *path, const json_t *description,
                             const struct ax_columns *columns, bool *found);

/* Writes a set while it grows, so that memory stays bounded: begin, then flush after every few
 * examples, then commit. */
struct ax_cache_writer {
    struct ax_folder folder;
    struct ax_file words;
    uint32_t words_crc;
    size_t flushed; /* blocks that are written and freed */
};
/* The folder above `path` is there. */
enum ax_status ax_cache_begin(struct ax_cache_writer *w, const char *path);
enum ax_status ax_cache_flush(struct ax_cache_writer *w, struct ax_examples *set);
enum ax_status ax_cache_commit(struct ax_cache_writer *w, const struct ax_examples *set,
                               const json_t *description);
void ax_cache_abort(struct ax_cache_writer *w); /* safe on zeroed or committed */

#endif
