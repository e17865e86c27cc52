/* Detects the data set type from the names and kinds of the columns. */
#include <stdio.h>
#include <string.h>

#include "cmd/init/init.h"
#include "data/rows/rows.h"

#define LOOK_AT 64 /* records to inspect */

/* Pairs of prompt and answer columns that data sets use, the least ambiguous first. */
static const struct {
    const char *prompt, *answer;
} pairs[] = {
    {"question", "answer"},      {"prompt", "completion"}, {"prompt", "response"},
    {"instruction", "response"}, {"query", "response"},    {"question", "response"},
    {"problem", "solution"},     {"input", "output"},      {"prompt", "answer"},
};
static const struct {
    const char *role, *content;
} speakers[] = {{"role", "content"}, {"from", "value"}};
static const char *const texts[] = {"text", "content", "document"};

/* ---- columns ---- */

struct sample {
    json_t *rows[LOOK_AT];
    size_t n;
};

/* True if every record has the column with this kind of value. */
static bool all_have(const struct sample *s, const char *column,
                     bool (*fits)(const json_t *v, const void *ctx), const void *ctx) {
    for (size_t i = 0; i < s->n; i++)
        if (!fits(json_object_get(s->rows[i], column), ctx))
            return false;
    return true;
}

static bool is_text(const json_t *v, const void *ctx) {
    (void)ctx;
    return json_is_string(v);
}

static bool is_anything(const json_t *v, const void *ctx) {
    (void)ctx;
    return v != NULL;
}

/* A list of objects with a speaker and text (null or missing with tool calls). */
static bool is_conversation(const json_t *v, const void *ctx) {
    const size_t which = *(const size_t *)ctx;
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *turn = json_array_get(v, i);
        const json_t *words = json_object_get(turn, speakers[which].content);
        if (!json_is_string(json_object_get(turn, speakers[which].role)) ||
            (!words && !json_object_get(turn, "tool_calls")))
            return false;
    }
    return json_array_size(v) > 0;
}

static bool has_text(const struct sample *s, const char *column) {
    return all_have(s, column, is_text, NULL);
}

static void set(char *to, const char *name) {
    snprintf(to, AX_INIT_NAME, "%s", name);
}

/* ---- kinds ---- */

static bool find_chat(struct ax_init_data *d, const struct sample *s) {
    const char *column;
    json_t *v;
    json_object_foreach(s->rows[0], column, v) {
        for (size_t which = 0; which < sizeof speakers / sizeof *speakers; which++) {
            if (strlen(column) >= AX_INIT_NAME || !all_have(s, column, is_conversation, &which))
                continue;
            d->kind = AX_INIT_CHAT;
            set(d->messages, column);
            set(d->role, speakers[which].role);
            set(d->content, speakers[which].content);
            return true;
        }
    }
    return false;
}

static bool find_alpaca(struct ax_init_data *d, const struct sample *s) {
    if (!has_text(s, "instruction") || !has_text(s, "output"))
        return false;
    d->kind = AX_INIT_ALPACA;
    set(d->prompt, "instruction");
    set(d->answer, "output");
    return true;
}

static bool find_pair(struct ax_init_data *d, const struct sample *s) {
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!has_text(s, pairs[i].prompt) || !has_text(s, pairs[i].answer))
            continue;
        d->kind = AX_INIT_PAIR;
        set(d->prompt, pairs[i].prompt);
        set(d->answer, pairs[i].answer);
        return true;
    }
    return false;
}

/* Finds a column with a common name, or the only one. */
static bool find_text(struct ax_init_data *d, const struct sample *s) {
    const char *name = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !name; i++)
        name = has_text(s, texts[i]) ? texts[i] : NULL;
    if (!name && json_object_size(s->rows[0]) == 1) {
        const char *only = json_object_iter_key(json_object_iter(s->rows[0]));
        name = strlen(only) < AX_INIT_NAME && has_text(s, only) ? only : NULL;
    }
    if (!name)
        return false;
    d->kind = AX_INIT_TEXT;
    set(d->text, name);
    return true;
}

/* ---- errors ---- */

static enum ax_status no_kind(const struct ax_init_data *d, const struct sample *s) {
    struct ax_buf columns = {0};
    const char *column;
    json_t *v;
    enum ax_status st;
    json_object_foreach(s->rows[0], column, v) {
        AX_TRY_GOTO(ax_buf_printf(&columns, "%s%s", columns.len ? ", " : "", column), st, done);
    }
    st = ax_error(AX_ERR_DATA,
                  "--data %s: the columns (%.300s) do not match a known record type: messages (a "
                  "list of role and content), conversations (from and value), instruction and "
                  "output, question and answer, prompt and completion, text. Write the file by "
                  "hand: `axtrain config help datasets[].type`",
                  d->path, columns.len ? columns.data : "none");
done:
    ax_buf_free(&columns);
    return st;
}

static enum ax_status find_kind(struct ax_init_data *d, const struct sample *s) {
    if (s->n == 0)
        return ax_error(AX_ERR_DATA, "--data %s: it has no records", d->path);
    if (find_chat(d, s))
        return AX_OK;
    if (all_have(s, "chosen", is_anything, NULL) && all_have(s, "rejected", is_anything, NULL))
        return ax_error(AX_ERR_DATA,
                        "--data %s: the records are preferences (chosen, rejected); fine-tuning "
                        "needs one answer per record",
                        d->path);
    return find_alpaca(d, s) || find_pair(d, s) || find_text(d, s) ? AX_OK : no_kind(d, s);
}

/* ---- reading ---- */

static enum ax_status read_rows(struct ax_init_data *d, struct ax_rows *rows, struct sample *s) {
    for (;;) {
        struct ax_raw_row raw;
        bool got;
        AX_TRY(ax_rows_next(rows, &raw, &got));
        if (!got)
            return AX_OK;
        d->rows++;
        if (s->n == LOOK_AT)
            continue;
        AX_TRY(ax_rows_parse(rows, &raw, &s->rows[s->n]));
        s->n++;
    }
}

enum ax_status ax_init_data_read(struct ax_init_data *d, const char *path) {
    const struct ax_rows_options o = {.path = path};
    struct sample s = {.n = 0};
    struct ax_rows *rows;
    *d = (struct ax_init_data){.path = path};
    enum ax_status st = ax_rows_open(&rows, &o);
    if (st != AX_OK)
        return ax_error_prefix(st, "--data");
    st = read_rows(d, rows, &s);
    if (st == AX_OK)
        st = find_kind(d, &s);
    for (size_t i = 0; i < s.n; i++)
        json_decref(s.rows[i]);
    ax_rows_close(rows);
    return st;
}

void ax_init_data_free(struct ax_init_data *d) {
    ax_free(d->prompt_format);
    *d = (struct ax_init_data){0};
}
