/* What the parts of the client share. The names follow docs/reference/protocol.md. */
#ifndef DITHER_INTERNAL_H
#define DITHER_INTERNAL_H

#include "dither.h"

#define each(entry, list) \
    (const dither_node *entry = (list) + 1; entry < (list) + (list)->span; entry += entry->span)

int dither_is(const dither_node *n, int type); /* NULL is of no type */
int dither_is_number(const dither_node *n);
int dither_is_whole(const dither_node *n);
int dither_is_absent(const dither_node *n);
int dither_is_word(const dither_node *n, const char *words); /* one of some words with spaces between them */
int dither_has_only(const dither_node *o, const char *must, const char *may); /* an object of these members */
int dither_is_text(const dither_node *n, size_t most, int lines); /* most 0: of any length and any characters */
int dither_rises(const dither_node *list, uint32_t least);
int dither_compare(const dither_node *a, const dither_node *b);
uint32_t dither_number_entries(const dither_node *list, uint32_t *numbers);
int dither_fingerprint(const dither_node *schema, char hex[65]);

enum { GRR, SUE, OUE, OLH, BLOOM, SUBSET, HADAMARD, SQUARE_WAVE, STRATEGY };
int dither_compare_mechanisms(const void *x, const void *y); /* 0 if they are equal */
uint64_t dither_bits(uint64_t n);
uint64_t dither_get(const unsigned char *p, uint64_t count);
void dither_put(unsigned char *p, uint64_t n, uint64_t count);
double dither_round_up(long double x);

enum { BOOLEAN, CATEGORICAL, ORDINAL, NUMERIC, DURATION, DATE, DATETIME };
#define LAST_SECOND (2932531.0 * 86400) /* 9998-12-31 */
int dither_instant(const dither_node *n, double *seconds);

#endif
