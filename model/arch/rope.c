/* Rope variants. Single precision follows transformers step by step, so that rotations at large
 * positions match the model's training. */
#include "model/arch/rope.h"

#include <math.h>
#include <string.h>

static const double PI = 3.14159265358979323846;

static const struct {
    const char *name;
    enum ax_rope_kind kind;
} kinds[] = {
    {"default", AX_ROPE_DEFAULT}, {"linear", AX_ROPE_LINEAR},
    {"dynamic", AX_ROPE_DYNAMIC}, {"llama3", AX_ROPE_LLAMA3},
    {"yarn", AX_ROPE_YARN},       {"longrope", AX_ROPE_LONGROPE},
    {"su", AX_ROPE_LONGROPE},     {"proportional", AX_ROPE_PROPORTIONAL},
    {"mrope", AX_ROPE_DEFAULT}, /* of text, whose three positions are equal */
};

static enum ax_status parse_kind(struct ax_rope_config *r, struct ax_json rope) {
    const char *name;
    struct ax_json type = ax_json_get(rope, "rope_type");
    if (!type.v)
        type = ax_json_get(rope, "type");
    AX_TRY(ax_json_str_or(type, "default", &name));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(name, kinds[i].name) != 0)
            continue;
        r->kind = kinds[i].kind;
        return AX_OK;
    }
    ax_json_error(type,
                  "rope type \"%s\" is not one of default, linear, dynamic, llama3, yarn, "
                  "longrope, proportional",
                  name);
    return AX_ERR_UNSUPPORTED;
}

static enum ax_status require_positive(struct ax_json rope, const char *key, double *out) {
    AX_TRY(ax_json_f64(ax_json_get(rope, key), out));
    if (*out <= 0)
        return ax_json_error(ax_json_get(rope, key), "expected a positive number, got %g", *out);
    return AX_OK;
}

/* A factor below 1 would compress positions; one above a million means a corrupted file. */
static enum ax_status parse_factor(struct ax_rope_config *r, struct ax_json factor) {
    AX_TRY(ax_json_f64(factor, &r->factor));
    if (r->factor < 1 || r->factor > 1e6)
        return ax_json_error(factor, "expected a number from 1 to 1e6, got %g", r->factor);
    return AX_OK;
}

static enum ax_status parse_llama3(struct ax_rope_config *r, struct ax_json rope) {
    AX_TRY(require_positive(rope, "low_freq_factor", &r->low_freq_factor));
    AX_TRY(require_positive(rope, "high_freq_factor", &r->high_freq_factor));
    if (r->high_freq_factor < r->low_freq_factor)
        return ax_json_error(ax_json_get(rope, "high_freq_factor"),
                             "must not be smaller than low_freq_factor");
    return AX_OK;
}

static enum ax_status parse_yarn(struct ax_rope_config *r, struct ax_json rope) {
    AX_TRY(ax_json_f64_or(ax_json_get(rope, "beta_fast"), 32, &r->beta_fast));
    AX_TRY(ax_json_f64_or(ax_json_get(rope, "beta_slow"), 1, &r->beta_slow));
    AX_TRY(ax_json_f64_or(ax_json_get(rope, "mscale"), 0, &r->mscale));
    AX_TRY(ax_json_f64_or(ax_json_get(rope, "attention_factor"), 0, &r->attention_factor));
    if (r->beta_fast <= 0 || r->beta_slow <= 0)
        return ax_json_error(rope, "beta_fast and beta_slow must be positive");
    if (r->mscale < 0 || r->attention_factor < 0)
        return ax_json_error(rope, "mscale and attention_factor must be positive");
    return ax_json_bool_or(ax_json_get(rope, "truncate"), true, &r->truncate);
}

static enum ax_status parse_factors(struct ax_json list, int64_t n, float *out) {
    if ((int64_t)ax_json_size(list) != n || n > AX_ROPE_MAX_FACTORS)
        return ax_json_error(list, "expected %lld numbers (at most %d), got %zu", (long long)n,
                             AX_ROPE_MAX_FACTORS, ax_json_size(list));
    for (int64_t i = 0; i < n; i++) {
        double v;
        const struct ax_json item = ax_json_at(list, (size_t)i);
        AX_TRY(ax_json_f64(item, &v));
        if (!(v > 0 && v < 1e6))
            return ax_json_error(item, "expected a positive number below 1e6, got %g", v);
        out[i] = (float)v;
    }
    return AX_OK;
}

