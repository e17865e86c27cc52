/* What clients of OpenAI's API rely on in answers of `axtrain serve`: roles, tools that are none, lengths, offsets of
 * tokens in texts, and ids that are the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "tests/cmd/program_case.h"
#include "tests/cmd/serve_case.h"

static struct server server, developers; /* of templates without and with a role for developers */
static struct server parts;              /* of one that reads lists of parts */

#define CHAT          "/v1/chat/completions"
#define COMPLETE      "/v1/completions"
#define FIRST_SPECIAL 500 /* in the model's vocabulary, */
#define END           504 /* and what ends texts */

/* A template that writes what it gets. */
#define TEMPLATE                                                                                   \
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"                             \
    "{% if tools is defined and tools is not none %}tools={{ tools | length }}{% endif %}"

static void open_with(struct server *s, const char *folder, const char *template) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "config.json"};
    char from[1024], name[64];
    make_folder(folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/%s", model, files[i]);
        snprintf(name, sizeof name, "%s/%s", folder, files[i]);
        char *real = realpath(from, NULL);
        assert_int_equal(symlink(real, in_scratch(name)), 0);
        free(real);
    }
    snprintf(name, sizeof name, "%s/chat_template.jinja", folder);
    put_text(name, template);
    serve_open(s, in_scratch(folder), "--parallel 4");
}

static int open_servers(void **state) {
    if (setup(state) != 0)
        return -1;
    open_with(&server, "plain", TEMPLATE);
    open_with(&parts, "parts",
              "{% for m in messages %}[{{ m.role }}]{% if m.content is string %}{{ m.content }}"
              "{% else %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}"
              "{% endfor %}");
    open_with(&developers, "own", TEMPLATE "{% if messages[0].role == 'developer' %}!{% endif %}");
    return 0;
}

static int close_servers(void **state) {
    serve_close(&server);
    serve_close(&developers);
    serve_close(&parts);
    return scratch_remove(state);
}

/* The text of these ids. */
static json_t *text_of(const struct server *s, const json_t *ids) {
    char *list = json_dumps(ids, JSON_COMPACT);
    struct ax_buf body = {0};
    assert_int_equal(ax_buf_printf(&body, "{\"tokens\": %s}", list), AX_OK);
    json_t *v = post(s, "/detokenize", body.data);
    ax_buf_free(&body);
    ax_free_hook(list);
    return v;
}

/* ---- prompts ---- */

static void check_prompt(const struct server *s, const char *request, const char *want) {
    json_t *ids = post(s, "/tokenize", request), *text = text_of(s, at(ids, "tokens"));
    if (!strstr(text_at(text, "prompt"), want))
        fail_msg("%s: %s", request, text_at(text, "prompt"));
    json_decref(ids);
    json_decref(text);
}

#define TURNS(role)                                                                                \
    "{\"messages\": [{\"role\": \"" role "\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "  \
    "\"content\": \"hi\"}]}"

/* A developer is the system, unless the template knows developers. */
static void roles(void **state) {
    (void)state;
    check_prompt(&server, TURNS("system"), "[system]Be brief.[user]hi");
    check_prompt(&server, TURNS("developer"), "[system]Be brief.[user]hi");
    check_prompt(&developers, TURNS("system"), "[system]Be brief.[user]hi");
    check_prompt(&developers, TURNS("developer"), "[developer]Be brief.[user]hi!");
}

