/* `axtrain quantize`: a model's weights rounded to a scheme's formats. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/mem.h"
#include "cmd/commands.h"
#include "cmd/config_args.h"
#include "cmd/convert/quantize.h"
#include "cmd/model/base_model.h"
#include "cmd/train/setup.h"

static void print(const struct ax_quantize_model *m) {
    double squares = 0, errors = 0;
    for (int i = 0; i < m->n_layers; i++) {
        const struct ax_quantize_layer *l = &m->layers[i];
        printf("layer %d: relative error %.4f\n", i, sqrt(l->errors / fmax(l->squares, 1e-300)));
        squares += l->squares;
        errors += l->errors;
    }
    printf("%s: %d matrices as %s, relative error %.4f, %.1f MB of %.1f MB\n", m->dst, m->matrices,
           m->scheme.name, sqrt(errors / fmax(squares, 1e-300)), (double)m->bytes_after / 1e6,
           (double)m->bytes_before / 1e6);
}

static enum ax_status run(struct ax_quantize_model *m) {
    const enum ax_status st = ax_quantize_model(m);
    if (st == AX_OK)
        print(m);
    ax_quantize_model_free(m);
    return st;
}

/* output_dir of a configuration → output_dir/quantized. */
static enum ax_status of_config(int argc, char **argv) {
    struct ax_config cfg;
    struct ax_quantize_model m = {.threads = ax_runtime_threads(&(struct ax_runtime_options){0})};
    char *dst = NULL;
    enum ax_status st;
    AX_TRY(ax_setup_args(argc, argv, 0, NULL, AX_CONFIG_FOR_TRAINING, &cfg));
    const char *map = ax_config_has(&cfg, "qat") ? "qat" : "quantization";
    if (!ax_config_has(&cfg, "%s", map))
        AX_TRY_GOTO(ax_config_error(&cfg, "output_dir",
                                    "quantize needs a configuration with qat or quantization"),
                    st, done);
    AX_TRY_GOTO(ax_train_scheme_read(&cfg, map, &m.scheme), st, done);
    m.src = ax_config_str(&cfg, "output_dir");
    AX_TRY_GOTO(ax_path_join(&dst, m.src, "quantized"), st, done);
    m.dst = dst;
    AX_TRY_GOTO(run(&m), st, done);
done:
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

enum ax_status ax_cmd_quantize(int argc, char **argv) {
    struct ax_quantize_model m = {0};
    const char *paths[2], *scheme = NULL;
    int64_t threads = 0, n_group = 0;
    int n;
    const struct ax_arg args[] = {{"--scheme", AX_ARG_STRING, &scheme, 0, 0},
                                  {"--group", AX_ARG_INT, &n_group, 1, 1 << 20},
                                  {"--threads", AX_ARG_INT, &threads, 1, 1024}};
    if (argc > 1 && (ax_path_ends_in(argv[1], ".yaml") || ax_path_ends_in(argv[1], ".yml")))
        return of_config(argc, argv);
    AX_TRY(ax_args_parse(argc, argv, 3, args, 2, 2, paths, &n));
    if (!scheme)
        return ax_error(AX_ERR_CONFIG, "quantize: say which --scheme, such as int4 or fp8");
    AX_TRY(ax_scheme_find("--scheme", scheme, &m.scheme));
    AX_TRY(group(&m.scheme, n_group));
    struct ax_lock use;
    char *base;
    AX_TRY(ax_base_model_folder(&base, &use, paths[0], NULL, NULL));
    m.src = base;
    m.dst = paths[1];
    m.threads = ax_runtime_threads(&(struct ax_runtime_options){.threads = (int)threads});
    const enum ax_status st = run(&m);
    ax_lock_drop(&use);
    ax_free(base);
    return st;
}
