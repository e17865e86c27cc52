#include "tests/goldens/command.h"

#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "cmd/args.h"
#include "tests/goldens/golden.h"

typedef bool (*golden_check)(struct ax_golden_report *r, const char *dir,
                             const struct ax_golden_options *o);

static const golden_check checks[] = {ax_golden_model,      ax_golden_lora,     ax_golden_optim,
                                      ax_golden_objectives, ax_golden_sampling, ax_golden_rope,
                                      ax_golden_schedules,  ax_golden_lm_eval,  ax_golden_runs,
                                      ax_golden_packing,    ax_golden_formats,  ax_golden_qat};

enum ax_status golden_replay(int argc, char **argv) {
    struct ax_golden_options o = {.backend = "cpu"};
    int64_t threads = 0;
    struct ax_arg_list models = {0};
    const struct ax_arg args[] = {
        {"--backend", AX_ARG_STRING, &o.backend, 0, 0},
        {"--dtype", AX_ARG_STRING, &o.dtype, 0, 0},
        {"--threads", AX_ARG_INT, &threads, 1, 1024},
        {"--model", AX_ARG_LIST, &models, 0, 0},
    };
    const char *dir;
    int n;
    AX_TRY(ax_args_parse(argc, argv, 4, args, 1, 1, &dir, &n));
    o.threads = (int)threads;
    enum ax_dtype dtype;
    if (o.dtype)
        AX_TRY(ax_args_dtype(o.dtype, &dtype));
    o.models = &models;
    AX_TRY(ax_check_backend(o.backend));
    if (!ax_path_exists(dir))
        return ax_error(AX_ERR_CONFIG, "%s: no such file or folder", dir);
    struct ax_golden_report report = {0};
    bool found = false;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        found = checks[i](&report, dir, &o) || found;
    if (!found)
        return ax_error(AX_ERR_DATA, "%s: contains no golden files that this check supports", dir);
    printf("%d checks passed, %d failed, %d files absent\n", report.checked - report.failed,
           report.failed, report.absent);
    if (report.checked == 0)
        return ax_error(AX_ERR_DATA, "%s: nothing in it could be checked", dir);
    if (report.failed > 0)
        return ax_error(AX_ERR_FAILED, "%s: %d of %d checks failed", dir, report.failed,
                        report.checked);
    return AX_OK;
}
