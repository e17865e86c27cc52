/* What a folder's generation_config.json says of answers: followed, or named. */
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "cmd/generate/text_model.h"

#define MAX_CONFIG ((size_t)16 << 20)

/* Settings that change transformers' answers and not these, and where they do nothing. */
static const struct {
    const char *key;
    double nothing; /* NAN: only null, or an empty list */
} others[] = {
    {"num_beams", 1},
    {"no_repeat_ngram_size", 0},
    {"suppress_tokens", NAN},
    {"begin_suppress_tokens", NAN},
    {"bad_words_ids", NAN},
    {"force_words_ids", NAN},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"forced_bos_token_id", NAN},
    {"forced_eos_token_id", NAN},
    {"forced_decoder_ids", NAN},
    {"sequence_bias", NAN},
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"top_h", NAN},
    {"penalty_alpha", 0},
    {"dola_layers", NAN},
    {"guidance_scale", 1},
    {"diversity_penalty", 0},
    {"encoder_repetition_penalty", 1},
    {"encoder_no_repeat_ngram_size", 0},
    {"exponential_decay_length_penalty", NAN},
    {"constraints", NAN},
    {"watermarking_config", NAN},
    {"max_time", NAN},
};

static bool does_nothing(const json_t *v, double nothing) {
    if (!v || json_is_null(v) || json_is_false(v))
        return true;
    if (json_is_array(v) || json_is_object(v))
        return json_array_size(v) + json_object_size(v) == 0;
    return json_is_number(v) && json_number_value(v) == nothing;
}

/* max_length counts the prompt, too, and matters only where max_new_tokens is not given. */
static enum ax_status name_others(const json_t *c, bool unlimited, const char *path) {
    struct ax_buf keys = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i < sizeof others / sizeof *others; i++)
        if (!does_nothing(json_object_get(c, others[i].key), others[i].nothing))
            st = ax_buf_printf(&keys, "%s%s", keys.len > 0 ? ", " : "", others[i].key);
    if (st == AX_OK && unlimited && !does_nothing(json_object_get(c, "max_length"), 20))
        st = ax_buf_printf(&keys, "%smax_length", keys.len > 0 ? ", " : "");
    if (keys.len > 0)
        ax_log_warn("%s: not followed, so answers differ from transformers': %s", path, keys.data);
    ax_buf_free(&keys);
    return st;
}

/* Those of the options replace them. transformers, too, ends at them, but keeps them in the text. */
static enum ax_status read_stop_strings(struct ax_text_model *t, struct ax_json v,
                                        const char *path) {
    const size_t n = json_is_string(v.v) ? 1 : ax_json_size(v);
    if (!v.v || json_is_null(v.v))
        return AX_OK;
    if (n > AX_ARG_LIST_MAX)
        return ax_json_error(v, "more than %d stop strings", AX_ARG_LIST_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct ax_json one = json_is_string(v.v) ? v : ax_json_at(v, i);
        AX_TRY(ax_json_str(one, &t->stop_strings.text[i]));
        if (t->stop_strings.text[i][0] == '\0')
            return ax_json_error(one, "expected text, got an empty string");
    }
    t->stop_strings.n = (int)n;
    ax_log_info("%s: answers end before the texts in stop_strings", path);
    return AX_OK;
}

static enum ax_status read_settings(struct ax_text_model *t, const struct ax_text_args *a,
                                    struct ax_json c, const char *path) {
    struct ax_sampling *s = &t->sampling;
    bool sample;
    AX_TRY(ax_json_bool_or(ax_json_get(c, "do_sample"), false, &sample));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "temperature"), 1, &s->temperature));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "top_k"), 0, INT32_MAX, 0, &s->top_k));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "top_p"), 1, &s->top_p));
    s->top_p = ax_given_top_p(s->top_p);
    AX_TRY(ax_json_f64_or(ax_json_get(c, "min_p"), 0, &s->min_p));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "repetition_penalty"), 1, &s->repetition_penalty));
    if (!(s->repetition_penalty > 0))
        return ax_json_error(ax_json_get(c, "repetition_penalty"), "expected a number above 0");
    AX_TRY(ax_json_i64_or(ax_json_get(c, "max_new_tokens"), 1, 1 << 24, 0, &t->max_new));
    AX_TRY(name_others(c.v, t->max_new == 0 && a->max_new_tokens <= 0, path));
    if (a->stop.n == 0)
        AX_TRY(read_stop_strings(t, ax_json_get(c, "stop_strings"), path));
    if (!sample) {
        const struct ax_sampling greedy = {.repetition_penalty = s->repetition_penalty};
        *s = greedy;
    }
    return AX_OK;
}

enum ax_status ax_text_settings_read(struct ax_text_model *t, const struct ax_text_args *a) {
    struct ax_json_doc doc = {0};
    char *path;
    AX_TRY(ax_path_join(&path, t->folder, "generation_config.json"));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path) && (st = ax_json_load(&doc, path, MAX_CONFIG)) == AX_OK)
        st = read_settings(t, a, ax_json_root(&doc), path);
    t->settings = json_incref(doc.root); /* has the texts */
    ax_json_free(&doc);
    ax_free(path);
    return st;
}
