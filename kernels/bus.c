#include "kernels/bus.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"

#define NVIDIA  0x10deUL
#define DISPLAY 0x03UL /* base class of VGA and 3D controllers */
#define MOST    4096   /* bytes of a file */

/* The number in a device's file; 0: there is none. */
static unsigned long number(const char *folder, const char *device, const char *file) {
    char path[512], *text;
    size_t len;
    snprintf(path, sizeof path, "%s/%s/%s", folder, device, file);
    if (ax_read_file(path, MOST, &text, &len) != AX_OK) {
        ax_error_clear();
        return 0;
    }
    const unsigned long value = strtoul(text, NULL, 16);
    ax_free(text);
    return value;
}

bool ax_bus_has_nvidia(void) {
    const char *given = getenv("AX_PCI_DEVICES");
    const char *folder = given ? given : "/sys/bus/pci/devices";
    bool found = false;
    struct ax_dir d;
    ax_dir_open(&d, folder);
    for (const char *name; !found && (name = ax_dir_next(&d)) != NULL;)
        found = number(folder, name, "vendor") == NVIDIA &&
                number(folder, name, "class") >> 16 == DISPLAY;
    ax_dir_end_or_warn(&d, AX_OK);
    return found;
}
