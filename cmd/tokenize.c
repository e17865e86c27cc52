/* `axtrain tokenize`: text ↔ token ids of a model's tokenizer, stdin to stdout. */
#include <stdio.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/term.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "data/text/tokenizer/tokenizer.h"

enum { MAX_INPUT = INT32_MAX - 2 };

static const char STDIN_NAME[] = "standard input";

/* --- ids → text --- */

static enum ax_status read_ids(const char *text, size_t len, int32_t **out, size_t *n) {
    struct ax_json_doc doc;
    int32_t *ids = NULL;
    enum ax_status st;
    AX_TRY(ax_json_parse(&doc, STDIN_NAME, text, len));
    struct ax_json root = ax_json_root(&doc);
    if (!json_is_array(root.v)) {
        st = ax_json_error(root, "expected a list of ids");
        goto done;
    }
    *n = ax_json_size(root);
    AX_TRY_GOTO(ax_alloc(&ids, *n, sizeof *ids), st, done);
    for (size_t i = 0; i < *n; i++) {
        int64_t id;
        AX_TRY_GOTO(ax_json_i64(ax_json_at(root, i), 0, INT32_MAX, &id), st, done);
        ids[i] = (int32_t)id;
    }
    *out = ids;
    ids = NULL;
    st = AX_OK;
done:
    ax_free(ids);
    ax_json_free(&doc);
    return st;
}

static enum ax_status decode(const struct ax_tokenizer *t, const char *input, size_t len,
                             bool skip_special) {
    int32_t *ids = NULL;
    size_t n = 0;
    struct ax_buf text = {0};
    AX_TRY(read_ids(input, len, &ids, &n));
    enum ax_status st = ax_tokenizer_decode(t, ids, n, skip_special, &text);
    if (st == AX_OK)
        fwrite(text.data, 1, text.len, stdout);
    ax_buf_free(&text);
    ax_free(ids);
    return st;
}

/* --- text → ids --- */

static enum ax_status encode(const struct ax_tokenizer *t, const char *input, size_t len,
                             bool add_special_tokens) {
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.add_special_tokens = add_special_tokens};
    enum ax_status st = ax_tokenizer_encode(t, input, len, &opt, &e);
    if (st == AX_OK) {
        putchar('[');
        for (size_t i = 0; i < e.n; i++)
            printf("%s%d", i > 0 ? ", " : "", e.ids[i]);
        puts("]");
    } else {
        st = ax_error_prefix(st, "%s", STDIN_NAME);
    }
    ax_encoding_free(&e);
    return st;
}

enum ax_status ax_cmd_tokenize(int argc, char **argv) {
    const char *model = NULL, *vocab = NULL;
    bool add_special = false, to_text = false, skip_special = false;
    const struct ax_arg args[] = {
        {"--model", AX_ARG_STRING, &model, 0, 0},
        {"--vocab", AX_ARG_STRING, &vocab, 0, 0},
        {"--add-special-tokens", AX_ARG_FLAG, &add_special, 0, 0},
        {"--decode", AX_ARG_FLAG, &to_text, 0, 0},
        {"--skip-special-tokens", AX_ARG_FLAG, &skip_special, 0, 0},
    };
    AX_TRY(ax_args_parse_model(argc, argv, sizeof args / sizeof args[0], args, &model));
    if (model && vocab)
        return ax_error(
            AX_ERR_CONFIG,
            "tokenize: give either --model DIR or --vocab FILE, not \"%s\" as well; text "
            "comes from standard input",
            model);
    if (!model && !vocab)
        return ax_error(AX_ERR_CONFIG, "tokenize: give either --model DIR or --vocab FILE");
    if (to_text && add_special)
        return ax_error(AX_ERR_CONFIG, "tokenize: --add-special-tokens cannot be combined with "
                                       "--decode");
    if (skip_special && !to_text)
        return ax_error(AX_ERR_CONFIG, "tokenize: --skip-special-tokens needs --decode");

    struct ax_tokenizer *t = NULL;
    char *input = NULL;
    size_t len;
    enum ax_status st;
    AX_TRY_GOTO(ax_tokenizer_load(&t, model != NULL ? model : vocab), st, done);
    AX_TRY_GOTO(ax_read_file("/dev/stdin", MAX_INPUT, &input, &len), st, done);
    st = to_text ? decode(t, input, len, skip_special) : encode(t, input, len, add_special);
    if (st == AX_OK)
        st = ax_flush_stdout();
done:
    ax_free(input);
    ax_tokenizer_free(t);
    return st;
}
