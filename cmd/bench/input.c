/* Creates and removes the input. */
#include "cmd/bench/input.h"

#include <stdlib.h>

#include "base/io.h"
#include "base/io_path.h"
#include "cmd/config/build.h"
#include "cmd/init/init.h"
#include "data/records/problems/problems.h"

#define ROWS 4000

/* ---- rows ---- */

static enum ax_status make_rows(const char *path) {
    struct ax_buf rows = {0};
    enum ax_status st = AX_OK;
    for (uint64_t i = 0; i < ROWS && st == AX_OK; i++) {
        struct ax_problem p;
        ax_problem_make(&p, 1, i, 1, AX_PROBLEM_LEVELS, NULL);
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
    return ax_bench_vocab_write(in->model, m->arch.vocab_size);
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

enum ax_status ax_bench_input_model(struct ax_bench_input *in, const struct ax_bench_model *m,
                                    const char *work) {
    *in = (struct ax_bench_input){0};
    const enum ax_status st = make_model(in, m, work);
    if (st != AX_OK)
        ax_bench_input_remove(in);
    return st;
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
