/* Tools that a model which answers text may call (docs/tools.md). */
#ifndef AX_MODEL_TEXT_TEXT_TOOLS_H
#define AX_MODEL_TEXT_TEXT_TOOLS_H

#include "data/tools/tools.h"
#include "model/text/text_model.h"

/* ax_tools_open, with this machine's processors and its cache of the sandbox. */
enum ax_status ax_text_tools_start(struct ax_tools **out, const struct ax_tools_options *o);

/* Logs how calls are read, and whose rights tools have. */
void ax_text_tools_tell(const struct ax_tool_format *f);

struct ax_text_tools_options {
    struct ax_tools_options tools;
    struct ax_episode_rules rules; /* but for the chat */
    const char *format;            /* how calls are written; NULL: as chat templates write them */
};

/* Must not move while it is open. */
struct ax_text_tools {
    struct ax_tools *tools; /* NULL: none */
    /* how each of the model's sides writes calls, if it has a chat template; conversations need one */
    struct ax_tool_chat chats[AX_ARG_LIST_MAX + 1];
    struct ax_episode_rules rules[AX_ARG_LIST_MAX + 1];
};
/* Adds tokens that end turns to the model's sides. AX_ERR_CONFIG with the reason if its chat template has no tools. */
enum ax_status ax_text_tools_open(struct ax_text_tools *x, const struct ax_text_tools_options *o,
                                  struct ax_text_model *t);
void ax_text_tools_close(struct ax_text_tools *x); /* safe on a zeroed one */
/* The rules of an adapter's side, or of the model's (AX_ADAPTER_NONE). */
const struct ax_episode_rules *ax_text_tools_rules(const struct ax_text_tools *x,
                                                   const struct ax_text_model *t, int adapter);

#endif
