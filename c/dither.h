/* Dither's device side in C99: docs/reference/protocol.md, version 1. No dependency but the C library. Functions that
 * return int return 1, or 0 to refuse. The locale must write decimal points as "." (the default of a C program).
 * Storing what was answered is the application's part: see "What a client stores" on the page. */
#ifndef DITHER_H
#define DITHER_H

#include <stddef.h>
#include <stdint.h>

#define DITHER_ANNOUNCEMENT_BYTES (8u << 20)
#define DITHER_BODY_BYTES (1u << 20)
#define DITHER_REPORT_BYTES 16384u
#define DITHER_DRAW_BYTES (1u << 20)
#define DITHER_QUESTION_ATTRIBUTES 52 /* each has two answers or more, and cells are below 2^53 */
#define DITHER_ALL_QUESTIONS 65535u

/* A JSON text as an array of nodes in the order of the text. The first child of a node is node + 1, the node after
 * a node and its children is node + node->span. The children of an object are key, value, key, value, ... */
enum { DITHER_NULL, DITHER_FALSE, DITHER_TRUE, DITHER_NUMBER, DITHER_STRING, DITHER_LIST, DITHER_OBJECT };

typedef struct {
    int type;
    uint32_t span, count; /* nodes in all; entries of a list or members of an object */
    const char *text;     /* of a string, resolved and in UTF-8; of a number, its characters */
    size_t length;
    double number;
} dither_node;

typedef struct {
    dither_node *nodes;
    uint32_t used, room;
    char *pool;
} dither_json;

int dither_parse(dither_json *json, const char *text, size_t length);
void dither_json_free(dither_json *json);
const dither_node *dither_member(const dither_node *object, const char *key); /* NULL if there is none */

void dither_sha256(const void *data, size_t length, unsigned char digest[32]);

typedef struct {
    uint64_t kind, cells, threshold_bits;
    uint64_t first, second, third, fourth; /* the members in the page's order; first: how many sets a strategy has */
    uint64_t report_bytes, draw_bytes;
    const dither_node *node; /* of a strategy, for its lists: it must outlive the mechanism */
} dither_mechanism;

int dither_mechanism_read(dither_mechanism *m, const dither_node *node);
int dither_epsilon(const dither_mechanism *m, double *epsilon);
int dither_randomise(const dither_mechanism *m, int64_t cell, const unsigned char *draws, size_t count,
                     unsigned char *report);
int dither_check_report(const dither_mechanism *m, const unsigned char *report, size_t length);

typedef struct {
    const dither_node *node;
    int kind, missing, clip;
    double *edges, *atoms; /* days and seconds for times */
    uint32_t edge_count, atom_count, answers, group_count, *groups; /* the number of each answer's group */
} dither_attribute;

typedef struct {
    dither_mechanism mechanism;
    uint32_t count;
    uint16_t attributes[DITHER_QUESTION_ATTRIBUTES], sorted[DITHER_QUESTION_ATTRIBUTES];
    uint64_t grouped; /* bit i: the i-th attribute */
    int rounded;
} dither_question;

typedef struct {
    dither_json json;
    unsigned char campaign[16];
    char fingerprint[65];
    double epsilon, start, population, plan_epsilon;
    int open, split, arrival; /* open: there is a plan */
    uint32_t round, attribute_count, question_count;
    dither_attribute *attributes;
    dither_question *questions;
    double *shares;
} dither_announcement;

int dither_announcement_read(dither_announcement *a, const char *text, size_t length);
void dither_announcement_free(dither_announcement *a);

int dither_attribute_read(dither_attribute *a, const dither_node *node);
void dither_attribute_free(dither_attribute *a);
int64_t dither_code(const dither_attribute *a, const dither_node *value); /* -1 outside the domain */
int64_t dither_level(const dither_attribute *a, const dither_node *value, uint64_t levels, uint32_t draw);
uint64_t dither_width(const dither_question *q, uint32_t place, const dither_attribute *a);
int64_t dither_group(const dither_question *q, uint32_t place, const dither_attribute *a, int64_t code);

double dither_place(const unsigned char token[32], const unsigned char campaign[16]);
int dither_is_asked(const unsigned char token[32], const unsigned char campaign[16], double start, double population);
uint32_t dither_pick(const unsigned char token[32], const unsigned char campaign[16], uint32_t round,
                     const double *shares, uint32_t count);
void dither_report_id(const unsigned char token[32], const unsigned char campaign[16], uint32_t round,
                      unsigned char id[32]); /* round UINT32_MAX: the one id of an arrival campaign */
void dither_token_hash(const unsigned char token[32], unsigned char hash[32]);

/* Append one report to an envelope of `count` reports and `*length` bytes; the first call begins it. */
int dither_envelope_add(unsigned char *envelope, size_t *length, const unsigned char campaign[16], int64_t round,
                        const unsigned char token[32], int64_t question, const unsigned char *payload, size_t size);

/* Fills `count` bytes from the operating system's generator; 0 if it cannot. */
typedef int (*dither_random)(void *context, unsigned char *bytes, size_t count);

/* The envelope of this participant's report to the open round, in DITHER_BODY_BYTES of room; 0 if the round does
 * not ask, or random bytes fail. `record` is an object of values by attribute name. */
size_t dither_answer(const dither_announcement *a, const unsigned char token[32], const dither_node *record,
                     dither_random random, void *context, unsigned char *envelope);

enum { DITHER_WAITING, DITHER_ACKNOWLEDGED, DITHER_ANSWERED, DITHER_REFUSED };
int dither_verdict(int status, const char *content_type, const char *body, size_t length);

#endif
