/* Detects the data set type from the first records. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/init/init.h"
#include "data/records/rows/rows.h"

#define LOOK_AT 64 /* records to inspect */

struct sample {
    json_t *rows[LOOK_AT];
    size_t n;
};

/* By enum ax_record_kind; those without keys are fine-tuned. */
static const struct ax_init_task tasks[] = {
    [AX_RECORD_PREFERENCES] = {"preferred and rejected answers", "Preference training", "rl: dpo\n",
                               "dpo", 0.05, 1, true},
    [AX_RECORD_UNPAIRED] = {"rated answers", "Preference training", "rl: kto\n", "dpo", 0.05, 1,
                            false},
    [AX_RECORD_STEPS] = {"labeled steps", "A process reward model", "process_reward_model: true\n",
                         "prm", 0.5, 3, false},
    [AX_RECORD_COMPLETION] = {"a prompt and its completion, as messages", "Fine-tuning", "", "sft",
                              1, 3, false},
    [AX_RECORD_CHAT] = {"chat messages", "Fine-tuning", "", "sft", 1, 3, false},
    [AX_RECORD_ALPACA] = {"instruction, input, output", "Fine-tuning", "", "sft", 1, 3, false},
    [AX_RECORD_PAIR] = {"a prompt and an answer", "Fine-tuning", "", "sft", 1, 3, false},
    [AX_RECORD_TEXT] = {"plain text", "Fine-tuning", "", "sft", 1, 3, false},
};

static enum ax_status find_kind(struct ax_init_data *d, const struct sample *s) {
    char columns[300];
    if (s->n == 0)
        return ax_error(AX_ERR_DATA, "--data %s: it has no records", d->path);
    d->is = ax_records_recognize(s->rows, s->n);
    d->task = &tasks[d->is.kind];
    d->chat = d->is.kind == AX_RECORD_CHAT ||
              json_is_array(json_object_get(s->rows[0], "chosen")) ||
              json_is_array(json_object_get(s->rows[0], "completion"));
    if (d->is.kind != AX_RECORD_UNKNOWN)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "--data %s: the columns (%s) do not match a known record type: messages (a "
                    "list of role and content), conversations (from and value), instruction and "
                    "output, question and answer, prompt and completion, text. Write the file by "
                    "hand: `axtrain config help datasets[].type`",
                    d->path, ax_record_columns(s->rows[0], columns, sizeof columns));
}

/* ---- how a text is divided ---- */

#define SMALL_BYTES ((off_t)1 << 20) /* of a text file that is one document */

/* Several small files? */
static bool are_documents(const struct ax_rows *rows) {
    const size_t n = ax_rows_n_files(rows);
    struct stat info;
    for (size_t i = 0; i < n; i++)
        if (stat(ax_rows_file(rows, i), &info) != 0 || info.st_size > SMALL_BYTES)
            return false;
    return n > 1;
}

/* Do most of the first paragraphs have several lines? */
static enum ax_status are_paragraphs(const struct ax_rows_options *lines, bool *yes) {
    struct ax_rows_options o = *lines;
    struct ax_rows *rows;
    int n = 0, wrapped = 0;
    o.sample_by = AX_SAMPLE_PARAGRAPH;
    AX_TRY(ax_rows_open(&rows, &o));
    enum ax_status st = AX_OK;
    for (bool got = true; got && n < LOOK_AT && st == AX_OK;) {
        struct ax_raw_row raw;
        st = ax_rows_next(rows, &raw, &got);
        if (st == AX_OK && got) {
            n++;
            wrapped += raw.text && memchr(raw.text, '\n', raw.len);
        }
    }
    ax_rows_close(rows);
    *yes = n > 1 && 2 * wrapped > n;
    return st;
}

/* Standard input can be read only once, and gets the default. */
static enum ax_status choose_records(struct ax_init_data *d, struct ax_rows_options *o) {
    struct ax_rows *rows;
    bool paragraphs = false;
    AX_TRY(ax_rows_open(&rows, o));
    const bool text = ax_rows_are_text(rows) && strcmp(o->path, "-") != 0;
    const bool documents = text && are_documents(rows);
    ax_rows_close(rows);
    if (!text)
        return AX_OK;
    if (!documents)
        AX_TRY(are_paragraphs(o, &paragraphs));
    if (documents) {
        o->sample_by = AX_SAMPLE_DOCUMENT;
        d->sample_by = "document # several small files: each is a record";
    } else if (paragraphs) {
        o->sample_by = AX_SAMPLE_PARAGRAPH;
        d->sample_by = "paragraph # blank lines are between blocks of several lines";
    } else {
        d->sample_by = "line # no blocks of several lines with blank lines between them";
    }
    return AX_OK;
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
    struct ax_rows_options o = {.path = path};
    struct sample s = {.n = 0};
    struct ax_rows *rows;
    *d = (struct ax_init_data){.path = path};
    enum ax_status st = choose_records(d, &o);
    if (st == AX_OK)
        st = ax_rows_open(&rows, &o);
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
    ax_free(d->lost);
    *d = (struct ax_init_data){0};
}
