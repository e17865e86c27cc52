/* GGUF stores linear and YaRN scaling in keys, and Llama 3 scaling only as its result: one divisor
 * per rotary frequency. The settings are recovered by trying those of published models; settings
 * with the same divisors are the same scaling. */
#include "ckpt/gguf/rope.h"

#include <math.h>
#include <string.h>

#define TOLERANCE 1e-4 /* relative; the divisors were computed in single precision */
#define MAX_HALF  1024 /* frequencies per head */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for rope_scaling");
}

struct llama3 {
    double factor, low, high, context;
};

/* The divisor for the frequency with this wavelength. */
static double llama3_divisor(const struct llama3 *s, double wave) {
    if (wave < s->context / s->high)
        return 1;
    if (wave > s->context / s->low)
        return s->factor;
    const double smooth = (s->context / wave - s->low) / (s->high - s->low);
    return 1 / ((1 - smooth) / s->factor + smooth);
}

static double wavelength(const struct ax_gguf_model *m, int64_t i) {
    static const double two_pi = 6.283185307179586;
    return two_pi * pow(m->rope_theta, 2 * (double)i / (double)m->head_dim);
}

static bool llama3_fits(const struct ax_gguf_model *m, const struct llama3 *s,
                        const float *divisors) {
    for (int64_t i = 0; i < m->head_dim / 2; i++) {
        const double expected = llama3_divisor(s, wavelength(m, i)), got = (double)divisors[i];
        if (!(fabs(got - expected) <= TOLERANCE * expected))
            return false;
    }
    return true;
}

/* The context by the first divisor between 1 and the factor; 0: there is none. */
static double context_of(const struct ax_gguf_model *m, const struct llama3 *s,
                         const float *divisors) {
    for (int64_t i = 0; i < m->head_dim / 2; i++) {
        const double d = (double)divisors[i];
        if (d > 1 && d < s->factor * (1 - TOLERANCE))
            return round(wavelength(m, i) *
                         (s->low + (s->high - s->low) * (s->factor / d - 1) / (s->factor - 1)));
    }
    return 0;
}

/* All published settings have low 1 and high 4, most of them context 8192. */
static bool find_llama3(const struct ax_gguf_model *m, const float *divisors, struct llama3 *s) {
    *s = (struct llama3){.factor = 1, .low = 1, .high = 4, .context = 8192};
    for (int64_t i = 0; i < m->head_dim / 2; i++)
        s->factor = fmax(s->factor, (double)divisors[i]);
    if (llama3_fits(m, s, divisors))
        return true;
    s->context = context_of(m, s, divisors);
    if (s->context > 0)
        return llama3_fits(m, s, divisors);
    for (s->context = 1; s->context <= 1 << 24; s->context *= 2)
        if (llama3_fits(m, s, divisors))
            return true;
    return false;
}

static enum ax_status from_divisors(const struct ax_gguf_model *m, const struct ax_gguf_tensor *t,
                                    json_t **out) {
    float divisors[MAX_HALF];
    struct llama3 s;
    const char *path = m->file->path;
    if (!t->type->dequantize || t->type->elements != 1 || t->numel != m->head_dim / 2 ||
        t->numel > MAX_HALF)
        return ax_error(AX_ERR_DATA,
                        "%s: tensor %s: expected %lld floats, one per rotary frequency", path,
                        AX_GGUF_ROPE_FACTORS, (long long)m->head_dim / 2);
    t->type->dequantize(t->data, t->numel, divisors);
    if (!find_llama3(m, divisors, &s))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: tensor %s is not a Llama 3 scaling that config.json can express "
                        "(low_freq_factor 1, high_freq_factor 4). Use the model's own "
                        "Hugging Face folder.",
                        path, AX_GGUF_ROPE_FACTORS);
    *out = s.factor == 1 ? json_null()
                         : json_pack("{ss sf sf sf sI}", "rope_type", "llama3", "factor", s.factor,
                                     "low_freq_factor", s.low, "high_freq_factor", s.high,
                                     "original_max_position_embeddings", (json_int_t)s.context);
    return *out ? AX_OK : no_memory();
}

static const char *rope_key(const struct ax_gguf_model *m, const char *name, char *buf,
                            size_t size) {
    snprintf(buf, size, "%s.rope.scaling.%s", m->kind->arch, name);
    return buf;
}

/* Files of 2023 have the factor in a key of its own, and the type only in newer ones; 0 is none. */
static enum ax_status read_factor(const struct ax_gguf_model *m, char *key, size_t size,
                                  double *factor) {
    if (!ax_gguf_key(m->file, rope_key(m, "factor", key, size))) {
        char old[96];
        snprintf(old, sizeof old, "%s.rope.scale_linear", m->kind->arch);
        if (ax_gguf_key(m->file, old))
            snprintf(key, size, "%s", old);
    }
    AX_TRY(ax_gguf_f64(m->file, key, factor));
    *factor = *factor == 0 ? 1 : *factor;
    return AX_OK;
}

