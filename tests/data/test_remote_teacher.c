/* A teacher behind HTTP: what servers answer, in vLLM's form, and what they do instead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "data/remote/teacher.h"
#include "data/text/tokenizer/tokenizer.h"
#include "tests/data/scratch.h"
#include "tests/endpoint_stub.h"
#include "tests/golden_files.h"

/* ---- answers ---- */

/* vLLM's answer for the second token of "The capital of France is", Llama 3 8B with prompt_logprobs 5, as published
 * in infra.acsresearch.org/tutorial/examples/prompt-logprobs; the third place is made up: its token is not among
 * the five. */
#define RECORDED                                                                                   \
    "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1,\"model\":\"llama-8b\","      \
    "\"choices\":[{\"index\":0,\"text\":\" "                                                       \
    "Paris\",\"logprobs\":null,\"finish_reason\":\"length\","                                      \
    "\"stop_reason\":null,\"prompt_logprobs\":[null,"                                              \
    "{\"14924\":{\"logprob\":-1.179518699645996,\"rank\":1,\"decoded_token\":\"Question\"},"       \
    "\"755\":{\"logprob\":-2.179518699645996,\"rank\":2,\"decoded_token\":\"def\"},"               \
    "\"2\":{\"logprob\":-2.742018699645996,\"rank\":3,\"decoded_token\":\"#\"},"                   \
    "\"791\":{\"logprob\":-3.679518699645996,\"rank\":4,\"decoded_token\":\"The\"},"               \
    "\"16309\":{\"logprob\":-4.179518699645996,\"rank\":5,\"decoded_token\":\"Tags\"}},"           \
    "{\"6864\":{\"logprob\":-9.5,\"rank\":1200,\"decoded_token\":\" capital\"},"                   \
    "\"11\":{\"logprob\":-1.0,\"rank\":1,\"decoded_token\":\",\"},"                                \
    "\"220\":{\"logprob\":-2.0,\"rank\":2,\"decoded_token\":\" \"},"                               \
    "\"9\":{\"logprob\":-2.0,\"rank\":2,\"decoded_token\":\"*\"},"                                 \
    "\"30\":{\"logprob\":-3.0,\"rank\":4,\"decoded_token\":\"?\"},"                                \
    "\"31\":{\"logprob\":-9999.0,\"rank\":5,\"decoded_token\":\"@\"}}]}],"                         \
    "\"usage\":{\"prompt_tokens\":3,\"total_tokens\":4,\"completion_tokens\":1}}"

static const int32_t recorded_ids[] = {128000, 791, 6864};
static double logprobs[64], best_logprobs[64 * 8];
static int32_t best[64 * 8];

static enum ax_status read_json(const char *text, int k, int64_t n, const int32_t *ids) {
    json_t *v = json_loads(text, 0, NULL);
    const struct ax_remote_text texts[] = {{.n = n,
                                            .first = 1,
                                            .ids = ids,
                                            .logprobs = logprobs,
                                            .best = best,
                                            .best_logprobs = best_logprobs}};
    assert_non_null(v);
    const enum ax_status st = ax_prompt_logprobs_read(v, k, 128256, 1, texts);
    json_decref(v);
    return st;
}

