/* `axtrain config`: help, show, schema, docs, models. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "model/convert/base_model.h"
#include "cmd/config/build.h"
#include "model/arch/family.h"

struct options {
    bool json, all;
    const char *out; /* NULL = standard output */
    int n;
    char **rest; /* the remaining words; points into argv */
};

/* Removes -o FILE, --json and --all from argv and keeps the order of the rest. */
static enum ax_status take_options(int argc, char **argv, struct options *opt) {
    *opt = (struct options){.rest = argv};
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            opt->json = true;
        } else if (strcmp(argv[i], "--all") == 0) {
            opt->all = true;
        } else if (strcmp(argv[i], "-o") == 0) {
            if (i + 1 == argc)
                return ax_error(AX_ERR_CONFIG, "-o: expected a file name");
            opt->out = argv[++i];
        } else {
            opt->rest[opt->n++] = argv[i];
        }
    }
    return AX_OK;
}

static enum ax_status show(const struct options *opt, struct ax_buf *out) {
    struct ax_config cfg;
    AX_TRY(ax_config_load(&cfg, opt->rest[0], opt->n - 1, opt->rest + 1));
    enum ax_status st =
        opt->json ? ax_config_show_json(&cfg, out) : ax_config_show(&cfg, opt->all, out);
    if (st == AX_OK && ax_config_is_set(&cfg, "base_model") &&
        ax_base_model_check_name(ax_config_str(&cfg, "base_model")) != AX_OK) {
        ax_log_warn("base_model: %s", ax_error_text());
        ax_error_clear();
    }
    ax_config_free(&cfg);
    return st;
}

static enum ax_status help(const struct options *opt, struct ax_buf *out) {
    return opt->n > 0 ? ax_config_help(opt->rest[0], out) : ax_config_list(out);
}

static enum ax_status schema(const struct options *opt, struct ax_buf *out) {
    (void)opt;
    return ax_config_schema(out);
}

static enum ax_status docs(const struct options *opt, struct ax_buf *out) {
    (void)opt;
    return ax_config_docs(out);
}

/* A table in Markdown, of which a part is README's. */
static enum ax_status models(const struct options *opt, struct ax_buf *out) {
    const struct ax_family *f;
    (void)opt;
    AX_TRY(ax_buf_puts(out, "| `model_type` | models | all but |\n|---|---|---|\n"));
    for (size_t i = 0; (f = ax_family_at(i)) != NULL; i++)
        AX_TRY(ax_buf_printf(out, "| `%s` | %s | %s |\n", f->model_type, f->models,
                             f->lacks ? f->lacks : ""));
    AX_TRY(ax_buf_puts(out, "\nFor the text model in them, on text:"));
    const struct ax_wrapper *w;
    for (size_t i = 0; (w = ax_wrapper_at(i)) != NULL; i++)
        AX_TRY(ax_buf_printf(out, "%s `%s`", i ? "," : "", w->model_type));
    return ax_buf_puts(out, ".\n");
}

static const struct verb {
    const char *name;
    int least, most; /* number of arguments */
    enum ax_status (*run)(const struct options *opt, struct ax_buf *out);
} verbs[] = {
    {"help", 0, 1, help}, {"show", 1, 10000, show}, {"schema", 0, 0, schema},
    {"docs", 0, 0, docs}, {"models", 0, 0, models},
};

static enum ax_status dispatch(int argc, char **argv, struct ax_buf *out, struct options *opt) {
    const char *name = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].name, name) != 0)
            continue;
        AX_TRY(take_options(argc - 2, argv + 2, opt));
        if (opt->n < verbs[i].least) {
            return ax_error(AX_ERR_CONFIG,
                            "config %s: expected a file; see `axtrain config "
                            "--help`",
                            name);
        }
        if (opt->n > verbs[i].most) {
            return ax_error(AX_ERR_CONFIG, "config %s: unexpected argument \"%s\"", name,
                            opt->rest[verbs[i].most]);
        }
        return verbs[i].run(opt, out);
    }
    return ax_error(
        AX_ERR_CONFIG,
        "config%s%s: expected help, show, schema, docs or models; see `axtrain config --help`",
        *name ? " " : "", name);
}

enum ax_status ax_cmd_config(int argc, char **argv) {
    struct options opt = {0};
    struct ax_buf out = {0};
    enum ax_status st = dispatch(argc, argv, &out, &opt);
    if (st == AX_OK)
        st = ax_write_result(opt.out, out.data, out.len);
    ax_buf_free(&out);
    return st;
}
