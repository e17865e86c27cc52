/* Which smaller meshes an elastic job could go on with (cmd/train/elastic.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "cmd/train/elastic.h"

static const struct {
    struct ax_mesh_sizes sizes; /* pp, dp_replicate, dp_shard, cp, tp, ep */
    struct ax_elastic_batch batch;
    const char *meshes; /* "RANKS: WORDS; " of each */
} cases[] = {
    {{1, 4, 1, 1, 1, 1},
     {1, "gradient_accumulation_steps", 1, 0},
     "2: dp_replicate_size=2 dp_shard_size=1 gradient_accumulation_steps=2; "
     "1: dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=4; "},
    {{1, 2, 2, 1, 1, 1}, /* copies first */
     {3, "gradient_accumulation_steps", 1, 0},
     "3: dp_replicate_size=1 dp_shard_size=3 gradient_accumulation_steps=4; "
     "2: dp_replicate_size=1 dp_shard_size=2 gradient_accumulation_steps=6; "
     "1: dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=12; "},
    {{2, 1, 4, 1, 2, 1}, /* other sizes stay */
     {1, "batch_size", 8, 0},
     "8: dp_replicate_size=1 dp_shard_size=2 batch_size=16; "
     "4: dp_replicate_size=1 dp_shard_size=1 batch_size=32; "},
    {{1, 2, 4, 1, 1, 4}, /* experts need four ranks that shard */
     {1, "gradient_accumulation_steps", 1, 0},
     "4: dp_replicate_size=1 dp_shard_size=4 gradient_accumulation_steps=2; "},
    {{1, 3, 1, 1, 1, 1},
     {2, "gradient_accumulation_steps", 1, 4},
     "2: dp_replicate_size=2 dp_shard_size=1 gradient_accumulation_steps=3 "
     "trl.steps_per_generation=6; "
     "1: dp_replicate_size=1 dp_shard_size=1 gradient_accumulation_steps=6 "
     "trl.steps_per_generation=12; "},
    {{1, 1, 1, 1, 4, 1}, {1, "gradient_accumulation_steps", 1, 0}, ""},
};

static void smaller_meshes_have_the_same_batch(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_notes_mesh meshes[AX_NOTES_MESHES];
        char text[1024] = "";
        const int n = ax_elastic_meshes(&cases[i].sizes, &cases[i].batch, AX_NOTES_MESHES, meshes);
        for (int k = 0; k < n; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%d: %s; ", meshes[k].ranks,
                     meshes[k].words);
        assert_string_equal(text, cases[i].meshes);
    }
}

/* Of more than the launcher can be told, the largest. */
static void the_largest_of_many(void **state) {
    (void)state;
    const struct ax_mesh_sizes sizes = {1, 1, 1024, 1, 1, 1};
    const struct ax_elastic_batch batch = {5354228, "gradient_accumulation_steps", 1, 0};
    struct ax_notes_mesh meshes[4];
    assert_int_equal(ax_elastic_meshes(&sizes, &batch, 4, meshes), 4);
    for (int k = 1; k < 4; k++)
        assert_true(meshes[k].ranks < meshes[k - 1].ranks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smaller_meshes_have_the_same_batch),
        cmocka_unit_test(the_largest_of_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
