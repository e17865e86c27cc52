/* Lengths of the documents, tokenized as in training, and settings derived from them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/config/build.h"
#include "cmd/train/data/data.h"
#include "cmd/init/init.h"
#include "data/records/format/tools.h"

#define ROUND     64
#define CUT_AT    2048 /* completion: texts are cut into documents of this length */
#define AS_LONG   1.3  /* the longest counts up to this many times the 99th percentile */
#define FULL      0.8  /* packing pays if documents fill less of a sequence on average */
#define CUT_FROM  0.1  /* from this share of too long documents on, truncates instead of drops */
#define NO_LENGTH (1 << 20)
#define MARK      "AXTRAINPROMPT"

/* ---- choosing ---- */

static int64_t round_up(int64_t n) {
    return (n + ROUND - 1) / ROUND * ROUND;
}

void ax_init_shape_choose(struct ax_init_shape *s, const uint32_t *lengths, size_t n,
                          int64_t max_positions, bool cut) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += lengths[i];
    *s = (struct ax_init_shape){.rows = (int64_t)n,
                                .median = lengths[n / 2],
                                .p99 = lengths[n - 1 - n / 100],
                                .longest = lengths[n - 1],
                                .mean = (double)sum / (double)n};
    const int64_t usual = round_up(s->p99), most = round_up(s->longest);
    s->sequence_len = (double)most <= AS_LONG * (double)usual ? most : usual;
    if (cut && s->sequence_len > CUT_AT)
        s->sequence_len = CUT_AT;
    if (max_positions > 0 && s->sequence_len > max_positions)
        s->sequence_len = max_positions;
    for (size_t i = 0; i < n; i++)
        s->too_long += lengths[i] > s->sequence_len;
    s->cut = s->too_long > (int64_t)(CUT_FROM * (double)n);
    s->packing = s->mean < FULL * (double)s->sequence_len;
}

/* ---- the prompt in the model's chat template ---- */

/* Renders {"messages": [the user says MARK], "add_generation_prompt": true}. */
static enum ax_status render_mark(const struct ax_template *t, const json_t *tokens, char **out) {
    const struct ax_template_options o = {.chat = true, .defaults = tokens};
    struct ax_template_output text = {0};
    json_t *vars = json_pack("{s[{ssss}]sb}", "messages", "role", "user", "content", MARK,
                             "add_generation_prompt", true);
    if (!vars)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    enum ax_status st = ax_template_render(t, vars, &o, &text);
    if (st == AX_OK)
        st = ax_strdup(out, text.text);
    ax_template_output_free(&text);
    json_decref(vars);
    return st;
}

static enum ax_status put_braced(struct ax_buf *out, const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        AX_TRY(
            ax_buf_printf(out, text[i] == '{' || text[i] == '}' ? "%c%c" : "%c", text[i], text[i]));
    return AX_OK;
}

/* The text before and after the user's words, with {instruction} in between. Omits `bos` at the
 * start, because the tokenizer adds it. */
static enum ax_status format_of(char *text, const char *bos, char **out) {
    struct ax_buf b = {0};
    char *at = strstr(text, MARK);
    enum ax_status st = AX_OK;
    if (!at)
        return AX_OK;
    if (bos && *bos && strncmp(text, bos, strlen(bos)) == 0)
        text += strlen(bos);
    AX_TRY_GOTO(put_braced(&b, text, (size_t)(at - text)), st, done);
    AX_TRY_GOTO(ax_buf_puts(&b, "{instruction}"), st, done);
    at += strlen(MARK);
    AX_TRY_GOTO(put_braced(&b, at, strlen(at)), st, done);
    st = ax_strdup(out, b.data);
done:
    ax_buf_free(&b);
    return st;
}

