/* Sequences of tokens on which a quantization is calibrated and compared: the examples of a
 * configuration's data sets, packed in order. */
#ifndef AX_CMD_TRAIN_DATA_CALIBRATION_ROWS_H
#define AX_CMD_TRAIN_DATA_CALIBRATION_ROWS_H

#include "cmd/config/config.h"
#include "model/quantize/layers.h"

#define AX_CALIBRATION_ROWS_MOST (1 << 20)

/* At most `most` rows calibrate, up to AX_CALIBRATION_ROWS_MOST, and an eighth as many measure; 0: none
 * calibrates, and all of up to 128 rows measure. AX_ERR_DATA if there are none. */
enum ax_status ax_calibration_rows_read(struct ax_calibration_rows *r, const struct ax_config *cfg,
                                        int64_t most);
void ax_calibration_rows_free(struct ax_calibration_rows *r); /* safe on a zeroed one */

/* The configuration to read records of a file with: its tokenizer is the model's, `type` that of
 * datasets, NULL = chat_template. If the file is a configuration itself, that one. */
enum ax_status ax_calibration_config(struct ax_config *cfg, const char *model, const char *file,
                                     const char *type);

#endif
