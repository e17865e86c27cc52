/* Whose tokenizer and chat template the records of --data are read with. */
#include "cmd/eval/eval.h"
#include "data/text/text_side.h"

enum ax_status ax_eval_text_folder(const struct ax_eval *e, const char **folder) {
    const char *first = NULL;
    for (int i = 0; i < e->adapters.n && !e->config; i++) {
        const char *dir = e->adapters.pefts[i].dir;
        const char *text = ax_text_side_is_in(dir) ? dir : e->model_dir;
        bool same = true;
        if (first)
            AX_TRY(ax_text_side_same(first, text, &same));
        if (!same)
            return ax_error(AX_ERR_CONFIG,
                            "--adapter: %s and %s have different tokenizers or chat templates; "
                            "evaluate them one at a time, or say with --config how to read records",
                            first, text);
        first = text;
    }
    *folder = first != e->model_dir ? first : NULL;
    return AX_OK;
}