/* As in vLLM and llama.cpp, parts are lines of one text, or a list for templates that read lists. */
static void contents_of_parts(void **state) {
    (void)state;
    static const char two[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"h\"}, "
        "{\"type\": \"text\", \"text\": \"i\"}]}]}";
    check_prompt(&server, two, "[user]h\ni");
    check_prompt(&parts, two, "[user](h)(i)");
    check_prompt(&parts, TURNS("system"), "[system]Be brief.[user]hi");
}

/* A list of no tools is not the absence of one, as in transformers. */
static void no_tools(void **state) {
    (void)state;
    static const char user[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]";
    char body[200];
    snprintf(body, sizeof body, "%s, \"tools\": []}", user);
    check_prompt(&server, body, "[user]hitools=0");
    for (int null = 0; null < 2; null++) {
        snprintf(body, sizeof body, "%s%s}", user, null ? ", \"tools\": null" : "");
        json_t *ids = post(&server, "/tokenize", body), *text = text_of(&server, at(ids, "tokens"));
        assert_null(strstr(text_at(text, "prompt"), "tools"));
        json_decref(ids);
        json_decref(text);
    }
    snprintf(body, sizeof body, "%s, \"tools\": [], \"max_tokens\": 2}", user);
    json_t *v = post(&server, CHAT, body); /* and no reason to refuse */
    assert_null(json_object_get(at(v, "choices.0.message"), "tool_calls"));
    json_decref(v);
}

/* ---- answers ---- */

static void lengths(void **state) {
    (void)state;
    static const int pairs[][2] = {{9, 3}, {3, 9}};
    for (size_t i = 0; i < 2; i++) {
        char body[256];
        snprintf(
            body, sizeof body,
            "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"ignore_eos\": true, "
            "\"max_tokens\": %d, \"max_completion_tokens\": %d}",
            pairs[i][0], pairs[i][1]);
        json_t *v = post(&server, CHAT, body);
        assert_int_equal(json_integer_value(at(v, "usage.completion_tokens")), pairs[i][1]);
        assert_string_equal(text_at(v, "choices.0.finish_reason"), "length");
        json_decref(v);
    }
}

static size_t characters(const char *s) {
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xC0U) != 0x80U;
    return n;
}

/* Tokens begin where those before have ended, in characters; in the prompt they are the text there. */
static void offsets(void **state) {
    (void)state;
    static const char prompt[] = "The train went on";
    json_t *v =
        post(&server, COMPLETE,
             "{\"prompt\": \"The train went on\", \"max_tokens\": 20, \"seed\": 3, \"echo\": "
             "true, \"logprobs\": 0, \"add_special_tokens\": false}");
    const json_t *tokens = at(v, "choices.0.logprobs.tokens"),
                 *list = at(v, "choices.0.logprobs.text_offset");
    const size_t n = json_array_size(tokens);
    size_t within = 0, before = 0;
    assert_true(n > 22);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        const size_t from = (size_t)json_integer_value(json_array_get(list, i));
        assert_int_equal(from, before);
        if (from < strlen(prompt)) {
            assert_memory_equal(prompt + from, token, strlen(token));
            within++;
        }
        before = from + characters(token);
    }
    assert_int_equal(within, n - 20);
    json_decref(v);
}

