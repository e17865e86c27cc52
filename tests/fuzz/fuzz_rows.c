/* Rows of any bytes, as each kind of file, plain or packed, with slices: rows or an error with a
 * place, never more memory than a row may take, nothing left behind. The first byte chooses the
 * kind and whether rows go on through a format. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "data/records/format/format.h"
#include "data/records/rows/rows.h"

static char path[64];

/* What a teacher says of each token, in half of the runs with tokens. */
static const struct ax_columns targets = {
    .list = {{"target_ids", false, AX_OF_LABEL, 3}, {"target_logits", true, AX_OF_LABEL, 3}},
    .n = 2};

static void remove_file(void) {
    (void)unlink(path);
}

static void write_input(const uint8_t *data, size_t size) {
    if (!*path) {
        snprintf(path, sizeof path, "/dev/shm/axtrain-fuzz-rows-%d", (int)getpid());
        AX_ASSERT(atexit(remove_file) == 0);
    }
    struct ax_file f;
    AX_ASSERT(ax_file_create(&f, path) == AX_OK);
    AX_ASSERT(ax_file_write(&f, data, size) == AX_OK);
    AX_ASSERT(ax_file_close(&f) == AX_OK);
}

/* Rows that are tokens already need no tokenizer. */
static void run_format(const struct ax_format *f, struct ax_format_work *w, json_t *row) {
    struct ax_example_list s = {.columns = ax_format_columns(f)};
    const enum ax_status st = ax_format_record(f, w, row, (struct ax_origin){.line = 1}, &s);
    AX_ASSERT(st == AX_OK ||
              ((st == AX_ERR_DATA || st == AX_ERR_EMPTY) && s.n == 0 && *ax_error_text()));
    for (size_t i = 0; i < s.n_tokens; i++)
        AX_ASSERT(s.tokens[i] >= 0 && s.labels[i] >= AX_NO_LABEL);
    for (size_t i = 0; i < s.n && s.columns; i++)
        for (size_t t = 0; t < 3 * s.items[i].n; t++) {
            const bool any = (int32_t)s.items[i].columns[0][t] >= 0;
            AX_ASSERT(any || (int32_t)s.items[i].columns[0][t] == -1);
            float logit;
            memcpy(&logit, &s.items[i].columns[1][t], sizeof logit);
            AX_ASSERT(!any || (logit <= 0 && logit >= -1e20F));
        }
    ax_example_list_free(&s);
}

/* in_order: no part of the split begins again from the front. */
static void read_rows(struct ax_rows *r, const struct ax_format *f, bool in_order) {
    struct ax_format_work w = {0};
    struct ax_raw_row row;
    uint64_t last = 0;
    for (bool got = true; got;) {
        const enum ax_status st = ax_rows_next(r, &row, &got);
        if (st != AX_OK) {
            AX_ASSERT((st == AX_ERR_DATA || st == AX_ERR_UNSUPPORTED) && /* of zstd: a window */
                      strstr(ax_error_text(), path));
            break;
        }
        if (!got)
            break;
        AX_ASSERT((row.line >= last || !in_order) && row.len <= AX_ROWS_MAX_BYTES);
        last = row.line;
        json_t *v = NULL;
        if (ax_rows_parse(r, &row, &v) == AX_OK) {
            AX_ASSERT(json_is_object(v));
            run_format(f, &w, v);
        } else {
            AX_ASSERT(strncmp(ax_error_text(), path, strlen(path)) == 0 && !v);
        }
        json_decref(v);
    }
    ax_format_work_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const formats[] = {"json", "csv", "text", "json"};
    static const char *const splits[] = {NULL, "train[1:]", "train[:50%]", "train[-2:]+train[:1]"};
    if (size == 0)
        return 0;
    const uint64_t live = ax_mem_live_blocks();
    const struct ax_rows_options o = {.path = path,
                                      .format = formats[data[0] & 3],
                                      .split = splits[data[0] >> 2 & 3],
                                      .delimiter = (data[0] & 3) == 1 && data[0] & 128 ? ';' : '\0',
                                      .sample_by = (data[0] >> 5 & 3) % 3};
    struct ax_rows *r;
    struct ax_format *f;
    write_input(data + 1, size - 1);
    const struct ax_format_options fo = {
        .sequence_len = 64, .columns = data[0] & 16 ? &targets : NULL, .topk = {"logprobs", 0.5}};
    AX_ASSERT(ax_format_new(&f, &fo) == AX_OK);
    if (ax_rows_open(&r, &o) == AX_OK) {
        read_rows(r, f, (data[0] >> 2 & 3) != 3);
        ax_rows_close(r);
    }
    ax_format_free(f);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