static enum ax_status parse_longrope(struct ax_rope_config *r, struct ax_json rope) {
    AX_TRY(ax_json_f64_or(ax_json_get(rope, "attention_factor"), 0, &r->attention_factor));
    if (r->attention_factor < 0)
        return ax_json_error(rope, "attention_factor must be positive");
    AX_TRY(parse_factors(ax_json_get(rope, "short_factor"), r->dim / 2, r->short_factor));
    return parse_factors(ax_json_get(rope, "long_factor"), r->dim / 2, r->long_factor);
}

enum ax_status ax_rope_object(struct ax_json config, struct ax_json *out) {
    static const char *const own[] = {"rope_theta", "partial_rotary_factor"};
    const struct ax_json parameters = ax_json_get(config, "rope_parameters"),
                         scaling = ax_json_get(config, "rope_scaling");
    const char *key;
    json_t *value;
    *out = parameters;
    if (ax_json_size(scaling) == 0)
        return AX_OK;
    *out = scaling;
    json_object_foreach((json_t *)parameters.v, key, value) {
        if (json_is_object(value))
            return ax_json_error(scaling, "rope_parameters has %s, …; write it there", key);
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (ax_json_get(parameters, own[i]).v && !ax_json_get(scaling, own[i]).v &&
            !ax_json_get(config, own[i]).v)
            return ax_json_error(
                scaling,
                "this is read in place of rope_parameters, whose %s would be lost; "
                "write all of it there, or %s here, too",
                own[i], own[i]);
    return AX_OK;
}

enum ax_status ax_rope_parse(struct ax_rope_config *r, struct ax_json config,
                             struct ax_rope_usual usual, int64_t head_dim, int64_t max_positions) {
    struct ax_json rope;
    AX_TRY(ax_rope_object(config, &rope));
    return ax_rope_parse_object(r, config, rope, usual, head_dim, max_positions);
}

enum ax_status ax_rope_parse_object(struct ax_rope_config *r, struct ax_json config,
                                    struct ax_json rope, struct ax_rope_usual usual,
                                    int64_t head_dim, int64_t max_positions) {
    *r = (struct ax_rope_config){.max_positions = max_positions, .factor = 1, .truncate = true};
    /* in the rope object first, else next to it */
    struct ax_json theta = ax_json_get(rope, "rope_theta"), partial, original;
    if (!theta.v)
        theta = ax_json_get(config, "rope_theta");
    partial = ax_json_get(rope, "partial_rotary_factor");
    if (!partial.v)
        partial = ax_json_get(config, "partial_rotary_factor");
    original = ax_json_get(config, "original_max_position_embeddings");
    if (!original.v)
        original = ax_json_get(rope, "original_max_position_embeddings");

    double part;
    AX_TRY(ax_json_f64_or(theta, usual.theta > 0 ? usual.theta : 10000, &r->theta));
    AX_TRY(ax_json_f64_or(partial, usual.part > 0 ? usual.part : 1, &part));
    if (r->theta <= 1 || r->theta > 1e30)
        return ax_json_error(theta, "rope_theta must be above 1 and at most 1e30, got %g",
                             r->theta);
    AX_TRY(parse_kind(r, rope));
    if (usual.part == 0 && part != 1 && r->kind != AX_ROPE_PROPORTIONAL) {
        ax_json_error(partial,
                      "%g is not implemented in this family: transformers rotates whole heads, "
                      "other programs a part of them; remove it, or set 1, to rotate whole ones",
                      part);
        return AX_ERR_UNSUPPORTED;
    }
    r->dim = part > 0 && part <= 1 ? (int64_t)((double)head_dim * part) : 0;
    if (r->kind == AX_ROPE_PROPORTIONAL && r->dim > 0) {
        r->turning = r->dim / 2;
        r->dim = head_dim;
    }
    if (r->dim < 2 || r->dim % 2 != 0)
        return ax_json_error(partial.v ? partial : ax_json_get(config, "head_dim"),
                             "%lld of %lld elements of a head would be rotated; rope needs an even "
                             "number of at least 2",
                             (long long)r->dim, (long long)head_dim);
    struct ax_json factor = ax_json_get(rope, "factor");
    if (r->kind == AX_ROPE_DEFAULT || (r->kind == AX_ROPE_PROPORTIONAL && !factor.v))
        return AX_OK;
    AX_TRY(ax_json_i64_or(original, 1, INT32_MAX, max_positions, &r->original_max_positions));
    AX_TRY(ax_json_f64_or(ax_json_get(rope, "mscale_all_dim"), 0, &r->mscale_all_dim));
    if (r->mscale_all_dim < 0)
        return ax_json_error(ax_json_get(rope, "mscale_all_dim"), "must be positive");
    if (!factor.v && (r->kind == AX_ROPE_YARN || r->kind == AX_ROPE_LONGROPE))
        r->factor = (double)max_positions / (double)r->original_max_positions;
    else
        AX_TRY(parse_factor(r, factor));
    if (r->kind == AX_ROPE_DYNAMIC && r->dim < 4)
        return ax_json_error(rope, "dynamic rope needs at least 4 rotated elements per head");
    if (r->kind == AX_ROPE_LLAMA3)
        return parse_llama3(r, rope);
    if (r->kind == AX_ROPE_LONGROPE)
        return parse_longrope(r, rope);
    return r->kind == AX_ROPE_YARN ? parse_yarn(r, rope) : AX_OK;
}

/* inv_freq[i] = base^(−2i/dim) */
static void plain(float base, int64_t dim, float *inv_freq) {
    for (int64_t i = 0; i < dim / 2; i++)
        inv_freq[i] = 1.0f / powf(base, (float)(2 * i) / (float)dim);
}

/* Long wavelengths are stretched by `factor`, short ones kept, those between interpolated. */
static void llama3(const struct ax_rope_config *r, float *inv_freq) {
    const double context = (double)r->original_max_positions;
    const double low_wave = context / r->low_freq_factor, high_wave = context / r->high_freq_factor;
    for (int64_t i = 0; i < r->dim / 2; i++) {
        const double f = (double)inv_freq[i], wave = 2 * PI / f;
        if (wave < high_wave)
            continue;
        double scaled = f / r->factor;
        if (wave < low_wave) { /* nothing is between if both factors are equal */
            const double smooth =
                (context / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
            scaled = (1 - smooth) * f / r->factor + smooth * f;
        }
        inv_freq[i] = (float)scaled;
    }
}

/* The dimension that completes `rotations` rotations over the original context. */
static double correction_dim(const struct ax_rope_config *r, double rotations) {
    const double context = (double)r->original_max_positions;
    return (double)r->dim * log(context / (rotations * 2 * PI)) / (2 * log(r->theta));
}

static void yarn(const struct ax_rope_config *r, float *inv_freq) {
    double low = correction_dim(r, r->beta_fast), high = correction_dim(r, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)(r->dim - 1));
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < r->dim / 2; i++) {
        const double ramp = fmin(fmax(((double)i - low) / (high - low), 0), 1);
        const double f = (double)inv_freq[i];
        inv_freq[i] = (float)(f / r->factor * ramp + f * (1 - ramp));
    }
}

