#include "tests/bench/input.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/stop.h"
#include "cmd/config/build.h"
#include "cmd/init/init.h"
#include "data/records/problems/problems.h"
#include "data/text/tokenizer/byte_level.h"

#define ROWS 4000

/* ---- a vocabulary ---- */

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

/* tokenizer.json and tokenizer_config.json in `dir`: a byte-level BPE of `size` tokens, with merges of the
 * most frequent English letters. Words become tokens of up to four letters. */
static enum ax_status write_vocab(const char *dir, int64_t size) {
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

/* ---- rows ---- */

static enum ax_status make_rows(const char *path) {
    struct ax_buf rows = {0};
    enum ax_status st = AX_OK;
    for (uint64_t i = 0; i < ROWS && st == AX_OK; i++) {
        struct ax_problem p;
        ax_problem_make(&p, 1, i, (struct ax_problem_kind){1, AX_PROBLEM_LEVELS, 1}, NULL);
        st = ax_problem_put_row(&rows, ax_problem_row(&p));
    }
    if (st == AX_OK)
        st = ax_write_file_atomic(path, rows.data, rows.len);
    ax_buf_free(&rows);
    return st;
}

/* ---- the configuration ---- */

static enum ax_status put_config(struct ax_buf *out, const struct ax_bench_input *in,
                                 const struct ax_init_data *d, const struct ax_init_shape *s) {
    AX_TRY(ax_buf_puts(out, "base_model: "));
    AX_TRY(ax_config_put_word(out, in->model));
    AX_TRY(ax_buf_puts(out, "\n"));
    if (d->template)
        AX_TRY(ax_buf_printf(out, "chat_template: %s\n", d->template));
    AX_TRY(ax_init_put_entry(out, d));
    AX_TRY(ax_buf_puts(out, "dataset_prepared_path: "));
    AX_TRY(ax_config_put_word(out, in->prepared));
    AX_TRY(ax_buf_puts(out, "\noutput_dir: "));
    AX_TRY(ax_config_put_word(out, in->output));
    return ax_buf_printf(out,
                         "\nsequence_len: %lld\nsample_packing: true\n%s"
                         "micro_batch_size: 1\ngradient_accumulation_steps: 1\nmax_steps: 1\n"
                         "learning_rate: 1e-5\nsave_strategy: \"no\"\nbf16: auto\n",
                         (long long)s->sequence_len,
                         s->cut ? "excess_length_strategy: truncate\n" : "");
}

static enum ax_status make_config(const struct ax_bench_input *in, const struct ax_arch *arch) {
    struct ax_init_data d;
    struct ax_init_shape shape;
    struct ax_buf text = {0};
    AX_TRY(ax_init_data_read(&d, in->data));
    enum ax_status st;
    AX_TRY_GOTO(ax_init_shape_measure(&shape, &d, in->model, arch->max_positions), st, done);
    AX_TRY_GOTO(put_config(&text, in, &d, &shape), st, done);
    st = ax_write_file_atomic(in->config, text.data, text.len);
done:
    ax_buf_free(&text);
    ax_init_data_free(&d);
    return st;
}

/* ---- all ---- */

/* An absolute path, for programs that are started elsewhere. */
static enum ax_status absolute(char **out, const char *path, const char *option) {
    char *full = realpath(path, NULL);
    if (!full)
        return ax_error(AX_ERR_CONFIG, "%s %s: %m", option, path);
    const enum ax_status st = ax_strdup(out, full);
    free(full);
    return st;
}

static enum ax_status make_model(struct ax_bench_input *in, const struct ax_bench_model *m,
                                 const char *work) {
    if (m->dir && ax_arch_path_is_config(m->dir))
        return ax_error(
            AX_ERR_CONFIG,
            "--model %s: expected a folder with weights and tokenizer; --arch NAME generates them",
            m->dir);
    AX_TRY(ax_temp_folder(&in->dir, work, "bench"));
    if (m->dir)
        return absolute(&in->model, m->dir, "--model");
    AX_TRY(ax_path_join(&in->model, in->dir, m->arch_name));
    AX_TRY(ax_bench_model_write(m, in->model));
    return write_vocab(in->model, m->arch.vocab_size);
}

static enum ax_status make(struct ax_bench_input *in, const struct ax_bench_model *m,
                           const char *data, const char *work) {
    AX_TRY(make_model(in, m, work));
    AX_TRY(ax_path_join(&in->config, in->dir, "sft.yaml"));
    AX_TRY(ax_path_join(&in->output, in->dir, "out"));
    AX_TRY(ax_path_join(&in->prepared, in->dir, "prepared"));
    if (data) {
        AX_TRY(absolute(&in->data, data, "--data"));
    } else {
        AX_TRY(ax_path_join(&in->data, in->dir, "rows.jsonl"));
        AX_TRY(make_rows(in->data));
    }
    return make_config(in, &m->arch);
}

enum ax_status ax_bench_input_make(struct ax_bench_input *in, const struct ax_bench_model *m,
                                   const char *data, const char *work) {
    *in = (struct ax_bench_input){0};
    const enum ax_status st = make(in, m, data, work);
    if (st != AX_OK)
        ax_bench_input_remove(in);
    return st;
}

void ax_bench_input_remove(struct ax_bench_input *in) {
    struct ax_error_record first;
    ax_error_save(&first, AX_OK); /* a failed removal must not replace this error */
    if (in->dir)
        (void)ax_remove_tree(in->dir);
    (void)ax_error_restore(&first);
    char *const texts[] = {in->dir, in->model, in->data, in->config, in->output, in->prepared};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ax_free(texts[i]);
    *in = (struct ax_bench_input){0};
}

enum ax_status ax_bench_axtrain(char **out) {
    char path[PATH_MAX];
    const char *given = getenv("AX_TEST_BIN");
    if (given)
        return ax_strdup(out, given);
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return ax_error(AX_ERR_IO, "/proc/self/exe: cannot be read: %m");
    path[n] = '\0';
    for (int up = 0; up < 3; up++) /* build/tests/bench/bench → build */
        *strrchr(path, '/') = '\0';
    return ax_path_join(out, path, "axtrain");
}

enum ax_status ax_bench_may_go_on(void) {
    if (ax_stop_requested() == AX_STOP_NONE)
        return AX_OK;
    return ax_error(AX_INTERRUPTED, "bench: interrupted");
}
