/* The arrays of rows that the sections are made of; private to config_keys*.c. */
#ifndef AX_CMD_CONFIG_KEYS_H
#define AX_CMD_CONFIG_KEYS_H

#include "cmd/config_table.h"

extern const struct ax_config_key ax_config_keys_model[];
extern const size_t ax_config_n_keys_model;
extern const struct ax_config_key ax_config_keys_tokenizer[];
extern const size_t ax_config_n_keys_tokenizer;
extern const struct ax_config_key ax_config_keys_datasets[];
extern const size_t ax_config_n_keys_datasets;
extern const struct ax_config_key ax_config_keys_packing[];
extern const size_t ax_config_n_keys_packing;
extern const struct ax_config_key ax_config_keys_steps[];
extern const size_t ax_config_n_keys_steps;
extern const struct ax_config_key ax_config_keys_eval[];
extern const size_t ax_config_n_keys_eval;
extern const struct ax_config_key ax_config_keys_save[];
extern const size_t ax_config_n_keys_save;
extern const struct ax_config_key ax_config_keys_precision[];
extern const size_t ax_config_n_keys_precision;
extern const struct ax_config_key ax_config_keys_kernels[];
extern const size_t ax_config_n_keys_kernels;
extern const struct ax_config_key ax_config_keys_optim[];
extern const size_t ax_config_n_keys_optim;
extern const struct ax_config_key ax_config_keys_schedule[];
extern const size_t ax_config_n_keys_schedule;
extern const struct ax_config_key ax_config_keys_adapter[];
extern const size_t ax_config_n_keys_adapter;
extern const struct ax_config_key ax_config_keys_rl[];
extern const size_t ax_config_n_keys_rl;
extern const struct ax_config_key ax_config_keys_rl_other[];
extern const size_t ax_config_n_keys_rl_other;
extern const struct ax_config_key ax_config_keys_quant[];
extern const size_t ax_config_n_keys_quant;
extern const struct ax_config_key ax_config_keys_mesh[];
extern const size_t ax_config_n_keys_mesh;
extern const struct ax_config_key ax_config_keys_log[];
extern const size_t ax_config_n_keys_log;
extern const struct ax_config_key ax_config_keys_plugins[];
extern const size_t ax_config_n_keys_plugins;
extern const struct ax_config_key ax_config_keys_removed[];
extern const size_t ax_config_n_keys_removed;

#endif
