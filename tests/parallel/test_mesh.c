/* The mesh: who is in whose group, for every role, against a brute-force statement of the layout.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/fabric/mesh.h"
#include "parallel/fabric/mesh_sizes.h"

#define MAX_WORLD 60 /* a set of ranks is a 64-bit mask */

static const struct ax_mesh_sizes meshes[] = {
    {1, 1, 1, 1, 1, 1}, {1, 1, 4, 1, 1, 1}, {2, 1, 1, 1, 1, 1},  {1, 2, 1, 1, 1, 1},
    {1, 1, 1, 2, 1, 1}, {1, 1, 1, 1, 2, 1}, {1, 1, 4, 1, 1, 2},  {1, 1, 2, 1, 4, 8},
    {2, 1, 2, 1, 2, 1}, {1, 2, 2, 2, 2, 4}, {2, 2, 2, 2, 2, 2},  {3, 1, 2, 1, 5, 10},
    {1, 3, 1, 2, 3, 6}, {2, 1, 6, 1, 2, 3}, {5, 1, 3, 2, 2, 12}, {1, 1, 60, 1, 1, 15},
};
#define N_MESHES ((int)(sizeof meshes / sizeof *meshes))

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

/* Coordinates of every rank, by walking the layouts of mesh.h with nested loops. */
struct place {
    int pp, rep, shard, cp, tp; /* dense view */
    int efsdp, ep;              /* expert view: [pp][rep][efsdp][ep] */
};
static void walk(const struct ax_mesh_sizes *s, struct place *of) {
    int rank = 0;
    for (int pp = 0; pp < s->pp; pp++)
        for (int rep = 0; rep < s->dp_replicate; rep++)
            for (int shard = 0; shard < s->dp_shard; shard++)
                for (int cp = 0; cp < s->cp; cp++)
                    for (int tp = 0; tp < s->tp; tp++)
                        of[rank++] = (struct place){pp, rep, shard, cp, tp, 0, 0};
    const int efsdp_size = s->dp_shard * s->cp * s->tp / s->ep;
    rank = 0;
    for (int i = 0; i < s->pp * s->dp_replicate; i++)
        for (int efsdp = 0; efsdp < efsdp_size; efsdp++)
            for (int ep = 0; ep < s->ep; ep++, rank++) {
                of[rank].efsdp = efsdp;
                of[rank].ep = ep;
            }
}

/* Same group: equal in everything that the role does not vary. */
static bool together(enum ax_role role, const struct place *a, const struct place *b) {
    const bool pp = a->pp == b->pp, rep = a->rep == b->rep, shard = a->shard == b->shard;
    const bool cp = a->cp == b->cp, tp = a->tp == b->tp;
    switch (role) {
    case AX_ROLE_TP:
        return pp && rep && shard && cp;
    case AX_ROLE_CP:
        return pp && rep && shard && tp;
    case AX_ROLE_DP_SHARD:
        return pp && rep && cp && tp;
    case AX_ROLE_DP_REPLICATE:
        return pp && shard && cp && tp;
    case AX_ROLE_PP:
        return rep && shard && cp && tp;
    case AX_ROLE_EP:
        return pp && rep && a->efsdp == b->efsdp;
    case AX_ROLE_EFSDP:
        return pp && rep && a->ep == b->ep;
    case AX_ROLE_FSDP:
        return pp && rep && tp;
    case AX_ROLE_BATCH:
        return pp && cp && tp;
    case AX_ROLE_LOSS:
        return pp && tp;
    case AX_ROLE_WORLD:
        return true;
    case AX_ROLE_COUNT:
        break;
    }
    return false;
}

/* What a sum of 2^rank over each group must give. */
static void groups_are_those_of_the_layout(void **state) {
    (void)state;
    int checked = 0;
    for (int m = 0; m < N_MESHES; m++) {
        struct place of[MAX_WORLD] = {0};
        const int world = world_of(&meshes[m]);
        walk(&meshes[m], of);
        for (int rank = 0; rank < world; rank++) {
            struct ax_mesh mesh;
            assert_int_equal(ax_mesh_create(&mesh, meshes[m], world, rank), AX_OK);
            for (enum ax_role role = 0; role < AX_ROLE_COUNT; role++) {
                int ranks[MAX_WORLD] = {0}, members = 0;
                uint64_t expected = 0, sum = 0;
                for (int r = 0; r < world; r++) {
                    const bool in = together(role, &of[rank], &of[r]);
                    expected += in ? UINT64_C(1) << r : 0;
                    members += in;
                }
                assert_int_equal(mesh.size[role], members);
                ax_mesh_group(&mesh, role, ranks);
                for (int i = 0; i < members; i++) {
                    sum += UINT64_C(1) << ranks[i];
                    assert_true(i == 0 || ranks[i - 1] < ranks[i]);
                }
                assert_true(sum == expected);
                assert_int_equal(ranks[mesh.coord[role]], rank);
                checked++;
            }
        }
    }
    print_message("%d groups in %d meshes\n", checked, N_MESHES);
}