/* True if the tokenizer begins every text with BOS. */
static enum ax_status adds_bos(const struct ax_setup_tokenizer *tok, bool *adds) {
    const struct ax_encode_options o = {.add_special_tokens = true};
    struct ax_encoding e = {0};
    const enum ax_status st = ax_tokenizer_encode(tok->tokenizer, "a", 1, &o, &e);
    *adds = st == AX_OK && e.n > 0 && tok->bos != AX_NO_TOKEN && e.ids[0] == tok->bos;
    ax_encoding_free(&e);
    return st;
}

/* For a model without a template: pairs use the prompt and a newline, chats alpaca's format. */
static enum ax_status use_template(struct ax_init_data *d, const struct ax_config *cfg) {
    struct ax_setup_tokenizer tok;
    struct ax_template *t = NULL;
    char *text = NULL;
    bool bos;
    AX_TRY(ax_setup_tokenizer_open(&tok, cfg));
    enum ax_status st = ax_setup_template(&t, NULL, cfg, &tok, "");
    if (st != AX_OK) {
        ax_error_clear();
        d->template = "alpaca";
        d->has_none = true;
        st = d->is.kind == AX_RECORD_PAIR ? ax_strdup(&d->prompt_format, "{instruction}\n") : AX_OK;
        goto done;
    }
    if (d->is.kind != AX_RECORD_PAIR)
        goto done;
    AX_TRY_GOTO(render_mark(t, tok.tokens, &text), st, done);
    AX_TRY_GOTO(adds_bos(&tok, &bos), st, done);
    AX_TRY_GOTO(format_of(text, bos ? ax_tokenizer_special(tok.tokenizer, AX_BOS) : NULL,
                          &d->prompt_format),
                st, done);
    if (!d->prompt_format)
        st = ax_strdup(&d->prompt_format, "{instruction}\n");
done:
    ax_free(text);
    ax_template_free(t);
    ax_setup_tokenizer_close(&tok);
    return st;
}

/* ---- measuring ---- */

/* The configuration of a run that only measures lengths. */
static enum ax_status put_config(struct ax_buf *out, const struct ax_init_data *d,
                                 const char *model, int64_t length, bool with_data) {
    AX_TRY(ax_buf_puts(out, "base_model: "));
    AX_TRY(ax_config_put_word(out, model));
    AX_TRY(ax_buf_printf(out, "\nsequence_len: %lld\nmicro_batch_size: 1\n", (long long)length));
    if (d->template)
        AX_TRY(ax_buf_printf(out, "chat_template: %s\n", d->template));
    if (!with_data)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, d->task->keys));
    AX_TRY(ax_init_put_entry(out, d));
    return ax_buf_printf(out, "    split: train[:%d]\n", AX_INIT_SAMPLE);
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

static enum ax_status choose(struct ax_init_shape *s, const struct ax_init_data *d,
                             const struct ax_examples *set, int64_t max_positions) {
    uint32_t *lengths;
    if (set->n == 0 || set->n_trained == 0)
        return ax_error(AX_ERR_DATA,
                        "--data %s: none of the tokens in the first %lld records would be "
                        "trained on",
                        d->path, (long long)set->n);
    AX_TRY(ax_alloc(&lengths, set->n, sizeof *lengths));
    for (size_t i = 0; i < set->n; i++)
        lengths[i] = set->list[i].n;
    qsort(lengths, set->n, sizeof *lengths, ascending);
    ax_init_shape_choose(s, lengths, set->n, max_positions, d->is.kind == AX_RECORD_TEXT);
    s->pairs = d->task->pairs;
    ax_free(lengths);
    return AX_OK;
}

static enum ax_status parse(struct ax_config *cfg, const struct ax_init_data *d, const char *model,
                            int64_t length, bool with_data) {
    struct ax_buf text = {0};
    enum ax_status st = put_config(&text, d, model, length, with_data);
    if (st == AX_OK)
        st = ax_config_parse(cfg, "init", text.data, text.len, 0, NULL);
    ax_buf_free(&text);
    return st;
}

/* What is measured. */
struct sample {
    struct ax_init_shape *s;
    struct ax_init_data *d;
    const char *model;
    int64_t length, max_positions;
};

