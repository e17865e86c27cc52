/* Log-probs of a teacher, from records to columns: which token each describes, in every form there is,
 * at another temperature; and what is wrong with the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "tests/data/scratch.h"
#include "tests/data/format_case.h"
#include "tests/data/chat_case.h"

enum { K = 3 };

static const struct ax_columns columns = {
    .list = {{"target_ids", false, AX_OF_LABEL, K}, {"target_logits", true, AX_OF_LABEL, K}},
    .n = 2};

static struct ax_format_options tokens(void) {
    return (struct ax_format_options){.sequence_len = 64,
                                      .tokenizer = bare_tokenizer,
                                      .columns = &columns,
                                      .topk = {"logprobs", 2}};
}

/* "token: id×logit id×logit" for each token that has any, at temperature 2. */
static void check_targets(const struct ax_format_options *o, const char *json, const char *want) {
    struct ax_format *f;
    struct ax_example_list l = {.columns = o->columns};
    struct ax_buf got = {0};
    assert_ok(ax_format_new(&f, o));
    assert_ok(run_record(f, json, &l));
    assert_ok(ax_buf_puts(&got, ""));
    for (size_t i = 0; i < l.n; i++)
        for (size_t t = 0; t < l.items[i].n; t++) {
            const int32_t *ids = (const int32_t *)l.items[i].columns[0] + t * K;
            const float *logits = (const float *)l.items[i].columns[1] + t * K;
            if (ids[0] >= 0)
                assert_ok(ax_buf_printf(&got, "%zu:", t));
            for (int k = 0; k < K && ids[k] >= 0; k++)
                assert_ok(ax_buf_printf(&got, " %d×%g", (int)ids[k], (double)logits[k]));
            for (int k = 1; k < K; k++) /* none between others */
                assert_true(ids[k] == -1 || ids[k - 1] >= 0);
            if (ids[0] >= 0)
                assert_ok(ax_buf_puts(&got, "\n"));
        }
    assert_string_equal(got.data, want);
    ax_buf_free(&got);
    ax_example_list_free(&l);
    ax_format_free(f);
}

#define TOKENS "\"input_ids\": [65, 66, 67, 68], \"labels\": [-100, -100, 67, 68], "

/* Element j is of token j + 1; the others are not looked at. */
static void of_tokens(void **state) {
    (void)state;
    const struct ax_format_options o = tokens();
    check_targets(&o,
                  "{" TOKENS "\"target_token_ids\": [[1], [7, 8, 9], [5, 4], [0]], "
                  "\"target_logprobs\": [null, [-1, -0.5, 0], [-0.25, -3], [\"?\"]]}",
                  "2: 7×-2 8×-1 9×0\n3: 5×-0.5 4×-6\n");
    /* a mask of tokens, or of entries */
    check_targets(&o,
                  "{" TOKENS "\"target_token_ids\": [[1], [7, 8, 9], [5, 4], [0]], "
                  "\"target_mask\": [0, [1, 0, 1], true, 0], "
                  "\"target_logprobs\": [null, [-1, -0.5, 0], [-0.25, -3], [-1]]}",
                  "2: 7×-2 9×0\n3: 5×-0.5 4×-6\n");
    /* what is padding has no place: the next token is the next of input_ids */
    check_targets(&o,
                  "{" TOKENS "\"attention_mask\": [0, 1, 1, 1], "
                  "\"target_token_ids\": [[1], [7], [5], []], "
                  "\"target_logprobs\": [[-9], [-1], [-2], []]}",
                  "1: 7×-2\n2: 5×-4\n");
    /* nor is that of another document */
    check_targets(&o,
                  "{\"input_ids\": [65, 66, 67, 68], \"labels\": [65, 66, 67, 68], "
                  "\"position_ids\": [0, 1, 0, 1], \"target_token_ids\": [[1], [7], [5], []], "
                  "\"target_logprobs\": [[-9], [-1], [-2], []]}",
                  "1: 1×-18\n1: 5×-4\n");
    /* nothing predicts a first token */
    check_targets(&o,
                  "{\"input_ids\": [65, 66], \"labels\": [65, 66], "
                  "\"target_token_ids\": [[3], []], \"target_logprobs\": [[-1], []]}",
                  "1: 3×-2\n");
}

