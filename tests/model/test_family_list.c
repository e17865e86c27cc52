/* What the list of models says that a family lacks is what the code refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/gguf/model.h"
#include "model/arch/family.h"
#include "model/arch/split.h"
#include "parallel/fabric/mesh.h"

static bool lacks(const struct ax_family *f, const char *what) {
    return f->lacks && strstr(f->lacks, what) != NULL;
}

static void gguf(void **state) {
    const struct ax_family *f;
    size_t i = 0, without = 0;
    (void)state;
    for (; (f = ax_family_at(i)) != NULL; i++) {
        if (lacks(f, "GGUF") == (ax_gguf_kind_of(f->model_type) != NULL))
            fail_msg("%s", f->model_type);
        without += lacks(f, "GGUF");
    }
    assert_true(i > 30 && without > 0 && without < i / 2);
}

/* Of tiny models with the layers of published ones; their sizes may not divide, which is another error. */
static void tensor_parallelism(void **state) {
    const struct ax_family *f;
    const char *goldens = getenv("AX_TEST_GOLDENS");
    int seen = 0, without = 0;
    (void)state;
    for (size_t i = 0; (f = ax_family_at(i)) != NULL; i++) {
        struct ax_arch arch;
        struct ax_mesh mesh = {.size[AX_ROLE_TP] = 2};
        char path[512];
        snprintf(path, sizeof path, "%s/models/%s/config.json", goldens ? goldens : "tests/goldens",
                 f->model_type);
        if (ax_arch_load(&arch, path) != AX_OK)
            continue;
        const bool refused = ax_tp_check(&arch, &mesh) == AX_ERR_UNSUPPORTED;
        if (refused != lacks(f, "tensor parallelism"))
            fail_msg("%s: %s", f->model_type, refused ? ax_error_text() : "is not refused");
        seen++;
        without += refused;
        ax_arch_free(&arch);
    }
    assert_true(seen > 25 && without > 1);
}

static void each_is_named(void **state) {
    const struct ax_family *f;
    (void)state;
    for (size_t i = 0; (f = ax_family_at(i)) != NULL; i++)
        assert_true(f->models && *f->models && !strchr(f->models, '|'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf),
        cmocka_unit_test(tensor_parallelism),
        cmocka_unit_test(each_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
