/* `axtrain chat` as a program that is talked to. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_CHAT_CASE_H
#define AX_TESTS_CMD_CHAT_CASE_H

#include <sys/types.h>

#include "base/text/json.h"
#include "tests/data/scratch.h"
#include "tests/golden_files.h"

static char model[512], long_model[512];

struct chat {
    pid_t pid;
    int in, out;
    char text[1 << 20]; /* all it printed */
    size_t len;
};

/* The golden llama with room for long replies: that to "chat" has no end. */
static inline void make_long_model(void) {
    static const char *const files[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    struct ax_json_doc doc;
    char from[1024], name[64], *text;
    size_t len;
    if (long_model[0])
        return;
    make_folder("m");
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, "%s/%s", model, files[i]);
        snprintf(name, sizeof name, "m/%s", files[i]);
        char *real = realpath(from, NULL);
        assert_int_equal(symlink(real, in_scratch(name)), 0);
        free(real);
    }
    snprintf(from, sizeof from, "%s/config.json", model);
    assert_int_equal(ax_json_load(&doc, from, 1 << 20), AX_OK);
    json_object_set_new(doc.root, "max_position_embeddings", json_integer(1 << 17));
    json_object_set_new(doc.root, "eos_token_id", json_integer(511));
    assert_int_equal(ax_json_dump(doc.root, &text, &len), AX_OK);
    put_bytes("m/config.json", text, len);
    ax_free(text);
    ax_json_free(&doc);
    snprintf(long_model, sizeof long_model, "%s", in_scratch("m"));
}

static inline int setup(void **state) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    return scratch_make(state);
}

static inline void say(struct chat *c, const char *line) {
    assert_int_equal(write(c->in, line, strlen(line)), strlen(line));
}

/* Reads until `what` has come; false at the end of output. */
static inline bool hear(struct chat *c, const char *what) {
    while (!strstr(c->text, what)) {
        const ssize_t n = read(c->out, c->text + c->len, sizeof c->text - 1 - c->len);
        if (n <= 0)
            return false;
        c->len += (size_t)n;
        c->text[c->len] = '\0';
    }
    return true;
}

static inline json_t *saved(const char *path) {
    json_t *row = json_load_file(path, 0, NULL);
    assert_true(json_is_object(row));
    return row;
}

static inline const char *role(const json_t *messages, size_t i) {
    return json_string_value(json_object_get(json_array_get(messages, i), "role"));
}

#endif