static void vllm_s_form(void **state) {
    (void)state;
    static const int32_t first[] = {14924, 755, 2, 791, 16309}, second[] = {11, 9, 220, 30, 31};
    if (read_json(RECORDED, 5, 3, recorded_ids) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_true(logprobs[0] == -3.679518699645996 && logprobs[1] == -9.5);
    assert_memory_equal(best, first, sizeof first);
    assert_memory_equal(best + 5, second, sizeof second);
    assert_true(best_logprobs[0] == -1.179518699645996 && best_logprobs[4] == -4.179518699645996);
    assert_true(best_logprobs[9] == -9999);
}

#define ONE(table) "{\"choices\":[{\"index\":0,\"prompt_logprobs\":[null," table "]}]}"

static void what_is_no_answer(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 7};
    static const struct {
        const char *text, *why;
        int k;
    } wrong[] = {
        {"{}", "choices: expected 1", 0},
        {"{\"choices\":[{\"index\":1}]}", "none has the index 0", 0},
        {"{\"choices\":[{\"index\":0}]}",
         "expected a list of 2, one for each of the prompt's tokens, got none", 0},
        {"{\"choices\":[{\"index\":0,\"prompt_logprobs\":[null]}]}", "got another number", 0},
        {ONE("null"), "choices[0].prompt_logprobs[1]: expected an object", 0},
        {ONE("{\"x\":{\"logprob\":-1}}"), "expected ids of tokens as keys, got \"x\"", 0},
        {ONE("{\"-7\":{\"logprob\":-1}}"), "expected ids of tokens", 0},
        {ONE("{\"99999999999\":{\"logprob\":-1}}"), "expected ids of tokens", 0},
        {ONE("{\"128256\":{\"logprob\":-1}}"), "token 128256 is not in the model's vocabulary", 0},
        {ONE("{\"8\":{\"logprob\":-1}}"), "no log-prob of the prompt's token 7", 0},
        {ONE("{\"7\":{\"logprob\":null}}"), "expected a log-prob", 0},
        {ONE("{\"7\":{\"logprob\":0.5}}"), "expected a log-prob", 0},
        {ONE("{\"7\":{\"logprob\":-1},\"8\":{\"logprob\":-1}}"),
         "expected at most 1 log-probs, got 2", 0},
        {ONE("{\"7\":{\"logprob\":-1}}"), "expected 2 log-probs, got 1: the server gives no more",
         2},
        {ONE("{\"7\":{\"logprob\":-0.1},\"8\":{\"logprob\":-0.1}}"), "probabilities add up to 1.8",
         2},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (read_json(wrong[i].text, wrong[i].k, 2, ids) != AX_ERR_DATA ||
            !strstr(ax_error_text(), wrong[i].why))
            fail_msg("%s: %s", wrong[i].text, ax_error_text());
}

/* ---- a server ---- */

static struct ax_tokenizer *tokenizer;
enum mood {
    FINE,
    BUSY,
    OTHER_TEXT,
    ONE_LESS,
    ONE_MORE,
    OTHER_TOKEN,
    NO_JSON,
    SILENT,
    SHORT,
    HANGS_UP,
    FORGETS,
    FULL,
    ECHOES
};

/* As vLLM answers: a request for no tokens is refused, and each choice has its prompt's log-probs. */
static int complete(struct stub *s, const json_t *v, struct ax_buf *out) {
    const json_t *prompts = json_object_get(v, "prompt");
    if (json_integer_value(json_object_get(v, "max_tokens")) < 1) {
        ax_buf_puts(out, "{\"error\":{\"message\":\"max_tokens must be at least 1\"}}");
        return 400;
    }
    ax_buf_puts(out, "{\"choices\":[");
    for (size_t p = json_array_size(prompts); p-- > 0;) { /* in another order */
        const json_t *ids = json_array_get(prompts, p);
        ax_buf_printf(out, "{\"index\":%zu,\"prompt_logprobs\":[null", p);
        for (size_t i = 1; i < json_array_size(ids); i++) {
            const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i)),
                          told = s->mood == OTHER_TOKEN ? id / 2 : id;
            struct ax_buf text = {0};
            ax_tokenizer_decode(tokenizer, &told, 1, false, &text);
            json_t *entry =
                json_pack("{s{sf si ss}}", "x", "logprob", -(double)id / 1000 - (double)p, "rank",
                          40, "decoded_token", text.data ? text.data : "");
            char *dump = json_dumps(json_object_get(entry, "x"), 0);
            ax_buf_printf(out, ",{\"%d\":%s}", id, dump);
            ax_free_hook(dump);
            json_decref(entry);
            ax_buf_free(&text);
        }
        ax_buf_puts(out, p > 0 ? "]}," : "]}");
    }
    ax_buf_puts(out, "]}");
    return 200;
}

/* How many the text has; which of them is another one. */
static size_t text_tokens, other_at = 5;

static int tokenize(struct stub *s, const json_t *v, struct ax_buf *out) {
    const struct ax_encode_options plain = {0};
    struct ax_encoding e = {0};
    const char *text = json_string_value(json_object_get(v, "prompt"));
    assert_true(json_is_false(json_object_get(v, "add_special_tokens")));
    ax_tokenizer_encode(tokenizer, text, strlen(text), &plain, &e);
    text_tokens = e.n;
    ax_buf_puts(out, "{\"tokens\":[");
    for (size_t i = 0; i < e.n - (s->mood == ONE_LESS); i++)
        ax_buf_printf(out, i > 0 ? ",%d" : "%d",
                      e.ids[i] + (s->mood == OTHER_TEXT && i == other_at));
    ax_buf_printf(out, "%s],\"count\":%zu}", s->mood == ONE_MORE ? ",1" : "", e.n);
    ax_encoding_free(&e);
    return 200;
}

