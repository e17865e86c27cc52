/* `axtrain template`: a conversation → the text that the model receives, byte for byte. */
#include <errno.h>
#include <stdio.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "cmd/args/args.h"
#include "cmd/commands.h"
#include "data/records/format/tools.h"
#include "data/text/template/template.h"

enum { MAX_INPUT = 1 << 30 };

static const char STDIN[] = "/dev/stdin";

struct options {
    const char *model, *file, *input;
    bool spans, fixed_now;
    int64_t now;
};

static enum ax_status parse_options(int argc, char **argv, struct options *o) {
    const int64_t unset = INT64_MIN;
    o->input = STDIN;
    o->now = unset;
    const struct ax_arg args[] = {
        {"--model", AX_ARG_STRING, &o->model, 0, 0},
        {"--file", AX_ARG_STRING, &o->file, 0, 0},
        {"--spans", AX_ARG_FLAG, &o->spans, 0, 0},
        {"--now", AX_ARG_INT, &o->now, INT64_MIN + 1, INT64_MAX},
    };
    int n = 0;
    AX_TRY(ax_args_parse(argc, argv, 4, args, 0, 1, &o->input, &n));
    o->fixed_now = o->now != unset;
    if ((o->model == NULL) == (o->file == NULL))
        return ax_error(AX_ERR_CONFIG, "template: give either --model DIR or --file TEMPLATE");
    return AX_OK;
}

static enum ax_status load_template(const struct options *o, const json_t *vars,
                                    struct ax_template **t, json_t **tokens) {
    if (o->model != NULL) {
        const json_t *tools = json_object_get(vars, "tools");
        if (!ax_path_is_dir(o->model))
            return ax_error(AX_ERR_CONFIG, "--model: no such folder: %s", o->model);
        AX_TRY(ax_template_folder_tokens(tokens, o->model));
        return ax_template_from_folder(t, o->model, NULL, tools != NULL && !json_is_null(tools));
    }
    char *source;
    size_t len;
    AX_TRY(ax_read_file(o->file, AX_TEMPLATE_MAX_SOURCE, &source, &len));
    enum ax_status st = ax_template_compile(t, o->file, source, len);
    ax_free(source);
    return st;
}

static enum ax_status print(const struct options *o, const struct ax_template *t,
                            const struct ax_template_output *out) {
    if (!o->spans) {
        fwrite(out->text, 1, out->len, stdout);
    } else {
        if (!ax_template_has_generation(t)) {
            ax_log_warn(
                "the template has no generation blocks, so it marks nothing as the model's");
        }
        printf("[");
        for (size_t i = 0; i < out->n_spans; i++)
            printf("%s[%zu, %zu]", i > 0 ? ", " : "", out->spans[i].start, out->spans[i].end);
        printf("]\n");
    }
    if (fflush(stdout) != 0 && errno != EPIPE)
        return ax_error(AX_ERR_IO, "cannot write the text: %m");
    return AX_OK;
}

/* Warns of tools that the text would be the same without. */
static enum ax_status say_lost(const struct ax_template *t, json_t *root, const char *name,
                               const struct ax_template_options *given,
                               const struct ax_template_output *out) {
    json_t *vars = json_is_array(root) ? json_pack("{s:O}", "messages", root) : json_incref(root);
    struct ax_template_options o = *given;
    struct ax_oddities counted[AX_ODDITIES] = {{0}};
    char *const files[] = {(char *)(uintptr_t)name};
    struct ax_buf text = {0};
    unsigned lost = 0;
    o.chat = true;
    enum ax_status st = vars ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    if (st == AX_OK && json_object_get(vars, "messages"))
        st = ax_tools_find_lost(t, vars, &o, out, &lost);
    ax_oddities_count(counted, lost, &(struct ax_origin){.line = 1});
    if (st == AX_OK)
        st = ax_tools_put_lost(&text, t, counted, files, 1);
    if (text.len > 0)
        ax_log_warn("%s", text.data);
    ax_buf_free(&text);
    json_decref(vars);
    return st;
}

enum ax_status ax_cmd_template(int argc, char **argv) {
    struct options o = {0};
    char *text = NULL;
    size_t len = 0;
    struct ax_json_doc doc = {0};
    struct ax_template *t = NULL;
    struct ax_template_output out = {0};
    json_t *tokens = NULL;
    enum ax_status st;
    AX_TRY_GOTO(parse_options(argc, argv, &o), st, done);
    AX_TRY_GOTO(ax_read_file(o.input, MAX_INPUT, &text, &len), st, done);
    const char *name = o.input == STDIN ? "standard input" : o.input;
    AX_TRY_GOTO(ax_json_parse(&doc, name, text, len), st, done);
    AX_TRY_GOTO(load_template(&o, doc.root, &t, &tokens), st, done);
    const struct ax_template_options options = {
        .defaults = tokens, .fixed_now = o.fixed_now, .now = o.now};
    AX_TRY_GOTO(ax_template_render_text(t, text, len, &options, &out), st, done);
    AX_TRY_GOTO(print(&o, t, &out), st, done);
    st = say_lost(t, doc.root, name, &options, &out);
done:
    ax_template_output_free(&out);
    ax_template_free(t);
    json_decref(tokens);
    ax_json_free(&doc);
    ax_free(text);
    return st;
}
