/* Messages as transformers' apply_chat_template prepares them before a template sees them. */
#include "data/text/jinja/vm.h"

/* The names under which a message may carry its reasoning, the standard one first. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

static const struct ax_jval *find_reasoning(const struct ax_jdict *message) {
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < message->n; k++) {
            const struct ax_jpair *p = &message->pairs[k];
            if (p->key.kind == AX_JSTR && ax_jstr_is(p->key.str, reasoning_names[i]) &&
                p->value.kind != AX_JNONE) {
                return &p->value;
            }
        }
    }
    return NULL;
}

static enum ax_status set_named(struct ax_jvm *vm, struct ax_jdict *d, const char *name, size_t len,
                                struct ax_jval v) {
    struct ax_jstr *key;
    AX_TRY(ax_jstr_borrow(&vm->arena, &key, name, len));
    return ax_jdict_set(&vm->arena, d, ax_jstring(key), v);
}

static enum ax_status prepare(struct ax_jvm *vm, const struct ax_jdict *message,
                              struct ax_jval *out) {
    struct ax_jdict *d;
    const struct ax_jval *reasoning = find_reasoning(message);
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    if (reasoning != NULL) /* first, so that the message's own `thinking` wins */
        AX_TRY(set_named(vm, d, reasoning_names[1], 8, *reasoning));
    for (size_t i = 0; i < message->n; i++)
        if (message->pairs[i].value.kind != AX_JNONE)
            AX_TRY(ax_jdict_set(&vm->arena, d, message->pairs[i].key, message->pairs[i].value));
    if (reasoning != NULL)
        AX_TRY(set_named(vm, d, reasoning_names[0], 17, *reasoning));
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

enum ax_status ax_jchat_messages(struct ax_jvm *vm, struct ax_jval messages, struct ax_jval *out) {
    if (messages.kind != AX_JLIST)
        return ax_jvm_error(vm, "messages must be a list, not a %s", ax_jval_type(messages));
    size_t n = messages.list->n;
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, n, sizeof *items));
    for (size_t i = 0; i < n; i++) {
        struct ax_jval m = messages.list->items[i];
        if (m.kind != AX_JDICT) {
            return ax_jvm_error(vm, "messages[%zu] must be an object, not a %s", i,
                                ax_jval_type(m));
        }
        AX_TRY(prepare(vm, m.dict, &items[i]));
    }
    return ax_jlist_wrap(&vm->arena, AX_JLIST, items, n, out);
}
