/* `axtrain quantize`: a model's weights rounded to a scheme's formats. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/args/config_args.h"
#include "model/quantize/quantize.h"
#include "cmd/to_gguf.h"
#include "model/convert/base_model.h"
#include "model/convert/merge.h"
#include "cmd/train/data/calibration_rows.h"
#include "cmd/train/setup.h"

/* How rows are calibrated on, as the command line or a configuration says. */
struct calibration {
    const char *file, *type; /* of the command line */
    int64_t most;
    bool gptq;
    struct ax_gptq_options options;
    struct ax_calibration_rows rows;
};

static const struct calibration usual = {.most = 128, .options = {.damping = 0.01}};

static double relative(double errors, double squares) {
    return sqrt(errors / fmax(squares, 1e-300));
}

static void print_unit(const struct ax_quantize_model *m, int u) {
    const struct ax_quantize_layer *l = &m->units[u];
    const int i = u - 1;
    if (u == 0 || u == m->n_units - 1) {
        if (l->squares > 0)
            printf("%s: relative error %.4f\n", u == 0 ? "embedding" : "head",
                   relative(l->errors, l->squares));
    } else if (m->gptq) {
        printf("layer %d: relative error of outputs %.4f, rounded to nearest %.4f\n", i,
               relative(l->chosen, l->outputs), relative(l->nearest, l->outputs));
        if (l->few > 0)
            printf("layer %d: %d matrices of experts to nearest, as too few rows read them\n", i,
                   l->few);
    } else
        printf("layer %d: relative error %.4f\n", i, relative(l->errors, l->squares));
}

/* Of what the model predicts of rows that did not calibrate. */
static void print_perplexity(const struct ax_quantize_model *m) {
    const int held = m->rows->total - m->rows->first_held;
    printf("perplexity of %d sequence%s%s (%lld tokens): %.4f before, %.4f ", held,
           held == 1 ? "" : "s", m->rows->first_held < m->rows->n ? ", the calibration's" : "",
           (long long)m->tokens, exp(m->loss[AX_VERSION_ORIGINAL]),
           exp(m->loss[m->gptq ? AX_VERSION_CHOSEN : AX_VERSION_NEAREST]));
    if (m->gptq)
        printf("after, %.4f rounded to nearest\n", exp(m->loss[AX_VERSION_NEAREST]));
    else
        printf("after\n");
}

static void print(const struct ax_quantize_model *m) {
    double squares = 0, errors = 0;
    for (int u = 0; u < m->n_units; u++) {
        print_unit(m, u);
        squares += m->units[u].squares;
        errors += m->units[u].errors;
    }
    if (m->rows)
        print_perplexity(m);
    printf("%s: %d matrices as %s%s, relative error %.4f, %.1f MB of %.1f MB\n", m->dst,
           m->matrices, m->scheme.name, m->gptq ? " by GPTQ" : "", relative(errors, squares),
           (double)m->bytes_after / 1e6, (double)m->bytes_before / 1e6);
}

/* A file for llama.cpp, whose types say what becomes of the embedding and the head. */
static enum ax_status write_gguf(const struct ax_quantize_model *m, const struct calibration *c) {
    struct ax_to_gguf g = {.src = m->src, .dst = m->dst, .threads = m->threads};
    if (c->gptq || c->file || m->scheme.embedding || m->scheme.head)
        return ax_error(AX_ERR_CONFIG,
                        "scheme %s: is llama.cpp's, without calibration and with its own choice "
                        "for the embedding and the head; remove %s",
                        m->scheme.name,
                        c->gptq || c->file ? "gptq and calibration" : "embedding and head");
    AX_TRY(ax_to_gguf_quant(&g.quant, m->scheme.gguf));
    if (ax_path_exists(m->dst))
        return ax_error(AX_ERR_CONFIG,
                        "%s: exists, and scheme %s is written as one file. Choose another name.",
                        m->dst, m->scheme.name);
    AX_TRY(ax_convert_to_gguf(&g));
    ax_to_gguf_print(&g);
    return AX_OK;
}