static void a_rank_has_its_place_in_every_dimension(void **state) {
    (void)state;
    for (int m = 0; m < N_MESHES; m++) {
        struct place of[MAX_WORLD] = {0};
        const int world = world_of(&meshes[m]);
        walk(&meshes[m], of);
        for (int rank = 0; rank < world; rank++) {
            struct ax_mesh mesh;
            assert_int_equal(ax_mesh_create(&mesh, meshes[m], world, rank), AX_OK);
            assert_int_equal(mesh.world, world);
            assert_int_equal(mesh.rank, rank);
            assert_int_equal(mesh.coord[AX_ROLE_PP], of[rank].pp);
            assert_int_equal(mesh.coord[AX_ROLE_DP_REPLICATE], of[rank].rep);
            assert_int_equal(mesh.coord[AX_ROLE_DP_SHARD], of[rank].shard);
            assert_int_equal(mesh.coord[AX_ROLE_CP], of[rank].cp);
            assert_int_equal(mesh.coord[AX_ROLE_TP], of[rank].tp);
            assert_int_equal(mesh.coord[AX_ROLE_EP], of[rank].ep);
            assert_int_equal(mesh.coord[AX_ROLE_EFSDP], of[rank].efsdp);
            assert_int_equal(mesh.coord[AX_ROLE_FSDP], of[rank].shard * meshes[m].cp + of[rank].cp);
            assert_int_equal(mesh.coord[AX_ROLE_WORLD], rank);
        }
    }
}

static void the_shard_size_is_what_is_left(void **state) {
    (void)state;
    for (int m = 0; m < N_MESHES; m++) {
        struct ax_mesh mesh;
        struct ax_mesh_sizes sizes = meshes[m];
        sizes.dp_shard = -1;
        assert_int_equal(ax_mesh_create(&mesh, sizes, world_of(&meshes[m]), 0), AX_OK);
        assert_int_equal(mesh.size[AX_ROLE_DP_SHARD], meshes[m].dp_shard);
        assert_int_equal(mesh.size[AX_ROLE_FSDP], meshes[m].dp_shard * meshes[m].cp);
    }
}

static void refusals_name_sizes_and_a_legal_choice(void **state) {
    (void)state;
    static const struct {
        struct ax_mesh_sizes sizes;
        int world, rank;
        const char *says;
    } bad[] = {
        {{1, 1, 1, 1, 0, 1}, 1, 0, "mesh: tp = 0, but sizes must be at least 1"},
        {{-1, 1, 1, 1, 1, 1}, 1, 0, "mesh: pp = -1, but sizes must be at least 1"},
        {{1, 1, 1, 1, 1, 0}, 1, 0, "mesh: ep = 0"},
        {{1, 1, 1, 1, 1, 1}, 8, 8, "mesh: rank 8 of 8 ranks does not exist"},
        {{1, 1, 1, 1, 1, 1}, 8, -1, "mesh: rank -1 of 8 ranks does not exist"},
        {{1, 1, 1, 1, 1, 1}, 0, 0, "mesh: rank 0 of 0 ranks does not exist"},
        {{1, 1, 2, 1, 2, 1},
         8,
         0,
         "mesh: pp 1 × dp_replicate 1 × dp_shard 2 × cp 1 × tp 2 does not equal the number of "
         "ranks, 8. "
         "Nearest: dp_shard 4 with 8 ranks."},
        {{1, 1, -1, 1, 3, 1},
         8,
         0,
         "tp 3 does not equal the number of ranks, 8. Nearest: dp_shard 2 with 6"},
        {{1, 1, -1, 1, 16, 1}, 8, 0, "Nearest: dp_shard 1 with 16 ranks."},
        {{1, 1, 0, 1, 2, 1}, 8, 0, "Nearest: dp_shard 4 with 8 ranks."},
        {{1, 1, -7, 1, 2, 1}, 8, 0, "dp_shard -7"},
        {{1, 1, 8, 1, 1, 3},
         8,
         0,
         "mesh: ep 3 does not divide dp_shard 8 × cp 1 × tp 1 = 8. Nearest: ep 2."},
        {{1, 1, 6, 1, 1, 9}, 6, 0, "= 6. Nearest: ep 6."},
        {{1 << 30, 1 << 30, 1 << 30, 1 << 30, 1 << 30, 1},
         8,
         0,
         "does not equal the number of ranks, 8"},
        {{1 << 16, 1 << 16, 1 << 16, 1 << 16, 1, 1},
         65536,
         0,
         "does not equal the number of ranks, 65536"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_mesh mesh;
        assert_int_equal(ax_mesh_create(&mesh, bad[i].sizes, bad[i].world, bad[i].rank),
                         AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), bad[i].says))
            fail_msg("expected \"%s\" in \"%s\"", bad[i].says, ax_error_text());
    }
}

