/* The command: inspect, choose, write, and say what to do next. */
#include "cmd/init/init.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/free_space.h"
#include "base/log.h"
#include "cmd/args/args.h"
#include "model/convert/base_model.h"
#include "cmd/train/method.h"
#include "model/arch/classifier.h"
#include "cmd/commands.h"
#include "cmd/help/help.h"
#include "data/records/format/tools.h"

#define STEP_TOKENS 8192 /* tokens per step, if the data are large enough … */
#define LEAST_STEPS 30   /* … for this many steps per epoch */
#define PACKED      0.95 /* approximate share of a packed sequence that is filled */
#define LEAST_ROWS  20   /* from this many records on, some are held out: … */
#define EVAL_SHARE  20   /* … one in N, … */
#define EVAL_LEAST  2    /* … at least this many (1 would mean all) … */
#define EVAL_MOST   200  /* … and at most this many */

/* ---- choices ---- */

static int64_t at_least_one(double n) {
    return n > 1 ? (int64_t)n : 1;
}

static void choose_rows(struct ax_init *i) {
    const struct ax_init_shape *s = &i->shape;
    const double length = (double)s->sequence_len;
    const double rows = (double)i->data.rows;
    i->eval_rows = i->data.rows / EVAL_SHARE;
    i->eval_rows = i->eval_rows < EVAL_LEAST ? EVAL_LEAST : i->eval_rows;
    i->eval_rows = i->eval_rows > EVAL_MOST ? EVAL_MOST : i->eval_rows;
    i->eval_rows = i->data.rows < LEAST_ROWS ? 0 : i->eval_rows;
    const double fit = s->cut ? 1 : 1 - (double)s->too_long / (double)s->rows;
    const double kept = (rows - (double)i->eval_rows) * fit;
    i->rows_per_epoch = at_least_one(s->packing ? kept * s->mean / (PACKED * length) : kept);
    const int64_t wanted = at_least_one(STEP_TOKENS / length);
    const int64_t allowed = at_least_one((double)i->rows_per_epoch / LEAST_STEPS);
    i->rows_per_step = wanted < allowed ? wanted : allowed;
    i->epochs = i->data.rows <= 2000 ? 3 : i->data.rows <= 20000 ? 2 : 1;
    i->epochs = i->epochs < i->data.task->epochs ? i->epochs : i->data.task->epochs;
}

static double choose_rate(const struct ax_init *i) {
    const double full = i->parameters < 500000000 ? 1e-4 : i->parameters < 3000000000 ? 2e-5 : 1e-5;
    return (i->fit.method == AX_INIT_FULL ? full : 2e-4) * i->data.task->rate;
}

/* The last part of a path or hub id, without its extension and with only plain characters. */
static void put_stem(char *out, size_t size, const char *path) {
    static const char *const extensions[] = {".json", ".gguf", ".csv", ".txt", ".tsv"};
    size_t n, k = 0;
    const char *last = ax_path_last(path, &n);
    size_t end = n;
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        const char *at = n > 0 ? strstr(last + 1, extensions[i]) : NULL;
        end = at && (size_t)(at - last) < end ? (size_t)(at - last) : end;
    }
    for (size_t j = 0; j < end && k + 1 < size; j++)
        out[k++] = isalnum((unsigned char)last[j]) || strchr("-_.", last[j]) ? last[j] : '-';
    out[k] = '\0';
}

static enum ax_status choose_folder(struct ax_init *i) {
    char model[64], data[64];
    put_stem(model, sizeof model, i->model);
    put_stem(data, sizeof data, i->data.path);
    return ax_sprintf(&i->output_dir, "out/%s-%s", model, data);
}

/* The objective that the written file will choose, and the head that it needs. */
static enum ax_status choose_method(struct ax_init *i, struct ax_arch *arch,
                                    struct ax_setup_method *m) {
    struct ax_config cfg;
    char *keys;
    AX_TRY(ax_sprintf(&keys, "learning_rate: 1\n%s", i->data.task->keys));
    enum ax_status st = ax_config_parse(&cfg, "init", keys, strlen(keys), 0, NULL);
    ax_free(keys);
    AX_TRY(st);
    const struct ax_classifier *head = ax_method_of(&cfg)->head;
    st = head ? ax_classifier_choose(arch, head) : AX_OK;
    if (st == AX_OK)
        st = ax_setup_method_read(m, &cfg);
    ax_config_free(&cfg);
    return st;
}

