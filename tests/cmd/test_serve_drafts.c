/* `axtrain serve --drafts`: answers with their log-probs are those of a server without, in fewer passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"
#include "tests/cmd/tiny_base.h"

/* Where all tokens are about as likely, the random number decides, of the draft as of the token. */
static const struct tiny_family even = {"even", "llama",
                                        TINY_PREDICTS ", \"initializer_range\": 0.0001"};

static char folder[256];

static int make_model(void **state) {
    static char said[1 << 14];
    if (scratch_make(state) != 0)
        return -1;
    tiny_base(&even);
    put_text("lesson.jsonl", "{\"text\": \"One, two, three, four.\"}\n");
    (void)snprintf(folder, sizeof folder, "%s/made", scratch);
    if (run(said, sizeof said,
            "sft /dev/null --quiet base_model='%s/even' reinit_weights=true "
            "mtp_loss_scaling_factor=0.1 datasets='[{path: %s/lesson.jsonl, type: completion}]' "
            "sequence_len=64 learning_rate=1e-9 max_steps=1 float32=true save_strategy=no "
            "output_dir='%s'",
            scratch, scratch, folder) != 0)
        fail_msg("%s", said);
    return 0;
}

/* Four requests, two with samplings of their own, one that goes without drafts. */
static const char *const bodies[] = {
    "{\"prompt\": \"One, two\", \"max_tokens\": 24, \"n\": 3, \"seed\": 5, \"logprobs\": 2, "
    "\"ignore_eos\": true}",
    "{\"prompt\": \"Three\", \"max_tokens\": 20, \"seed\": 6, \"temperature\": 0.5, "
    "\"logprobs\": 0, \"ignore_eos\": true}",
    "{\"prompt\": \"Four\", \"max_tokens\": 16, \"seed\": 7, \"temperature\": 1.5, \"top_k\": 50, "
    "\"ignore_eos\": true}",
    "{\"prompt\": \"Five\", \"max_tokens\": 16, \"seed\": 8, \"repetition_penalty\": 1.3, "
    "\"ignore_eos\": true}",
};
enum { N = sizeof bodies / sizeof *bodies, TOKENS = 3 * 24 + 20 + 16 + 16 };

static long number_in(const char *metrics, const char *name) {
    char line[64];
    (void)snprintf(line, sizeof line, "\naxtrain_%s ", name);
    const char *at = strstr(metrics, line);
    assert_non_null(at);
    return strtol(at + strlen(line), NULL, 10);
}

/* Counters of a pass follow its answers. */
static void wait_for_counters(struct client *c) {
    const double until = ax_clock_now() + 60;
    do {
        assert_int_equal(ask(c, "GET", "/metrics", NULL), 200);
        if (ax_clock_now() > until)
            fail_msg("%s", c->body.data);
    } while (number_in(c->body.data, "generated_tokens_total") < TOKENS);
}

static void answers(const char *words, json_t *choices[N], struct ax_buf *metrics) {
    struct server s;
    struct client c[N];
    serve_open(&s, folder, words);
    for (int i = 0; i < N; i++) {
        client_open(&c[i], &s);
        client_send(&c[i], "POST", "/v1/completions", bodies[i]);
    }
    for (int i = 0; i < N; i++) {
        if (client_answer(&c[i]) != 200)
            fail_msg("%s", c[i].body.data);
        json_t *v = client_json(&c[i]);
        choices[i] = json_incref(json_object_get(v, "choices"));
        json_decref(v);
    }
    wait_for_counters(&c[0]);
    assert_ok(ax_buf_append(metrics, c[0].body.data, c[0].body.len));
    for (int i = 0; i < N; i++)
        client_close(&c[i]);
    serve_close(&s);
}

static void answers_are_those_without(void **state) {
    (void)state;
    json_t *without[N], *with[N];
    struct ax_buf a = {0}, b = {0};
    answers("", without, &a);
    answers("--drafts", with, &b);
    for (int i = 0; i < N; i++) {
        assert_true(json_array_size(with[i]) > 0);
        if (!json_equal(without[i], with[i]))
            fail_msg("other answers to %s", bodies[i]);
        json_decref(without[i]);
        json_decref(with[i]);
    }
    const long drafts = number_in(b.data, "drafts_total"),
               accepted = number_in(b.data, "drafts_accepted_total");
    print_message("passes %ld, with drafts %ld; %ld of %ld accepted\n",
                  number_in(a.data, "passes_total"), number_in(b.data, "passes_total"), accepted,
                  drafts);
    assert_int_equal(number_in(a.data, "drafts_total"), 0);
    assert_int_equal(number_in(b.data, "generated_tokens_total"),
                     number_in(a.data, "generated_tokens_total"));
    assert_true(accepted > 10 && 2 * accepted > drafts);
    ax_buf_free(&a);
    ax_buf_free(&b);
}

static void refused(const char *launch, const char *of, const char *more, const char *says) {
    static char said[1 << 14];
    assert_int_not_equal(
        run(said, sizeof said, "%s serve '%s' --drafts --port 0 %s", launch, of, more), 0);
    if (!strstr(said, says))
        fail_msg("\"%s\" lacks \"%s\"", said, says);
}

static void what_cannot_draft_is_refused(void **state) {
    (void)state;
    char llama[512];
    (void)snprintf(llama, sizeof llama, "%s", golden_path("models/llama"));
    refused("", llama, "", "--drafts: this llama model has no layer for multi-token prediction");
    refused("launch -n 2 --", folder, "--mesh dp_replicate=2",
            "serve: --drafts is for a server on one rank, or on ranks of tp alone");
    refused("launch -n 2 --", folder, "--mesh dp_shard=2",
            "serve: --drafts is for a server on one rank, or on ranks of tp alone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_without),
        cmocka_unit_test(what_cannot_draft_is_refused),
    };
    return cmocka_run_group_tests(tests, make_model, scratch_remove);
}
