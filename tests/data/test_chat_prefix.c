/* The first messages of a long conversation, put together of pieces, are what the template writes for them, to the
 * byte; templates for which that need not be so are found out; and long conversations take time by their length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/records/format/chat_prefix.h"
#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"

static const char *const bits[] = {"a",  " w", "\\n", " ",        "[[", "]]",   "other",      "é",
                                   "日", "x",  "###", "</think>", "1",  "user", "<|im_end|>", ""};

static json_t *random_row(uint64_t seed, size_t n, bool system) {
    const struct ax_rng_key key = {.seed = seed};
    struct ax_buf b = {0};
    uint64_t at = 0;
    assert_ok(ax_buf_puts(&b, "{\"messages\": ["));
    for (size_t i = 0; i < n; i++) {
        const char *role = system && i == 0        ? "system"
                           : (i + system) % 2 == 0 ? "user"
                                                   : "assistant";
        assert_ok(ax_buf_printf(&b, "%s{\"role\": \"%s\", \"content\": \"m", i ? ", " : "", role));
        for (uint64_t k = ax_rng_below(key, at++, 5); k > 0; k--)
            assert_ok(ax_buf_puts(&b, bits[ax_rng_below(key, at++, sizeof bits / sizeof *bits)]));
        assert_ok(ax_buf_puts(&b, "\"}"));
    }
    assert_ok(ax_buf_puts(&b, "]}"));
    json_t *row = json_loads(b.data, 0, NULL);
    ax_buf_free(&b);
    assert_non_null(row);
    return row;
}

static void expect_same(struct ax_text a, const struct ax_template_output *b, const char *what) {
    if (a.n != b->len || memcmp(a.s, b->text, a.n) != 0)
        fail_msg("%s: \"%.*s\" instead of \"%s\"", what, (int)a.n, a.s, b->text);
}

/* Turns that were put together; all turns are compared if they are. */
static int check_row(const struct ax_format *f, json_t *row) {
    struct ax_conversation c;
    struct ax_template_output whole = {0};
    struct ax_chat_prefixes p;
    int n = 0;
    assert_ok(ax_conversation_read(&c, f, row));
    if (ax_chat_render(f, &c, &(struct ax_chat_render){.n = c.n}, &whole) != AX_OK) {
        ax_conversation_free(&c);
        return 0; /* some templates refuse some conversations */
    }
    assert_ok(ax_chat_prefixes_begin(&p, f, &c, (struct ax_text){whole.text, whole.len}));
    for (size_t i = 1; i < c.n; i += 1 + i % 3) {
        struct ax_template_output real = {0}, other = {0};
        struct ax_chat_render r = {.n = i + 1, .part = true};
        struct ax_turn_pair pair = {0};
        bool found;
        assert_ok(ax_chat_render(f, &c, &r, &real));
        r.replaced = "[[other text]]";
        assert_ok(ax_chat_render(f, &c, &r, &other));
        assert_ok(ax_chat_prefixes_turn(&p, &r, &pair, &found));
        if (found) {
            expect_same(pair.real, &real, "real");
            expect_same(pair.other, &other, "other");
            assert_memory_equal(whole.text, real.text, pair.shared);
            assert_memory_equal(whole.text, other.text, pair.shared);
            n++;
        }
        ax_template_output_free(&real);
        ax_template_output_free(&other);
    }
    ax_chat_prefixes_free(&p);
    ax_template_output_free(&whole);
    ax_conversation_free(&c);
    return n;
}

static int check_template(struct chat_case *c) {
    struct ax_format *f;
    int n = 0;
    assert_ok(ax_format_new(&f, &c->o));
    for (uint64_t i = 0; i < 6; i++) {
        json_t *row = random_row(i, 34 + i, i % 2 == 1);
        n += check_row(f, row);
        json_decref(row);
    }
    ax_format_free(f);
    return n;
}

#define LOOP(body) "{% for m in messages %}" body "{% endfor %}"
#define ALWAYS     1
#define NEVER      0