static enum ax_status choose(struct ax_init *i, struct ax_arch *arch) {
    struct ax_setup_method method;
    i->parameters = ax_arch_parameters(arch);
    AX_TRY(ax_init_shape_measure(&i->shape, &i->data, i->model, arch->max_positions));
    choose_rows(i);
    i->shape.evaluates = i->eval_rows > 0;
    AX_TRY(choose_method(i, arch, &method));
    AX_TRY(ax_init_fit_choose(&i->fit,
                              &(struct ax_init_problem){arch, &method.objective, &i->shape,
                                                        i->rows_per_step, ax_mem_available()}));
    i->learning_rate = choose_rate(i);
    return choose_folder(i);
}

/* ---- the command ---- */

static enum ax_status write_file(const struct ax_init *i, const char *file) {
    struct ax_buf text = {0};
    struct ax_config cfg;
    enum ax_status st;
    AX_TRY_GOTO(ax_init_put(&text, i), st, done);
    /* the written file must load without an error */
    AX_TRY_GOTO(ax_config_parse(&cfg, file, text.data, text.len, 0, NULL), st, done);
    st = ax_config_require(&cfg, AX_CONFIG_FOR_TRAINING);
    ax_config_free(&cfg);
    AX_TRY_GOTO(st, st, done);
    st = ax_write_file_atomic(file, text.data, text.len);
done:
    ax_buf_free(&text);
    return st;
}

static enum ax_status say(const struct ax_init *i, const char *file) {
    const int64_t per_step = i->fit.micro * i->fit.accumulate;
    const struct ax_init_data *d = &i->data;
    struct ax_buf word = {0};
    if (d->lost && !d->replaced)
        ax_log_warn("%s; " AX_TOOLS_REMEDY ", or chat_template_jinja", d->lost);
    AX_TRY(ax_quote_word(&word, file));
    if (d->replaced && !d->has_none)
        printf("%s; chat_template: %s writes them\n", d->lost, d->template);
    printf("wrote %s: %s, sequences of %lld tokens%s, micro-batches of %lld, %lld per step, "
           "learning rate %g\n"
           "next:\n"
           "  axtrain preview %s      what training will see\n"
           "  axtrain %s %s          train\n",
           file,
           i->fit.method == AX_INIT_FULL ? "full fine-tuning" : ax_init_method_names[i->fit.method],
           (long long)i->shape.sequence_len, i->shape.packing ? " (packed)" : "",
           (long long)i->fit.micro, (long long)per_step, i->learning_rate, word.data,
           i->data.task->command, word.data);
    ax_buf_free(&word);
    return AX_OK;
}

static enum ax_status check_new(const char *file) {
    if (!ax_path_exists(file))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "init: %s already exists; choose another file with -o, or remove it", file);
}

/* file: NULL = named after the command that trains. */
static enum ax_status make(struct ax_init *i, const char *data, const char *file) {
    struct ax_arch arch;
    char name[32];
    enum ax_status st = ax_base_model_arch(&arch, i->model, NULL, NULL);
    if (st != AX_OK)
        return ax_error_prefix(st, "--model");
    AX_TRY_GOTO(ax_init_data_read(&i->data, data), st, done);
    snprintf(name, sizeof name, "%s.yaml", i->data.task->command);
    file = file ? file : name;
    AX_TRY_GOTO(check_new(file), st, done);
    AX_TRY_GOTO(choose(i, &arch), st, done);
    AX_TRY_GOTO(write_file(i, file), st, done);
    st = say(i, file);
done:
    ax_arch_free(&arch);
    return st;
}

enum ax_status ax_cmd_init(int argc, char **argv) {
    struct ax_init i = {0};
    const char *data = NULL, *file = NULL;
    const struct ax_arg args[] = {
        {"--model", AX_ARG_STRING, &i.model, 0, 0},
        {"--data", AX_ARG_STRING, &data, 0, 0},
        {"-o", AX_ARG_STRING, &file, 0, 0},
    };
    int n;
    AX_TRY(ax_args_parse(argc, argv, 3, args, 0, 0, NULL, &n));
    if (!i.model || !data)
        return ax_error(AX_ERR_CONFIG,
                        "init: %s missing; give a model and a data file, e.g. axtrain init --model "
                        "my-model/ --data train.jsonl",
                        i.model ? "--data is"
                        : data  ? "--model is"
                                : "--model and --data are");
    if (file)
        AX_TRY(check_new(file));
    const enum ax_status st = make(&i, data, file);
    ax_init_data_free(&i.data);
    ax_free(i.output_dir);
    return st;
}
