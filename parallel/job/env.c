/* One row per launcher: the variables in which it gives rank, world and place on the host. */
#include "parallel/job/env.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/job/net.h"

enum { PORTS = 8, DEFAULT_PORT = 29500, LAST_PORT = 65535 };

enum { RANK, WORLD, LOCAL_RANK, LOCAL_WORLD, NUMBERS };

struct launcher {
    const char *name, *sign; /* it started this process if the variable `sign` is set */
    const char *number[NUMBERS];
    bool inner; /* it was itself started by the ones below it, whose ranks are not these */
};

#define PLAIN                                                                                      \
    { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE" }

/* The first whose sign is set counts. */
static const struct launcher launchers[] = {
    {"axtrain launch", "AXTRAIN_TOKEN_FD", PLAIN, true},
    {"torchrun", "TORCHELASTIC_RUN_ID", PLAIN, true},
    {"a launcher that sets RANK", "RANK", PLAIN, false},
    {"a launcher that sets WORLD_SIZE", "WORLD_SIZE", PLAIN, false},
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
      "OMPI_COMM_WORLD_LOCAL_SIZE"},
     true},
    /* PMI_RANK alone may be Slurm's */
    {"MPICH",
     "MPI_LOCALNRANKS",
     {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
     true},
    {"Slurm", "SLURM_PROCID", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL}, false},
};
#define N_LAUNCHERS ((int)(sizeof launchers / sizeof *launchers))

static const char *get(const char *name) {
    const char *value = name ? getenv(name) : NULL;
    return value && *value ? value : NULL;
}

/* Whether srun has started this process. A batch script, and a shell that salloc opens on a node, have
 * a rank, too, and the number of tasks that srun would start; but no step, or one that is not counted
 * from 0 (above SLURM_MAX_NORMAL_STEP_ID). */
static bool is_task(void) {
    const char *step = get("SLURM_STEP_ID");
    return step ? strtoul(step, NULL, 10) < 0xfffffff0UL : !get("SLURM_JOB_ID");
}

static bool started_by(const struct launcher *l) {
    return get(l->sign) && (strcmp(l->name, "Slurm") != 0 || is_task());
}

static enum ax_status read_int(const char *name, int min, int max, int *out) {
    char *end;
    const char *text = get(name);
    const long n = text ? strtol(text, &end, 10) : -1;
    if (!text || !isdigit((unsigned char)*text) || *end != '\0' || n < min || n > max)
        return ax_error(AX_ERR_CONFIG, "%s: expected an integer from %d to %d, got \"%.40s\"", name,
                        min, max, text ? text : "");
    *out = (int)n;
    return AX_OK;
}

static enum ax_status needs(const struct launcher *l, const char *set, const char *missing) {
    return ax_error(AX_ERR_CONFIG,
                    "%s is set, but %s is not. Set both to start ranks of a job (%s), or neither "
                    "for one rank.",
                    set, missing, l->name);
}

static enum ax_status read_numbers(const struct launcher *l, struct ax_env *e) {
    const char *rank = l->number[RANK], *world = l->number[WORLD];
    const char *local = l->number[LOCAL_RANK], *locals = l->number[LOCAL_WORLD];
    if (!get(world))
        return needs(l, rank, world);
    AX_TRY(read_int(world, 1, AX_ENV_MAX_WORLD, &e->world));
    e->world_name = world;
    if (!get(rank) && e->world > 1)
        return needs(l, world, rank);
    if (get(rank))
        AX_TRY(read_int(rank, 0, AX_ENV_MAX_WORLD - 1, &e->rank));
    if (e->rank >= e->world)
        return ax_error(AX_ERR_CONFIG, "%s is %d, but %s is %d: ranks count from 0", rank, e->rank,
                        world, e->world);
    if (get(local))
        AX_TRY(read_int(local, 0, AX_ENV_MAX_WORLD - 1, &e->local_rank));
    if (get(locals))
        AX_TRY(read_int(locals, 1, AX_ENV_MAX_WORLD, &e->local_world));
    if (e->local_world > e->world)
        return ax_error(AX_ERR_CONFIG, "%s is %d, but %s is only %d", locals, e->local_world, world,
                        e->world);
    return AX_OK;
}

