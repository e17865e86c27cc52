#include "model/text/text_tools.h"

#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/threads.h"
#include "model/convert/base_model.h"

enum ax_status ax_text_tools_start(struct ax_tools **out, const struct ax_tools_options *o) {
    struct ax_tools_options own = *o;
    char *base, *cache;
    AX_TRY(ax_base_model_cache(&base));
    enum ax_status st = ax_path_join(&cache, base, "sandbox");
    ax_free(base);
    AX_TRY(st);
    own.sandbox_cache = cache;
    own.threads = ax_cpu_count();
    st = ax_tools_open(out, &own);
    ax_free(cache);
    return st;
}

void ax_text_tools_tell(const struct ax_tool_format *f) {
    ax_log_info("tools: calls are read as %s writes them (tool_call_format %s); Python functions "
                "and programs among tools have your rights",
                f->families, f->name);
}

static enum ax_status open_chat(struct ax_text_tools *x, const struct ax_text_tools_options *o,
                                struct ax_text_side *side, size_t i) {
    const json_t *definitions = ax_tools_definitions(x->tools);
    struct ax_tool_chat *c = &x->chats[i];
    *c = (struct ax_tool_chat){.template = ax_text_side_template(side, definitions),
                               .tokens = side->tokens,
                               .tokenizer = side->tokenizer,
                               .tools = definitions,
                               .n_stop = side->stop.n,
                               .stop = side->stop.ids,
                               .now = (int64_t)time(NULL)};
    AX_TRY(ax_tool_chat_open(c, o->format));
    ax_tool_chat_add_stops(c, &side->stop);
    x->rules[i] = o->rules;
    x->rules[i].chat = c;
    return AX_OK;
}

static enum ax_status open_all(struct ax_text_tools *x, const struct ax_text_tools_options *o,
                               struct ax_text_model *t) {
    const struct ax_tool_format *format = NULL;
    AX_TRY(ax_text_tools_start(&x->tools, &o->tools));
    for (size_t i = 0; i <= (size_t)t->adapters.n; i++) {
        if (!t->sides[i].template)
            continue;
        AX_TRY(open_chat(x, o, &t->sides[i], i));
        format = x->chats[i].format;
    }
    if (!format)
        return ax_error(AX_ERR_CONFIG, "%s has no chat template, which writes calls", t->folder);
    ax_text_tools_tell(format);
    return ax_tools_start(x->tools);
}

enum ax_status ax_text_tools_open(struct ax_text_tools *x, const struct ax_text_tools_options *o,
                                  struct ax_text_model *t) {
    *x = (struct ax_text_tools){0};
    const enum ax_status st = open_all(x, o, t);
    if (st != AX_OK)
        ax_text_tools_close(x);
    return st;
}

void ax_text_tools_close(struct ax_text_tools *x) {
    ax_tools_close(x->tools);
    *x = (struct ax_text_tools){0};
}

const struct ax_episode_rules *ax_text_tools_rules(const struct ax_text_tools *x,
                                                   const struct ax_text_model *t, int adapter) {
    return &x->rules[ax_text_model_side(t, adapter) - t->sides];
}
