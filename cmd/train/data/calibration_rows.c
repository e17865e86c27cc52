/* The loader's sequences are valid until the next one: they are copied. */
#include "cmd/train/data/calibration_rows.h"

#include <string.h>

#include "base/io_path.h"
#include "base/mem.h"
#include "cmd/train/data/data.h"

#define HELD(n) (((n) + 7) / 8) /* rows that measure, for n rows that calibrate */

static void row_free(struct ax_calibration_row *r) {
    ax_free(r->docs);
    ax_free(r->tokens);
    ax_free(r->labels);
    ax_free(r->weight);
}

void ax_calibration_rows_free(struct ax_calibration_rows *r) {
    for (int i = 0; i < r->total; i++)
        row_free(&r->rows[i]);
    ax_free(r->rows);
    *r = (struct ax_calibration_rows){0};
}

static enum ax_status copy_row(struct ax_calibration_row *r, const struct ax_packed_sequence *s) {
    const size_t n = (size_t)s->n_tokens;
    *r = (struct ax_calibration_row){.n = s->n, .n_tokens = s->n_tokens};
    AX_TRY(ax_alloc(&r->docs, (size_t)s->n, sizeof *r->docs));
    AX_TRY(ax_alloc(&r->tokens, n, sizeof *r->tokens));
    AX_TRY(ax_alloc(&r->labels, n, sizeof *r->labels));
    AX_TRY(ax_alloc(&r->weight, n, sizeof *r->weight));
    int64_t at = 0;
    for (int d = 0; d < s->n; d++) {
        const struct ax_document *from = &s->docs[d];
        const size_t bytes = (size_t)from->n * sizeof(int32_t);
        memcpy(r->tokens + at, from->tokens, bytes);
        memcpy(r->labels + at, from->labels, bytes);
        for (int64_t i = 0; i < from->n; i++)
            r->weight[at + i] = from->weight ? from->weight[i] : 1;
        r->docs[d] = (struct ax_document){.n = from->n,
                                          .tokens = r->tokens + at,
                                          .labels = r->labels + at,
                                          .weight = r->weight + at};
        at += from->n;
    }
    return AX_OK;
}

static enum ax_status read_rows(struct ax_calibration_rows *r, struct ax_loader *loader,
                                int64_t most) {
    AX_TRY(ax_alloc(&r->rows, (size_t)most, sizeof *r->rows));
    for (bool got = true; r->total < most;) {
        struct ax_packed_sequence s;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (!got)
            break;
        AX_TRY(copy_row(&r->rows[r->total++], &s));
        r->max_docs = s.n > r->max_docs ? s.n : r->max_docs;
    }
    return AX_OK;
}

/* Who calibrates and who measures. */
static void divide(struct ax_calibration_rows *r, int64_t most) {
    const int64_t held = most == 0 ? r->total : r->total < 2 ? 0 : HELD(r->total * 8 / 9);
    r->n = r->total - (int)held;
    r->first_held = held > 0 ? r->n : 0;
}

static enum ax_status read_corpus(struct ax_calibration_rows *r, const struct ax_setup_data *d,
                                  int64_t most) {
    struct ax_corpus_source source = {.chunk = 4096};
    struct ax_example_source examples;
    struct ax_loader *loader = NULL;
    const struct ax_loader_options o = {.pack = {.mode = AX_PACK_IN_ORDER,
                                                 .capacity = r->capacity,
                                                 .max_docs = r->capacity,
                                                 .chunk = source.chunk}};
    ax_corpus_source_init(&source, &d->train, &examples);
    enum ax_status st;
    AX_TRY_GOTO(ax_loader_new(&loader, &examples, &o), st, done);
    AX_TRY_GOTO(read_rows(r, loader, most > 0 ? most + HELD(most) : 128), st, done);
    divide(r, most);
done:
    ax_loader_free(loader);
    ax_corpus_source_free(&source);
    return st;
}

enum ax_status ax_calibration_rows_read(struct ax_calibration_rows *r, const struct ax_config *cfg,
                                        int64_t most) {
    struct ax_setup_data d = {0};
    enum ax_status st;
    *r = (struct ax_calibration_rows){.capacity = ax_config_i64(cfg, "sequence_len")};
    AX_TRY_GOTO(ax_config_require(cfg, AX_CONFIG_FOR_TEXT), st, done);
    AX_TRY_GOTO(ax_setup_data_open(&d, cfg, false), st, done);
    if (d.stream)
        AX_TRY_GOTO(
            ax_config_error(cfg, "streaming", "streamed data sets cannot calibrate; give a file"),
            st, done);
    AX_TRY_GOTO(ax_setup_data_require(&d), st, done);
    AX_TRY_GOTO(read_corpus(r, &d, most), st, done);
    if (r->total == 0)
        st = ax_error(AX_ERR_DATA, "%s: no records to calibrate on",
                      ax_config_str(cfg, "datasets.0.path"));
done:
    ax_setup_data_close(&d);
    return st;
}

/* ---- the configuration ---- */

/* key="value" as YAML. */
static enum ax_status set(char **out, const char *key, const char *value) {
    json_t *v = json_string(value);
    char *quoted = v ? json_dumps(v, JSON_ENCODE_ANY) : NULL;
    json_decref(v);
    if (!quoted)
        return ax_error(AX_ERR_CONFIG, "%s: \"%s\" is not UTF-8", key, value);
    const enum ax_status st = ax_sprintf(out, "%s=%s", key, quoted);
    ax_free(quoted);
    return st;
}

enum ax_status ax_calibration_config(struct ax_config *cfg, const char *model, const char *file,
                                     const char *type) {
    static const char text[] =
        "sequence_len: 512\nval_set_size: 0\nshuffle_merged_datasets: false\n"
        "datasets:\n  - path: here\n";
    char *overrides[3] = {0};
    const bool config = ax_path_ends_in(file, ".yaml") || ax_path_ends_in(file, ".yml");
    enum ax_status st;
    *cfg = (struct ax_config){0};
    if (config && type)
        return ax_error(AX_ERR_CONFIG, "--type: %s is a configuration, which says it; remove it",
                        file);
    AX_TRY_GOTO(set(&overrides[0], "base_model", model), st, done);
    if (config) {
        AX_TRY_GOTO(ax_config_load(cfg, file, 1, overrides), st, done);
        goto done;
    }
    AX_TRY_GOTO(set(&overrides[1], "datasets.0.path", file), st, done);
    AX_TRY_GOTO(set(&overrides[2], "datasets.0.type", type ? type : "chat_template"), st, done);
    AX_TRY_GOTO(ax_config_parse(cfg, "--calibrate", text, sizeof text - 1, 3, overrides), st, done);
done:
    for (size_t i = 0; i < sizeof overrides / sizeof *overrides; i++)
        ax_free(overrides[i]);
    return st;
}