/* `cfg` NULL: nothing is calibrated. */
static enum ax_status run(struct ax_quantize_model *m, struct calibration *c,
                          const struct ax_config *cfg) {
    enum ax_status st;
    if (m->scheme.form == AX_FORM_GGUF)
        return write_gguf(m, c);
    if (m->scheme.form != AX_FORM_NONE && ax_path_ends_in(m->dst, ".gguf"))
        return ax_error(AX_ERR_CONFIG,
                        "%s: scheme %s is written as a folder. Choose another name, or one of "
                        "llama.cpp's schemes, such as q8_0.",
                        m->dst, m->scheme.name);
    if (c->gptq)
        m->gptq = &c->options;
    if (cfg) {
        AX_TRY_GOTO(ax_calibration_rows_read(&c->rows, cfg, c->gptq ? c->most : 0), st, done);
        m->rows = &c->rows;
    }
    AX_TRY_GOTO(ax_quantize_model(m), st, done);
    print(m);
done:
    ax_calibration_rows_free(&c->rows);
    ax_quantize_model_free(m);
    return st;
}

/* The trained model: an adapter's is the merged one. */
static enum ax_status trained_folder(const struct ax_config *cfg, char **out) {
    const char *dir = ax_config_str(cfg, "output_dir");
    if (!ax_config_has(cfg, "adapter"))
        return ax_strdup(out, dir);
    AX_TRY(ax_path_join(out, dir, "merged"));
    if (ax_path_is_dir(*out))
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "quantize: %s is missing, the model with its adapter merged: train with "
                    "merge_lora: true, or write it by `axtrain merge`",
                    *out);
}

/* output_dir of a configuration → output_dir/quantized, or quantized.gguf. */
static enum ax_status of_config(int argc, char **argv) {
    struct ax_config cfg;
    struct ax_quantize_model m = {.threads = ax_runtime_threads(&(struct ax_runtime_options){0})};
    struct calibration c = usual;
    char *src = NULL, *dst = NULL;
    enum ax_status st;
    AX_TRY(ax_setup_args(argc, argv, 0, NULL, AX_CONFIG_FOR_TRAINING, &cfg));
    const char *map = ax_config_has(&cfg, "qat") ? "qat" : "quantization";
    if (!ax_config_has(&cfg, "%s", map))
        AX_TRY_GOTO(ax_config_error(&cfg, "output_dir",
                                    "quantize needs a configuration with qat or quantization"),
                    st, done);
    AX_TRY_GOTO(ax_train_scheme_read(&cfg, map, &m.scheme), st, done);
    c.gptq = ax_config_bool(&cfg, "quantization.gptq");
    c.most = ax_config_i64(&cfg, "quantization.calibration_rows");
    if (c.most > AX_CALIBRATION_ROWS_MOST)
        AX_TRY_GOTO(ax_config_error(&cfg, "quantization.calibration_rows", "expected at most %d",
                                    AX_CALIBRATION_ROWS_MOST),
                    st, done);
    AX_FILL(&cfg, "quantization", struct ax_gptq_options, &c.options);
    AX_TRY_GOTO(trained_folder(&cfg, &src), st, done);
    m.src = src;
    AX_TRY_GOTO(ax_path_join(&dst, ax_config_str(&cfg, "output_dir"),
                             m.scheme.form == AX_FORM_GGUF ? "quantized.gguf" : "quantized"),
                st, done);
    m.dst = dst;
    AX_TRY_GOTO(run(&m, &c, c.gptq ? &cfg : NULL), st, done);
done:
    ax_free(src);
    ax_free(dst);
    ax_config_free(&cfg);
    return st;
}

static enum ax_status group(struct ax_scheme *s, int64_t n) {
    if (n == 0)
        return AX_OK;
    if (!s->groups)
        return ax_error(AX_ERR_CONFIG, "--group: scheme %s has none; remove it", s->name);
    s->weight.block = n;
    return AX_OK;
}

static enum ax_status check(const struct calibration *c) {
    if (c->gptq && !c->file)
        return ax_error(AX_ERR_CONFIG, "--gptq: needs rows; add --calibrate FILE");
    if (!c->file && c->type)
        return ax_error(AX_ERR_CONFIG, "--type: is of --calibrate FILE, which is missing");
    if (!c->gptq && (c->options.act_order || c->options.damping != usual.options.damping ||
                     c->most != usual.most))
        return ax_error(AX_ERR_CONFIG, "--act-order, --damping, --rows: are of --gptq; add it");
    if (!(c->options.damping > 0 && c->options.damping <= 1))
        return ax_error(AX_ERR_CONFIG, "--damping: expected a number above 0 and at most 1");
    return AX_OK;
}

