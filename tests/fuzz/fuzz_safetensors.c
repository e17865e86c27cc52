/* safetensors: any bytes give tensors that cover the data exactly, or an error that names the file;
 * nothing stays allocated. Blind flips die at the header length, so most mutations rewrite the JSON
 * header (its text, a number, a type) or the size of the data, and fix the length. */
#include <stdio.h>
#include <string.h>

#include "ckpt/hf/safetensors.h"
#include "tests/fuzz/mutate.h"

static void check_entry(const struct ax_st_entry *e, const unsigned char *bytes, size_t size) {
    AX_ASSERT(e->ndim >= 0 && e->ndim <= AX_ST_MAX_DIMS && e->dtype < AX_DTYPE_COUNT);
    int64_t numel = 1;
    for (int d = 0; d < e->ndim; d++) {
        AX_ASSERT(e->shape[d] >= 0);
        numel *= numel == 0 ? 0 : e->shape[d];
    }
    AX_ASSERT(numel == e->numel && (size_t)numel * ax_dtype_size(e->dtype) == e->bytes);
    const unsigned char *data = e->data;
    AX_ASSERT(data >= bytes && data + e->bytes <= bytes + size);
}

static void check_tensors(const struct ax_safetensors *st, const unsigned char *bytes,
                          size_t size) {
    size_t covered = 0;
    for (int i = 0; i < st->n; i++) {
        const struct ax_st_entry *e = &st->entries[i];
        check_entry(e, bytes, size);
        covered += e->bytes;
        AX_ASSERT(i == 0 || strcmp(st->entries[i - 1].name, e->name) < 0);
        AX_ASSERT(ax_safetensors_find(st, e->name) == e);
    }
    uint64_t header = 0;
    memcpy(&header, bytes, sizeof header);
    AX_ASSERT(8 + header + covered == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_safetensors st;
    const enum ax_status status = ax_safetensors_parse(&st, "f.st", data, size);
    if (status == AX_OK) {
        check_tensors(&st, data, size);
    } else {
        AX_ASSERT(status == AX_ERR_DATA || status == AX_ERR_UNSUPPORTED);
        AX_ASSERT(strncmp(ax_error_text(), "f.st:", 5) == 0);
        AX_ASSERT(st.n == 0 && st.entries == NULL);
    }
    ax_safetensors_close(&st);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}

/* A file taken apart: its header, and the number of data bytes (their values do not matter). */
#define MAX_DATA 4096
struct parts {
    struct fuzz_text header;
    size_t data;
};

static void take_apart(struct parts *p, const uint8_t *bytes, size_t size) {
    uint64_t claimed = 0;
    if (size >= 8) {
        memcpy(&claimed, bytes, sizeof claimed);
        bytes += 8;
        size -= 8;
    }
    const size_t len = claimed < size ? (size_t)claimed : size;
    p->data = size - len < MAX_DATA ? size - len : MAX_DATA;
    fuzz_text_set(&p->header, bytes, len);
}

static size_t put_together(const struct parts *p, uint8_t *bytes, size_t max_size) {
    const uint64_t len = p->header.len;
    if (8 + len + p->data > max_size)
        return 0;
    memcpy(bytes, &len, 8);
    memcpy(bytes + 8, p->header.text, len);
    memset(bytes + 8 + len, 0, p->data);
    return 8 + len + p->data;
}

static void change_type(struct parts *p, unsigned random) {
    static const char *const types[] = {"F64", "F32", "F16",  "BF16",    "I64", "I32",
                                        "I8",  "U8",  "BOOL", "F8_E4M3", "U64"};
    const unsigned count = sizeof types / sizeof *types;
    size_t n;
    const size_t at =
        fuzz_text_run(&p->header, "BFIUEMOL0123456789_", random / count, &n); /* or a number */
    fuzz_text_replace(&p->header, at, n, n > 0 ? types[random % count] : "");
}

/* One more tensor behind the others, so that headers of many tensors come about. */
static void add_tensor(struct parts *p, unsigned random) {
    char entry[128];
    const size_t bytes = random % 5;
    const char *end = strrchr(p->header.text, '}');
    if (end != NULL && p->data + bytes <= MAX_DATA) {
        snprintf(entry, sizeof entry,
                 "%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                 p->header.len > 2 ? "," : "", random / 8, bytes, p->data, p->data + bytes);
        fuzz_text_replace(&p->header, (size_t)(end - p->header.text), 0, entry);
        p->data += bytes;
    }
}

/* A few data bytes more or less. */
static void change_data(struct parts *p, unsigned random) {
    const size_t by = random / 2 % 9;
    if (random % 2 == 0)
        p->data -= by < p->data ? by : p->data;
    else if (p->data + by <= MAX_DATA)
        p->data += by;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static struct parts p;
    const unsigned random = seed / 8;
    take_apart(&p, data, size);
    switch (seed % 8) {
    case 0:
        return LLVMFuzzerMutate(data, size, max_size);
    case 1:
    case 2:
        fuzz_text_flip(&p.header);
        break;
    case 3:
    case 4:
        fuzz_text_change_number(&p.header, random);
        break;
    case 5:
        change_type(&p, random);
        break;
    case 6:
        add_tensor(&p, random);
        break;
    default:
        change_data(&p, random);
        break;
    }
    const size_t made = put_together(&p, data, max_size);
    return made > 0 ? made : LLVMFuzzerMutate(data, size, max_size);
}
