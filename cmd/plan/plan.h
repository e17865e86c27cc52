/* `axtrain plan`: what is printed of a plan (optim/forecast/figures.h). print.c is for a person, json.c for programs. */
#ifndef AX_CMD_PLAN_PLAN_H
#define AX_CMD_PLAN_PLAN_H

#include "optim/forecast/figures.h"

/* The command's words, or a config's. */
struct ax_plan_words {
    struct ax_plan_request plan;
    const char *name, *masters, *optimizer;
    const char *output_dir; /* for a configuration */
    const char *uncounted;  /* why the data are not counted; NULL = they are */
    bool streamed;          /* why: their length is unknown */
    bool json, blocks;
};

void ax_plan_print(const struct ax_plan_words *w, const struct ax_plan_figures *f);
enum ax_status ax_plan_print_json(const struct ax_plan_words *w, const struct ax_plan_figures *f);
/* Prints the fastest meshes; AX_ERR_CONFIG if none fits. */
enum ax_status ax_plan_search(const struct ax_plan_request *r);

#endif
