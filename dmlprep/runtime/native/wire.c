/* Lines of percent-encoded fields on descriptors 0 and 1. */
#include "wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *out;
static size_t out_used, out_capacity;
static int in_line;

static void put(char c)
{
    if (out_used == out_capacity)
    {
        out_capacity = out_capacity ? out_capacity * 2 : 4096;
        if (!(out = realloc(out, out_capacity)))
            _exit(12);
    }
    out[out_used++] = c;
}

void say_field(const char *text)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/:=,+()[]$?*@#!<>_.-~";
    static const char digits[] = "0123456789ABCDEF";
    const unsigned char *c;

    if (in_line)
        put(' ');
    in_line = 1;
    if (!text || !*text)
        put('%');
    else
        for (c = (const unsigned char *)text; *c; c++)
        {
            if (strchr(plain, *c))
                put((char)*c);
            else
            {
                put('%');
                put(digits[*c >> 4]);
                put(digits[*c & 15]);
            }
        }
}

void say_number(long long number)
{
    char text[32];

    snprintf(text, sizeof(text), "%lld", number);
    say_field(text);
}

void say_end(void)
{
    put('\n');
    in_line = 0;
}

void say(const char *first, ...)
{
    va_list list;
    const char *field;

    say_field(first);
    va_start(list, first);
    while ((field = va_arg(list, const char *)))
        say_field(field);
    va_end(list);
    say_end();
}

void say_flush(void)
{
    size_t done = 0;

    while (done < out_used)
    {
        ssize_t written = write(1, out + done, out_used - done);
        if (written <= 0)
            _exit(13); /* nobody listens any more */
        done += (size_t)written;
    }
    out_used = 0;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

static void decode(char *field)
{
    char *from = field, *to = field;

    for (; *from; from++)
    {
        if (*from != '%')
            *to++ = *from;
        else if (hex(from[1]) >= 0 && hex(from[2]) >= 0)
        {
            *to++ = (char)(hex(from[1]) * 16 + hex(from[2]));
            from += 2;
        }
    }
    *to = 0;
}

int read_line(struct line *line)
{
    static char buffer[65536];
    static size_t begin, end;
    size_t used = 0;
    char *next;

    for (;;)
    {
        if (begin == end)
        {
            ssize_t got = read(0, buffer, sizeof(buffer));
            if (got <= 0)
                return 0;
            begin = 0;
            end = (size_t)got;
        }
        if (used + 1 >= line->capacity)
        {
            line->capacity = line->capacity ? line->capacity * 2 : 4096;
            if (!(line->text = realloc(line->text, line->capacity)))
                _exit(12);
        }
        if (buffer[begin] == '\n')
        {
            begin++;
            break;
        }
        line->text[used++] = buffer[begin++];
    }
    line->text[used] = 0;

    line->count = 0;
    for (next = line->text; next && line->count < MAX_FIELDS;)
    {
        line->field[line->count++] = next;
        if ((next = strchr(next, ' ')))
            *next++ = 0;
    }
    for (int i = 0; i < line->count; i++)
        decode(line->field[i]);
    return 1;
}
