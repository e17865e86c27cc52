/* Instruction records: alpaca and the types that differ only in their column names. */
#include <string.h>

#include "data/records/format/impl.h"

/* The preambles that Stanford Alpaca published with its data. */
static const char with_input[] =
    "Below is an instruction that describes a task, paired with an input that provides further "
    "context. Write a response that appropriately completes the request.";
static const char without_input[] = "Below is an instruction that describes a task. Write a "
                                    "response that appropriately completes the request.";

/* open SYSTEM turn INSTRUCTION (input INPUT close | close_bare) */
static const struct style {
    const char *name, *open, *turn, *input, *close, *close_bare;
} styles[] = {
    {"instruct", "", "\n\n### Instruction:\n", "\n\n### Input:\n", "\n\n### Response:\n",
     "\n\n### Response:\n"},
    {"chat", "SYSTEM: ", "\nUSER: ", "\n", "\nASSISTANT:", "\nASSISTANT:"},
    {"chatml", "<|im_start|>system\n", "<|im_end|>\n<|im_start|>user\n", "\n",
     "<|im_end|>\n<|im_start|>assistant\n", "<|im_end|>\n<|im_start|>assistant\n"},
    {"phi", "<|system|>\n", "<|end|>\n<|user|>\n", "<|end|>", "<|assistant|>",
     "<|end|>\n<|assistant|>\n"},
};

static enum ax_status choose_style(struct ax_format *f) {
    const char *colon = strchr(f->o.type, ':');
    const char *name = colon ? colon + 1 : "instruct";
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
        if (strcmp(styles[i].name, name) != 0)
            continue;
        AX_TRY(ax_alloc(&f->own, 1, sizeof *styles));
        memcpy(f->own, &styles[i], sizeof *styles);
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG,
                    "type %s: unknown style \"%s\"; expected instruct, chat, chatml or phi",
                    f->o.type, name);
}

static enum ax_status put_prompt(const struct style *s, struct ax_buf *b,
                                 struct ax_text instruction, struct ax_text input) {
    b->len = 0;
    AX_TRY(ax_buf_puts(b, s->open));
    AX_TRY(ax_buf_puts(b, input.n ? with_input : without_input));
    AX_TRY(ax_buf_puts(b, s->turn));
    AX_TRY(ax_text_put(b, instruction));
    if (input.n) {
        AX_TRY(ax_buf_puts(b, s->input));
        AX_TRY(ax_text_put(b, input));
    }
    return ax_buf_puts(b, input.n ? s->close : s->close_bare);
}

/* `input` may be NULL: records of this type have none. `lead` goes before the response. */
struct columns {
    const char *instruction, *input, *response, *lead;
};

static enum ax_status record_of(const struct columns *c, const struct ax_format *f,
                                struct ax_format_work *w, const json_t *record,
                                struct ax_origin origin, struct ax_example_list *out) {
    struct ax_text instruction;
    struct ax_text input = {"", 0};
    struct ax_text response;
    AX_TRY(ax_record_text(record, c->instruction, &instruction));
    if (c->input)
        AX_TRY(ax_record_text_or_empty(record, c->input, &input));
    AX_TRY(ax_record_text(record, c->response, &response));
    AX_TRY(ax_record_not_blank(c->response, "answer", response));
    AX_TRY(put_prompt(f->own, &w->text, instruction, input));
    const size_t prompt = w->text.len;
    AX_TRY(ax_buf_puts(&w->text, c->lead));
    AX_TRY(ax_text_put(&w->text, response));
    return ax_format_pair(f, w, (struct ax_text){w->text.data, prompt},
                          (struct ax_text){w->text.data + prompt, w->text.len - prompt}, origin,
                          out);
}

static enum ax_status alpaca_record(const struct ax_format *f, struct ax_format_work *w,
                                    json_t *record, struct ax_origin origin,
                                    struct ax_example_list *out) {
    static const struct columns c = {"instruction", "input", "output", ""};
    return record_of(&c, f, w, record, origin, out);
}

static enum ax_status gpteacher_record(const struct ax_format *f, struct ax_format_work *w,
                                       json_t *record, struct ax_origin origin,
                                       struct ax_example_list *out) {
    static const struct columns c = {"instruction", "input", "response", ""};
    return record_of(&c, f, w, record, origin, out);
}

static enum ax_status oasst_record(const struct ax_format *f, struct ax_format_work *w,
                                   json_t *record, struct ax_origin origin,
                                   struct ax_example_list *out) {
    static const struct columns c = {"INSTRUCTION", NULL, "RESPONSE", ""};
    return record_of(&c, f, w, record, origin, out);
}

static enum ax_status jeopardy_record(const struct ax_format *f, struct ax_format_work *w,
                                      json_t *record, struct ax_origin origin,
                                      struct ax_example_list *out) {
    static const struct columns c = {"question", "category", "answer", "what is "};
    return record_of(&c, f, w, record, origin, out);
}

const struct ax_format_type ax_format_type_alpaca = {"alpaca", true, true, choose_style,
                                                     alpaca_record};
const struct ax_format_type ax_format_type_gpteacher = {"gpteacher", true, true, choose_style,
                                                        gpteacher_record};
const struct ax_format_type ax_format_type_oasst = {"oasst", true, true, choose_style,
                                                    oasst_record};
const struct ax_format_type ax_format_type_jeopardy = {"jeopardy", true, true, choose_style,
                                                       jeopardy_record};