static void longrope(const struct ax_rope_config *r, int64_t seq_len, float *inv_freq) {
    const float *factor = seq_len > r->original_max_positions ? r->long_factor : r->short_factor;
    for (int64_t i = 0; i < r->dim / 2; i++) /* 1 / (factor · base^(2i/dim)) */
        inv_freq[i] = 1.0f / (factor[i] * powf((float)r->theta, (float)(2 * i) / (float)r->dim));
}

static double longrope_scaling(const struct ax_rope_config *r) {
    if (r->attention_factor != 0)
        return r->attention_factor;
    if (r->factor <= 1)
        return 1;
    return sqrt(1 + log(r->factor) / log((double)r->original_max_positions));
}

static double yarn_scaling(const struct ax_rope_config *r) {
    if (r->attention_factor != 0)
        return r->attention_factor;
    if (r->factor <= 1)
        return 1;
    const double log_factor = 0.1 * log(r->factor);
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return (r->mscale * log_factor + 1) / (r->mscale_all_dim * log_factor + 1);
    return log_factor + 1;
}

void ax_rope_frequencies(const struct ax_rope_config *r, int64_t seq_len, float *inv_freq,
                         double *attention_scaling) {
    double base = r->theta;
    if (r->kind == AX_ROPE_DYNAMIC) {
        const double max = (double)r->max_positions, dim = (double)r->dim;
        const double len = seq_len > r->max_positions ? (double)seq_len : max;
        base *= pow(r->factor * len / max - (r->factor - 1), dim / (dim - 2));
    }
    plain((float)base, r->dim, inv_freq);
    *attention_scaling = 1;
    switch (r->kind) {
    case AX_ROPE_LINEAR:
        for (int64_t i = 0; i < r->dim / 2; i++)
            inv_freq[i] /= (float)r->factor;
        break;
    case AX_ROPE_PROPORTIONAL:
        for (int64_t i = 0; i < r->dim / 2; i++)
            inv_freq[i] = i < r->turning ? inv_freq[i] / (float)r->factor : 0;
        break;
    case AX_ROPE_LLAMA3:
        llama3(r, inv_freq);
        break;
    case AX_ROPE_YARN:
        yarn(r, inv_freq);
        *attention_scaling = yarn_scaling(r);
        break;
    case AX_ROPE_LONGROPE:
        longrope(r, seq_len, inv_freq);
        *attention_scaling = longrope_scaling(r);
        break;
    case AX_ROPE_STILL:
        memset(inv_freq, 0, (size_t)(r->dim / 2) * sizeof *inv_freq);
        break;
    case AX_ROPE_DEFAULT:
    case AX_ROPE_DYNAMIC:
        break;
    }
}