static int answer(struct stub *s, const char *head, const char *body, struct ax_buf *out) {
    json_t *v = json_loads(body, 0, NULL);
    int status = 404;
    if (!strstr(head, "Authorization: Bearer sesame\r\n")) {
        if (s->mood == ECHOES)
            ax_buf_puts(out, "{\"error\":{\"message\":\"wrong key: secret\"}}");
        status = 401;
    } else if (s->mood == FULL) {
        status = 429;
    } else if (s->mood == BUSY && s->requests % 2 == 1) {
        status = 503;
    } else if (s->mood == SILENT) {
        usleep(1500000);
        status = 200;
    } else if (strncmp(head, "GET /v1/models ", 15) == 0) {
        ax_buf_printf(out, "{\"data\":[{\"id\":\"big \\\"one\\\"\"%s},{\"id\":\"other\"}]}",
                      s->mood == SHORT ? ",\"max_model_len\":64" : "");
        status = 200;
    } else if (s->mood == NO_JSON && strncmp(head, "POST /v1/", 9) == 0) {
        ax_buf_puts(out, "<html>");
        status = 200;
    } else if (s->mood == HANGS_UP && strncmp(head, "POST /v1/", 9) == 0) {
        status = 0;
    } else if (strncmp(head, "POST /tokenize ", 15) == 0) {
        status = s->mood == FORGETS ? 404 : tokenize(s, v, out);
    } else if (strncmp(head, "POST /v1/completions ", 21) == 0) {
        status = complete(s, v, out);
    }
    json_decref(v);
    return status;
}

static struct stub stub = {.answer = answer};

static enum ax_status open_with(struct ax_remote_teacher **t, const char *model, const char *url,
                                const char *key, int64_t retries) {
    const struct ax_remote_teacher_options o = {
        .server = {.url = url, .key = key, .seconds = 1, .retries = retries, .concurrency = 3},
        .model = model,
        .prompts = 2,
        .tokenizer = tokenizer,
        .vocab = 512,
        .longest = 64};
    return ax_remote_teacher_open(t, &o);
}

