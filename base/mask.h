/* Tokens in texts that people see: an error quotes the value that it is about. */
#ifndef AX_BASE_MASK_H
#define AX_BASE_MASK_H

/* Replaces what follows hf_, ghp_, github_pat_ or sk- in tokens by ***, in place. */
void ax_mask_tokens(char *text);

#endif
