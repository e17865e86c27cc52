/* What a hub may answer: header lines, lists of files, cards of data sets. The first byte chooses.
 * Whatever comes, accepted paths stay below their folder and names are checksums. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/net/http.h"
#include "ckpt/hf/shards.h"
#include "ckpt/hub/hub.h"
#include "data/records/rows/find.h"
#include "data/records/rows/pattern.h"

static void check(bool holds) {
    if (!holds)
        abort();
}

static bool is_ended(const char *field, size_t size) {
    return memchr(field, '\0', size) != NULL && !strpbrk(field, "\r\n");
}

static void read_head(const char *text, size_t n) {
    struct ax_http_head h = {0};
    for (const char *end = text + n; text < end;) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const size_t line = newline ? (size_t)(newline - text) + 1 : (size_t)(end - text);
        ax_http_head_line(&h, text, line);
        text += line;
    }
    check(is_ended(h.location, sizeof h.location) && is_ended(h.next, sizeof h.next) &&
          is_ended(h.etag, sizeof h.etag) && is_ended(h.linked_etag, sizeof h.linked_etag) &&
          is_ended(h.repo_commit, sizeof h.repo_commit) &&
          is_ended(h.error_code, sizeof h.error_code) &&
          is_ended(h.error_message, sizeof h.error_message));
    check(h.status >= 0 && h.status <= 999 && h.length >= -1 && h.linked_size >= -1 &&
          h.range_from >= -1 && h.range_total >= -1);
}

/* The second page is the first one's second half. */
static void read_list(const char *text, size_t n) {
    struct ax_hub_list l = {0};
    if (ax_hub_list_parse(&l, "list", text, n) == AX_OK && n > 1)
        (void)ax_hub_list_parse(&l, "list", text + n / 2, n - n / 2);
    for (size_t i = 0; i < l.n; i++) {
        const char *path = l.files[i].path, *blob = l.files[i].blob;
        check(path[0] != '/' && strncmp(path, "../", 3) != 0 && !strstr(path, "/../") &&
              !strchr(path, '\\') && strlen(path) <= AX_HUB_PATH_MAX);
        check(strspn(blob, "0123456789abcdef") == strlen(blob) && strlen(blob) >= 40);
    }
    ax_hub_list_free(&l);
}

static void read_card(const char *text, size_t n) {
    static const char *const names[] = {"README.md",       "data/train-00000-of-00001.parquet",
                                        "main/test.jsonl", "main/train.jsonl",
                                        "other/a.csv",     "x.py"};
    struct ax_card card;
    struct ax_found f = {0};
    struct ax_rows_options o = {.path = "o/n"};
    bool in[64];
    if (ax_card_parse(&card, "README.md", text, n) != AX_OK)
        return;
    o.name = card.n > 0 ? card.configs[card.n - 1].name : "main";
    if (ax_rows_choose(&f, &o, names, 6, &card, n % 2 == 0) == AX_OK && f.n <= 64)
        (void)ax_found_in_split(&f, "o/n", "train", true, in);
    ax_found_free(&f);
    ax_card_free(&card);
}

static void read_names(const char *text, size_t n) {
    char *a = malloc(n + 1);
    memcpy(a, text, n);
    a[n] = '\0';
    const size_t half = strlen(a) / 2;
    int number, of;
    (void)ax_path_match(a + half, a);
    if (ax_hf_is_shard(a, &number, &of))
        check(number >= 1 && number <= of);
    if (ax_hub_is_path(a))
        check(a[0] && a[0] != '/' && !strstr(a, "//"));
    if (ax_hub_is_id(a) || ax_hub_is_revision(a))
        check(!strstr(a, "..") && a[0] != '/');
    free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const readers[])(const char *, size_t) = {read_head, read_list, read_card,
                                                            read_names};
    if (size > 0)
        readers[data[0] % 4]((const char *)data + 1, size - 1);
    return 0;
}
