/* The table of formats; creating one and applying it to a record. */
#include <string.h>

#include "base/text/json.h"
#include "data/records/format/answers.h"
#include "data/records/format/chat.h"
#include "data/records/format/names.h"
#include "data/records/format/recognize.h"
#include "data/records/format/topk.h"

/* ---- records for fine-tuning without a type, as TRL's SFTTrainer reads them ----
 *
 *   messages             rendered; every token is trained on, or what the template marks
 *   prompt, completion   texts or messages; the completion is trained on (answers_own.c)
 *   text                 every token
 *
 * Other records are tokens already, which come before the columns above; those with a prompt or text have no targets
 * of a teacher. */

static enum ax_status own_init(struct ax_format *f) {
    if (f->o.chat && f->o.chat->by_generation)
        AX_TRY(ax_chat_check_generation(f));
    return ax_format_type_answers.init(f);
}

/* A table has null in the columns of its other records. */
static bool has(const json_t *record, const char *column) {
    const json_t *v = json_object_get(record, column);
    return v && !json_is_null(v);
}

static enum ax_status own_record(const struct ax_format *f, struct ax_format_work *w,
                                 json_t *record, struct ax_origin origin,
                                 struct ax_example_list *out) {
    const char *messages = f->o.chat ? f->o.chat->field_messages : "messages";
    char columns[300];
    const bool tokens = has(record, "input_ids");
    if (has(record, messages) && !tokens) {
        if (!f->o.chat)
            return ax_error(AX_ERR_DATA, "%s: the model has no chat template; set chat_template",
                            messages);
        return ax_format_type_chat.record(f, w, record, origin, out);
    }
    const bool is_text = !tokens && (has(record, "prompt") || has(record, "text"));
    if (is_text && !ax_topk_wanted(f))
        return ax_format_type_answers.record(f, w, record, origin, out);
    if (!json_object_get(record, "input_ids") && !ax_topk_wanted(f))
        return ax_error(AX_ERR_DATA,
                        "without a `type`, a record has the column \"%s\", \"prompt\", \"text\" or "
                        "\"input_ids\"; this one has %s",
                        messages, ax_record_columns(record, columns, sizeof columns));
    return ax_format_type_ids.record(f, w, record, origin, out);
}

static const struct ax_format_type own_type = {"TRL's columns", false, false, own_init, own_record};

/* ---- making a format ---- */

static const struct ax_format_type *const types[] = {
    &ax_format_type_chat,     &ax_format_type_alpaca,       &ax_format_type_gpteacher,
    &ax_format_type_oasst,    &ax_format_type_jeopardy,     &ax_format_type_completion,
    &ax_format_type_pretrain, &ax_format_type_input_output, &ax_format_type_synthetic,
};

static enum ax_status find_type(const struct ax_format_options *o,
                                const struct ax_format_type **out) {
    *out = o->task == AX_TASK_STEPS    ? &ax_format_type_steps
           : o->task == AX_TASK_PROMPT ? &ax_format_type_prompt
                                       : &ax_format_type_answers;
    if (o->task != AX_TASK_TEXT)
        return AX_OK;
    *out = o->user ? &ax_format_type_user : o->answers ? &own_type : &ax_format_type_ids;
    if (o->user || !o->type)
        return AX_OK;
    const size_t n = strcspn(o->type, ":");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *name = types[i]->name;
        if (strncmp(name, o->type, n) == 0 && name[n] == '\0' &&
            (o->type[n] == '\0' || types[i]->styles)) {
            *out = types[i];
            return AX_OK;
        }
    }
    if (ax_answers_is_type(o->type))
        return ax_error(AX_ERR_CONFIG,
                        "type \"%s\" makes preferences, which fine-tuning does not read; set rl or "
                        "reward_model",
                        o->type);
    return ax_error(AX_ERR_UNSUPPORTED, "records of type \"%s\" are not supported", o->type);
}

/* Learns what the tokenizer adds around a text by looking at one. */
static enum ax_status learn_frame(struct ax_format *f) {
    struct ax_encoding bare = {0};
    struct ax_encoding framed = {0};
    enum ax_status st;
    const struct ax_text text = {"a", 1};
    AX_TRY_GOTO(ax_format_encode(f, text, false, &bare), st, done);
    AX_TRY_GOTO(ax_format_encode(f, text, true, &framed), st, done);
    size_t at = 0;
    while (at + bare.n < framed.n &&
           memcmp(framed.ids + at, bare.ids, bare.n * sizeof *bare.ids) != 0)
        at++;
    f->n_before = at;
    f->n_after = framed.n - at - bare.n;
    if (f->n_before > AX_ADDED_MAX || f->n_after > AX_ADDED_MAX) {
        st = ax_error(AX_ERR_UNSUPPORTED,
                      "the tokenizer adds %zu tokens to every text; at most %d are supported",
                      framed.n - bare.n, AX_ADDED_MAX);
        goto done;
    }
    memcpy(f->before, framed.ids, f->n_before * sizeof *f->before);
    memcpy(f->after, framed.ids + framed.n - f->n_after, f->n_after * sizeof *f->after);
done:
    ax_encoding_free(&bare);
    ax_encoding_free(&framed);
    return st;
}

