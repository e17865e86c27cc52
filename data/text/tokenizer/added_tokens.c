/* The table of added tokens; encode.c finds them in a text. See added_tokens.h. */
#include "data/text/tokenizer/added_tokens.h"

#include <string.h>

enum { MAX_LEN = 4096 };

/* --- the table --- */

static void free_token(struct ax_added_token *t) {
    ax_free(t->content);
    ax_free(t->form);
}

static enum ax_status copy_bytes(char **out, const char *s, size_t n) {
    char *copy;
    AX_TRY(ax_alloc(&copy, n + 1, 1));
    memcpy(copy, s, n);
    *out = copy;
    return AX_OK;
}

const struct ax_added_token *ax_added_by_content(const struct ax_added_tokens *a, const char *s,
                                                 size_t len) {
    int32_t i = ax_vocab_find(&a->contents, s, len);
    return i == AX_NO_TOKEN ? NULL : &a->tokens[i];
}

static enum ax_status copy_token(const struct ax_added_token *token, struct ax_added_token *copy) {
    if (token->content_len == 0)
        return ax_error(AX_ERR_DATA, "an added token is empty");
    if (token->content_len > MAX_LEN || (token->form != NULL && token->form_len > MAX_LEN))
        return ax_error(AX_ERR_DATA, "added token \"%.40s…\" is longer than %d bytes",
                        token->content, MAX_LEN);
    *copy = *token;
    copy->content = copy->form = NULL;
    AX_TRY(copy_bytes(&copy->content, token->content, token->content_len));
    enum ax_status st = AX_OK;
    if (token->form != NULL)
        st = copy_bytes(&copy->form, token->form, token->form_len);
    if (st != AX_OK)
        free_token(copy);
    return st;
}

enum ax_status ax_added_replace(struct ax_added_tokens *a, size_t index,
                                const struct ax_added_token *token) {
    struct ax_added_token copy;
    AX_TRY(copy_token(token, &copy));
    free_token(&a->tokens[index]);
    a->tokens[index] = copy;
    ax_vocab_free(&a->contents);
    for (size_t i = 0; i < a->n; i++)
        AX_TRY(ax_vocab_add(&a->contents, a->tokens[i].content, a->tokens[i].content_len,
                            (int64_t)i, a->n));
    return AX_OK;
}

enum ax_status ax_added_put(struct ax_added_tokens *a, const struct ax_added_token *token) {
    struct ax_added_token copy;
    AX_TRY(copy_token(token, &copy));
    enum ax_status st;
    int32_t old = ax_vocab_find(&a->contents, copy.content, copy.content_len);
    if (old != AX_NO_TOKEN) {
        free_token(&a->tokens[old]);
        a->tokens[old] = copy;
        return AX_OK;
    }
    if (a->n == a->cap) {
        size_t cap = a->cap > 0 ? 2 * a->cap : 32;
        AX_TRY_GOTO(ax_regrow(&a->tokens, a->n, cap, sizeof *a->tokens), st, failed);
        a->cap = cap;
    }
    AX_TRY_GOTO(ax_vocab_add(&a->contents, copy.content, copy.content_len, (int64_t)a->n, 0), st,
                failed);
    a->tokens[a->n++] = copy;
    return AX_OK;
failed:
    free_token(&copy);
    return st;
}

const struct ax_added_token *ax_added_by_id(const struct ax_added_tokens *a, int32_t id) {
    if (id < 0 || (size_t)id >= a->n_ids || a->by_id[id] == AX_NO_TOKEN)
        return NULL;
    return &a->tokens[a->by_id[id]];
}

static void free_trie(struct ax_trie *t) {
    ax_free(t->nodes);
    *t = (struct ax_trie){0};
}

void ax_added_free(struct ax_added_tokens *a) {
    for (size_t i = 0; i < a->n; i++)
        free_token(&a->tokens[i]);
    ax_free(a->tokens);
    ax_vocab_free(&a->contents);
    ax_free(a->by_id);
    free_trie(&a->raw);
    free_trie(&a->normalized);
    *a = (struct ax_added_tokens){0};
}

/* --- the tries --- */

static enum ax_status new_node(struct ax_trie *t, unsigned char byte, uint32_t sibling,
                               uint32_t *node) {
    if (t->n + 1 >= t->cap) {
        size_t cap = t->cap > 0 ? 2 * t->cap : 256;
        AX_TRY(ax_regrow(&t->nodes, t->n, cap, sizeof *t->nodes));
        t->cap = cap;
    }
    t->n += t->n == 0; /* node 0 means none */
    t->nodes[t->n] = (struct ax_trie_node){0, sibling, AX_NO_TOKEN, byte};
    *node = (uint32_t)t->n++;
    return AX_OK;
}

static enum ax_status insert(struct ax_trie *t, const char *s, size_t len, size_t token) {
    uint32_t *root = &t->roots[(unsigned char)s[0]];
    if (*root == 0)
        AX_TRY(new_node(t, (unsigned char)s[0], 0, root));
    AX_ASSERT(t->nodes != NULL);
    uint32_t node = *root;
    for (size_t i = 1; i < len; i++) {
        uint32_t next = ax_trie_child(t, node, (unsigned char)s[i]);
        if (next == 0) {
            AX_TRY(new_node(t, (unsigned char)s[i], t->nodes[node].child, &next));
            t->nodes[node].child = next;
        }
        node = next;
    }
    t->nodes[node].token = (int32_t)token;
    return AX_OK;
}

enum ax_status ax_added_index(struct ax_added_tokens *a) {
    free_trie(&a->raw);
    free_trie(&a->normalized);
    size_t n_ids = 0;
    for (size_t i = 0; i < a->n; i++)
        if ((size_t)a->tokens[i].id >= n_ids)
            n_ids = (size_t)a->tokens[i].id + 1;
    int32_t *by_id;
    AX_TRY(ax_alloc(&by_id, n_ids, sizeof *by_id));
    ax_free(a->by_id);
    a->by_id = by_id;
    a->n_ids = n_ids;
    memset(by_id, 0xff, n_ids * sizeof *by_id);
    for (size_t i = 0; i < a->n; i++) {
        const struct ax_added_token *t = &a->tokens[i];
        by_id[t->id] = (int32_t)i;
        if (!t->normalized)
            AX_TRY(insert(&a->raw, t->content, t->content_len, i));
        else if (t->form == NULL)
            AX_TRY(insert(&a->normalized, t->content, t->content_len, i));
        else if (t->form_len > 0) /* a form that the normalizer leaves empty matches nowhere */
            AX_TRY(insert(&a->normalized, t->form, t->form_len, i));
    }
    return AX_OK;
}
