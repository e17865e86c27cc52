/* A configuration that trains the golden llama on three conversations. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_CHATS_CASE_H
#define AX_TESTS_CMD_CHATS_CASE_H

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

#endif
