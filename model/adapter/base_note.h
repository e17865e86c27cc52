/* Which base an adapter was trained on: a note in its folder, for another base of the same shape would take
 * it, too, and answer nonsense. */
#ifndef AX_CKPT_HF_BASE_NOTE_H
#define AX_CKPT_HF_BASE_NOTE_H

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"

#define AX_BASE_NOTE   "axtrain_base.json"
#define AX_BASE_VALUES 17 /* bytes of a checksum as text */

/* A checksum of the first values of every tensor. */
enum ax_status ax_base_values(const struct ax_hf *hf, char out[AX_BASE_VALUES]);
/* The note's text, with that checksum, and what ax_arch.score_pad was in training (−1: not noted), for the folder has no
 * config.json that could say so. ax_free. */
enum ax_status ax_base_note_text(const struct ax_hf *hf, const char *name, int32_t score_pad,
                                 char **out);
/* Reads that; *score_pad stays as it is if the adapter has no note of it. */
enum ax_status ax_base_note_score_pad(const struct ax_peft *peft, int32_t *score_pad);
/* AX_ERR_CONFIG if the adapter's note is of another base than the folder `base`, unless AXTRAIN_BASE=any is in
 * the environment. A base with quantized weights has other values, and adapters of other programs have no
 * note: their config's base_model_name_or_path and their vocabulary (vocabulary_note.h) are compared, for
 * warnings. */
enum ax_status ax_base_note_check(const char *base, const struct ax_peft *peft);

#endif
