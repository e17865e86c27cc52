/* The goldens of tests/goldens/ for every test. */
#ifndef TESTS_GOLDEN_FILES_H
#define TESTS_GOLDEN_FILES_H

#include <stdbool.h>
#include <stddef.h>

/* The path of a file or folder below tests/goldens, e.g. "models/llama" or
 * "lora/llama_r4/adapter_config.json"; "" is all of them. It is in a copy beside the build's test
 * programs (BUILD/goldens), where weights that follow a rule have been made, so that a model's
 * folder is as a hub would have it. Fails the test if there is no such golden. The string lives
 * until the program ends; the files are for everybody: change copies only. */
const char *golden_path(const char *name);

/* Changes a bit of the first tensor of a copied .safetensors file; once more takes it back. */
void golden_flip(const char *path);

/* golden_path outside of cmocka's tests: false with an error text (base/status.h). */
bool golden_find(const char *name, char *path, size_t size);

#endif
