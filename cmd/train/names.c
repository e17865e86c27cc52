/* Names in configurations that other modules' tables define, passed to cmd/config/. */
#include <fnmatch.h>
#include <string.h>

#include "cmd/config/config.h"
#include "cmd/train/method.h"
#include "data/text/template/template.h"
#include "data/tools/format.h"
#include "kernels/backend.h"
#include "kernels/quant/scheme.h"
#include "model/parallel/context_parallel.h"
#include "optim/losses/policy.h"
#include "optim/optimizers/lr_schedule.h"
#include "optim/optimizers/optimizer.h"
#include "parallel/schedule/order.h"
#include "parallel/units/unit.h"

#define ADAMW   "AdamW with moments in float32, see moment_dtype and master_dtype"
#define EIGHT   "AdamW with moments in blocks of 256 8-bit codes, in tensors of any size"
#define LION    "Lion with its moment in bfloat16, rounded stochastically"
#define UNPAGED "; nothing is paged out: the state stays in memory"

/* Optimizers that differ from what their names say, and how. */
static const struct {
    const char *pattern, *note;
} approximated[] = {
    {"paged_adamw_8bit", EIGHT UNPAGED},
    {"*adamw*8bit", EIGHT},
    {"adamw_torch_4bit", EIGHT},
    {"ao_adamw_fp8", EIGHT},
    {"paged_adamw_32bit", "adamw_torch" UNPAGED},
    {"optimi_adamw", ADAMW},
    {"adamw_anyprecision", ADAMW},
    {"lion_8bit", LION},
    {"paged_lion_8bit", LION UNPAGED},
    {"paged_lion_32bit", "lion_32bit" UNPAGED},
};

/* Names that a config does not accept: those only commands use, and those cmd/config/
 * translates. */
static bool is_left_out(const char *name) {
    return strcmp(name, "adamw") == 0 || strcmp(name, "lion") == 0 ||
           fnmatch("ao_adamw_?bit", name, 0) == 0;
}

static const char *optimizer(size_t i, const char **note) {
    const char *name;
    for (size_t n = 0; (name = ax_optimizer_name(n)) != NULL; n++)
        if (!is_left_out(name) && i-- == 0)
            break;
    for (size_t k = 0; name && k < sizeof approximated / sizeof *approximated && !*note; k++)
        if (fnmatch(approximated[k].pattern, name, 0) == 0)
            *note = approximated[k].note;
    return name;
}

static const char *policy_loss(size_t i) {
    const struct ax_policy_loss *loss = ax_policy_loss_at(i);
    return loss ? loss->name : NULL;
}

static const char *tool_format(size_t i) {
    const struct ax_tool_format *f = ax_tool_format_at((int)i);
    return f ? f->name : NULL;
}

static const char *method(size_t i) {
    const struct ax_method *m = ax_method_at(i);
    return m && !m->when ? m->name : NULL;
}

/* One term is orpo's alone. */
static const char *pair_loss(size_t i) {
    const size_t term = i + (i >= AX_PREFER_ODDS_RATIO);
    return term < AX_PREFER_TERMS ? ax_preference_term_name((enum ax_preference_term)term) : NULL;
}

static const char *scheme(size_t i, bool trains, const char **note) {
    for (const struct ax_scheme *s = ax_schemes; s->name; s++) {
        if (s->trains != trains || i-- > 0)
            continue;
        if (s->form == AX_FORM_NONE)
            *note = AX_NO_FILE_FORM;
        return s->name;
    }
    return NULL;
}

static const char *trained_scheme(size_t i, const char **note) {
    return scheme(i, true, note);
}

static const char *other_scheme(size_t i, const char **note) {
    return scheme(i, false, note);
}

static const char *pipeline(size_t i) {
    return ax_pipeline_name((enum ax_pipeline_kind)i);
}

static const char *cp_method(size_t i) {
    return i < AX_CP_METHODS ? ax_cp_method_name((enum ax_cp_method)i) : NULL;
}

const struct ax_config_names ax_config_names[] = {{"optimizers", .at = optimizer},
                                                  {"schedules", .plain = ax_lr_kind_name},
                                                  {"templates", .plain = ax_template_name},
                                                  {"methods", .plain = method},
                                                  {"policy_losses", .plain = policy_loss},
                                                  {"pair_losses", .plain = pair_loss},
                                                  {"tool_formats", .plain = tool_format},
                                                  {"trained_schemes", .at = trained_scheme},
                                                  {"other_schemes", .at = other_scheme},
                                                  {"pipelines", .plain = pipeline},
                                                  {"cp_methods", .plain = cp_method},
                                                  {"devices", .plain = ax_device_word},
                                                  {"fp8_recipes", .plain = ax_fp8_recipe_name},
                                                  {"masters", .plain = ax_masters_name},
                                                  {"moments", .plain = ax_moments_name},
                                                  {.what = NULL}};