/* Special tokens that the prompt's text has are in its echo, and so in the offsets; BOS, which the tokenizer adds, is not. */
static void offsets_of_special_tokens(void **state) {
    (void)state;
    json_t *v =
        post(&server, COMPLETE,
             "{\"prompt\": \"<|im_start|>user hi<|im_end|> The\", \"max_tokens\": 2, \"seed\": 3, "
             "\"echo\": true, \"logprobs\": 0}");
    const char *text = text_at(v, "choices.0.text");
    const json_t *tokens = at(v, "choices.0.logprobs.tokens"),
                 *list = at(v, "choices.0.logprobs.text_offset");
    const size_t n = json_array_size(tokens) - 2; /* of the prompt */
    int specials = 0;
    assert_string_equal(text_at(v, "choices.0.logprobs.tokens.0"), "<|begin_of_text|>");
    for (size_t i = 1; i < n; i++) {
        const char *token = json_string_value(json_array_get(tokens, i));
        const size_t from = (size_t)json_integer_value(json_array_get(list, i));
        assert_true(from < strlen(text));
        assert_memory_equal(text + from, token, strlen(token));
        specials += token[0] == '<' && strlen(token) > 1;
    }
    assert_int_equal(specials, 2);
    assert_int_equal(json_integer_value(json_array_get(list, 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(list, n)),
                     strlen("<|im_start|>user hi<|im_end|> The"));
    json_decref(v);
}

/* Halves of characters all have the text U+FFFD: under a text is the likeliest token of it, also where a less likely one
 * was chosen. */
static void tokens_of_one_text(void **state) {
    (void)state;
    json_t *v = post(&server, COMPLETE,
                     "{\"prompt\": [100, 110, 120, 130, 140, 150, 160, 170], \"max_tokens\": 0, "
                     "\"echo\": true, \"logprobs\": 20, \"prompt_logprobs\": 20}");
    const json_t *by_id = at(v, "choices.0.prompt_logprobs"),
                 *by_text = at(v, "choices.0.logprobs.top_logprobs");
    int shared = 0;
    for (size_t i = 1; i < 8; i++) {
        json_t *likeliest = json_object(), *token;
        const char *id;
        json_object_foreach(json_array_get(by_id, i), id, token) {
            json_t *x = at(token, "logprob"), *old;
            const char *text = text_at(token, "decoded_token");
            shared += (old = json_object_get(likeliest, text)) != NULL;
            if (!old || json_real_value(old) < json_real_value(x))
                json_object_set(likeliest, text, x);
        }
        assert_true(json_equal(likeliest, json_array_get(by_text, i)));
        json_decref(likeliest);
    }
    assert_true(shared > 0);
    json_decref(v);
}

/* Takes special tokens out, which have no text in answers. */
static json_t *plain_ids(const json_t *ids) {
    json_t *plain = json_array();
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (json_integer_value(json_array_get(ids, i)) < FIRST_SPECIAL)
            json_array_append(plain, json_array_get(ids, i));
    return plain;
}

/* In every answer, whatever was drawn. */
static void ids_are_the_text(void **state) {
    (void)state;
    static const char *const requests[][3] = {
        {CHAT, "\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]", "message.content"},
        {COMPLETE, "\"prompt\": \"The train\"", "text"}};
    for (size_t k = 0; k < 2; k++) {
        char body[300];
        snprintf(body, sizeof body,
                 "{%s, \"n\": 16, \"seed\": 8, \"temperature\": 1.5, \"max_tokens\": 24, "
                 "\"return_token_ids\": true}",
                 requests[k][1]);
        json_t *v = post(&server, requests[k][0], body);
        for (size_t i = 0; i < 16; i++) {
            const json_t *choice = json_array_get(at(v, "choices"), i);
            json_t *ids = plain_ids(at(choice, "token_ids")), *text = text_of(&server, ids);
            assert_true(json_equal(at(text, "prompt"), at(choice, requests[k][2])));
            json_decref(ids);
            json_decref(text);
        }
        json_decref(v);
    }
}

/* The sum of an echo's log-probs is what `axtrain eval` finds for the same tokens. */
static void as_eval(void **state) {
    (void)state;
    static char said[1 << 14];
    const char *const row = "{\"text\": \"The train went on through the night\"}\n";
    char body[600];
    double sum = 0;
    assert_int_equal(
        run(said, sizeof said,
            "eval '%s' --data '%s' --type completion --dtype float32 --json 2>/dev/null",
            in_scratch("plain"), put_text("row.jsonl", row)),
        0);
    json_t *want = json_loads(said, 0, NULL),
           *ids =
               post(&server, "/tokenize", "{\"prompt\": \"The train went on through the night\"}");
    assert_true(json_is_object(want));
    json_array_append_new(at(ids, "tokens"), json_integer(END));
    char *list = json_dumps(at(ids, "tokens"), JSON_COMPACT);
    snprintf(body, sizeof body,
             "{\"prompt\": %s, \"max_tokens\": 0, \"echo\": true, \"logprobs\": 0}", list);
    json_t *v = post(&server, COMPLETE, body);
    const json_t *values = at(v, "choices.0.logprobs.token_logprobs");
    const size_t n = json_array_size(values);
    for (size_t i = 1; i < n; i++)
        sum += json_number_value(json_array_get(values, i));
    assert_int_equal(json_integer_value(at(want, "trained_tokens")), n - 1);
    assert_true(fabs(sum / (double)(n - 1) + json_number_value(at(want, "mean_nll"))) < 1e-6);
    ax_free_hook(list);
    json_decref(want);
    json_decref(ids);
    json_decref(v);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(roles),
        cmocka_unit_test(contents_of_parts),
        cmocka_unit_test(no_tools),
        cmocka_unit_test(lengths),
        cmocka_unit_test(offsets),
        cmocka_unit_test(offsets_of_special_tokens),
        cmocka_unit_test(tokens_of_one_text),
        cmocka_unit_test(ids_are_the_text),
        cmocka_unit_test(as_eval),
    };
    return cmocka_run_group_tests(tests, open_servers, close_servers);
}
