/* The registry of model families. */
#include "model/arch/family.h"

#include <stdio.h>
#include <string.h>

#include "base/text/words.h"

static const struct ax_family *const families[] = {
#define FAMILY_ROW(name) &ax_family_##name,
    AX_FAMILY_LIST(FAMILY_ROW)
#undef FAMILY_ROW
};
#define N_FAMILIES (sizeof families / sizeof *families)

const struct ax_family *ax_family_at(size_t i) {
    return i < N_FAMILIES ? families[i] : NULL;
}

const struct ax_family *ax_family_find(const char *model_type) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    return NULL;
}

/* The number of characters that both begin with. */
static size_t common(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* Of the i-th family, or of what comes after them, a model with one in it. */
static const char *name_at(size_t i) {
    const struct ax_wrapper *w = i < N_FAMILIES ? NULL : ax_wrapper_at(i - N_FAMILIES);
    return i < N_FAMILIES ? families[i]->model_type : w ? w->model_type : NULL;
}

/* The longest name that `model_type` begins with, else one that begins like it, else one that is spelled
 * like it. */
const char *ax_family_nearest(const char *model_type) {
    enum { LIKE = 4 };
    struct ax_nearest spelled = {.given = model_type, .within = 3};
    const char *begun = NULL, *alike = NULL, *name;
    for (size_t i = 0; (name = name_at(i)) != NULL; i++) {
        const size_t n = common(model_type, name);
        if (n == strlen(name) && (!begun || n > strlen(begun)))
            begun = name;
        if (n >= LIKE && (!alike || n > common(model_type, alike)))
            alike = name;
        ax_nearest_try(&spelled, name);
    }
    return begun ? begun : alike ? alike : spelled.name;
}

/* Keys of config.json that tell what a layer computes. */
static const struct {
    const char *key, *what;
} telling[] = {
    {"mamba_dt_rank", "layers of the first Mamba"},
    {"time_step_rank", "layers of the first Mamba"},
    {"lightning_attn_decay", "lightning attention"},
    {"alibi", "ALiBi"},
    {"is_encoder_decoder", "an encoder"},
};

static bool tells(struct ax_json c, const char *key) {
    const json_t *v = json_object_get(c.v, key);
    return v && !json_is_null(v) && !json_is_false(v);
}

/* One more of a list. */
static void add_missing(char *buf, size_t size, const char *what, const char *key) {
    const size_t at = strlen(buf);
    snprintf(buf + at, size - at, "%s%s (%.40s)", at > 0 ? ", " : "; missing here: ", what, key);
}

static bool computes(const char *layer_type) {
    static const char *const known[] = {
        "full_attention",    "sliding_attention", "attention", "linear_attention",
        "chunked_attention", "indexed_attention", "conv",      "mamba"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(layer_type, known[i]) == 0)
            return true;
    return false;
}

static void add_layer_types(char *buf, size_t size, struct ax_json types) {
    const char *last = "";
    for (size_t i = 0; i < ax_json_size(types); i++) {
        const char *type = json_string_value(ax_json_at(types, i).v);
        if (!type || computes(type) || strcmp(type, last) == 0)
            continue;
        if (!strstr(buf, type))
            add_missing(buf, size, "a kind of layers", type);
        last = type;
    }
}

const char *ax_family_missing(struct ax_json config, char *buf, size_t size) {
    const struct ax_json inner = ax_json_get(config, "text_config"),
                         c = json_is_object(inner.v) ? inner : config;
    const char *last = "";
    buf[0] = '\0';
    for (size_t i = 0; i < sizeof telling / sizeof *telling; i++) {
        if (!tells(c, telling[i].key) || strcmp(telling[i].what, last) == 0)
            continue;
        last = telling[i].what;
        add_missing(buf, size, last, telling[i].key);
    }
    add_layer_types(buf, size, ax_json_get(c, "layer_types"));
    return buf;
}