static void templates(void **state) {
    (void)state;
    static const struct {
        const char *source;
        int found;
    } cases[] = {
        {chatml, ALWAYS},
        {full_chat, ALWAYS},
        {LOOP("{{ m.role }}:{{ m.content }}|") "end", ALWAYS},
        {LOOP("<{{ m.role }}>{{ m.content }}") "<end>", ALWAYS}, /* the end begins like a message */
        {"{{ messages[0].content }}" LOOP("{{ m.content }};"), ALWAYS},
        {LOOP("{% if loop.first %}B{% endif %}{{ m.content }};"), ALWAYS},
        {LOOP("{% if loop.index0 == 0 %}B{% endif %}{{ m.content }};"), ALWAYS},
        {LOOP("{% if loop.index0 % 2 == 0 %}U{% else %}A{% endif %}{{ m.content }};"), ALWAYS},
        {"{% set all = messages %}{% for m in all %}{{ m.content }};{% endfor %}", ALWAYS},
        {"{% set all = messages[1:] %}{% for m in all %}{{ m.content }};{% endfor %}", ALWAYS},
        {"{% if messages[0].role == 'system' %}{% set all = messages[1:] %}{{ messages[0].content "
         "}}"
         "{% else %}{% set all = messages %}{% endif %}{% for m in all %}{% if loop.first %}B{% "
         "endif "
         "%}{% if loop.index0 % 2 == 0 %}U{% endif %}{{ m.content }};{% endfor %}",
         ALWAYS},
        {"{% set all = messages[2:] %}{% for m in all %}{{ m.content }};{% endfor %}", NEVER},
        {"{% for m in messages[1:] %}{{ m.content }};{% endfor %}", ALWAYS},
        {LOOP("{{ loop.index }}{{ m.content }};"), NEVER},
        {LOOP("{% if loop.index0 == 5 %}five{% endif %}{{ m.content }};"), NEVER},
        {LOOP("{% if loop.index == 12 %}{{ m.content | upper }}{% endif %}{{ m.content }};"),
         NEVER},
        {LOOP("{{ m.content if loop.last else m.content[:2] }};"), NEVER},
        {LOOP("{{ messages[loop.index0 - 1].content }}{{ m.content }};"), NEVER},
        {"{{ messages | length }}" LOOP("{{ m.content }};"), NEVER},
        {"{{ messages[-1].content }}" LOOP("{{ m.content }};"), NEVER},
        {LOOP("{{ m.content }};") LOOP("{{ m.role }};"), NEVER},
        {"{% set ns = namespace(n=0) %}" LOOP(
             "{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }};"),
         NEVER},
        {"{% set l = [] %}" LOOP("{{ m.content }}{{ l.append(1) }}{{ l | length }};"), NEVER},
        {"{% for x in [1, 2] %}" LOOP("{{ m.content }};") "{% endfor %}", NEVER},
        {"{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", NEVER},
        {"{% for m in messages[:40] %}{{ m.content }}{% endfor %}", NEVER},
        {"{% for m in messages | reverse %}{{ m.content }}{% endfor %}", NEVER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct chat_case c;
        chat_open(&c, cases[i].source);
        const int found = check_template(&c);
        if ((found > 0) != cases[i].found)
            fail_msg("%s: %d turns", cases[i].source, found);
        chat_close(&c);
    }
}

static void built_in_templates(void **state) {
    (void)state;
    static const char *const names[] = {
        "alpaca",    "chatml",       "cohere",   "deepseek_v2", "exaone", "gemma",   "gemma3",
        "falcon_h1", "llama3",       "metharme", "mistral_v1",  "phi_3",  "phi_35",  "qwen_25",
        "qwen3",     "mistral_v2v3", "llama4",   "jamba",       "llava",  "exaone4", "pixtral"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct chat_case c;
        chat_open(&c, chatml);
        ax_template_free(c.template);
        assert_ok(ax_template_builtin(&c.template, names[i]));
        c.chat.template = c.template;
        print_message("%s: %d turns put together\n", names[i], check_template(&c));
        chat_close(&c);
    }
}

/* Eight times the messages take about eight times the work, where it was 64. */
static void long_conversations(void **state) {
    (void)state;
    struct chat_case c;
    struct ax_format *f;
    uint64_t calls[2]; /* of ax_alloc, by which rendering can be counted */
    chat_open(&c, chatml);
    c.o.sequence_len = 1 << 24;
    assert_ok(ax_format_new(&f, &c.o));
    for (int k = 0; k < 2; k++) {
        struct ax_format_work w = {0};
        struct ax_example_list out = {0};
        json_t *row = random_row(7, k ? 8000 : 1000, false);
        const uint64_t before = ax_mem_calls();
        assert_ok(ax_format_record(f, &w, row, (struct ax_origin){0}, &out));
        calls[k] = ax_mem_calls() - before;
        json_decref(row);
        ax_example_list_free(&out);
        ax_format_work_free(&w);
    }
    assert_true(calls[0] > 1000 && calls[1] < 10 * calls[0]);
    ax_format_free(f);
    chat_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates),
        cmocka_unit_test(built_in_templates),
        cmocka_unit_test(long_conversations),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
