/* Formats of pairs, unpaired answers, reward pairs and steps for tests. Include after format_case.h
 * and chat_case.h. */
#ifndef AX_TESTS_DATA_ANSWERS_CASE_H
#define AX_TESTS_DATA_ANSWERS_CASE_H

static const struct ax_columns rated_columns = {.list = {{"desirable", false, AX_OF_EXAMPLE, 0},
                                                         {"margin", true, AX_OF_EXAMPLE, 0},
                                                         {"target", true, AX_OF_LABEL, 0}},
                                                .n = 3};

/* A template with a header for the answer to come. */
static const char prompting_chat[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

struct answers_case {
    struct chat_case chat;
    struct ax_format_answers answers;
    struct ax_format_steps steps;
    struct ax_format_options o;
};

static inline void answers_open(struct answers_case *c, enum ax_task task, const char *type) {
    *c = (struct answers_case){
        .answers = {.field_chosen = "chosen", .field_rejected = "rejected"},
        .steps = {.separator = "\n"},
    };
    chat_open(&c->chat, prompting_chat);
    c->o = (struct ax_format_options){.task = task,
                                      .type = type,
                                      .tokenizer = bare_tokenizer,
                                      .sequence_len = 1000,
                                      .pad = AX_NO_TOKEN,
                                      .chat = &c->chat.chat,
                                      .answers = &c->answers,
                                      .steps = &c->steps,
                                      .columns = &rated_columns};
}

static inline void answers_close(struct answers_case *c) {
    chat_close(&c->chat);
}

/* "text{0}" for each example: tokens, with labels where there are any. */
static inline void check_labels(const struct ax_format_options *o, const char *json,
                                const char *want) {
    struct ax_format *f;
    struct ax_example_list l = {.columns = o->columns};
    struct ax_buf got = {0};
    assert_ok(ax_format_new(&f, o));
    assert_ok(run_record(f, json, &l));
    assert_ok(ax_buf_puts(&got, ""));
    for (size_t d = 0; d < l.n; d++) {
        const struct ax_example *x = &l.items[d];
        if (d > 0)
            assert_ok(ax_buf_puts(&got, " | "));
        assert_int_equal(x->joined, d > 0);
        for (size_t i = 0; i < x->n; i++) {
            put_token(&got, x->tokens[i]);
            if (x->labels[i] != AX_NO_LABEL)
                assert_ok(ax_buf_printf(&got, "{%d}", x->labels[i]));
        }
    }
    assert_string_equal(got.data, want);
    ax_buf_free(&got);
    ax_example_list_free(&l);
    ax_format_free(f);
    rows_checked++;
}

static inline float float_column(const struct ax_example *x, int c, size_t t) {
    float v;
    memcpy(&v, &x->columns[c][t], sizeof v);
    return v;
}

#endif