/* An adapter in its base, as a folder beside the result until that is written. */
static enum ax_status merge(char **out, const struct ax_quantize_model *m, const char *base,
                            const char *base_name, const char *adapter) {
    AX_TRY(ax_sprintf(out, "%s.merged-%lld", m->dst, (long long)getpid()));
    struct ax_merge merge = {.base = base,
                             .adapter = adapter,
                             .base_name = base_name,
                             .dst = *out,
                             .threads = m->threads};
    AX_TRY(ax_merge_run(&merge));
    printf("%s: merged into %s, which it names as its base\n", adapter, base_name);
    return AX_OK;
}

static enum ax_status remove_merged(char *dir, enum ax_status st) {
    struct ax_error_record first;
    if (!dir)
        return st;
    ax_error_save(&first, st);
    if (ax_path_exists(dir) && ax_remove_tree(dir) != AX_OK)
        ax_log_warn("%s", ax_error_text());
    ax_free(dir);
    return ax_error_restore(&first);
}

static enum ax_status of_model(struct ax_quantize_model *m, struct calibration *c,
                               const char *model) {
    struct ax_lock use = {0};
    struct ax_config cfg = {0};
    struct ax_arg_list adapters = {0};
    char *base = NULL, *named = NULL, *merged = NULL;
    enum ax_status st;
    AX_TRY(ax_base_model_of_adapter(&named, &model, &adapters));
    AX_TRY_GOTO(ax_base_model_folder(&base, &use, model, NULL, NULL), st, done);
    if (named)
        AX_TRY_GOTO(merge(&merged, m, base, named, adapters.text[0]), st, done);
    m->src = merged ? merged : base;
    if (c->file)
        AX_TRY_GOTO(ax_calibration_config(&cfg, m->src, c->file, c->type), st, done);
    AX_TRY_GOTO(run(m, c, c->file ? &cfg : NULL), st, done);
done:
    ax_config_free(&cfg);
    ax_lock_drop(&use);
    st = remove_merged(merged, st);
    ax_free(named);
    ax_free(base);
    return st;
}

enum ax_status ax_cmd_quantize(int argc, char **argv) {
    struct ax_quantize_model m = {0};
    struct calibration c = usual;
    const char *paths[2], *scheme = NULL;
    int64_t threads = 0, n_group = 0;
    bool embedding = false, head = false;
    int n;
    const struct ax_arg args[] = {{"--scheme", AX_ARG_STRING, &scheme, 0, 0},
                                  {"--group", AX_ARG_INT, &n_group, 1, 1 << 20},
                                  {"--embedding", AX_ARG_FLAG, &embedding, 0, 0},
                                  {"--head", AX_ARG_FLAG, &head, 0, 0},
                                  {"--gptq", AX_ARG_FLAG, &c.gptq, 0, 0},
                                  {"--calibrate", AX_ARG_STRING, &c.file, 0, 0},
                                  {"--type", AX_ARG_STRING, &c.type, 0, 0},
                                  {"--rows", AX_ARG_INT, &c.most, 1, AX_CALIBRATION_ROWS_MOST},
                                  {"--act-order", AX_ARG_FLAG, &c.options.act_order, 0, 0},
                                  {"--damping", AX_ARG_FLOAT, &c.options.damping, 0, 0},
                                  {"--threads", AX_ARG_INT, &threads, 1, 1024}};
    if (argc > 1 && (ax_path_ends_in(argv[1], ".yaml") || ax_path_ends_in(argv[1], ".yml")))
        return of_config(argc, argv);
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 2, 2, paths, &n));
    if (!scheme)
        return ax_error(AX_ERR_CONFIG, "quantize: say which --scheme, such as int4 or fp8");
    AX_TRY(ax_scheme_find("--scheme", scheme, &m.scheme));
    AX_TRY(group(&m.scheme, n_group));
    m.scheme.embedding = embedding;
    m.scheme.head = head;
    AX_TRY(check(&c));
    m.dst = paths[1];
    m.threads = ax_runtime_threads(&(struct ax_runtime_options){.threads = (int)threads});
    return of_model(&m, &c, paths[0]);
}