/* Only some types have log-probs of a teacher. */
static enum ax_status check_topk(const struct ax_format *f) {
    if (!ax_topk_wanted(f) || f->type == &ax_format_type_chat || f->type == &ax_format_type_ids ||
        f->type == &own_type)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "type %s has no log-probs of a teacher: kd_trainer reads them from type "
                    "chat_template and from tokenized records (no type)",
                    f->type->name ? f->type->name : "(your own)");
}

static enum ax_status init(struct ax_format *f) {
    AX_TRY(find_type(&f->o, &f->type));
    AX_TRY(check_topk(f));
    f->eos = f->bos = AX_NO_TOKEN;
    if (f->type->needs_eos && ax_tokenizer_special_id(f->tok, AX_EOS) == AX_NO_TOKEN)
        return ax_error(AX_ERR_CONFIG,
                        "type %s ends each text with EOS, but the tokenizer has no eos_token; set "
                        "special_tokens.eos_token",
                        f->type->name);
    if (f->tok) {
        f->bos = ax_tokenizer_special_id(f->tok, AX_BOS);
        f->eos = ax_tokenizer_special_id(f->tok, AX_EOS);
        AX_TRY(learn_frame(f));
    }
    AX_TRY(ax_alloc(&f->ends, 1, sizeof *f->ends));
    if (f->eos != AX_NO_TOKEN)
        f->ends[f->n_ends++] = f->eos;
    AX_TRY(ax_buf_puts(&f->warnings, ""));
    AX_TRY(ax_names_choose(f));
    return f->type->init ? f->type->init(f) : AX_OK;
}

enum ax_status ax_format_new(struct ax_format **out, const struct ax_format_options *o) {
    struct ax_format *f;
    AX_TRY(ax_alloc(&f, 1, sizeof *f));
    f->o = *o;
    f->tok = o->tokenizer;
    enum ax_status st = init(f);
    if (st == AX_OK)
        *out = f;
    else
        ax_format_free(f);
    return st;
}

void ax_format_free(struct ax_format *f) {
    if (!f)
        return;
    ax_free(f->ends);
    ax_free(f->own);
    ax_buf_free(&f->warnings);
    ax_free(f);
}

const char *ax_format_warnings(const struct ax_format *f) {
    return f->warnings.data;
}

const struct ax_columns *ax_format_columns(const struct ax_format *f) {
    return f->o.columns;
}

const struct ax_template *ax_format_template(const struct ax_format *f) {
    return f->o.chat ? f->o.chat->template : NULL;
}

void ax_format_work_free(struct ax_format_work *w) {
    ax_buf_free(&w->text);
    ax_encoding_free(&w->full);
    ax_encoding_free(&w->part);
    ax_encoding_free(&w->other);
    ax_free(w->labels);
    *w = (struct ax_format_work){0};
}

static bool is_tokens(const json_t *record) {
    return json_is_array(json_object_get(record, "input_ids")) &&
           json_is_array(json_object_get(record, "attention_mask")) &&
           json_is_array(json_object_get(record, "labels"));
}

/* Does the format read messages, or the columns that are read without a type? */
static bool reads_whole_records(const struct ax_format *f) {
    const bool map = f->o.user || (f->o.answers && f->o.answers->map);
    return !map && (!f->o.type || strncmp(f->o.type, "chat_template", 13) == 0);
}

/* A file's name, its bytes, or a list of these; members that are null or empty are no media. */
static bool has_medium(const json_t *v) {
    bool has = json_string_length(v) > 0;
    const char *key;
    json_t *member;
    for (size_t i = 0; i < json_array_size(v) && !has; i++)
        has = has_medium(json_array_get(v, i));
    json_object_foreach((json_t *)(uintptr_t)v, key, member) {
        has = has || has_medium(member);
    }
    return has;
}

/* Text about an image that is not there teaches to make it up. Beside a prompt, a text may be the name of a
 * container that an environment starts. */
static enum ax_status refuse_media(const struct ax_format *f, const json_t *record) {
    static const struct {
        const char *column, *what;
    } media[] = {
        {"image", "images are"}, {"images", "images are"}, {"audio", "audio is"},
        {"audios", "audio is"},  {"video", "video is"},    {"videos", "video is"},
    };
    for (size_t i = 0; i < sizeof media / sizeof *media; i++) {
        const json_t *v = json_object_get(record, media[i].column);
        if (has_medium(v) && !(json_is_string(v) && f->o.task == AX_TASK_PROMPT))
            return ax_error(AX_ERR_DATA,
                            "%s: %s not supported; leave the record out, or remove the "
                            "column to train on its text alone",
                            media[i].column, media[i].what);
    }
    return AX_OK;
}

enum ax_status ax_format_record(const struct ax_format *f, struct ax_format_work *w, json_t *record,
                                struct ax_origin origin, struct ax_example_list *out) {
    const size_t before = out->n;
    const bool text = f->o.task == AX_TASK_TEXT;
    const struct ax_format_type *type = text && is_tokens(record) ? &ax_format_type_ids : f->type;
    w->oddities = 0;
    if (reads_whole_records(f))
        AX_TRY(refuse_media(f, record));
    enum ax_status st = type->record(f, w, record, origin, out);
    if (st != AX_OK) {
        ax_example_list_cut(out, before);
        w->oddities &= AX_ODD_LOST;
    } else if (out->n > before) {
        out->items[before].oddities = w->oddities | ax_format_unread(f, type, record);
    }
    return text && st == AX_ERR_DATA ? ax_record_error_hint(st, &f->o, record) : st;
}
