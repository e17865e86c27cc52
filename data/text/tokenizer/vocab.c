/* The two-way token table. See vocab.h. */
#include "data/text/tokenizer/vocab.h"

#include <string.h>

#include "base/hash/hash.h"

enum { ID_SLACK = 1000000, IDS_PER_TOKEN = 4 };

const char *ax_vocab_string(const struct ax_vocab *v, int32_t id, size_t *len) {
    if (id < 0 || (size_t)id >= v->n_ids || v->entries[id].at == UINT32_MAX)
        return NULL;
    *len = v->entries[id].len;
    return v->text.data + v->entries[id].at;
}

/* The slot that holds s, or the free one where it belongs. */
static size_t find_slot(const struct ax_vocab *v, const char *s, size_t len) {
    AX_ASSERT(s != NULL);
    size_t mask = v->n_slots - 1;
    const char *text = v->text.data != NULL ? v->text.data : "";
    size_t i = (size_t)ax_hash64(s, len, 0) & mask;
    for (; v->slots[i] != AX_NO_TOKEN; i = (i + 1) & mask) {
        const struct ax_vocab_entry *e = &v->entries[v->slots[i]];
        if (e->len == len && memcmp(text + e->at, s, len) == 0)
            break;
    }
    return i;
}

int32_t ax_vocab_find(const struct ax_vocab *v, const char *s, size_t len) {
    return v->n_slots == 0 || len > v->max_len ? AX_NO_TOKEN : v->slots[find_slot(v, s, len)];
}

/* Keeps the table at most half full. */
static enum ax_status grow_slots(struct ax_vocab *v, size_t tokens) {
    if (2 * tokens <= v->n_slots)
        return AX_OK;
    size_t n = v->n_slots > 0 ? v->n_slots : 64;
    while (n < 2 * tokens)
        n *= 2;
    int32_t *slots;
    AX_TRY(ax_alloc(&slots, n, sizeof *slots));
    ax_free(v->slots);
    v->slots = slots;
    v->n_slots = n;
    memset(slots, 0xff, n * sizeof *slots);
    for (size_t id = 0; id < v->n_ids; id++) {
        const struct ax_vocab_entry *e = &v->entries[id];
        if (e->at != UINT32_MAX)
            slots[find_slot(v, v->text.data + e->at, e->len)] = (int32_t)id;
    }
    return AX_OK;
}

static enum ax_status grow_ids(struct ax_vocab *v, size_t n, size_t expected) {
    if (n > v->cap_ids) {
        size_t cap = v->cap_ids + v->cap_ids / 2;
        if (cap < n)
            cap = n;
        if (cap < expected)
            cap = expected;
        AX_TRY(ax_regrow(&v->entries, v->cap_ids, cap, sizeof *v->entries));
        v->cap_ids = cap;
    }
    for (; v->n_ids < n; v->n_ids++)
        v->entries[v->n_ids].at = UINT32_MAX;
    return AX_OK;
}

enum ax_status ax_vocab_add(struct ax_vocab *v, const char *s, size_t len, int64_t id,
                            size_t expected) {
    if (expected < v->n_tokens + 1)
        expected = v->n_tokens + 1;
    if (id < 0 || (uint64_t)id >= (uint64_t)expected * IDS_PER_TOKEN + ID_SLACK)
        return ax_error(AX_ERR_DATA,
                        "token \"%.*s\": id %lld is out of range for a vocabulary of %zu tokens",
                        (int)(len < 80 ? len : 80), s, (long long)id, expected);
    if (len > UINT32_MAX - v->text.len - 1)
        return ax_error(AX_ERR_DATA, "the vocabulary's strings exceed 4 GiB");
    AX_TRY(grow_slots(v, expected));
    size_t known;
    const char *other = ax_vocab_string(v, (int32_t)id, &known);
    if (other != NULL)
        return ax_error(AX_ERR_DATA, "tokens \"%.*s\" and \"%.*s\" have the same id %lld",
                        (int)(known < 80 ? known : 80), other, (int)(len < 80 ? len : 80), s,
                        (long long)id);
    size_t slot = find_slot(v, s, len);
    if (v->slots[slot] != AX_NO_TOKEN)
        return ax_error(AX_ERR_DATA, "token \"%.*s\" occurs twice, with ids %d and %lld",
                        (int)(len < 80 ? len : 80), s, v->slots[slot], (long long)id);
    AX_TRY(grow_ids(v, (size_t)id + 1, expected));
    v->entries[id] = (struct ax_vocab_entry){(uint32_t)v->text.len, (uint32_t)len};
    enum ax_status st = ax_buf_append(&v->text, s, len);
    if (st != AX_OK) {
        v->entries[id].at = UINT32_MAX;
        return st;
    }
    v->slots[slot] = (int32_t)id;
    v->n_tokens++;
    if (len > v->max_len)
        v->max_len = len;
    return AX_OK;
}

void ax_vocab_free(struct ax_vocab *v) {
    ax_buf_free(&v->text);
    ax_free(v->entries);
    ax_free(v->slots);
    *v = (struct ax_vocab){0};
}
