/* One sequence of 48 tokens, three steps of SGD in float32 on the golden llama: what the scripts of PyTorch in
 * tests/peers that compare steps train, too. Include it after chats_case.h. */
#ifndef AX_TESTS_CMD_SEQUENCE_CASE_H
#define AX_TESTS_CMD_SEQUENCE_CASE_H

/* Its tokens are k[0]·i² + k[1]·i + k[2], such that none of what a test compares is a tie between two codes;
 * `more`: lines of YAML. */
static const char *one_sequence(const int k[3], const char *more) {
    static char path[128];
    struct ax_buf row = {0}, b = {0};
    need_binary();
    for (int i = 0; i < 48; i++)
        assert_int_equal(
            ax_buf_printf(&row, "%s%d", i ? ", " : "", (k[0] * i * i + k[1] * i + k[2]) % 509 + 1),
            AX_OK);
    assert_int_equal(
        ax_buf_printf(&b, "{\"input_ids\": [%s], \"labels\": [%s]}\n", row.data, row.data), AX_OK);
    put_bytes("ids.jsonl", b.data, b.len);
    ax_buf_free(&row);
    ax_buf_free(&b);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s\noutput_dir: %s/out\ndatasets:\n  - path: %s/ids.jsonl\n"
                      "    type:\nsequence_len: 64\noptimizer: sgd\nlearning_rate: 0.01\n"
                      "lr_scheduler: constant\nmax_grad_norm: 0\nweight_decay: 0\nfloat32: true\n"
                      "micro_batch_size: 1\ngradient_accumulation_steps: 1\nnum_epochs: 3\n"
                      "logging_steps: 1\nsave_only_model: true\n%s",
                      golden_llama(), scratch, scratch, more),
        AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("one.yaml", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

#endif