/* Texts are put into requests of two, which are sent three at a time. */
static void reads(struct ax_remote_teacher *t) {
    static const int32_t ids[] = {1, 40, 30, 20, 10};
    struct ax_remote_text texts[7];
    double values[7][4];
    for (int i = 0; i < 7; i++)
        texts[i] = (struct ax_remote_text){
            .n = 3 + i % 3, .first = 1 + i % 2, .ids = ids, .logprobs = values[i]};
    if (ax_remote_teacher_read(t, 7, texts, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    for (int i = 0; i < 7; i++)
        for (int64_t k = texts[i].first; k < texts[i].n; k++)
            assert_true(fabs(values[i][k - texts[i].first] + ids[k] / 1000.0 + i % 2) < 1e-12);
}

static void a_server(void **state) {
    (void)state;
    struct ax_remote_teacher *t;
    static const enum mood moods[] = {FINE, FORGETS};
    for (size_t i = 0; i < 2; i++) {
        stub.mood = moods[i];
        if (open_with(&t, NULL, stub.url, "sesame", 0) != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_string_equal(ax_remote_teacher_model(t), "big \"one\"");
        reads(t);
        ax_remote_teacher_close(t);
    }
    char url[80];
    snprintf(url, sizeof url, "%s/v1/", stub.url);
    stub.mood = BUSY; /* each question is asked twice */
    stub.requests = 0;
    if (open_with(&t, "other", url, "sesame", 4) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_remote_teacher_close(t);
    assert_int_equal(stub.requests, 8);
}

static void what_ends_it(void **state) {
    (void)state;
    static const struct {
        enum mood mood;
        const char *model, *key, *why;
        enum ax_status st;
        int64_t retries;
    } wrong[] = {
        {FINE, "none", "sesame",
         "/v1/models: there is no \"none\"; the first of its models is \"big", AX_ERR_CONFIG, 0},
        {FINE, NULL, "secret", "status 401: it asks for a key", AX_ERR_CONFIG, 3},
        {ECHOES, NULL, "secret", "status 401: it refuses the key", AX_ERR_CONFIG, 0},
        {FULL, NULL, "sesame", "/v1/models: status 429: without a reason", AX_ERR_IO, 0},
        {OTHER_TEXT, NULL, "sesame", "/tokenize: \"big \"one\"\" has another tokenizer",
         AX_ERR_CONFIG, 0},
        {OTHER_TOKEN, NULL, "sesame", "has other tokens than the model that is trained: token ",
         AX_ERR_CONFIG, 0},
        {SHORT, NULL, "sesame", "reads up to 63 tokens, and texts have up to 64", AX_ERR_CONFIG, 0},
        {NO_JSON, NULL, "sesame", "/v1/completions: the answer is no JSON object: \"<html>\"",
         AX_ERR_DATA, 0},
        {SILENT, NULL, "sesame", "asked 2 times: ", AX_ERR_IO, 1},
        {SILENT, NULL, "sesame", "no answer in 1 seconds", AX_ERR_IO, 0},
        {HANGS_UP, NULL, "sesame", "asked 2 times: http://127.0.0.1:", AX_ERR_IO, 1},
    };
    struct ax_remote_teacher *t;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        stub.mood = wrong[i].mood;
        const enum ax_status st =
            open_with(&t, wrong[i].model, stub.url, wrong[i].key, wrong[i].retries);
        if (st != wrong[i].st || !strstr(ax_error_text(), wrong[i].why) ||
            strstr(ax_error_text(), "secret"))
            fail_msg("%zu: %d %s", i, st, ax_error_text());
    }
    assert_int_equal(open_with(&t, NULL, "http://user:pw@127.0.0.1:1", NULL, 0), AX_ERR_CONFIG);
    assert_int_equal(open_with(&t, NULL, "http://127.0.0.1:1/v1", NULL, 1), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "http://127.0.0.1:1/v1/models: "));
}

static void differs(enum mood mood, size_t there, size_t from) {
    struct ax_remote_teacher *t;
    char want[128];
    stub.mood = mood;
    snprintf(want, sizeof want,
             "a text of %zu tokens has %zu there, and differs from number %zu on", text_tokens,
             there, from);
    assert_int_equal(open_with(&t, NULL, stub.url, "sesame", 0), AX_ERR_CONFIG);
    if (!strstr(ax_error_text(), want))
        fail_msg("%s", ax_error_text());
}

/* Another token anywhere, the first and the last too, or as many and then none or one more. */
static void other_tokenizers(void **state) {
    (void)state;
    struct ax_remote_teacher *t;
    stub.mood = FINE;
    assert_int_equal(open_with(&t, NULL, stub.url, "sesame", 0), AX_OK);
    ax_remote_teacher_close(t);
    const size_t n = text_tokens, at[] = {0, 1, n - 1};
    assert_true(n > 10);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        other_at = at[i];
        differs(OTHER_TEXT, n, at[i]);
    }
    differs(ONE_LESS, n - 1, n - 1);
    differs(ONE_MORE, n + 1, n);
}

/* ---- a caller that is asked to stop ---- */

static enum ax_status stop_soon(void *ctx) {
    int *looks = ctx;
    return ++*looks < 3 ? AX_OK : ax_error(AX_INTERRUPTED, "asked to stop");
}

static void stopping(void **state) {
    (void)state;
    static const int32_t ids[] = {1, 2};
    double value;
    int looks = 0;
    const struct ax_remote_text text = {.n = 2, .first = 1, .ids = ids, .logprobs = &value};
    const struct ax_endpoint_look look = {stop_soon, &looks};
    struct ax_remote_teacher *t;
    stub.mood = FINE;
    assert_int_equal(open_with(&t, NULL, stub.url, "sesame", 100), AX_OK);
    stub.mood = SILENT;
    assert_int_equal(ax_remote_teacher_read(t, 1, &text, &look), AX_INTERRUPTED);
    assert_int_equal(looks, 3);
    ax_remote_teacher_close(t);
}

static int begin(void **state) {
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    stub_start(&stub);
    if (ax_tokenizer_load(&tokenizer, golden_path("models/llama")) != AX_OK)
        return -1;
    return scratch_make(state);
}

static int end(void **state) {
    stub_stop(&stub);
    ax_tokenizer_free(tokenizer);
    return scratch_remove(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vllm_s_form),      cmocka_unit_test(what_is_no_answer),
        cmocka_unit_test(a_server),         cmocka_unit_test(what_ends_it),
        cmocka_unit_test(other_tokenizers), cmocka_unit_test(stopping)};
    return cmocka_run_group_tests(tests, begin, end);
}