/* config.json cannot say these. */
static enum ax_status only_one(const struct ax_gguf_model *m, const char *name) {
    char key[96];
    double v;
    AX_TRY(ax_gguf_f64_or(m->file, rope_key(m, name, key, sizeof key), 1, &v));
    if (v == 1)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: key %s: %g; factors of rope other than 1 are not supported. Use the "
                    "model's own Hugging Face folder.",
                    m->file->path, key, v);
}

static enum ax_status linear(const struct ax_gguf_model *m, json_t **out) {
    char key[96];
    double factor;
    AX_TRY(read_factor(m, key, sizeof key, &factor));
    if (!(factor >= 1))
        return ax_error(AX_ERR_DATA, "%s: key %s: %g is below 1", m->file->path, key, factor);
    *out =
        factor == 1 ? json_null() : json_pack("{ss sf}", "rope_type", "linear", "factor", factor);
    return *out ? AX_OK : no_memory();
}

/* Copies an optional number from its GGUF key to its HF key. */
static enum ax_status copy_number(const struct ax_gguf_model *m, const char *gguf, const char *hf,
                                  json_t *object) {
    char key[96];
    double v;
    if (!ax_gguf_key(m->file, rope_key(m, gguf, key, sizeof key)))
        return AX_OK;
    AX_TRY(ax_gguf_f64(m->file, key, &v));
    return json_object_set_new(object, hf, json_real(v)) == 0 ? AX_OK : no_memory();
}

/* A decimal number that was stored as a float. */
static double decimal(double x) {
    return round(x * 1e6) / 1e6;
}

/* Of latent attention: cos and sin are not scaled, the softmax is. */
static enum ax_status mscale(const struct ax_gguf_model *m, json_t *object) {
    char key[96];
    double tenth;
    AX_TRY(ax_gguf_f64_or(m->file, rope_key(m, "yarn_log_multiplier", key, sizeof key), 0, &tenth));
    if (tenth == 0)
        return AX_OK;
    const double value = decimal(10 * tenth);
    return json_object_set_new(object, "mscale", json_real(value)) == 0 &&
                   json_object_set_new(object, "mscale_all_dim", json_real(value)) == 0
               ? AX_OK
               : no_memory();
}

/* Where queries grow: cos and sin are scaled, by mscale 1 over that of all. */
static enum ax_status growing(const struct ax_gguf_model *m, json_t *object) {
    char key[96];
    double all;
    AX_TRY(ax_gguf_f64_or(m->file, rope_key(m, "yarn_log_multiplier", key, sizeof key), 0, &all));
    bool ok = m->growth == 0 || json_object_set_new(object, "llama_4_scaling_beta",
                                                    json_real(decimal(m->growth))) == 0;
    if (all != 0)
        ok = ok && json_object_set_new(object, "mscale", json_real(1)) == 0 &&
             json_object_set_new(object, "mscale_all_dim", json_real(decimal(all))) == 0;
    return ok ? AX_OK : no_memory();
}

static enum ax_status yarn(const struct ax_gguf_model *m, json_t **out) {
    static const char *const names[][2] = {{"yarn_beta_fast", "beta_fast"},
                                           {"yarn_beta_slow", "beta_slow"}};
    char key[96];
    int64_t original;
    AX_TRY(only_one(m, "yarn_ext_factor"));
    AX_TRY(only_one(m, "yarn_attn_factor"));
    AX_TRY(linear(m, out));
    if (json_is_null(*out))
        return AX_OK;
    AX_TRY(ax_gguf_i64(m->file, rope_key(m, "original_context_length", key, sizeof key), 1,
                       INT32_MAX, &original));
    if (json_object_set_new(*out, "rope_type", json_string("yarn")) != 0 ||
        json_object_set_new(*out, "original_max_position_embeddings", json_integer(original)) != 0)
        return no_memory();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        AX_TRY(copy_number(m, names[i][0], names[i][1], *out));
    if (m->kind->exact_yarn && json_object_set_new(*out, "truncate", json_false()) != 0)
        return no_memory();
    return m->kv_rank > 0 ? mscale(m, *out) : m->kind->grows ? growing(m, *out) : AX_OK;
}

