/* Lines of percent-encoded fields, as dmlprep/runtime/wire.py describes them. */
#ifndef DMLPREP_WIRE_H
#define DMLPREP_WIRE_H

#include <stddef.h>

enum { MAX_FIELDS = 64 };

/* One request line, its fields decoded in place. */
struct line
{
    char *text;
    size_t capacity;
    int count;
    char *field[MAX_FIELDS];
};

/* Reads the next line from descriptor 0. 0 at the end of the stream. */
int read_line(struct line *line);

/* Answers are collected and sent as a whole. */
void say_field(const char *text);
void say_number(long long number);
void say_end(void);
void say_flush(void);

/* A whole line of fields; the list ends with NULL. */
void say(const char *first, ...);

#endif
