/* What tests/peers/compare_tokenizers.py drives: one tokenizer, many texts.
 *
 *   tokenize_lines PATH              answers each line of JSON on stdin with one on stdout:
 *                                    {"text": S, "special": BOOL} → {"ids": [...], "spans": [...]}
 *                                    {"ids": [...], "skip": BOOL} → {"text": S}; else {"error": S}
 *   tokenize_lines PATH bench FILE   seconds of CPU time for the whole file and for its lines */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/text/json.h"
#include "data/text/tokenizer/tokenizer.h"

static json_t *encode(const struct ax_tokenizer *t, const json_t *request) {
    const json_t *text = json_object_get(request, "text");
    const struct ax_encode_options opt = {
        .add_special_tokens = json_is_true(json_object_get(request, "special")), .spans = true};
    struct ax_encoding e = {0};
    json_t *answer = json_object(), *ids = json_array(), *spans = json_array();
    if (ax_tokenizer_encode(t, json_string_value(text), json_string_length(text), &opt, &e) !=
        AX_OK)
        json_object_set_new(answer, "error", json_string(ax_error_text()));
    for (size_t i = 0; i < e.n; i++) {
        json_array_append_new(ids, json_integer(e.ids[i]));
        json_array_append_new(
            spans, json_pack("[II]", (json_int_t)e.spans[i].start, (json_int_t)e.spans[i].end));
    }
    json_object_set_new(answer, "ids", ids);
    json_object_set_new(answer, "spans", spans);
    ax_encoding_free(&e);
    return answer;
}

static json_t *decode(const struct ax_tokenizer *t, const json_t *request) {
    const json_t *list = json_object_get(request, "ids");
    bool skip = json_is_true(json_object_get(request, "skip"));
    size_t n = json_array_size(list);
    int32_t *ids = NULL;
    struct ax_buf text = {0};
    json_t *answer = json_object();
    enum ax_status st = ax_alloc(&ids, n, sizeof *ids);
    for (size_t i = 0; st == AX_OK && i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    if (st == AX_OK)
        st = ax_tokenizer_decode(t, ids, n, skip, &text);
    if (st != AX_OK)
        json_object_set_new(answer, "error", json_string(ax_error_text()));
    else
        json_object_set_new(answer, "text", json_stringn(text.data, text.len));
    ax_buf_free(&text);
    ax_free(ids);
    return answer;
}

static int answer_lines(const struct ax_tokenizer *t) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        json_error_t error;
        json_t *request = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, &error);
        if (request == NULL) {
            fprintf(stderr, "bad request: %s\n", error.text);
            return 2;
        }
        json_t *answer =
            json_object_get(request, "text") != NULL ? encode(t, request) : decode(t, request);
        json_dumpf(answer, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
        putchar('\n');
        json_decref(answer);
        json_decref(request);
    }
    free(line);
    return 0;
}

/* Encodes the file `by` bytes or so at a time, at line ends; best of three. */
static double seconds(const struct ax_tokenizer *t, const char *text, size_t len, size_t by) {
    double best = 1e9;
    for (int round = 0; round < 3; round++) {
        struct ax_encoding e = {0};
        const struct ax_encode_options opt = {0};
        clock_t start = clock();
        for (size_t at = 0, end; at < len; at = end) {
            const char *stop = by < len - at ? memchr(text + at + by, '\n', len - at - by) : NULL;
            end = stop != NULL ? (size_t)(stop - text) + 1 : len;
            e.n = 0;
            if (ax_tokenizer_encode(t, text + at, end - at, &opt, &e) != AX_OK)
                return -1;
        }
        double s = (double)(clock() - start) / CLOCKS_PER_SEC;
        best = s < best ? s : best;
        ax_encoding_free(&e);
    }
    return best;
}

int main(int argc, char **argv) {
    struct ax_tokenizer *t;
    char *text;
    size_t len;
    int rc = 0;
    if (argc < 2 || ax_tokenizer_load(&t, argv[1]) != AX_OK) {
        fprintf(stderr, "tokenize_lines: %s\n", ax_error_text());
        return 2;
    }
    if (argc == 4 && ax_read_file(argv[3], (size_t)1 << 30, &text, &len) == AX_OK) {
        printf("{\"bytes\": %zu, \"whole\": %.4f, \"documents\": %.4f}\n", len,
               seconds(t, text, len, len), seconds(t, text, len, 2000));
        ax_free(text);
    } else {
        rc = answer_lines(t);
    }
    ax_tokenizer_free(t);
    return rc;
}