int64_t ax_rope_length(const struct ax_rope_config *r, int64_t positions) {
    const int64_t original = r->original_max_positions;
    if (r->kind == AX_ROPE_LONGROPE)
        return positions > original ? original + 1 : original;
    return r->kind == AX_ROPE_DYNAMIC && positions > r->max_positions ? positions
                                                                      : r->max_positions;
}

static double growth(const struct ax_rope_config *r, int64_t position) {
    if (r->period == 0)
        return 1;
    const int64_t periods = (position + r->ahead) / r->period;
    return 1 + r->growth * log1p((double)periods);
}

/* Rows [first, first + n) of both tables, on the host. */
static void fill_rows(const struct ax_rope_config *r, const struct ax_tensor *like,
                      const float *inv_freq, double scaling, int64_t first, int64_t n,
                      void *cos_rows, void *sin_rows) {
    const int64_t half = like->shape[1];
    for (int64_t row = 0; row < n; row++) {
        const float by = (float)scaling * (float)growth(r, first + row);
        for (int64_t i = 0; i < half; i++) {
            const float angle = (float)(first + row) * inv_freq[i];
            const float c = cosf(angle), s = sinf(angle);
            ax_store(like->dtype, cos_rows, row * half + i, (double)(c * by));
            ax_store(like->dtype, sin_rows, row * half + i, (double)(s * by));
        }
    }
}

enum ax_status ax_rope_tables(const struct ax_rope_config *r, int64_t seq_len, struct ax_queue *q,
                              const struct ax_tensor *cos_table,
                              const struct ax_tensor *sin_table) {
    const size_t row = (size_t)cos_table->shape[1] * ax_dtype_size(cos_table->dtype);
    const int64_t rows = cos_table->shape[0], most = (int64_t)(AX_QUEUE_STAGE / 4 / row);
    float inv_freq[1024] = {0};
    double scaling;
    AX_ASSERT(cos_table->shape[1] == r->dim / 2 && r->dim <= 2048);
    ax_rope_frequencies(r, seq_len, inv_freq, &scaling);
    for (int64_t first = 0; first < rows && !ax_queue_is_meta(q); first += most) {
        const int64_t n = rows - first < most ? rows - first : most;
        const size_t at = (size_t)first * row, bytes = (size_t)n * row;
        struct ax_queue_piece to[] = {{(char AX_DEVICE *)cos_table->data + at, bytes, NULL},
                                      {(char AX_DEVICE *)sin_table->data + at, bytes, NULL}};
        AX_TRY(ax_queue_begin_write(q, 2, to));
        fill_rows(r, cos_table, inv_freq, scaling, first, n, to[0].host, to[1].host);
        AX_TRY(ax_queue_end_write(q, 2, to));
    }
    return AX_OK;
}