/* The choice that a refusal names must be accepted. */
static void the_nearest_choice_is_legal(void **state) {
    (void)state;
    int tried = 0;
    for (int world = 1; world <= 24; world++) {
        for (int tp = 1; tp <= 9; tp++) {
            for (int ep = 1; ep <= 9; ep++) {
                struct ax_mesh mesh;
                struct ax_mesh_sizes sizes = {1, 1, -1, 1, tp, ep};
                int use = world;
                for (int again = 0; again < 3; again++) {
                    if (ax_mesh_create(&mesh, sizes, use, 0) == AX_OK)
                        break;
                    assert_in_range(again, 0, 1); /* at most: shard, then ep */
                    const char *near = strstr(ax_error_text(), "Nearest: ");
                    assert_non_null(near);
                    if (sscanf(near, "Nearest: dp_shard %d with %d", &sizes.dp_shard, &use) != 2)
                        assert_int_equal(sscanf(near, "Nearest: ep %d", &sizes.ep), 1);
                    tried++;
                }
            }
        }
    }
    print_message("%d refusals followed\n", tried);
    assert_true(tried > 500);
}

static void roles_have_names(void **state) {
    (void)state;
    for (enum ax_role a = 0; a < AX_ROLE_COUNT; a++) {
        assert_true(strlen(ax_role_name(a)) > 0);
        for (enum ax_role b = 0; b < a; b++)
            assert_string_not_equal(ax_role_name(a), ax_role_name(b));
    }
}

/* On a command line, and in the names of folders and ranks. */
static void sizes_are_written_and_read(void **state) {
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {"tp=0", "check: tp=0: expected a size from 1 to 1024"},
        {"tp=1025", "check: tp=1025: expected a size from 1 to 1024"},
        {"tp=2x", "check: tp=2x: expected a size from 1 to 1024"},
        {"tp=", "check: tp=: expected a size"},
        {"cp=2,tp=-1", "check: tp=-1: expected a size"},
        {"tp", "check: \"tp\" is not a mesh size. Sizes are pp="},
        {"t=2", "check: \"t=2\" is not a mesh size"},
        {"tp2=2", "check: \"tp2=2\" is not a mesh size"},
        {"tp=2,", "check: \"\" is not a mesh size"},
        {"tp=2,cp=2,tp=4", "check: tp=2: this size is given twice"},
    };
    const struct ax_mesh_sizes ones = {1, 1, 1, 1, 1, 1};
    struct ax_mesh_sizes s = ones;
    struct ax_mesh mesh;
    char buf[64], small[8];
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(ax_mesh_sizes_parse(&s, "check", wrong[i].text), AX_ERR_CONFIG);
        if (strncmp(ax_error_text(), wrong[i].says, strlen(wrong[i].says)) != 0)
            fail_msg("%s: %s", wrong[i].text, ax_error_text());
    }
    int world;
    assert_int_equal(ax_mesh_sizes_parse(&s, "check", "pp=2,dp_replicate=3,dp_shard=5,cp=7,tp=11"),
                     AX_OK);
    assert_int_equal(ax_mesh_sizes_world(&s, "check", &world), AX_OK);
    assert_int_equal(world, 2310);
    assert_int_equal(ax_mesh_sizes_parse(&s, "check", "dp_shard=1024,cp=1024,tp=1024"), AX_OK);
    assert_int_equal(ax_mesh_sizes_world(&s, "check", &world), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "check: these sizes are 6442450944 ranks"));
    s = ones;
    assert_int_equal(ax_mesh_create(&mesh, s, 1, 0), AX_OK);
    assert_string_equal(ax_mesh_sizes_name(buf, sizeof buf, &mesh), "");
    assert_string_equal(ax_mesh_rank_name(buf, sizeof buf, &mesh), "");
    assert_int_equal(ax_mesh_sizes_parse(&s, "check", "tp=1024"), AX_OK);
    assert_int_equal(s.tp, 1024);
    assert_int_equal(ax_mesh_sizes_parse(&s, "check", "pp=2,tp=2,dp_shard=3,cp=1,ep=6"), AX_OK);
    assert_int_equal(ax_mesh_create(&mesh, s, 12, 9), AX_OK);
    assert_string_equal(ax_mesh_sizes_name(buf, sizeof buf, &mesh), "pp2-dp_shard3-tp2-ep6");
    assert_string_equal(ax_mesh_rank_name(buf, sizeof buf, &mesh), "pp1 dp_shard1 tp1 ep3");
    assert_string_equal(ax_mesh_sizes_name(small, sizeof small, &mesh), "pp2-dp_");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_those_of_the_layout),
        cmocka_unit_test(a_rank_has_its_place_in_every_dimension),
        cmocka_unit_test(the_shard_size_is_what_is_left),
        cmocka_unit_test(refusals_name_sizes_and_a_legal_choice),
        cmocka_unit_test(the_nearest_choice_is_legal),
        cmocka_unit_test(roles_have_names),
        cmocka_unit_test(sizes_are_written_and_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
