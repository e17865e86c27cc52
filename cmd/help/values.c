/* The words that options take: those of the tables that their parsers use, or of the keys that set the
 * same. */
#include <stdio.h>
#include <string.h>

#include "base/term.h"
#include "ckpt/gguf/types.h"
#include "cmd/cache/cache.h"
#include "cmd/check/check.h"
#include "cmd/eval/eval.h"
#include "cmd/help/help.h"
#include "kernels/backend.h"
#include "kernels/quant/scheme.h"
#include "model/arch/classifier.h"
#include "model/arch/shapes.h"
#include "model/convert/from_gguf.h"
#include "model/core/stash.h"
#include "optim/evaluate/score/steps.h"
#include "optim/optimizers/optimizer.h"
#include "optim/plan/hardware.h"
#include "parallel/units/packed.h"
#include "parallel/units/unit.h"

static const char *storage(size_t i) {
    return i <= AX_STORAGE_INT4 ? ax_storage_name((enum ax_storage)i) : NULL;
}

static const char *cache_kind(size_t i) {
    return i < AX_CACHE_KINDS ? ax_cache_kinds[i].name : NULL;
}

static const char *recompute(size_t i) {
    return i <= AX_RECOMPUTE_ON ? ax_recompute_name((enum ax_recompute)i) : NULL;
}

/* Those that a file holds. */
static const char *scheme(size_t i) {
    for (const struct ax_scheme *s = ax_schemes; s->name; s++)
        if (s->form != AX_FORM_NONE && i-- == 0)
            return s->name;
    return NULL;
}

static const char *score_by(size_t i) {
    return i < AX_SCORE_BYS ? ax_score_by_names[i] : NULL;
}

static const char *task(size_t i) {
    return i == 0 ? AX_EVAL_SOLVE : ax_classifier_task(i - 1);
}

static const char *zero(size_t i) {
    static const char *const stages[AX_ZERO_STAGES] = {"1", "2", "3"};
    return i < AX_ZERO_STAGES ? stages[i] : NULL;
}

/* One source each: a function, words "a|b", or a key. */
struct ax_help_words {
    const char *option, *command; /* NULL: of any other */
    const char *(*at)(size_t i);
    const char *list, *key;
    bool or_file;
};
static const struct ax_help_words all[] = {
    {"--arch", .at = ax_shape_name},
    {"--backend", .at = ax_backend_name},
    {"--base", .at = storage},
    {"--color", .at = ax_color_mode_word},
    {"--device", .key = "device"},
    {"--dtype", "convert", .at = ax_convert_dtype_name},
    {"--dtype", "merge", .at = ax_convert_dtype_name},
    {"--dtype", .at = ax_args_dtype_word},
    {"--fp8", .key = "fp8_recipe"},
    {"--hardware", .at = ax_hardware_name, .or_file = true},
    {"--kind", .at = cache_kind},
    {"--masters", .key = "master_dtype"},
    {"--moments", .key = "moment_dtype"},
    {"--only", .at = ax_check_self_name},
    {"--optimizer", .at = ax_optimizer_name},
    {"--output", .list = AX_WORDS_OUTPUT},
    {"--qat", .key = "qat.scheme"},
    {"--quant", .list = AX_GGUF_QUANTS},
    {"--recompute", .at = recompute},
    {"--schedule", .key = "pipeline_parallel_schedule"},
    {"--scheme", .at = scheme},
    {"--score-by", .at = score_by},
    {"--split", .list = AX_WORDS_SPLIT},
    {"--task", .at = task, .or_file = true},
    {"--to", .list = AX_WORDS_TO},
    {"--type", .key = "datasets[].type"},
    {"--zero", .at = zero},
};

const struct ax_help_words *ax_help_words(const char *command, const char *option) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].option, option) == 0 &&
            (!all[i].command || strcmp(all[i].command, command) == 0))
            return &all[i];
    return NULL;
}

/* Copies the i-th word into buf; false past the end. */
static bool word_at(const struct ax_help_words *w, size_t i, char *buf, size_t size) {
    if (w->at) {
        const char *word = w->at(i);
        snprintf(buf, size, "%s", word ? word : "");
        return word != NULL;
    }
    if (w->list)
        return ax_config_choice_at(w->list, i, buf, size);
    const struct ax_config_key *key = ax_config_find(w->key);
    for (size_t k = 0; ax_config_choice_at(key->choices, k, buf, size); k++)
        if (!strchr(buf, '*') && ax_config_accepts(key, buf) && i-- == 0)
            return true;
    return false;
}

bool ax_help_words_or_file(const struct ax_help_words *w) {
    return w->or_file;
}

enum ax_status ax_help_put_words(struct ax_buf *out, const struct ax_help_words *w) {
    char word[64];
    for (size_t i = 0; word_at(w, i, word, sizeof word); i++)
        AX_TRY(ax_buf_printf(out, "%s%s", i > 0 ? " " : "", word));
    return AX_OK;
}