static void bad_tokens(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\"target_logprobs\": []", "column \"target_token_ids\" is missing: kd_trainer needs it"},
        {"\"target_token_ids\": [[], [1], [2], []]", "column \"target_logprobs\" is missing"},
        {"\"target_token_ids\": 3, \"target_logprobs\": []",
         "target_token_ids: expected a list with an element per token, got a number"},
        {"\"target_token_ids\": [[1], [1], [2]], \"target_logprobs\": [[-1], [-1], [-1], []]",
         "target_token_ids has 3 elements, but there are 4 tokens"},
        {"\"target_token_ids\": [[], [1], [2], []], \"target_logprobs\": [[-1], [-1], [-1]]",
         "target_logprobs has 3 elements, but there are 4 tokens"},
        {"\"target_token_ids\": [[], [1], [2], []], \"target_logprobs\": [[], [-1], [-1], []], "
         "\"target_mask\": [1]",
         "target_mask has 1 elements, but there are 4 tokens"},
        {"\"target_token_ids\": [[], [1, 2], [2], []], \"target_logprobs\": [[], [-1], [-1], []]",
         "target_logprobs[1] has 1 entries, target_token_ids[1] 2"},
        {"\"target_token_ids\": [[], [1], [2], []], \"target_logprobs\": [[], -1, [-1], []]",
         "target_logprobs[1]: expected a list, got a number"},
        {"\"target_token_ids\": [[], [1], [4, 600], []], "
         "\"target_logprobs\": [[], [-1], [-1, -2], []]",
         "target_token_ids[2][1]: id 600 is not below the vocabulary of"},
        {"\"target_token_ids\": [[], [1], [-4], []], \"target_logprobs\": [[], [-1], [-1], []]",
         "target_token_ids[2][0]: expected a token id, got -4"},
        {"\"target_token_ids\": [[], [1.5], [4], []], \"target_logprobs\": [[], [-1], [-1], []]",
         "target_token_ids[1][0]: expected a token id, got 1.5"},
        {"\"target_token_ids\": [[], [6, 7, 6], [4], []], "
         "\"target_logprobs\": [[], [-1, -2, -3], [-1], []]",
         "target_token_ids[1][2]: id 6 is there twice"},
        {"\"target_token_ids\": [[], [6], [4], []], \"target_logprobs\": [[], [0.5], [-1], []]",
         "target_logprobs[1][0]: expected a log-prob, a finite number of at most 0, got 0.5"},
        {"\"target_token_ids\": [[], [6], [4], []], \"target_logprobs\": [[], [-1e300], [-1], []]",
         "target_logprobs[1][0]: expected a log-prob"},
        {"\"target_token_ids\": [[], [6], [4], []], \"target_logprobs\": [[], [null], [-1], []]",
         "target_logprobs[1][0]: expected a log-prob, a finite number of at most 0, got null"},
        {"\"target_token_ids\": [[], [6], [4], []], \"target_logprobs\": [[], [[]], [-1], []]",
         "finite number of at most 0, got a list"},
        {"\"target_token_ids\": [[], [6, 7, 8, 9], [4], []], "
         "\"target_logprobs\": [[], [-1, -2, -3, -4], [-1], []]",
         "target_logprobs[1] has more than the 3 entries of kd_topk; set it to 4"},
        {"\"target_token_ids\": [[], [6], [], []], \"target_logprobs\": [[], [-1], [], []]",
         "target_logprobs[2] has no entries, but token 3 is trained on"},
        {"\"target_token_ids\": [[], [6], [7], []], \"target_logprobs\": [[], [-1], [-1], []], "
         "\"target_mask\": [0, 0, 1, 0]",
         "target_logprobs[1] has no entries, but token 2 is trained on"},
        {"\"target_token_ids\": [[], [6], [7], []], \"target_logprobs\": [[], [-1], [-1], []], "
         "\"target_mask\": [0, 2, 1, 0]",
         "target_mask[1][0]: expected 0 or 1, got 2"},
    };
    const struct ax_format_options o = tokens();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char row[512];
        snprintf(row, sizeof row, "{" TOKENS "%s}", cases[i][0]);
        check_bad_record(&o, row, cases[i][1]);
    }
}

/* Tokens of the chat: 5 before the answer "1", which with its end is trained on. */
#define CHAT                                                                                       \
    "\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "          \
    "\"content\": \"1\"}], "

static const char *const ends[] = {"<|im_end|>"};

