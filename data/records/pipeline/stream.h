/* Reads examples during training, one buffer at a time, shuffled within the buffer. Memory depends
 * on the buffer size, not on the data. */
#ifndef AX_DATA_RECORDS_PIPELINE_STREAM_H
#define AX_DATA_RECORDS_PIPELINE_STREAM_H

#include "data/records/pipeline/loader.h"
#include "data/records/pipeline/prepare.h"

struct ax_stream_entry {
    struct ax_rows *rows;
    const struct ax_format *format;
    double share; /* share of the records, relative to the others'; 0 for all entries: not mixed */
};

struct ax_stream_options {
    const struct ax_stream_entry *entries; /* [n], read in order, or mixed record by record until
                                              one has none left; borrowed */
    size_t n;
    int64_t buffer; /* examples; may be exceeded to complete a record */
    bool shuffle;
    uint64_t seed;
    struct ax_length_rule rule;
    int64_t max_bad_rows; /* per epoch */
    int threads;
    uint64_t options_hash; /* hash of what determines the examples, for the fingerprint */
};

struct ax_stream;

enum ax_status ax_stream_open(struct ax_stream **out, const struct ax_stream_options *o);
void ax_stream_close(struct ax_stream *s);
void ax_stream_source(struct ax_stream *s, struct ax_example_source *out);
/* Since the start of the epoch, or since reading last went on elsewhere in it. */
const struct ax_bad_records *ax_stream_bad_records(const struct ax_stream *s);
const struct ax_corpus_report *ax_stream_report(const struct ax_stream *s);

#endif