/* With the template as it is set. *lost: appends what it leaves out of tools. *skipped: records. */
static enum ax_status measure(const struct sample *m, struct ax_buf *lost, int64_t *skipped) {
    struct ax_config cfg;
    struct ax_setup_data data;
    AX_TRY(parse(&cfg, m->d, m->model, m->length, true));
    enum ax_status st = ax_setup_data_open(&data, &cfg, false);
    if (st == AX_OK) {
        const struct ax_setup_sets *sets = &data.train_sets;
        const struct ax_examples *set = &sets->sets[0];
        const struct ax_template *t = ax_format_template(sets->entries[0].format);
        *skipped = set->info.bad.n_empty;
        if (t)
            st = ax_tools_put_lost(lost, t, set->info.oddities, set->files, set->n_files);
        if (st == AX_OK)
            st = choose(m->s, m->d, set, m->max_positions);
        ax_setup_data_close(&data);
    }
    ax_config_free(&cfg);
    return st;
}

/* Does the template contain the model's EOS, so that ends of turns are tokens that it knows? */
static enum ax_status has_eos(const struct sample *m, const char *name, bool *has) {
    struct ax_setup_tokenizer tok;
    struct ax_template *t = NULL;
    struct ax_config cfg;
    size_t n;
    AX_TRY(parse(&cfg, m->d, m->model, m->length, false));
    enum ax_status st = ax_setup_tokenizer_open(&tok, &cfg);
    if (st == AX_OK) {
        const char *eos = ax_tokenizer_special(tok.tokenizer, AX_EOS);
        st = ax_template_builtin(&t, name);
        *has = st == AX_OK && eos && strstr(ax_template_source(t, &n), eos);
        ax_template_free(t);
        ax_setup_tokenizer_close(&tok);
    }
    ax_config_free(&cfg);
    return st;
}

/* Measures with the first built-in template that has the model's EOS, writes all tools and skips no more
 * records; else again as before. */
static enum ax_status replace_template(const struct sample *m, int64_t skipped) {
    static const char *const names[] = {"qwen3",  "llama4",  "llama3_2_vision",
                                        "gemma4", "exaone4", "qwen_25"};
    const char *before = m->d->template;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ax_buf lost = {0};
        int64_t empty = 0;
        bool fits = false;
        AX_TRY(has_eos(m, names[i], &fits));
        if (!fits)
            continue;
        m->d->template = names[i];
        const enum ax_status st = measure(m, &lost, &empty);
        m->d->replaced = st == AX_OK && lost.len == 0 && empty <= skipped;
        ax_buf_free(&lost);
        if (m->d->replaced || st == AX_ERR_NOMEM)
            return st;
        ax_error_clear(); /* that template refuses these data */
    }
    struct ax_buf lost = {0};
    m->d->template = before;
    const enum ax_status st = measure(m, &lost, &skipped);
    ax_buf_free(&lost);
    return st;
}

enum ax_status ax_init_shape_measure(struct ax_init_shape *s, struct ax_init_data *d,
                                     const char *model, int64_t max_positions) {
    const int64_t cut = max_positions > 0 && max_positions < CUT_AT ? max_positions : CUT_AT;
    const int64_t length = d->is.kind == AX_RECORD_TEXT ? cut : NO_LENGTH;
    const struct sample m = {s, d, model, length, max_positions};
    struct ax_buf lost = {0};
    struct ax_config cfg;
    int64_t skipped = 0;
    if (d->chat || d->is.kind == AX_RECORD_PAIR) {
        AX_TRY(parse(&cfg, d, model, length, false));
        const enum ax_status st = use_template(d, &cfg);
        ax_config_free(&cfg);
        AX_TRY(st);
    }
    enum ax_status st = measure(&m, &lost, &skipped);
    if (lost.len == 0)
        return st;
    d->lost = lost.data;
    ax_error_clear();
    return replace_template(&m, skipped);
}