/* Where two launchers that know nothing of each other both speak, they must say the same. */
static enum ax_status compare(const struct launcher *l, const struct ax_env *e,
                              const struct launcher *other) {
    struct ax_env theirs = {0};
    if (l->number[RANK] == other->number[RANK] || !started_by(other) || !get(other->number[WORLD]))
        return AX_OK;
    AX_TRY(read_numbers(other, &theirs));
    const int mine[] = {e->rank, e->world}, other_says[] = {theirs.rank, theirs.world};
    for (int i = WORLD; i >= RANK && theirs.world > 1; i--)
        if (mine[i] != other_says[i])
            return ax_error(AX_ERR_CONFIG,
                            "%s is %d, but %s is %d: two launchers contradict each other. Unset "
                            "the variables of the one that did not start this process.",
                            l->number[i], mine[i], other->number[i], other_says[i]);
    return AX_OK;
}

void ax_env_first_host(const char *list, char *out, size_t size) {
    size_t n = 0;
    for (const char *p = list; *p && *p != ',' && n + 1 < size; p++) {
        if (*p != '[') {
            out[n++] = *p;
            continue;
        }
        for (p++; isdigit((unsigned char)*p) && n + 1 < size; p++)
            out[n++] = *p;
        while (*p && *p != ']')
            p++;
        if (!*p)
            break;
    }
    out[n] = '\0';
}

int ax_env_tasks_of_node(const char *tasks, int index) {
    for (const char *p = tasks; *p; p += *p == ',') {
        char *end;
        const long n = strtol(p, &end, 10);
        long nodes = 1;
        if (end == p || n < 1 || n > AX_ENV_MAX_WORLD)
            return 0;
        if (strncmp(end, "(x", 2) == 0)
            nodes = strtol(end + 2, &end, 10);
        if (index < nodes)
            return (int)n;
        index -= (int)nodes;
        p = end + (*end == ')');
        if (*p && *p != ',')
            return 0;
    }
    return 0;
}

static const char *first_of(const char *const *names) {
    const char *value = NULL;
    for (; *names && !value; names++)
        value = get(*names);
    return value;
}

/* Names of nodes need not be names of hosts. */
static void find_slurm_host(const char *list, struct ax_env *e) {
    const char *launch = get("SLURM_LAUNCH_NODE_IPADDR");
    ax_env_first_host(list, e->host, sizeof e->host);
    snprintf(e->other_host, sizeof e->other_host, "%s", launch ? launch : "");
}

static void find_host(const struct launcher *l, struct ax_env *e) {
    static const char *const lists[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                        "SLURM_NODELIST", NULL};
    const char *list = first_of(lists);
    if (get("MASTER_ADDR"))
        snprintf(e->host, sizeof e->host, "%s", getenv("MASTER_ADDR"));
    else if (strcmp(l->name, "Slurm") == 0 && list)
        find_slurm_host(list, e);
    else if (e->local_world == 0 || e->local_world == e->world)
        snprintf(e->host, sizeof e->host, "127.0.0.1");
}

/* What a server may be told to listen on is no address at which others find it. Ranks of one host need
 * no more than the loopback interface. */
static enum ax_status replace_any(struct ax_env *e) {
    if (!ax_net_is_any(e->host))
        return AX_OK;
    if (e->local_world != e->world)
        return ax_error(
            AX_ERR_CONFIG,
            "MASTER_ADDR is %s, which stands for all interfaces of a host, and ranks of "
            "other hosts cannot reach it. Set it to the name or address of rank 0's "
            "host on all ranks, or to 127.0.0.1 if all ranks are on one host.",
            e->host);
    snprintf(e->host, sizeof e->host, "127.0.0.1");
    return AX_OK;
}