/* The last token of the list is that of the conversation. */
static void of_chats(void **state) {
    (void)state;
    struct chat_case c;
    chat_open(&c, chatml);
    c.chat.eot_tokens = ends;
    c.chat.n_eot_tokens = 1;
    c.o.columns = &columns;
    c.o.topk = (struct ax_format_topk){"teacher", 2};
    struct ax_example_list l = {.columns = &columns};
    struct ax_format *f;
    assert_ok(ax_format_new(&f, &c.o));
    static const char row[] =
        "{" CHAT "\"teacher\": [null, [{\"token\": \"token_id:49\", \"logprob\": -0.5, \"x\": 1}, "
        "{\"token\": \"token_id:7\", \"logprob\": -1}], "
        "[{\"token\": \"token_id:3\", \"logprob\": 0}], []]}";
    assert_ok(run_record(f, row, &l));
    const size_t n = l.items[0].n;
    ax_example_list_free(&l);
    ax_format_free(f);
    char want[128];
    snprintf(want, sizeof want, "%zu: 49×-1 7×-2\n%zu: 3×0\n", n - 3, n - 2);
    check_targets(&c.o, row, want);
    check_targets(&c.o,
                  "{" CHAT "\"target_token_ids\": [[2, 49], [49, 7], [3], []], "
                  "\"teacher\": [[-1, -1], [-0.5, -1], [0], [-7]]}",
                  want);
    /* without a type, too: the record's tokens are all trained on */
    c.o.type = NULL;
    c.o.answers = &(struct ax_format_answers){.field_chosen = "c", .field_rejected = "r"};
    check_bad_record(&c.o, row, "is trained on, but teacher has only the last 4 of ");
    check_bad_record(&c.o, "{\"prompt\": \"a\", \"completion\": \"b\"}", "input_ids: expected");
    chat_close(&c);
}

static void bad_chats(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\"x\": 0", "column \"logprobs\" is missing"},
        {"\"logprobs\": {}", "logprobs: expected a list with an element per token, got an object"},
        {"\"logprobs\": []", "is trained on, but logprobs has only the last 0 of "},
        {"\"logprobs\": [[{\"token\": \"token_id:x\", \"logprob\": -1}], [], []]",
         "logprobs[0][0]: expected a \"token\" of the form token_id:17, got \"token_id:x\""},
        {"\"logprobs\": [[{\"token\": \"token_id:99999999999\", \"logprob\": -1}], [], []]",
         "of the form token_id:17"},
        {"\"logprobs\": [[{\"logprob\": -1}], [], []]", "of the form token_id:17, got nothing"},
        {"\"logprobs\": [[{\"token\": \"token_id:5\"}], [], []]",
         "logprobs[0][0]: expected a log-prob, a finite number of at most 0, got nothing"},
        {"\"logprobs\": [[-1], [-1], []], \"target_token_ids\": [[1], [1]]",
         "logprobs has 3 elements, target_token_ids 2"},
        {"\"logprobs\": [[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],"
         "[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]",
         "logprobs has 53 elements, but the conversation only "},
    };
    struct chat_case c;
    chat_open(&c, chatml);
    c.chat.eot_tokens = ends;
    c.chat.n_eot_tokens = 1;
    c.o.columns = &columns;
    c.o.topk = (struct ax_format_topk){"logprobs", 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char row[1024];
        snprintf(row, sizeof row, "{" CHAT "%s}", cases[i][0]);
        check_bad_record(&c.o, row, cases[i][1]);
    }
    chat_close(&c);
}

/* Types of records that have none; the cache knows the temperature and how many there are. */
static void of_formats(void **state) {
    (void)state;
    struct ax_format_options o = tokens();
    struct ax_format *f;
    o.type = "alpaca";
    assert_error(ax_format_new(&f, &o), AX_ERR_CONFIG,
                 "type alpaca has no log-probs of a teacher: kd_trainer reads them from");
    o.type = NULL;
    json_t *described[4];
    struct ax_columns wider = columns;
    wider.list[0].width = wider.list[1].width = K + 1;
    for (int i = 0; i < 4; i++) {
        o.topk.temperature = i == 1 ? 1.5 : 2;
        o.topk.field = i == 2 ? "others" : "logprobs";
        o.columns = i == 3 ? &wider : &columns;
        assert_ok(ax_format_new(&f, &o));
        assert_ok(ax_format_describe(f, &described[i]));
        ax_format_free(f);
        for (int k = 0; k < i; k++)
            assert_false(json_equal(described[i], described[k]));
    }
    for (int i = 0; i < 4; i++)
        json_decref(described[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_tokens), cmocka_unit_test(bad_tokens), cmocka_unit_test(of_chats),
        cmocka_unit_test(bad_chats), cmocka_unit_test(of_formats),
    };
    return cmocka_run_group_tests(tests, load_tokenizers, free_tokenizers);
}
