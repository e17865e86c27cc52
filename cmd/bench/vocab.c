/* Generates a vocabulary. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cmd/bench/input.h"
#include "data/text/tokenizer/byte_level.h"

#define MAX_TOKEN 16 /* bytes of a token's text */

/* By frequency, preceded by the blank before a word; all in the byte alphabet. */
static const char letters[][3] = {"\xC4\xA0", "e", "t", "a", "o", "i", "n", "s", "h",
                                  "r",        "d", "l", "u", "c", "m", "f", "w", "y",
                                  "g",        "p", "b", "v", "k", "j", "x", "q", "z"};
#define N_LETTERS (sizeof letters / sizeof *letters)
static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
#define N_SPECIAL (sizeof special / sizeof *special)

struct vocab {
    json_t *ids, *merges; /* {"token": id}, ["left right"] */
    int64_t size;
};

static enum ax_status out_of_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a vocabulary");
}

static enum ax_status add(struct vocab *v, const char *text) {
    const json_int_t id = (json_int_t)json_object_size(v->ids);
    return json_object_set_new(v->ids, text, json_integer(id)) == 0 ? AX_OK : out_of_memory();
}

static enum ax_status add_bytes(struct vocab *v) {
    for (size_t i = 0; i < N_SPECIAL; i++)
        AX_TRY(add(v, special[i]));
    for (int byte = 0; byte < 256; byte++) {
        char text[3] = "";
        ax_byte_to_char((unsigned char)byte, text);
        AX_TRY(add(v, text));
    }
    return AX_OK;
}

static bool is_full(const struct vocab *v) {
    return (int64_t)json_object_size(v->ids) >= v->size;
}

/* Adds left + each letter, as a token and as the merge that makes it. */
static enum ax_status extend(struct vocab *v, const char *left) {
    char text[MAX_TOKEN], merge[MAX_TOKEN + 1];
    for (size_t i = 1; i < N_LETTERS && !is_full(v); i++) { /* blanks only begin words */
        snprintf(text, sizeof text, "%s%s", left, letters[i]);
        snprintf(merge, sizeof merge, "%s %s", left, letters[i]);
        AX_TRY(add(v, text));
        if (json_array_append_new(v->merges, json_string(merge)) != 0)
            return out_of_memory();
    }
    return AX_OK;
}

/* Extends single letters, then pairs, then triples: number n in base N_LETTERS is the string to
 * extend. */
static enum ax_status add_merges(struct vocab *v) {
    size_t count = 1;
    for (int length = 1; length < 4; length++) {
        count *= N_LETTERS;
        for (size_t n = 0; n < count && !is_full(v); n++) {
            char left[MAX_TOKEN] = "";
            size_t rest = n;
            bool blank_inside = false;
            for (size_t place = count / N_LETTERS, k = 0; place > 0; place /= N_LETTERS, k++) {
                const size_t letter = rest / place;
                rest %= place;
                blank_inside = blank_inside || (k > 0 && letter == 0);
                snprintf(left + strlen(left), sizeof left - strlen(left), "%s", letters[letter]);
            }
            if (!blank_inside)
                AX_TRY(extend(v, left));
        }
    }
    return AX_OK;
}

static enum ax_status write_json(const char *dir, const char *name, json_t *root) {
    char *path, *text = NULL;
    size_t len;
    if (!root)
        return out_of_memory();
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = ax_json_dump(root, &text, &len);
    if (st == AX_OK)
        st = ax_write_file_atomic(path, text, len);
    ax_free(text);
    ax_free(path);
    return st;
}

static enum ax_status write_tokenizer(const char *dir, const struct vocab *v) {
    static const char blanks[] = "{ss sb sb sb}";
    json_t *added = json_array();
    for (size_t i = 0; i < N_SPECIAL; i++)
        json_array_append_new(added, json_pack("{sI ss sb sb sb sb sb}", "id", (json_int_t)i,
                                               "content", special[i], "single_word", 0, "lstrip", 0,
                                               "rstrip", 0, "normalized", 0, "special", 1));
    json_t *root = json_pack("{ss so so s{ss sO sO}}", "version", "1.0", "added_tokens", added,
                             "pre_tokenizer",
                             json_pack(blanks, "type", "ByteLevel", "add_prefix_space", 0,
                                       "trim_offsets", 0, "use_regex", 1),
                             "model", "type", "BPE", "vocab", v->ids, "merges", v->merges);
    if (root)
        json_object_set_new(root, "decoder",
                            json_pack(blanks, "type", "ByteLevel", "add_prefix_space", 0,
                                      "trim_offsets", 0, "use_regex", 1));
    enum ax_status st = write_json(dir, "tokenizer.json", root);
    json_decref(root);
    return st;
}

enum ax_status ax_bench_vocab_write(const char *dir, int64_t size) {
    struct vocab v = {json_object(), json_array(), size};
    enum ax_status st;
    AX_TRY_GOTO(add_bytes(&v), st, done);
    AX_TRY_GOTO(add_merges(&v), st, done);
    AX_TRY_GOTO(write_tokenizer(dir, &v), st, done);
    json_t *config = json_pack("{ss ss ss}", "bos_token", special[1], "eos_token", special[2],
                               "pad_token", special[0]);
    st = write_json(dir, "tokenizer_config.json", config);
    json_decref(config);
done:
    json_decref(v.ids);
    json_decref(v.merges);
    return st;
}
