/* Messages of a task's prompt as plain text, and through chat templates: turns, a begun answer, a
 * system message that a template refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/prompt.h"

#define TURNS                                                                                      \
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"                          \
    "{% if add_generation_prompt %}<assistant>{% endif %}"
#define NO_SYSTEM                                                                                  \
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" TURNS
#define TRIMMED "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}"
#define SILENT  "{% for m in messages %}<{{ m.role }}>{% endfor %}"

struct message {
    const char *role, *text, *delimiter;
};

static enum ax_status render(const char *source, bool single, const struct message *list,
                             struct ax_buf *out) {
    struct ax_task_messages m = {0};
    struct ax_text_side side = {0};
    *out = (struct ax_buf){0};
    for (; list->role; list++)
        assert_int_equal(
            ax_task_messages_add(&m, list->role, list->text, strlen(list->text), list->delimiter),
            AX_OK);
    if (source)
        assert_int_equal(ax_template_compile(&side.template, "t", source, strlen(source)), AX_OK);
    const enum ax_status st = ax_task_messages_text(&m, source ? &side : NULL, single, out);
    ax_template_free(side.template);
    ax_task_messages_free(&m);
    assert_null(m.list);
    return st;
}

static const struct message few_shots[] = {{"system", "S", "\n\n"},
                                           {"user", "one?", " "},
                                           {"assistant", "1", "\n\n"},
                                           {"user", "two?", " "},
                                           {0}},
                            begun[] = {{"system", "S", "\n\n"},      {"user", "one?", " "},
                                       {"assistant", "1", "\n\n"},   {"user", "two?", " "},
                                       {"assistant", " The 1 ", ""}, {0}},
                            alone[] = {{"user", "one?", " "}, {0}},
                            only_system[] = {{"system", "S", ""}, {0}};

static void texts(void **state) {
    (void)state;
    static const struct {
        const char *source; /* NULL: plain text */
        bool single;
        const struct message *list;
        const char *text;
    } cases[] = {
        {NULL, false, few_shots, "S\n\none? 1\n\ntwo? "},
        {NULL, false, begun, "S\n\none? 1\n\ntwo?  The 1 "},
        {NULL, false, alone, "one? "},
        {TURNS, false, few_shots,
         "<system>S</><user>one?</><assistant>1</><user>two?</><assistant>"},
        {TURNS, true, few_shots, "<system>S</><user>one? 1\n\ntwo?</><assistant>"},
        {TURNS, false, alone, "<user>one?</><assistant>"},
        {TURNS, true, alone, "<user>one?</><assistant>"},
        /* a begun answer is left open, with the blanks after it, if the template keeps them */
        {TURNS, false, begun,
         "<system>S</><user>one?</><assistant>1</><user>two?</><assistant> The 1 "},
        {TURNS, true, begun, "<system>S</><user>one? 1\n\ntwo?</><assistant> The 1 "},
        {TRIMMED, false, begun,
         "<system>S</><user>one?</><assistant>1</><user>two?</><assistant>The 1"},
        /* a system message that is refused is left out, unless it is all there is */
        {NO_SYSTEM, false, few_shots, "<user>one?</><assistant>1</><user>two?</><assistant>"},
        {NO_SYSTEM, true, begun, "<user>one? 1\n\ntwo?</><assistant> The 1 "},
        {NO_SYSTEM, false, alone, "<user>one?</><assistant>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_buf out;
        if (render(cases[i].source, cases[i].single, cases[i].list, &out) != AX_OK)
            fail_msg("case %zu: %s", i, ax_error_text());
        if (out.len != strlen(cases[i].text) || memcmp(out.data, cases[i].text, out.len) != 0)
            fail_msg("case %zu: \"%.*s\", not \"%s\"", i, (int)out.len, out.data, cases[i].text);
        ax_buf_free(&out);
    }
}

static void mistakes(void **state) {
    (void)state;
    struct ax_buf out;
    assert_int_equal(render(SILENT, false, begun, &out), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "the chat template does not show gen_prefix as it is");
    ax_buf_free(&out);
    assert_int_equal(render(NO_SYSTEM, false, only_system, &out), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "no system"));
    ax_buf_free(&out);
    static const struct message wrong[] = {{"user", "\xff", ""}, {0}};
    assert_int_equal(render(TURNS, false, wrong, &out), AX_ERR_DATA);
    assert_string_equal(ax_error_text(), "a prompt is not UTF-8, or out of memory");
    ax_buf_free(&out);
}

/* Lists grow beyond their initial capacity; truncated entries are freed. */
static void lists_grow_and_are_cut(void **state) {
    (void)state;
    struct ax_task_messages m = {0};
    for (int i = 0; i < 40; i++)
        assert_int_equal(ax_task_messages_add(&m, "user", "text", 3, "\n"), AX_OK);
    assert_int_equal(m.n, 40);
    ax_task_messages_cut(&m, 50);
    assert_int_equal(m.n, 40);
    ax_task_messages_cut(&m, 17);
    assert_int_equal(m.n, 17);
    for (size_t i = 0; i < m.n; i++)
        assert_true(m.list[i].text.len == 3 && memcmp(m.list[i].text.data, "tex", 3) == 0);
    ax_task_messages_free(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(lists_grow_and_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