static enum ax_status put_list(const struct ax_gguf_model *m, const char *name, const char *hf,
                               json_t *object) {
    float values[MAX_HALF];
    const struct ax_gguf_tensor *t = ax_gguf_tensor(m->file, name);
    json_t *list = json_array();
    if (!list || json_object_set_new(object, hf, list) != 0)
        return no_memory();
    if (!t || !t->type->dequantize || t->type->elements != 1 || t->numel != m->rotated / 2 ||
        t->numel > MAX_HALF)
        return ax_error(AX_ERR_DATA,
                        "%s: tensor %s: expected %lld floats, one per rotary frequency",
                        m->file->path, name, (long long)m->rotated / 2);
    t->type->dequantize(t->data, t->numel, values);
    for (int64_t i = 0; i < t->numel; i++)
        if (json_array_append_new(list, json_real((double)values[i])) != 0)
            return no_memory();
    return AX_OK;
}

/* The factor on cos and sin follows from the context and the original one. */
static enum ax_status longrope(const struct ax_gguf_model *m, json_t **out) {
    char key[96];
    int64_t original;
    double attention;
    AX_TRY(ax_gguf_i64(m->file, rope_key(m, "original_context_length", key, sizeof key), 2,
                       INT32_MAX, &original));
    AX_TRY(ax_gguf_f64_or(m->file, rope_key(m, "attn_factor", key, sizeof key), 1, &attention));
    const double s = (double)m->context / (double)original;
    const double usual = s > 1 ? sqrt(1 + log(s) / log((double)original)) : 1;
    if (fabs(attention - usual) > TOLERANCE)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: %g; longrope with a custom attention factor is not supported",
                        m->file->path, key, attention);
    *out = json_pack("{ss sI}", "rope_type", "longrope", "original_max_position_embeddings",
                     (json_int_t)original);
    if (!*out)
        return no_memory();
    AX_TRY(put_list(m, AX_GGUF_ROPE_LONG, "long_factor", *out));
    return put_list(m, AX_GGUF_ROPE_SHORT, "short_factor", *out);
}

static bool is_type(const struct ax_gguf_text *type, const char *name) {
    return type->s && type->len == strlen(name) && memcmp(type->s, name, type->len) == 0;
}

/* llama.cpp takes a factor without a type as linear. In Phi-3's files of 2024 the factors of long texts have none. */
static enum ax_status untyped(const struct ax_gguf_model *m, struct ax_gguf_text *type) {
    static const char longrope[] = "longrope";
    char factor[96], old[96];
    double value;
    if (!type->s && ax_gguf_tensor(m->file, AX_GGUF_ROPE_LONG))
        *type = (struct ax_gguf_text){.s = longrope, .len = strlen(longrope)};
    rope_key(m, "factor", factor, sizeof factor);
    snprintf(old, sizeof old, "%s.rope.scale_linear", m->kind->arch);
    if (type->s || (!ax_gguf_key(m->file, factor) && !ax_gguf_key(m->file, old)))
        return AX_OK;
    AX_TRY(read_factor(m, factor, sizeof factor, &value));
    if (value != 1)
        *type = (struct ax_gguf_text){.s = "linear", .len = strlen("linear")};
    return AX_OK;
}

enum ax_status ax_gguf_rope_scaling(const struct ax_gguf_model *m, json_t **out) {
    static const struct {
        const char *name;
        enum ax_status (*read)(const struct ax_gguf_model *m, json_t **out);
        const char *arch; /* the only one that has it; NULL: any */
    } types[] = {{"linear", linear, NULL}, {"yarn", yarn, NULL}, {"longrope", longrope, "phi3"}};
    char key[96];
    struct ax_gguf_text type;
    const struct ax_gguf_tensor *divisors = ax_gguf_tensor(m->file, AX_GGUF_ROPE_FACTORS);
    *out = NULL;
    AX_TRY(ax_gguf_string_or_null(m->file, rope_key(m, "type", key, sizeof key), &type));
    AX_TRY(untyped(m, &type));
    if (m->growth > 0 && !is_type(&type, "yarn"))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s: queries grow (attention.temperature_scale) only with yarn",
                        m->file->path, key);
    const bool none = !type.s || is_type(&type, "none");
    if (!is_type(&type, "longrope")) /* whose factor follows */
        AX_TRY(only_one(m, "attn_factor"));
    if (!none && divisors)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: key %s and tensor %s: two scalings at the same time are not supported",
                        m->file->path, key, AX_GGUF_ROPE_FACTORS);
    if (divisors)
        return from_divisors(m, divisors, out);
    if (none) {
        *out = json_null();
        return AX_OK;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!is_type(&type, types[i].name) ||
            (types[i].arch && strcmp(types[i].arch, m->kind->arch) != 0))
            continue;
        const enum ax_status st = types[i].read(m, out);
        if (st != AX_OK) {
            json_decref(*out);
            *out = NULL;
        }
        return st;
    }
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: key %s: scaling \"%.*s\" is not supported (none, linear and yarn are)",
                    m->file->path, key, type.len < 40 ? (int)type.len : 40, type.s);
}
