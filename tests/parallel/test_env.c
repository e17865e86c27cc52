/* What launchers set, and what this process makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/job/env.h"

enum { MAX_SET = 12 };

/* "NAME=value" … */
static void set_only(const char *const *variables) {
    clearenv();
    for (int i = 0; i < MAX_SET && variables[i]; i++) {
        char name[64];
        const char *equals = strchr(variables[i], '=');
        memcpy(name, variables[i], (size_t)(equals - variables[i]));
        name[equals - variables[i]] = '\0';
        assert_int_equal(setenv(name, equals + 1, 1), 0);
    }
}

/* As each launcher starts a rank of a job with more than one host, or with one. */
static const struct {
    const char *set[MAX_SET];
    const char *launcher, *host;
    int rank, world, local_rank, local_world, port, ports;
    bool served;
} good[] = {
    {.set = {NULL}, .launcher = NULL, .host = "", .world = 1, .local_world = 1},
    {.set = {"WORLD_SIZE=1"},
     .launcher = "a launcher that sets WORLD_SIZE",
     .host = "",
     .world = 1,
     .local_world = 1},
    {.set = {"TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_USE_AGENT_STORE=True", "RANK=5",
             "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=node-a",
             "MASTER_PORT=29400"},
     .launcher = "torchrun",
     .host = "node-a",
     .rank = 5,
     .world = 8,
     .local_rank = 1,
     .local_world = 4,
     .port = 29401,
     .ports = 8},
    {.set = {"TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_USE_AGENT_STORE=False", "RANK=0",
             "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=localhost",
             "MASTER_PORT=29400", "AXTRAIN_PORT=4711"},
     .launcher = "torchrun",
     .host = "localhost",
     .world = 2,
     .local_world = 2,
     .port = 4711,
     .ports = 1},
    /* what a server would listen on: on one host, loopback is enough */
    {.set = {"TORCHELASTIC_RUN_ID=none", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1",
             "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=0.0.0.0", "MASTER_PORT=29400"},
     .launcher = "torchrun",
     .host = "127.0.0.1",
     .rank = 1,
     .world = 2,
     .local_rank = 1,
     .local_world = 2,
     .port = 29400,
     .ports = 8},
    {.set = {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
             "OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR=::"},
     .launcher = "Open MPI",
     .host = "127.0.0.1",
     .world = 2,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
    /* by hand, on this host */
    {.set = {"RANK=1", "WORLD_SIZE=2"},
     .launcher = "a launcher that sets RANK",
     .host = "127.0.0.1",
     .rank = 1,
     .world = 2,
     .local_rank = 1,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
    /* by hand, one rank per host */
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=5000"},
     .launcher = "a launcher that sets RANK",
     .host = "10.0.0.1",
     .rank = 1,
     .world = 2,
     .local_world = 1,
     .port = 5000,
     .ports = 8},
    {.set = {"AXTRAIN_TOKEN_FD=5", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2",
             "MASTER_ADDR=10.0.0.1", "MASTER_PORT=5000"},
     .launcher = "axtrain launch",
     .host = "10.0.0.1",
     .rank = 3,
     .world = 4,
     .local_rank = 1,
     .local_world = 2,
     .port = 5000,
     .ports = 1,
     .served = true},
    {.set = {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=0",
             "OMPI_COMM_WORLD_LOCAL_SIZE=2", "MASTER_ADDR=a"},
     .launcher = "Open MPI",
     .host = "a",
     .rank = 2,
     .world = 4,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
    /* mpirun in a Slurm job: Slurm's tasks are its daemons */
    {.set = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
             "OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_ID=0"},
     .launcher = "Open MPI",
     .host = "127.0.0.1",
     .rank = 1,
     .world = 2,
     .local_rank = 1,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
    {.set = {"SLURM_PROCID=4", "SLURM_NTASKS=5", "SLURM_LOCALID=0", "SLURM_NODEID=2",
             "SLURM_STEP_TASKS_PER_NODE=2(x2),1", "SLURM_STEP_NODELIST=gpu[007-009]",
             "SLURM_NODELIST=gpu[001-009]", "SLURM_JOB_ID=12003", "SLURM_STEP_ID=0"},
     .launcher = "Slurm",
     .host = "gpu007",
     .rank = 4,
     .world = 5,
     .local_world = 1,
     .port = 20024,
     .ports = 8},
    /* a batch script is no task, whatever --ntasks is */
    {.set = {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_JOB_ID=7"},
     .launcher = NULL,
     .host = "",
     .world = 1,
     .local_world = 1},
    /* nor is the shell that salloc opens on a node */
    {.set = {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_JOB_ID=7",
             "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_ID=4294967290"},
     .launcher = NULL,
     .host = "",
     .world = 1,
     .local_world = 1},
    /* torchrun in a Slurm job, one agent per host */
    {.set = {"TORCHELASTIC_RUN_ID=x", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1",
             "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29400", "SLURM_PROCID=1",
             "SLURM_NTASKS=2", "SLURM_STEP_ID=0"},
     .launcher = "torchrun",
     .host = "n1",
     .rank = 3,
     .world = 4,
     .local_rank = 1,
     .local_world = 2,
     .port = 29400,
     .ports = 8},
    /* mpirun of MPICH or Intel MPI, which srun has started on the nodes of a job */
    {.set = {"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "MASTER_ADDR=a",
             "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0"},
     .launcher = "MPICH",
     .host = "a",
     .rank = 3,
     .world = 4,
     .local_rank = 1,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
    {.set = {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2"},
     .launcher = "MPICH",
     .host = "127.0.0.1",
     .rank = 1,
     .world = 2,
     .local_rank = 1,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
    /* srun --mpi=pmi2 */
    {.set = {"PMI_RANK=1", "PMI_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_STEP_ID=0",
             "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_NODEID=1",
             "SLURM_JOB_ID=7"},
     .launcher = "Slurm",
     .host = "n1",
     .rank = 1,
     .world = 2,
     .local_world = 1,
     .port = 20056,
     .ports = 8},
    /* the last ports */
    {.set = {"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=65533"},
     .launcher = "a launcher that sets RANK",
     .host = "127.0.0.1",
     .world = 2,
     .local_world = 2,
     .port = 65533,
     .ports = 3},
    {.set = {"AXTRAIN_TOKEN_FD=5", "RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
             "MASTER_ADDR=127.0.0.1", "MASTER_PORT=65535"},
     .launcher = "axtrain launch",
     .host = "127.0.0.1",
     .world = 2,
     .local_world = 2,
     .port = 65535,
     .ports = 1,
     .served = true},
    /* both say the same: an sbatch script that translates */
    {.set = {"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=n1", "SLURM_PROCID=1", "SLURM_NTASKS=2",
             "SLURM_STEP_ID=0"},
     .launcher = "a launcher that sets RANK",
     .host = "n1",
     .rank = 1,
     .world = 2,
     .local_world = 1,
     .port = 29500,
     .ports = 8},
    /* a shell that srun gave, and ranks started by hand in it */
    {.set = {"RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_STEP_ID=0"},
     .launcher = "a launcher that sets RANK",
     .host = "127.0.0.1",
     .rank = 1,
     .world = 2,
     .local_rank = 1,
     .local_world = 2,
     .port = 29500,
     .ports = 8},
};

static void launchers_are_understood(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct ax_env e;
        set_only(good[i].set);
        if (ax_env_read(&e) != AX_OK)
            fail_msg("%zu: %s", i, ax_error_text());
        if (good[i].launcher)
            assert_string_equal(e.launcher, good[i].launcher);
        else
            assert_null(e.launcher);
        assert_string_equal(e.host, good[i].host);
        const int got[] = {e.rank, e.world, e.local_rank, e.local_world, e.port, e.ports, e.served};
        const int expected[] = {good[i].rank,        good[i].world, good[i].local_rank,
                                good[i].local_world, good[i].port,  good[i].ports,
                                good[i].served};
        for (size_t k = 0; k < sizeof got / sizeof *got; k++)
            if (got[k] != expected[k])
                fail_msg("case %zu, number %zu: %d, not %d", i, k, got[k], expected[k]);
    }
}

static const struct {
    const char *set[MAX_SET], *text;
} bad[] = {
    {{"WORLD_SIZE=2"}, "WORLD_SIZE is set, but RANK is not"},
    {{"RANK=0"}, "RANK is set, but WORLD_SIZE is not"},
    {{"SLURM_PROCID=1"}, "SLURM_PROCID is set, but SLURM_NTASKS is not"},
    {{"RANK=2", "WORLD_SIZE=2"}, "RANK is 2, but WORLD_SIZE is 2: ranks count from 0"},
    {{"RANK=-1", "WORLD_SIZE=2"}, "RANK: expected an integer from 0 to 65535, got \"-1\""},
    {{"RANK= 1", "WORLD_SIZE=2"}, "RANK: expected an integer"},
    {{"RANK=1x", "WORLD_SIZE=2"}, "RANK: expected an integer"},
    {{"RANK=1", "WORLD_SIZE=0"}, "WORLD_SIZE: expected an integer from 1 to 65536, got \"0\""},
    {{"RANK=1", "WORLD_SIZE=99999999999999999999"}, "WORLD_SIZE: expected an integer"},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=65536"},
     "LOCAL_RANK: expected an integer from 0 to 65535, got \"65536\""},
    {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"},
     "LOCAL_RANK is 2, but this host has only 2 of the job's 4 ranks (LOCAL_WORLD_SIZE)"},
    {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=4"},
     "LOCAL_WORLD_SIZE is 4, but WORLD_SIZE is only 2"},
    {{"RANK=0", "WORLD_SIZE=4", "SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_STEP_ID=0"},
     "RANK is 0, but SLURM_PROCID is 3: two launchers contradict each other"},
    {{"RANK=0", "WORLD_SIZE=1", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_STEP_ID=0"},
     "WORLD_SIZE is 1, but SLURM_NTASKS is 4: two launchers contradict each other"},
    {{"RANK=1", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
     "WORLD_SIZE is 4, but OMPI_COMM_WORLD_SIZE is 2: two launchers contradict each other"},
    {{"RANK=0", "WORLD_SIZE=2", "MASTER_PORT=0"},
     "MASTER_PORT: expected an integer from 1 to 65535, got \"0\""},
    {{"TORCHELASTIC_RUN_ID=x", "TORCHELASTIC_USE_AGENT_STORE=True", "RANK=0", "WORLD_SIZE=2",
      "MASTER_PORT=65535"},
     "MASTER_PORT: expected an integer from 1 to 65534, got \"65535\""},
    {{"RANK=0", "WORLD_SIZE=2", "AXTRAIN_PORT=65536"},
     "AXTRAIN_PORT: expected an integer from 1 to 65535"},
    {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
     "MASTER_ADDR is not set, and Open MPI does not say where rank 0 is"},
    {{"RANK=0", "WORLD_SIZE=4", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=0.0.0.0"},
     "MASTER_ADDR is 0.0.0.0, which stands for all interfaces of a host"},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=0"},
     "Set it to the name or address of rank 0's host on all ranks, or to 127.0.0.1 if"},
    {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=0:0::0"}, "MASTER_ADDR is 0:0::0, which stands for"},
};

static void mistakes_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ax_env e;
        set_only(bad[i].set);
        const enum ax_status st = ax_env_read(&e);
        if (st != AX_ERR_CONFIG || !strstr(ax_error_text(), bad[i].text))
            fail_msg("%zu: %d %s", i, st, st ? ax_error_text() : "");
    }
}

/* A second job, or the same one again, is another job. */
static void jobs_differ(void **state) {
    (void)state;
    static const char *const base[] = {"RANK=0", "WORLD_SIZE=2", NULL};
    static const char *const more[][2] = {
        {"TORCHELASTIC_RUN_ID", "7"}, {"SLURM_RESTART_COUNT", "1"}, {"AXTRAIN_RESTART_COUNT", "1"}};
    struct ax_env one, other;
    set_only(base);
    assert_int_equal(ax_env_read(&one), AX_OK);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        set_only(base);
        setenv(more[i][0], more[i][1], 1);
        assert_int_equal(ax_env_read(&other), AX_OK);
        assert_string_not_equal(one.job, other.job);
    }
}

static void node_lists_are_read(void **state) {
    (void)state;
    static const char *const lists[][2] = {{"n1", "n1"},
                                           {"n1,n2", "n1"},
                                           {"n[3-5,8]", "n3"},
                                           {"n[012-015]x", "n012x"},
                                           {"r[1-2]n[04,07]", "r1n04"},
                                           {"", ""},
                                           {"n[", "n"},
                                           {"a.b-c,d[1]", "a.b-c"},
                                           {"n[1", "n1"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char host[16];
        ax_env_first_host(lists[i][0], host, sizeof host);
        assert_string_equal(host, lists[i][1]);
    }
    char small[4];
    ax_env_first_host("abcdef[12]", small, sizeof small);
    assert_string_equal(small, "abc");
    ax_env_first_host("n[123]", small, sizeof small);
    assert_string_equal(small, "n12");
    static const struct {
        const char *text;
        int index, tasks;
    } tasks[] = {{"2", 0, 2},       {"2", 1, 0},       {"2(x3),1", 0, 2}, {"2(x3),1", 2, 2},
                 {"2(x3),1", 3, 1}, {"2(x3),1", 4, 0}, {"", 0, 0},        {"x", 0, 0},
                 {"1,2,3", 1, 2},   {"0", 0, 0},       {"2(x", 1, 0},     {"4(x2);1", 2, 0}};
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        assert_int_equal(ax_env_tasks_of_node(tasks[i].text, tasks[i].index), tasks[i].tasks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launchers_are_understood),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(jobs_differ),
        cmocka_unit_test(node_lists_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
