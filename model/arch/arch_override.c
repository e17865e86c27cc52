/* Fields that a user puts over those of a config.json, in either of its two spellings. */
#include <string.h>

#include "model/arch/arch.h"

/* Fields that another one of the same file overrules. */
static const struct {
    const char *name, *ruler;
} overruled[] = {
    {"hidden_act", "hidden_activation"},       {"torch_dtype", "dtype"},
    {"sliding_window_pattern", "layer_types"}, {"_sliding_window_pattern", "layer_types"},
    {"max_window_layers", "layer_types"},      {"no_rope_layer_interval", "no_rope_layers"},
};

static enum ax_status refuse_overruled(const json_t *config, const json_t *fields, const char *name,
                                       const char *file) {
    for (size_t i = 0; i < sizeof overruled / sizeof *overruled; i++) {
        const char *ruler = overruled[i].ruler;
        if (strcmp(name, overruled[i].name) == 0 && json_object_get(config, ruler) &&
            !json_object_get(fields, ruler))
            return ax_error(AX_ERR_CONFIG, "%s: has no effect, as %s has %s; set that", name, file,
                            ruler);
    }
    return AX_OK;
}

/* transformers 4 has these fields beside each other, transformers 5 in rope_parameters, whose values
 * win. */
static bool is_rope(const char *name) {
    static const char *const names[] = {"rope_theta", "rope_scaling", "partial_rotary_factor"};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is = is || strcmp(name, names[i]) == 0;
    return is;
}

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the fields of a config.json");
}

/* Another scaling leaves the base and the rotated share as they are. */
static json_t *scaled(const json_t *rope, const json_t *scaling) {
    static const char *const kept[] = {"rope_theta", "partial_rotary_factor"};
    json_t *out = json_is_object(scaling) ? json_copy((json_t *)(uintptr_t)scaling) : json_object();
    json_t *type = json_object_get(out, "type");
    bool ok = out != NULL;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        json_t *v = json_object_get(rope, kept[i]);
        if (ok && v && !json_object_get(out, kept[i]))
            ok = json_object_set(out, kept[i], v) == 0;
    }
    if (ok && !json_object_get(out, "rope_type"))
        ok = type ? json_object_set(out, "rope_type", type) == 0
                  : json_object_set_new(out, "rope_type", json_string("default")) == 0;
    json_object_del(out, "type");
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}

/* The first kind of layer for which rope_parameters are given; NULL if they are for all. */
static const char *kind_of(json_t *parameters) {
    const char *kind;
    json_t *part;
    json_object_foreach(parameters, kind, part) {
        if (json_is_object(part))
            return kind;
    }
    return NULL;
}

/* A file's rope_scaling is read in place of rope_parameters (model/arch/rope.h): where fields go to those, it
 * becomes a part of them. */
static enum ax_status join_ropes(json_t *config, json_t *fields, bool *joined) {
    const json_t *scaling = json_object_get(config, "rope_scaling");
    json_t *was = json_object_get(config, "rope_parameters"), *v;
    const bool whole = json_object_get(fields, "rope_parameters") != NULL;
    const char *name;
    bool meant = false;
    json_object_foreach(fields, name, v) {
        meant = meant || is_rope(name);
    }
    *joined =
        json_object_size(scaling) > 0 && (whole || (meant && json_is_object(was) && !kind_of(was)));
    if (*joined && json_object_set_new(config, "rope_parameters", scaled(was, scaling)) != 0)
        return no_memory();
    if (*joined)
        json_object_del(config, "rope_scaling");
    return AX_OK;
}

static enum ax_status override_rope(json_t *config, const char *name, json_t *v, const char *file) {
    json_t *was = json_object_get(config, "rope_parameters"), *now;
    const char *kind = kind_of(was);
    if (kind)
        return ax_error(AX_ERR_CONFIG,
                        "%s: %s has rope_parameters for each kind of layer (%s, …); set "
                        "rope_parameters",
                        name, file, kind);
    const bool scaling = strcmp(name, "rope_scaling") == 0;
    now = scaling ? scaled(was, v) : json_copy(was);
    if (!now || (!scaling && json_object_set(now, name, v) != 0) ||
        json_object_set(config, "rope_parameters", now) != 0) {
        json_decref(now);
        return no_memory();
    }
    json_decref(now);
    return AX_OK;
}

static enum ax_status override(json_t *config, json_t *fields, const char *name, json_t *v,
                               const char *file) {
    static const char *const defaulted[] = {"output_router_logits", "router_aux_loss_coef",
                                            "rope_parameters",      "rope_scaling",
                                            "rope_theta",           "sliding_window"};
    json_t *rope = json_object_get(config, "rope_parameters");
    if (json_is_object(rope) && is_rope(name)) {
        AX_TRY(override_rope(config, name, v, file));
        /* what is saved has it there, too */
        rope = json_object_get(config, "rope_parameters");
        return json_object_set(fields, "rope_parameters", rope) == 0 ? AX_OK : no_memory();
    }
    bool known = json_object_get(config, name) != NULL;
    for (size_t i = 0; i < sizeof defaulted / sizeof *defaulted; i++)
        known = known || strcmp(name, defaulted[i]) == 0;
    if (!known)
        return ax_error(AX_ERR_CONFIG, "%s: no such field in %s; see model_config", name, file);
    AX_TRY(refuse_overruled(config, fields, name, file));
    return json_object_set(config, name, v) == 0 ? AX_OK : no_memory();
}

enum ax_status ax_arch_override(json_t *config, json_t *fields, const char *file) {
    static const char whole[] = "rope_parameters";
    json_t *given = json_copy(fields), *v = json_object_get(fields, whole);
    const char *name;
    bool joined = false;
    enum ax_status st = fields && !given ? no_memory() : AX_OK;
    if (st == AX_OK)
        st = join_ropes(config, fields, &joined);
    if (st == AX_OK && v) /* then single fields of it */
        st = override(config, fields, whole, v, file);
    json_object_foreach(given, name, v) {
        if (st == AX_OK && strcmp(name, whole) != 0)
            st = override(config, fields, name, v, file);
        if (st == AX_OK && is_rope(name) && json_object_get(fields, whole))
            json_object_del(fields, name);
    }
    if (st == AX_OK && joined && json_object_set_new(fields, "rope_scaling", json_null()) != 0)
        st = no_memory();
    json_decref(given);
    return st;
}
