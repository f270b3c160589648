/* A device's side of the Dither protocol (docs/reference/protocol.md), for C99.
 *
 * Functions that can fail return 0 on failure, with nothing left to free. Reports are randomised here; time,
 * storage and transport belong to the application. */
#ifndef DITHER_H
#define DITHER_H

#include <stddef.h>
#include <stdint.h>

#define DITHER_ANNOUNCEMENT_BYTES 8388608 /* the longest announcement */
#define DITHER_ANSWER_BYTES 65536         /* the longest other answer */
#define DITHER_BODY_BYTES 1048576         /* the longest envelope */
#define DITHER_REPORT_BYTES 16384
#define DITHER_QUESTION_ATTRIBUTES 52 /* each has at least two codes, and together below 2^53 */

enum { DITHER_NULL, DITHER_FALSE, DITHER_TRUE, DITHER_NUMBER, DITHER_STRING, DITHER_LIST, DITHER_OBJECT };

/* A JSON value. Those inside a list or object follow it: the first at node + 1, the next one after `span` nodes. */
typedef struct {
    int type;
    uint32_t count, span;       /* entries; nodes, itself among them */
    const char *key, *text;     /* a member's name; a decoded string, or a number as written */
    uint32_t key_length, length; /* in bytes: strings may contain zeros, and end with one more */
    double number;
} dither_node;

typedef struct {
    dither_node *nodes; /* the first is the whole text */
    uint32_t used, room;
    char *text;
} dither_json;

int dither_parse(dither_json *json, const char *text, size_t length);
void dither_json_free(dither_json *json);
const dither_node *dither_member(const dither_node *object, const char *key); /* NULL if absent */

/* A mechanism. It refers to the JSON that it was read from. */
typedef struct {
    int kind;
    int width;           /* bytes of a draw */
    int64_t cells, total; /* total: 2^threshold_bits */
    int64_t own[4];      /* its own members, in the order of the protocol's table */
    const dither_node *list[4]; /* the same; `strategy` has lists */
    int64_t distance;    /* bloom: the largest number of bits in which two filters differ */
    int64_t covering;    /* subset; for square-wave the peak */
    int code_bits;       /* hadamard */
    unsigned char identity[32]; /* a hash of its canonical text */
    size_t report_bytes, draw_bytes;
} dither_mechanism;

int dither_mechanism_read(dither_mechanism *m, const dither_node *node);
int dither_epsilon(const dither_mechanism *m, double *epsilon);
int dither_randomise(const dither_mechanism *m, int64_t cell, const unsigned char *random, size_t count,
                     unsigned char *report);
int dither_check_report(const dither_mechanism *m, const unsigned char *report, size_t length);

typedef struct {
    int kind, missing, clip, weekday, hour;
    uint32_t answers, groups; /* groups: 0 if it has none */
    uint32_t *group;          /* of each answer */
    const dither_node *values;
    uint32_t boundaries; /* of the line */
    double first, last;  /* edges */
    double *boundary;
    int64_t *at, *after; /* cells of each boundary and of the gap after it; -1: none */
} dither_attribute;

int dither_attribute_read(dither_attribute *a, const dither_node *node);
void dither_attribute_free(dither_attribute *a);
int64_t dither_code(const dither_attribute *a, const dither_node *value); /* -1: none */
int64_t dither_level(const dither_attribute *a, const dither_node *value, uint64_t levels, uint32_t draw);

typedef struct {
    uint16_t attribute[DITHER_QUESTION_ATTRIBUTES]; /* places in the schema */
    uint32_t attributes;
    uint64_t grouped; /* bit i: the i-th attribute's groups are asked */
    int rounded;
    dither_mechanism mechanism;
} dither_question;

uint64_t dither_width(const dither_question *q, uint32_t i, const dither_attribute *a);
int64_t dither_group(const dither_question *q, uint32_t i, const dither_attribute *a, int64_t code);

typedef struct {
    dither_json json;
    unsigned char campaign[16];
    char fingerprint[65];
    double epsilon, plan_epsilon, start, population;
    int arrival, split, open; /* open: there is a plan */
    uint32_t attribute_count, question_count, round;
    dither_attribute *attributes;
    dither_question *questions;
    double *shares; /* unless split */
} dither_announcement;

int dither_announcement_read(dither_announcement *a, const char *text, size_t length);
void dither_announcement_free(dither_announcement *a);

double dither_place(const unsigned char *token, const unsigned char *campaign);
int dither_is_asked(const unsigned char *token, const unsigned char *campaign, double start, double population);
uint32_t dither_pick(const unsigned char *token, const unsigned char *campaign, uint32_t round, const double *shares,
                     uint32_t count);
/* The receipt; `round` is UINT32_MAX if the announcement says `arrival`. */
void dither_report_id(const unsigned char *token, const unsigned char *campaign, uint32_t round, unsigned char *id);
void dither_token_hash(const unsigned char *token, unsigned char *hash);

/* Fills `bytes` with `count` bytes of the operating system's generator; 0 if it cannot. */
typedef int (*dither_source)(void *context, unsigned char *bytes, size_t count);

/* The envelope with this participant's report in `out`, of DITHER_BODY_BYTES: its length, 0 if the open round does
 * not ask this token or the source fails. `record` is an object of values by attribute name. */
size_t dither_answer(const dither_announcement *a, const unsigned char *token, const dither_node *record,
                     dither_source source, void *context, unsigned char *out);
/* Add a report to an envelope of `*length` bytes, 0 at first; question -1 means all of a split plan. */
int dither_envelope_add(unsigned char *out, size_t *length, const unsigned char *campaign, int64_t round,
                        const unsigned char *token, int64_t question, const unsigned char *payload, size_t size);

enum { DITHER_WAITING, DITHER_ACKNOWLEDGED, DITHER_ANSWERED, DITHER_REFUSED };
int dither_verdict(int status, const char *content_type, const char *body, size_t length);

#endif