/* Ranks that know nothing of their host are all on this one if rank 0 is at a loopback address. */
static enum ax_status find_local(const struct launcher *l, struct ax_env *e) {
    static const char *const tasks[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL};
    if (strcmp(l->name, "Slurm") == 0 && first_of(tasks)) {
        int node = 0;
        if (get("SLURM_NODEID"))
            AX_TRY(read_int("SLURM_NODEID", 0, AX_ENV_MAX_WORLD, &node));
        e->local_world = ax_env_tasks_of_node(first_of(tasks), node);
    }
    const bool all_here = ax_net_says_loopback(e->host);
    if (e->local_world == 0)
        e->local_world = all_here ? e->world : 1;
    if (!get(l->number[LOCAL_RANK]))
        e->local_rank = all_here ? e->rank : 0;
    if (e->local_rank >= e->local_world || e->local_world > e->world)
        return ax_error(AX_ERR_CONFIG,
                        "%s is %d, but this host has only %d of the job's %d ranks (%s)",
                        l->number[LOCAL_RANK], e->local_rank, e->local_world, e->world,
                        l->number[LOCAL_WORLD] ? l->number[LOCAL_WORLD] : tasks[0]);
    if (*e->host == '\0')
        return ax_error(AX_ERR_CONFIG,
                        "MASTER_ADDR is not set, and %s does not say where rank 0 is: set it to "
                        "that host's name or address on all ranks",
                        l->name);
    return AX_OK;
}

/* torchrun's agent listens on MASTER_PORT itself. */
static enum ax_status find_port(struct ax_env *e) {
    const char *agent = get("TORCHELASTIC_USE_AGENT_STORE"), *job = get("SLURM_JOB_ID");
    e->ports = PORTS;
    e->port = DEFAULT_PORT;
    if (get("AXTRAIN_PORT")) {
        e->ports = 1;
        return read_int("AXTRAIN_PORT", 1, LAST_PORT, &e->port);
    }
    if (get("MASTER_PORT")) {
        const bool taken = !e->served && agent && strcmp(agent, "True") == 0;
        AX_TRY(read_int("MASTER_PORT", 1, LAST_PORT - taken, &e->port));
        e->port += taken;
        const int left = e->served ? 1 : LAST_PORT - e->port + 1;
        e->ports = left < PORTS ? left : PORTS;
    } else if (job) {
        e->port = 20000 + (int)(strtoul(job, NULL, 10) % 1000) * PORTS;
    }
    return AX_OK;
}

static void find_job(struct ax_env *e) {
    static const char *const names[] = {"TORCHELASTIC_RUN_ID",   "TORCHELASTIC_RESTART_COUNT",
                                        "SLURM_JOB_ID",          "SLURM_STEP_ID",
                                        "SLURM_RESTART_COUNT",   "OMPI_MCA_ess_base_jobid",
                                        "AXTRAIN_RESTART_COUNT", NULL};
    enum { LAUNCHED = 6 }; /* our launcher knows only the last */
    for (int i = e->served ? LAUNCHED : 0; names[i]; i++) {
        const size_t n = strlen(e->job);
        const char *value = get(names[i]);
        snprintf(e->job + n, sizeof e->job - n, "%s%s", n > 0 ? "/" : "", value ? value : "");
    }
}

static enum ax_status read_job(struct ax_env *e) {
    const struct launcher *l = NULL;
    *e = (struct ax_env){.world = 1, .local_world = 0};
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (l && !l->inner)
            AX_TRY(compare(l, e, &launchers[i]));
        if (l || !started_by(&launchers[i]))
            continue;
        l = &launchers[i];
        AX_TRY(read_numbers(l, e));
    }
    if (!l || e->world == 1) {
        e->local_world = 1;
        e->launcher = l ? l->name : NULL;
        return AX_OK;
    }
    e->launcher = l->name;
    e->served = l == &launchers[0];
    find_host(l, e);
    AX_TRY(find_local(l, e));
    AX_TRY(replace_any(e));
    find_job(e);
    return find_port(e);
}

enum ax_status ax_env_read(struct ax_env *e) {
    AX_TRY(read_job(e));
    e->place = e->local_rank;
    if (e->launcher == launchers[0].name && get("AXTRAIN_PLACE"))
        return read_int("AXTRAIN_PLACE", 0, AX_ENV_MAX_WORLD, &e->place);
    return AX_OK;
}
