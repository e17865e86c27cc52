/* A configuration that trains the golden llama on three conversations. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_CHATS_CASE_H
#define AX_TESTS_CMD_CHATS_CASE_H

#include "ckpt/hf/hf.h"
#include "tests/cmd/sft_case.h"

/* Its path; `more` has further keys, such as max_steps. */
static inline const char *chats_config(const char *more) {
    static const char rows[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"one and one\"}, {\"role\": "
        "\"assistant\", \"content\": \"two\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"two and two\"}, {\"role\": "
        "\"assistant\", \"content\": \"four of them\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"say no\"}, {\"role\": "
        "\"assistant\", \"content\": \"no, no, no\"}]}\n";
    static char path[128];
    struct ax_buf b = {0};
    need_binary();
    put_bytes("rows.jsonl", rows, sizeof rows - 1);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndataset_prepared_path: %s/cache\n"
                      "datasets:\n  - path: %s/rows.jsonl\n    type: chat_template\n"
                      "test_datasets:\n  - path: %s/rows.jsonl\n    type: chat_template\n"
                      "chat_template: llama3\nsequence_len: 64\nlearning_rate: 5e-3\n"
                      "micro_batch_size: 3\ngradient_accumulation_steps: 1\nlogging_steps: 1\n"
                      "lr_scheduler: constant\nnum_epochs: 40\neval_steps: 3\n%s",
                      golden_llama(), scratch, scratch, scratch, scratch, more),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("c.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

/* Of two folders in the scratch folder. */
static inline bool same_weights(const char *a, const char *b) {
    struct ax_hf x, y;
    assert_int_equal(ax_hf_open(&x, in_scratch(a)), AX_OK);
    assert_int_equal(ax_hf_open(&y, in_scratch(b)), AX_OK);
    assert_int_equal(ax_hf_count(&x), ax_hf_count(&y));
    bool same = true;
    for (int i = 0; i < ax_hf_count(&x); i++) {
        const struct ax_st_entry *e = ax_hf_at(&x, i), *f = ax_hf_find(&y, e->name);
        assert_non_null(f);
        same = same && e->bytes == f->bytes && memcmp(e->data, f->data, e->bytes) == 0;
    }
    ax_hf_close(&x);
    ax_hf_close(&y);
    return same;
}

/* output_dir=… in the scratch folder; four at a time. */
static inline const char *out(const char *name) {
    static char text[4][256];
    static int next;
    char *to = text[next++ % 4];
    snprintf(to, sizeof text[0], "output_dir=%s/%s", scratch, name);
    return to;
}

/* SCRATCH/ids.jsonl: n rows of 60 tokens from `first` on, of `tokens`. */
static inline void put_id_rows(int n, int first, int tokens) {
    struct ax_buf b = {0}, ids = {0};
    for (int row = 0; row < n; row++) {
        ids.len = 0;
        for (int i = 0; i < 60; i++)
            assert_int_equal(
                ax_buf_printf(&ids, "%s%d", i ? ", " : "",
                              (7 * i * i + 3 * i + 11 * row + row * row * i) % tokens + first),
                AX_OK);
        assert_int_equal(
            ax_buf_printf(&b, "{\"input_ids\": [%s], \"labels\": [%s]}\n", ids.data, ids.data),
            AX_OK);
    }
    put_bytes("ids.jsonl", b.data, b.len);
    ax_buf_free(&ids);
    ax_buf_free(&b);
}

#endif
