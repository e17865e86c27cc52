/* Records for fine-tuning without a type, as TRL's SFTTrainer reads them:
 *
 *   messages             rendered; every token is trained on, or what the template marks
 *   prompt, completion   texts or messages; the completion is trained on (answers_own.c)
 *   text                 every token
 *
 * Other records are tokens already; those with a prompt or text have no targets of a teacher. */
#include "data/records/format/answers.h"
#include "data/records/format/chat_mask.h"
#include "data/records/format/topk.h"

static enum ax_status own_init(struct ax_format *f) {
    if (f->o.chat && f->o.chat->by_generation)
        AX_TRY(ax_chat_check_generation(f));
    return ax_format_type_answers.init(f);
}

static enum ax_status own_record(const struct ax_format *f, struct ax_format_work *w,
                                 json_t *record, struct ax_origin origin,
                                 struct ax_example_list *out) {
    const char *messages = f->o.chat ? f->o.chat->field_messages : "messages";
    if (json_object_get(record, messages)) {
        if (!f->o.chat)
            return ax_error(AX_ERR_DATA, "%s: the model has no chat template; set chat_template",
                            messages);
        return ax_format_type_chat.record(f, w, record, origin, out);
    }
    const bool is_text = json_object_get(record, "prompt") || json_object_get(record, "text");
    if (is_text && !ax_topk_wanted(f))
        return ax_format_type_answers.record(f, w, record, origin, out);
    return ax_format_type_ids.record(f, w, record, origin, out);
}

const struct ax_format_type ax_format_type_own = {"TRL's columns", false, false, own_init,
                                                  own_record};
