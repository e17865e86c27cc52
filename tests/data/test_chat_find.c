/* Finding a turn by looking at a part of the text gives the same tokens as comparing all of it, on
 * random conversations under many templates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/records/format/chat.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"

static int turns_checked, turns_short, turns_unfound;

/* The rule, word for word. */
static bool naive(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b, size_t *start,
                  size_t *end) {
    const size_t n = n_a < n_b ? n_a : n_b;
    bool front = false;
    bool back = false;
    for (size_t i = 0; i < n && !front; i++) {
        front = a[i] != b[i];
        *start = i;
    }
    for (size_t i = 0; i < n && !back; i++) {
        back = a[n_a - 1 - i] != b[n_b - 1 - i];
        *end = n_a - i;
    }
    return front && back && *end > *start;
}

static void check_turn(const struct ax_format *f, const struct ax_conversation *c,
                       const struct ax_template_output *whole, size_t turn) {
    struct ax_template_output real = {0};
    struct ax_template_output other = {0};
    struct ax_format_work w = {0};
    struct ax_encoding a = {0};
    struct ax_encoding b = {0};
    const struct ax_encode_options spans = {.spans = true};
    struct ax_chat_render r = {.n = turn + 1, .part = true};
    assert_ok(ax_chat_render(f, c, &r, &real));
    r.replaced = "[[other]]";
    assert_ok(ax_chat_render(f, c, &r, &other));
    const struct ax_text text = {whole->text, whole->len};
    const struct ax_turn_pair pair = {{real.text, real.len}, {other.text, other.len}, 0};
    assert_ok(ax_tokenizer_encode(f->tok, whole->text, whole->len, &spans, &w.full));
    assert_ok(ax_format_encode(f, pair.real, false, &a));
    assert_ok(ax_format_encode(f, pair.other, false, &b));
    size_t start;
    size_t end;
    size_t want_start = 0;
    size_t want_end = 0;
    bool found;
    assert_ok(ax_chat_find_turn(f, &w, &text, &pair, &start, &end, &found));
    const bool want = naive(a.ids, a.n, b.ids, b.n, &want_start, &want_end);
    if (found != want || (want && (start != want_start || end != want_end)))
        fail_msg("turn %zu: [%zu, %zu) %d instead of [%zu, %zu) %d in:\n%s", turn, start, end,
                 found, want_start, want_end, want, real.text);
    turns_checked++;
    turns_short += w.other.n < b.n;
    turns_unfound += !found;
    ax_encoding_free(&a);
    ax_encoding_free(&b);
    ax_format_work_free(&w);
    ax_template_output_free(&real);
    ax_template_output_free(&other);
}

static const char *const bits[] = {
    "a",    " w",      "or", "ld",    "\\n", "\\n\\n", " ",          "[[",
    "]]",   "[",       "]",  "other", "é",   "日",     "<|im_end|>", "<|im_start|>",
    "</s>", "<|eot|>", "x",  "###",   "In:", "user",   "<think>",    "</think>",
};

/* A conversation of up to six turns; text of up to six bits. */
static void random_row(uint64_t seed, struct ax_buf *b) {
    const struct ax_rng_key key = {.seed = seed};
    uint64_t at = 0;
    const uint64_t n = 1 + ax_rng_below(key, at++, 6);
    const bool system = ax_rng_below(key, at++, 3) == 0;
    b->len = 0;
    assert_ok(ax_buf_puts(b, "{\"messages\": ["));
    for (uint64_t i = 0; i < n; i++) {
        const char *role = system && i == 0        ? "system"
                           : (i + system) % 2 == 0 ? "user"
                                                   : "assistant";
        assert_ok(ax_buf_printf(b, "%s{\"role\": \"%s\", \"content\": \"", i ? ", " : "", role));
        for (uint64_t k = ax_rng_below(key, at++, 7); k > 0; k--)
            assert_ok(ax_buf_puts(b, bits[ax_rng_below(key, at++, sizeof bits / sizeof *bits)]));
        assert_ok(ax_buf_puts(b, "\"}"));
    }
    assert_ok(ax_buf_puts(b, "]}"));
}

static void check_template(struct chat_case *c, int rows) {
    struct ax_format *f;
    struct ax_buf text = {0};
    assert_ok(ax_format_new(&f, &c->o));
    for (int i = 0; i < rows; i++) {
        struct ax_conversation conversation;
        struct ax_template_output whole = {0};
        random_row((uint64_t)i, &text);
        json_t *row = json_loads(text.data, 0, NULL);
        assert_non_null(row);
        assert_ok(ax_conversation_read(&conversation, f, row));
        /* some templates refuse some conversations */
        if (ax_chat_render(f, &conversation, &(struct ax_chat_render){.n = conversation.n},
                           &whole) == AX_OK)
            for (size_t turn = 0; turn < conversation.n; turn++)
                check_turn(f, &conversation, &whole, turn);
        ax_template_output_free(&whole);
        ax_conversation_free(&conversation);
        json_decref(row);
    }
    ax_buf_free(&text);
    ax_format_free(f);
}

static void templates(void **state) {
    (void)state;
    static const char *const sources[] = {
        chatml,
        full_chat,
        plain_chat,
        /* a line break before a special token, and none at the end */
        "{% for m in messages %}{{ m.role }}:\n{{ m.content }}\n<|eot|>{% endfor %}",
        /* what stands before changes with what follows: earlier turns are shown shorter */
        "{% for m in messages %}<|im_start|>{{ m.content if loop.last else m.content[:2] "
        "}}<|im_end|>"
        "{% endfor %}",
        /* turns are counted from the end */
        "{% for m in messages %}<|im_start|>{{ loop.revindex }} {{ m.content }}</s>{% endfor %}",
        /* text only */
        "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}",
        /* nothing of the turn, and the same text twice */
        "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}",
        "{% for m in messages %}{{ m.content }}<|eot|>{{ m.content }}{% endfor %}",
        "{{ messages[-1].content }}<|im_start|>{% for m in messages %}{{ m.content }}{% endfor %}",
    };
    const struct ax_tokenizer *tokenizers[] = {bare_tokenizer, bos_tokenizer};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct chat_case c;
        chat_open(&c, sources[i]);
        c.o.tokenizer = tokenizers[i % 2];
        check_template(&c, 150);
        chat_close(&c);
    }
    print_message("%d turns compared, %d by a part of the text, %d not found\n", turns_checked,
                  turns_short, turns_unfound);
    assert_true(turns_checked > 2000);
    assert_true(turns_short > turns_checked / 4);
    assert_true(turns_unfound > 100);
}

static void built_in_templates(void **state) {
    (void)state;
    static const char *const names[] = {"chatml", "llama3", "qwen3",      "alpaca",
                                        "phi_35", "gemma",  "mistral_v1", "deepseek_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_case c;
        chat_open(&c, chatml);
        ax_template_free(c.template);
        assert_ok(ax_template_builtin(&c.template, names[i]));
        c.chat.template = c.template;
        check_template(&c, 60);
        chat_close(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates),
        cmocka_unit_test(built_in_templates),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
