#include "tests/goldens/command.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cmd/args/args.h"
#include "tests/goldens/golden.h"
#include "tests/goldens/mirror.h"

typedef bool (*golden_check)(struct ax_golden_report *r, const char *dir,
                             const struct ax_golden_options *o);

static const golden_check checks[] = {ax_golden_model,      ax_golden_lora,     ax_golden_optim,
                                      ax_golden_objectives, ax_golden_sampling, ax_golden_rope,
                                      ax_golden_schedules,  ax_golden_runs,     ax_golden_packing,
                                      ax_golden_formats,    ax_golden_qat};

static const char usage[] =
    "replay DIR [--backend cpu|cuda|ref] [--dtype T] [--threads N]\n"
    "Looks in a model or adapter folder for golden/, optim.json, rope.json, schedules.json,\n"
    "packing.json or entropy.safetensors, or for\n"
    "recorded training runs (sft/, dpo/, …), which it repeats step by step, and prints the worst\n"
    "deviation of each group and its tolerance. Exit code 0 only if all checks passed and none "
    "was\n"
    "left out because a file is absent that its folder should have.\n"
    "  --backend B       cpu (default; float32, and bfloat16 if there is a bf16.json), cuda or "
    "ref\n"
    "                    (float64); far is cpu on memory that the host cannot touch\n"
    "  --dtype T         only this compute dtype\n";

static enum ax_status bad(const char *what, const char *value) {
    return ax_error(AX_ERR_CONFIG, "replay: %s%s%s; see replay --help", what, value ? " " : "",
                    value ? value : "");
}

struct request {
    const char *dir;
    struct ax_golden_options o;
    bool help;
};

static enum ax_status set_option(struct request *r, int option, const char *value) {
    char *end;
    enum ax_dtype dtype;
    switch (option) {
    case 'b':
        r->o.backend = value;
        return ax_check_backend(value);
    case 'd':
        r->o.dtype = value;
        return ax_args_dtype(value, &dtype);
    case 't':
        r->o.threads = (int)strtol(value, &end, 10);
        return *end || r->o.threads < 1 || r->o.threads > 1024
                   ? bad("--threads: expected an integer from 1 to 1024, got", value)
                   : AX_OK;
    case 'h':
        r->help = true;
        return AX_OK;
    default:
        return bad("an option is unknown, or has no value", NULL);
    }
}

static enum ax_status parse(struct request *r, int argc, char **argv) {
    static const struct option options[] = {{"backend", required_argument, NULL, 'b'},
                                            {"dtype", required_argument, NULL, 'd'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    *r = (struct request){.o = {.backend = "cpu"}};
    optind = 0; /* tests parse more than once */
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        AX_TRY(set_option(r, option, optarg));
    if (r->help)
        return AX_OK;
    if (optind == argc)
        return bad("a folder is missing", NULL);
    if (optind + 1 < argc)
        return bad("unexpected argument", argv[optind + 1]);
    r->dir = argv[optind];
    return ax_path_exists(r->dir) ? AX_OK
                                  : ax_error(AX_ERR_CONFIG, "%s: no such file or folder", r->dir);
}

enum ax_status golden_replay(int argc, char **argv) {
    struct request q;
    char made[PATH_MAX];
    AX_TRY(parse(&q, argc, argv));
    if (q.help) {
        printf("%s", usage);
        return AX_OK;
    }
    AX_TRY(golden_made(q.dir, made, sizeof made));
    struct ax_golden_report report = {0};
    bool found = false;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        found = checks[i](&report, made, &q.o) || found;
    if (!found)
        return ax_error(AX_ERR_DATA, "%s: contains no golden files that this check supports",
                        q.dir);
    printf("%d checks passed, %d failed, %d files absent\n", report.checked - report.failed,
           report.failed, report.absent);
    if (report.checked == 0)
        return ax_error(AX_ERR_DATA, "%s: nothing in it could be checked", q.dir);
    if (report.failed > 0)
        return ax_error(AX_ERR_FAILED, "%s: %d of %d checks failed", q.dir, report.failed,
                        report.checked);
    if (report.left_out > 0)
        return ax_error(AX_ERR_FAILED,
                        "%s: all checks passed, but what is absent or not supported left out "
                        "others: %d of them should be there",
                        q.dir, report.left_out);
    return AX_OK;
}
