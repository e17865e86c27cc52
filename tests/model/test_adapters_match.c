/* Which adapters may take the place of another one in a running server: those with its shape, and what they differ in is
 * named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/status.h"
#include "model/adapter/adapters.h"

enum { TENSORS = 3 };

static char own[] = "own", other[] = "other";
static char names[TENSORS][40] = {"a.lora_A.weight", "a.lora_B.weight", "b.base_layer.weight"};

/* An adapter with patterns and two matrices. */
struct adapter {
    struct ax_peft peft;
    struct ax_peft_pattern ranks[2], alphas[2];
    struct ax_st_entry entries[TENSORS];
};

static void make(struct adapter *x, char *dir) {
    static char q[] = "q", v[] = "v";
    *x = (struct adapter){.ranks = {{q, 4}, {v, 2}}, .alphas = {{q, 8}, {v, 16}}};
    for (int i = 0; i < TENSORS; i++)
        x->entries[i] = (struct ax_st_entry){.name = names[i], .ndim = 2, .shape = {4, 6 + i}};
    x->peft = (struct ax_peft){.dir = dir,
                               .config = {.r = 4,
                                          .alpha = 8,
                                          .n_ranks = 2,
                                          .ranks = x->ranks,
                                          .n_alphas = 2,
                                          .alphas = x->alphas},
                               .weights = {.n = 2, .entries = x->entries}};
}

static void only_the_same_shape(void **state) {
    (void)state;
    static struct adapter here, x;
    static struct ax_adapters a = {.n = 1};
    static char z[] = "z", name[] = "a.lora_C.weight", *saved[] = {z};
    make(&here, own);
#define EXPECT(change, word)                                                                       \
    make(&x, other);                                                                               \
    change;                                                                                        \
    for (int turn = 0; turn < 2; turn++) {                                                         \
        a.pefts[0] = turn ? x.peft : here.peft;                                                    \
        const enum ax_status st = ax_adapters_match(&a, 0, turn ? &here.peft : &x.peft);           \
        const char *want = word, *text = ax_error_text();                                          \
        if ((st == AX_OK) != (want == NULL) || (want && !strstr(text, want)))                      \
            fail_msg("%s, turn %d: %s", want ? want : "the same", turn, text);                     \
        ax_error_clear();                                                                          \
    }
    EXPECT((void)0, NULL)
    EXPECT(x.peft.config.dropout = 0.5, NULL)
    EXPECT(x.peft.weights.n = 3, NULL) /* a base layer's matrix */
    EXPECT(x.peft.config.r = 8, ": r is not that of ")
    EXPECT(x.peft.config.alpha = 4, ": lora_alpha is not that of ")
    EXPECT(x.peft.config.rslora = true, ": use_rslora is not that of ")
    EXPECT(x.peft.config.dora = true, ": use_dora is not that of ")
    EXPECT(x.ranks[1].value = 3, ": rank_pattern is not that of ")
    EXPECT(x.ranks[0].pattern = z, ": rank_pattern is not that of ")
    EXPECT(x.peft.config.n_ranks = 1, ": rank_pattern is not that of ")
    EXPECT(x.alphas[0].value = 3, ": alpha_pattern is not that of ")
    EXPECT(x.alphas[1].pattern = z, ": alpha_pattern is not that of ")
    EXPECT(x.peft.config.n_alphas = 0, ": alpha_pattern is not that of ")
    EXPECT((x.peft.config.save.n = 1, x.peft.config.save.names = saved),
           ": adapters with modules_to_save cannot be replaced")
    EXPECT(x.peft.weights.n = 1, ": a.lora_B.weight is not that of ")
    EXPECT(x.entries[0].ndim = 1, ": a.lora_A.weight is not that of ")
    EXPECT(x.entries[1].shape[0] = 5, ": a.lora_B.weight is not that of ")
    EXPECT(x.entries[1].shape[1] = 5, ": a.lora_B.weight is not that of ")
    EXPECT(x.entries[1].name = name, "is not that of ")
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_same_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
